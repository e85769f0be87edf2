"""A day derived from its tables alone: the offsets that are published and quarantined, without Spark."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import DataScan, Table

from tidemark.archive.bits import OffsetBits
from tidemark.core.offsets import OffsetRange, TopicPartition

_COLUMNS = ("_day", "_topic_id", "_kafka_partition", "_offset")
Logs = Mapping[tuple[str, int], TopicPartition]


@dataclass(slots=True, kw_only=True)
class Rows:
    """The rows of a day in one snapshot: how many, and by log the offsets they are of.

    ``doubled`` counts rows whose topic id, partition and offset another row has as well, ``strays`` rows by topic id
    and partition that lie outside the windows asked for.
    """

    rows: int = 0
    doubled: int = 0
    offsets: dict[TopicPartition, OffsetBits] = field(default_factory=dict)
    strays: Counter[tuple[str, int]] = field(default_factory=Counter)


def day_rows(table: Table, snapshot_id: int, day: date, windows: Mapping[TopicPartition, OffsetRange]) -> Rows:
    """The day's rows as of a snapshot. One data file is in memory at a time, three of its columns."""
    found = Rows(offsets={log: OffsetBits(window) for log, window in windows.items()})
    logs = {(log.topic_id, log.partition): log for log in windows}
    scan = _scan(table, snapshot_id, day)
    reader = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
    for task in scan.plan_files():
        for batch in reader.to_record_batches([task]):
            _add(batch, found, logs)
    return found


def day_files(table: Table, snapshot_id: int, day: date) -> set[tuple[str, tuple[str, ...]]]:
    """The data files with rows of the day in a snapshot, each with its delete files."""
    return {
        (task.file.file_path, tuple(sorted(item.file_path for item in task.delete_files)))
        for task in _scan(table, snapshot_id, day).plan_files()
    }


def _scan(table: Table, snapshot_id: int, day: date) -> DataScan:
    return table.scan(row_filter=f"_day = '{day}'", selected_fields=_COLUMNS, snapshot_id=snapshot_id)


def _add(batch: pa.RecordBatch, found: Rows, logs: Logs) -> None:
    table = pa.Table.from_batches([batch])
    found.rows += table.num_rows
    for group in table.group_by(["_topic_id", "_kafka_partition"]).aggregate([]).to_pylist():
        topic_id, partition = group["_topic_id"], group["_kafka_partition"]
        own = pc.and_(pc.equal(table["_topic_id"], topic_id), pc.equal(table["_kafka_partition"], partition))
        offsets = table.filter(own)["_offset"].to_numpy()
        log = logs.get((topic_id, partition))
        if log is None:
            found.strays[topic_id, partition] += len(offsets)
            continue
        bits = found.offsets[log]
        inside = offsets[(offsets >= bits.window.start) & (offsets < bits.window.end)]
        found.strays[topic_id, partition] += len(offsets) - len(inside)
        found.doubled += len(inside) - bits.add(inside)
