"""Compare the values of a day in two snapshots with the same records in different files, without Spark."""

from collections.abc import Iterator
from datetime import date

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from tidemark.core.offsets import OffsetRange, TopicPartition, chunks
from tidemark.objects.bits import OffsetBits
from tidemark.tables.reader import pyiceberg_errors
from tidemark.verify.kafka_records import spans

_CHUNK = 250_000  # offsets whose rows are in memory, for both snapshots


def other_values(
    table: Table, snapshots: tuple[int, int], day: date, log: TopicPartition, rows: OffsetBits
) -> Iterator[OffsetRange]:
    """The offsets whose rows in the two snapshots differ in any current column, as ranges in order.

    Both must have exactly one row of each offset in ``rows``. A newer column is null; a widened one is read in its
    current type. Raises what ``pyiceberg_errors`` raises.
    """
    for window in chunks(spans(rows), _CHUNK):
        first, second = (_rows(table, snapshot, day, log, window) for snapshot in snapshots)
        differ = OffsetBits(window)
        differ.add(first["_offset"].to_numpy()[_differing(first, second)])
        yield from differ.ranges()


def _rows(table: Table, snapshot: int, day: date, log: TopicPartition, window: OffsetRange) -> pa.Table:
    """The day's rows at the window's offsets, in offset order."""
    wanted = (
        f"_day = '{day}' and _topic_id = '{log.topic_id}' and _kafka_partition = {log.partition}"
        f" and _offset >= {window.start} and _offset < {window.end}"
    )
    with pyiceberg_errors(table.name()[-1]):
        scan = table.scan(row_filter=wanted, snapshot_id=snapshot)
        # The current schema, because columns may have had other names in the snapshot.
        found = ArrowScan(table.metadata, table.io, table.schema(), scan.row_filter).to_table(scan.plan_files())
    return found.sort_by("_offset").combine_chunks()


def _differing(first: pa.Table, second: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows differ; NaN equals NaN."""
    differing = np.zeros(first.num_rows, dtype=bool)
    for name in first.column_names:
        if not first[name].equals(second[name]):
            pairs = zip(*(_python_values(rows[name]) for rows in (first, second)), strict=True)
            differing |= np.fromiter((repr(one) != repr(other) for one, other in pairs), bool, first.num_rows)
    return differing


def _python_values(column: pa.ChunkedArray) -> list[object]:
    """Times as numbers: Python has no years beyond 9999."""
    numbers = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    return list(numbers.to_pylist())
