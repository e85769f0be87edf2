"""The values of a day's rows in two snapshots that hold the same records in other files, without Spark."""

from collections.abc import Iterator
from datetime import date

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.objects.bits import OffsetBits
from tidemark.tables.reader import told_by_pyiceberg
from tidemark.verify.kafka_records import spans

_PIECE = 250_000  # offsets whose rows are in memory at once, of both snapshots


def other_values(
    table: Table, snapshots: tuple[int, int], day: date, log: TopicPartition, rows: OffsetBits
) -> Iterator[OffsetRange]:
    """The offsets, as ranges in order, of which the two snapshots have rows that differ in any of today's columns.

    Both must have exactly one row of each offset in ``rows``. A column that a snapshot did not have yet is null there;
    one that was widened since is read as what it is by now. Raises what ``told_by_pyiceberg`` does.
    """
    for stretch in spans(rows):
        for start in range(stretch.start, stretch.end, _PIECE):
            window = OffsetRange(start=start, end=min(start + _PIECE, stretch.end))
            first, second = (_rows(table, snapshot, day, log, window) for snapshot in snapshots)
            differ = OffsetBits(window)
            differ.add(first["_offset"].to_numpy()[_unlike(first, second)])
            yield from differ.ranges()


def _rows(table: Table, snapshot: int, day: date, log: TopicPartition, window: OffsetRange) -> pa.Table:
    """The day's rows at the window's offsets, in offset order."""
    wanted = (
        f"_day = '{day}' and _topic_id = '{log.topic_id}' and _kafka_partition = {log.partition}"
        f" and _offset >= {window.start} and _offset < {window.end}"
    )
    with told_by_pyiceberg(table.name()[-1]):
        scan = table.scan(row_filter=wanted, snapshot_id=snapshot)
        # By today's schema, not by the snapshot's: columns have had other names.
        found = ArrowScan(table.metadata, table.io, table.schema(), scan.row_filter).to_table(scan.plan_files())
    return found.sort_by("_offset").combine_chunks()


def _unlike(first: pa.Table, second: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows differ; a NaN is like another."""
    unlike = np.zeros(first.num_rows, dtype=bool)
    for name in first.column_names:
        if not first[name].equals(second[name]):
            pairs = zip(first[name].to_pylist(), second[name].to_pylist(), strict=True)
            unlike |= np.fromiter((repr(one) != repr(other) for one, other in pairs), bool, first.num_rows)
    return unlike
