"""How rows become an object's bytes, per format. An encoder writes into an upload and ends it with the footer."""

import zlib
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tidemark.objects.footer import Footer
from tidemark.objects.jsonl import encode_rows
from tidemark.objects.schema import SCHEMA
from tidemark.objects.upload import Upload
from tidemark.stream_keys import Format

CONTENT_TYPES: dict[Format, str] = {
    "parquet": "application/vnd.apache.parquet",
    "jsonl.gz": "application/gzip",
    "jsonl.zst": "application/zstd",
}
ROW_GROUP_ROWS = 128 * 1024
ROW_GROUP_BYTES = 16 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
# Measured on JSON values: zlib's level 3 is twice as fast as 4 and up, whose output is 6 % smaller.
GZIP_LEVEL, ZSTD_LEVEL = 3, 3


class Encoder(Protocol):
    """Rows in, in batches of SCHEMA and in order; bytes out, into the upload it was made with."""

    def add(self, batch: pa.RecordBatch, payload_bytes: int) -> None:
        """Append rows; ``payload_bytes`` are those of their keys and values."""

    def finish(self, footer: Footer) -> None:
        """Write what is left and the footer. The upload is whole then, but not completed."""

    @property
    def waiting_bytes(self) -> int:
        """Of keys, values and headers added but not encoded yet, beyond what the format needs anyway."""

    def flush(self) -> None:
        """Encode them now."""


def encoder(kind: Format, upload: Upload) -> Encoder:
    """The encoder of a format. Memory: a row group, or a chunk and the batch at hand."""
    match kind:
        case "parquet":
            return _Parquet(upload)
        case "jsonl.gz":
            # 31: a gzip member, whose header has no time in it.
            return _JsonLines(upload, zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 31), ".gz")
        case "jsonl.zst":
            compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
            return _JsonLines(upload, compressor.compressobj(), ".zst")


class _Parquet:
    """Row groups of useful size, never one per Arrow batch."""

    def __init__(self, upload: Upload) -> None:
        self._writer = pq.ParquetWriter(
            pa.PythonFile(upload, mode="w"),
            SCHEMA,
            compression="zstd",
            # Dictionaries and statistics where they help a reader; for payloads they only cost time.
            use_dictionary=["topic", "partition", "timestamp_type", "headers.list.element.key"],
            write_statistics=["partition", "offset", "timestamp", "event_time"],
            # zstd notices most changed bytes of a page, but not those it left uncompressed.
            write_page_checksum=True,
        )
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch, payload_bytes: int) -> None:
        self._pending.append(batch)
        self._rows += batch.num_rows
        self._bytes += payload_bytes + batch.column("headers").nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    def finish(self, footer: Footer) -> None:
        self._write_row_group()
        self._writer.add_key_value_metadata(footer.metadata())
        self._writer.close()

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def flush(self) -> None:
        self._write_row_group()

    def _write_row_group(self) -> None:
        if self._pending:
            table = pa.Table.from_batches(self._pending, schema=SCHEMA)
            self._pending.clear()
            self._writer.write_table(table, row_group_size=max(self._rows, 1))
            self._rows = self._bytes = 0


class _Compressor(Protocol):
    """What zlib's and zstandard's compression objects have in common."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class _JsonLines:
    """Lines, compressed in chunks of one size, so that how Arrow batched the rows does not show in the bytes."""

    def __init__(self, upload: Upload, compressor: _Compressor, suffix: str) -> None:
        self._upload = upload
        self._compressor = compressor
        self._suffix = suffix
        self._buffer = bytearray()

    def add(self, batch: pa.RecordBatch, payload_bytes: int) -> None:
        del payload_bytes
        for line in encode_rows(batch):
            self._buffer += line
            while len(self._buffer) >= CHUNK_BYTES:
                self._compress(CHUNK_BYTES)

    def finish(self, footer: Footer) -> None:
        self._compress(len(self._buffer))
        self._upload.write(self._compressor.flush())
        self._upload.write(footer.trailer(self._suffix))

    @property
    def waiting_bytes(self) -> int:
        return 0

    def flush(self) -> None:
        """Nothing: a chunk is all that ever waits."""

    def _compress(self, size: int) -> None:
        with memoryview(self._buffer) as view:
            chunk = bytes(view[:size])
        del self._buffer[:size]
        self._upload.write(self._compressor.compress(chunk))
