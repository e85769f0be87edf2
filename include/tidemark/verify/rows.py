"""Derive a day from its tables, without Spark: the published and quarantined offsets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import DataScan, Table

from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.objects.bits import OffsetBits
from tidemark.tables.reader import KEPT, pyiceberg_errors

_COLUMNS = ("_day", "_topic_id", "_kafka_partition", "_offset")
Logs = Mapping[tuple[str, int], TopicPartition]


@dataclass(slots=True, kw_only=True)
class Rows:
    """The rows of a day in one snapshot: their number, and their offsets by log.

    ``doubled`` counts rows with the topic id, partition and offset of another one. ``strays`` counts rows outside the
    windows, by topic id and partition. ``removed`` counts duplicates by key, which only a quarantine has, and ``kept``
    are the offsets of the records that were kept instead.
    """

    rows: int = 0
    doubled: int = 0
    removed: int = 0
    offsets: dict[TopicPartition, OffsetBits] = field(default_factory=dict)
    kept: dict[TopicPartition, OffsetBits] = field(default_factory=dict)
    strays: Counter[tuple[str, int]] = field(default_factory=Counter)


def day_rows(table: Table, snapshot_id: int, day: date, windows: Mapping[TopicPartition, OffsetRange]) -> Rows:
    """The day's rows in a snapshot. Only three to six columns of one data file are in memory at a time.

    Raises what ``pyiceberg_errors`` raises, like every reader of tables here.
    """
    offsets, kept = ({log: OffsetBits(window) for log, window in windows.items()} for _ in range(2))
    found = Rows(offsets=offsets, kept=kept)
    logs = {(log.topic_id, log.partition): log for log in windows}
    scan = _scan(table, snapshot_id, day)
    reader = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
    with pyiceberg_errors(table.name()[-1]):
        tasks = tuple(scan.plan_files())
    for task in tasks:
        with pyiceberg_errors(table.name()[-1], task.file.file_path):
            for batch in reader.to_record_batches([task]):
                rows = pa.Table.from_batches([batch])
                found.rows += rows.num_rows
                found.doubled += _add(rows, _COLUMNS[1:], found.offsets, found.strays, logs)
                if KEPT[-1] in rows.column_names:
                    removed = rows.filter(pc.is_valid(rows[KEPT[-1]]))
                    found.removed += removed.num_rows
                    _add(removed, KEPT, found.kept, found.strays, logs)  # one record may stand for several
    return found


def repeated_keys(table: Table, snapshot_id: int, day: date, key: Sequence[str]) -> int | None:
    """How many of the day's rows have the key of another one; None if the snapshot has no such columns.

    The day's keys must fit in memory.
    """
    scan = table.scan(row_filter=f"_day = '{day}'", snapshot_id=snapshot_id)
    if not {*key} <= {*scan.projection().column_names}:
        return None
    with pyiceberg_errors(table.name()[-1]):
        rows = scan.select(*key).to_arrow().drop_null()
    return int(rows.num_rows - rows.group_by(list(key)).aggregate([]).num_rows)


def day_files(table: Table, snapshot_id: int, day: date) -> set[tuple[str, tuple[str, ...]]]:
    """The data files with rows of the day in a snapshot, each with its delete files."""
    with pyiceberg_errors(table.name()[-1]):
        return {
            (task.file.file_path, tuple(sorted(item.file_path for item in task.delete_files)))
            for task in _scan(table, snapshot_id, day).plan_files()
        }


def _scan(table: Table, snapshot_id: int, day: date) -> DataScan:
    scan = table.scan(row_filter=f"_day = '{day}'", snapshot_id=snapshot_id)
    known = scan.projection().column_names
    return scan.select(*(name for name in (*_COLUMNS, *KEPT) if name in known))


def _add(
    rows: pa.Table,
    place: Sequence[str],
    bits_of: Mapping[TopicPartition, OffsetBits],
    strays: Counter[tuple[str, int]],
    logs: Logs,
) -> int:
    """Note the places in three columns of the rows. Returns how many were noted before."""
    topic_id, partition, offset = place
    doubled = 0
    for group in rows.group_by([topic_id, partition]).aggregate([]).to_pylist():
        own = (group[topic_id], group[partition])
        mask = pc.and_(pc.equal(rows[topic_id], own[0]), pc.equal(rows[partition], own[1]))
        offsets = rows.filter(mask)[offset].to_numpy()
        log = logs.get(own)
        if log is None:
            strays[own] += len(offsets)
            continue
        bits = bits_of[log]
        inside = offsets[(offsets >= bits.window.start) & (offsets < bits.window.end)]
        strays[own] += len(offsets) - len(inside)
        doubled += len(inside) - bits.add(inside)
    return doubled
