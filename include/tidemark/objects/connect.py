"""Objects of Kafka Connect as values: one record after the other, never the whole object in memory.

The lines of ``.json`` and ``.bin`` objects are the values, byte for byte. A value of an Avro or Parquet object is
rendered as JSON: equal to the record's value, but not its bytes.
"""

import base64
import gzip
import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.core.connect_key import ConnectName, parse_connect_key
from tidemark.core.errors import FormatError, TidemarkError
from tidemark.core.offsets import OffsetRange
from tidemark.objects.body import ObjectBody
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BATCH_ROWS = 5_000
BATCH_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024


def is_connect_key(key: str) -> bool:
    """Whether the key names an object of Kafka Connect, so that ``read_rows`` reads it."""
    return not isinstance(parse_connect_key(key), str)


def read_rows(store: ObjectStore, key: str, wanted: OffsetRange) -> Iterator[pa.RecordBatch] | None:
    """The object's rows with offsets in ``wanted``, as batches of SCHEMA; None where there is no object.

    Such objects hold values only: key, timestamps and event time are null, headers empty. Reads no further than it
    must. Raises FormatError, naming key and record, for a content that does not decode, and ServiceError where S3
    refuses.
    """
    body = ObjectBody(store, key)
    return _rows(body, wanted) if body.open() else None


def _rows(body: ObjectBody, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    name = connect_name(body.key)
    start = name.start
    with body:
        for values in batched(read_values(name, body, where=body.key)):
            end = start + len(values)
            inside = wanted.intersect(OffsetRange(start=start, end=end))
            if inside is not None:
                yield to_rows(name, inside.start, values[inside.start - start : inside.end - start])
            if wanted.end < end:
                return  # not at wanted.end: an object that is wanted whole is read to its end, and its damage found
            start = end


def connect_name(key: str) -> ConnectName:
    """What an adopted object's key says; raises FormatError for another key."""
    name = parse_connect_key(key)
    if isinstance(name, str):
        raise FormatError("not an object as Kafka Connect names them", found=name, where=key)
    return name


def to_rows(name: ConnectName, start: int, values: list[bytes]) -> pa.RecordBatch:
    """The values as rows of SCHEMA, at offsets from ``start`` on."""
    rows = len(values)
    columns = {
        "topic": pa.array([name.topic] * rows, pa.string()),
        "partition": pa.array([name.partition] * rows, pa.int32()),
        "offset": pa.array(range(start, start + rows), pa.int64()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array([[]] * rows, SCHEMA.field("headers").type),
    }
    return pa.RecordBatch.from_arrays(
        [columns.get(item.name, pa.nulls(rows, item.type)) for item in SCHEMA], schema=SCHEMA
    )


def batched(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Values in lists of bounded rows and bytes."""
    batch: list[bytes] = []
    size = 0
    for value in values:
        batch.append(value)
        size += len(value)
        if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def read_values(name: ConnectName, source: io.RawIOBase, *, where: str) -> Generator[bytes, None, None]:
    """The values of an object's bytes, in order; raises FormatError, naming the record, where one does not decode."""
    number = 0
    with _seekable(source) if name.encoding == "parquet" else nullcontext(source) as file:
        try:
            for value in _values(name, file):
                yield value
                number += 1
        except TidemarkError:
            raise
        except Exception as error:  # the decoders have no one type of their own for what does not decode
            told = f"{type(error).__name__}: {error}"
            raise FormatError("does not decode", found=told, where=f"{where}, record {number + 1}") from error


class Hashing(io.RawIOBase):
    """A stream that counts and hashes the bytes read from it."""

    def __init__(self, source: io.RawIOBase) -> None:
        super().__init__()
        self._source = source
        self._digest = hashlib.sha256()
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        count = self._source.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        self.count += count
        return count

    def finish(self) -> str:
        """SHA-256 of the whole, in hex: what a decoder left behind is read too."""
        while self.read(CHUNK_BYTES):
            pass
        return self._digest.hexdigest()


def _values(name: ConnectName, file: Any) -> Iterator[bytes]:
    match name.encoding:
        case "lines":
            with _buffered(gzip.GzipFile(fileobj=file) if name.gzipped else file) as reader:
                for line in reader:
                    yield line.removesuffix(b"\n")
        case "avro":
            with _buffered(file) as reader:
                for record in fastavro.reader(reader):
                    yield _json(record)
        case "parquet":
            for batch in pq.ParquetFile(file).iter_batches(batch_size=BATCH_ROWS):
                for record in batch.to_pylist(maps_as_pydicts="strict"):
                    yield _json(record)


@contextmanager
def _buffered(file: Any) -> Iterator[Any]:
    reader = io.BufferedReader(file, CHUNK_BYTES)
    try:
        yield reader
    finally:
        reader.detach()  # or it would close the file with itself


@contextmanager
def _seekable(source: io.RawIOBase) -> Iterator[Any]:
    """The whole object on local disk: a Parquet file's index is at its end."""
    with tempfile.TemporaryFile() as file:
        shutil.copyfileobj(source, file, CHUNK_BYTES)
        file.seek(0)
        yield file


def _json(value: Any) -> bytes:
    return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """What JSON has no word for: times as ISO 8601, decimals and UUIDs as text, bytes in base 64."""
    match value:
        case datetime():
            aware = value.tzinfo is not None
            moment = value.astimezone(UTC).replace(tzinfo=None) if aware else value
            return moment.isoformat(timespec="microseconds") + ("Z" if aware else "")
        case date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError(f"no JSON form for {type(value).__name__}")
