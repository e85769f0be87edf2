"""How rows become an object's bytes: Parquet, written into an upload and ended with the footer."""

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.objects.footer import Footer
from tidemark.objects.schema import SCHEMA
from tidemark.objects.upload import Upload

ROW_GROUP_ROWS = 128 * 1024
ROW_GROUP_BYTES = 16 * 1024 * 1024


class Encoder:
    """Rows in, in batches of SCHEMA and in order; bytes out, into the upload. Memory: a row group.

    Row groups are of useful size, never one per Arrow batch.
    """

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
        """Append rows; ``payload_bytes`` are those of their keys and values."""
        self._pending.append(batch)
        self._rows += batch.num_rows
        self._bytes += payload_bytes + batch.column("headers").nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self.flush()

    def finish(self, footer: Footer) -> None:
        """Write what is left and the footer. The upload is whole then, but not completed."""
        self.flush()
        self._writer.add_key_value_metadata(footer.metadata())
        self._writer.close()

    @property
    def waiting_bytes(self) -> int:
        """Of keys, values and headers that wait in memory for their row group."""
        return self._bytes

    def flush(self) -> None:
        """Write a row group of the rows that wait."""
        if self._pending:
            table = pa.Table.from_batches(self._pending, schema=SCHEMA)
            self._pending.clear()
            self._writer.write_table(table, row_group_size=max(self._rows, 1))
            self._rows = self._bytes = 0
