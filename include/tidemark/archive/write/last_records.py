"""The last record of each log that a task writes, all of one topic."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.core.logged_record import LoggedRecord, record_digest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.objects.schema import NO_TIMESTAMP_TYPE

_COLUMNS = ["offset", "timestamp", "timestamp_type", "key", "value"]


class LastRecords:
    """Keeps the last row of each log, in a copy: a slice would keep its whole batch in memory."""

    def __init__(self, ranges: Iterable[tuple[TopicPartition, OffsetRange]]) -> None:
        self._logs = {log.partition: log for log, _ in ranges}
        self._rows: dict[int, pa.RecordBatch] = {}

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches. The rows of each log come in offset order."""
        for batch in batches:
            partitions = batch.column("partition")
            if len(partitions.unique()) == 1:
                last = {partitions[0].as_py(): batch.num_rows - 1}
            else:
                last = {partition: at for at, partition in enumerate(partitions.to_pylist())}
            self._rows |= {partition: batch.select(_COLUMNS).take(pa.array([at])) for partition, at in last.items()}
            yield batch

    def found(self) -> list[LoggedRecord]:
        """The last record of each log, without logs whose rows were imported."""
        return [
            record
            for partition, row in self._rows.items()
            if row.column("timestamp_type")[0].as_py() != NO_TIMESTAMP_TYPE
            for record in logged_records(self._logs[partition], row)
        ]


def logged_records(log: TopicPartition, rows: pa.RecordBatch, first: int = 0) -> Iterator[LoggedRecord]:
    """The records of a log's archived rows from an offset on."""
    rows = rows.filter(pc.greater_equal(rows.column("offset"), first))
    times = rows.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    columns = (rows.column("offset"), times, rows.column("key"), rows.column("value"))
    for offset, timestamp_us, key, value in zip(*(column.to_pylist() for column in columns), strict=True):
        yield LoggedRecord(log=log, offset=offset, timestamp_us=timestamp_us, digest=record_digest(key, value))
