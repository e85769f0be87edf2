"""Encode rows as Parquet into an upload, with the footer at the end."""

from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.objects.footer import Footer
from tidemark.objects.schema import SCHEMA
from tidemark.objects.upload import Upload

ROW_GROUP_ROWS = 128 * 1024
ROW_GROUP_BYTES = 16 * 1024 * 1024


class Encoder:
    """Takes batches of SCHEMA in order, and writes bytes to the upload. Memory: one row group.

    A row group usually holds many Arrow batches.
    """

    def __init__(self, upload: Upload | BinaryIO) -> None:
        self._writer = pq.ParquetWriter(
            pa.PythonFile(upload, mode="w"),
            SCHEMA,
            compression="zstd",
            # Dictionaries and statistics only where they help a reader; for payloads they cost time.
            use_dictionary=["topic", "partition", "timestamp_type", "headers.list.element.key"],
            write_statistics=["partition", "offset", "timestamp", "event_time"],
            # zstd detects most changed bytes of a page, but not in parts that it left uncompressed.
            write_page_checksum=True,
        )
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch, payload_bytes: int) -> None:
        """Append rows; ``payload_bytes`` is the size of their keys and values."""
        self._pending.append(batch)
        self._rows += batch.num_rows
        self._bytes += payload_bytes + batch.column("headers").nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self.flush()

    def finish(self, footer: Footer) -> None:
        """Write the waiting rows and the footer. The upload then has all bytes, but is not completed."""
        self.flush()
        self._writer.add_key_value_metadata(footer.metadata())
        self._writer.close()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of keys, values and headers that wait in memory for their row group."""
        return self._bytes

    def flush(self) -> None:
        """Write the waiting rows as a row group."""
        if self._pending:
            table = pa.Table.from_batches(self._pending, schema=SCHEMA)
            self._pending.clear()
            self._writer.write_table(table, row_group_size=max(self._rows, 1))
            self._rows = self._bytes = 0
