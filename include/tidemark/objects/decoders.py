"""Objects of the archive as rows, whatever their kind: the key's end tells which decoder reads it.

A new kind is one more row of ``_DECODERS``. Parquet is not among them, because Spark reads that itself, in the JVM.
"""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import zstandard

from tidemark.core.errors import FormatError, PositionError
from tidemark.core.offsets import OffsetRange
from tidemark.objects.body import ObjectBody
from tidemark.objects.connect import decode_connect, is_connect_key
from tidemark.objects.footer import TRAILER_BYTES, parse_trailer
from tidemark.objects.jsonl import decode_lines
from tidemark.s3 import ObjectStore

BATCH_ROWS = 10_000
BATCH_BYTES = 8 * 1024 * 1024
READ_BYTES = 1024 * 1024
# Bytes of an object in, batches of SCHEMA out, in offset order. Memory: a batch and what is read ahead.
Raw: TypeAlias = "io.BufferedReader[ObjectBody]"
Plain = gzip.GzipFile | zstandard.ZstdDecompressionReader
Decoder = Callable[[ObjectBody], Iterator[pa.RecordBatch]]


def decoded(key: str) -> bool:
    """Whether a decoder reads objects of such a key; else they are Parquet."""
    return _decoder(key) is not None


def read_rows(store: ObjectStore, key: str, wanted: OffsetRange) -> Iterator[pa.RecordBatch] | None:
    """The object's rows with offsets in ``wanted``, as batches of SCHEMA; None where there is no object.

    Reads no further than it must. Raises FormatError, naming key and line, for an object whose content is damaged,
    PositionError for rows out of offset order, and ServiceError where S3 refuses.
    """
    decode = _decoder(key)
    assert decode is not None, f"asked only where decoded() holds, not for {key}"
    body = ObjectBody(store, key, tail_bytes=TRAILER_BYTES)
    return _trimmed(decode, body, wanted) if body.open() else None


def _decoder(key: str) -> Decoder | None:
    if is_connect_key(key):  # first: such an object may be Parquet, of the values alone
        return decode_connect
    return next((decoder for suffix, decoder in _DECODERS.items() if key.endswith(suffix)), None)


def _trimmed(decode: Decoder, body: ObjectBody, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    last = -1
    with body:
        for batch in decode(body):
            offsets = batch.column("offset").to_numpy()
            if offsets[0] <= last or (np.diff(offsets) <= 0).any():
                raise PositionError(
                    "rows of a data object are out of order",
                    expected=f"offsets ascending from {last + 1}",
                    found=f"{offsets[0]} to {offsets[-1]} in {len(offsets)} rows",
                    where=body.key,
                )
            last = int(offsets[-1])
            start, end = np.searchsorted(offsets, [wanted.start, wanted.end])
            if start < end:
                yield batch.slice(start, end - start)
            if end < len(offsets):
                return  # not at wanted.end - 1: an object that is wanted whole is read, and compared, to its end


def _json_lines(
    suffix: str, errors: tuple[type[Exception], ...], decompress: Callable[[Raw], Plain], body: ObjectBody
) -> Iterator[pa.RecordBatch]:
    """The archive's own JSON Lines, compared with what the trailer says once they are read to the end."""
    rows, first, last = 0, -1, -1
    lines = _lines(body.key, errors, decompress(io.BufferedReader(body, READ_BYTES)))
    for some in lines:
        batch = decode_lines(some, where=body.key, first_line=rows + 1)
        offsets = batch.column("offset")
        first, last = (first if rows else offsets[0].as_py()), offsets[-1].as_py()
        rows += batch.num_rows
        yield batch
    footer = parse_trailer(body.tail, suffix, where=f"{body.key}, line {rows + 1}")
    if (rows, first, last) != (footer.rows, footer.first_offset, footer.last_offset):
        raise FormatError(
            "a data object is not what its trailer says",
            expected=footer,
            found=f"{rows} rows, offsets {first} to {last}",
            where=f"{body.key}, line {rows}",
        )


def _lines(key: str, errors: tuple[type[Exception], ...], plain: Plain) -> Iterator[list[bytes]]:
    """The lines, some at a time."""
    reader = io.BufferedReader(plain, READ_BYTES)
    before = 0
    while True:
        lines: list[bytes] = []
        size = 0
        try:
            for line in reader:
                lines.append(line)
                size += len(line)
                if len(lines) >= BATCH_ROWS or size >= BATCH_BYTES:
                    break
        except errors as error:
            raise FormatError(
                "a data object cannot be decompressed",
                expected="what its name says",
                found=repr(error),
                where=f"{key}, line {before + len(lines) + 1}",
            ) from error
        if not lines:
            return
        yield lines
        before += len(lines)


def _gunzip(raw: Raw) -> Plain:
    return gzip.GzipFile(fileobj=raw, mode="rb")


def _unzstd(raw: Raw) -> Plain:
    return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)


_DECODERS: dict[str, Decoder] = {
    ".jsonl.gz": partial(_json_lines, ".gz", (gzip.BadGzipFile, EOFError, zlib.error), _gunzip),
    ".jsonl.zst": partial(_json_lines, ".zst", (zstandard.ZstdError,), _unzstd),
}
