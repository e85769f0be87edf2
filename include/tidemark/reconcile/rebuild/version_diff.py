"""What a version of a day changes for readers: published rows added, removed and changed against the version before.

Rows are compared by their place in the source. Both versions are hashed in buckets of neighbouring offsets first: one
pass over each, with very little to shuffle. Only rows of buckets that differ are compared one by one, so that a few
late records cost little more than reading the day twice.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial, reduce
from operator import and_, or_
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from tidemark.core.errors import FormatError
from tidemark.core.masking import MASK
from tidemark.core.seal import Difference, Seal
from tidemark.definitions.stream import Stream
from tidemark.reconcile.json_values import safe
from tidemark.reconcile.results import ChangedRow, ChangedValue, DayDifference
from tidemark.run import Run
from tidemark.spark.calendar import TIMES
from tidemark.spark.failures import cause_line
from tidemark.spark.fields import EXACT_JSON, has_type
from tidemark.tables.columns import DAY
from tidemark.tables.deduplicate import PLACE
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.reader import load_table
from tidemark.tables.seals import read_seal
from tidemark.tables.snapshots import published_at

_logger = logging.getLogger(__name__)
EXAMPLES_MAX = 5
_BUCKET_BITS = 16  # offsets of a bucket, as a power of two
_NESTED = (ArrayType, MapType, StructType)
_BUCKET = (DAY, "_topic_id", "_kafka_partition", "_bucket")


def version_differences(
    run: Run, table: IcebergTable, branch: str, versions: Mapping[date, int]
) -> tuple[DayDifference, ...]:
    """``differences`` of the days with an earlier version than the one on the branch, which ``versions`` has.

    A day is left out where the earlier version's rows have expired or its files can't be read, because a rebuild mends
    those. The version's seal names the earlier rows.
    """
    earlier = earlier_seals(run, versions)
    if not earlier:  # most runs: not worth loading the table
        return ()
    loaded = load_table(run.settings, run.stream.table)
    snapshots = earlier_snapshots(earlier, partial(published_at, loaded))
    later = table.read(branch)
    found = [item for snapshot, days in snapshots.items() for item in _readable(table.read_at(snapshot), later, days)]
    return tuple(masked(item, run.stream) for item in sorted(found, key=lambda item: item.day))


def earlier_seals(run: Run, versions: Mapping[date, int]) -> dict[date, Seal]:
    """The seals of the versions before these, of the days that have one."""
    return {
        day: seal
        for day, version in versions.items()
        if version > 1 and (seal := read_seal(run.store, run.layout, day, version - 1)) is not None
    }


def earlier_snapshots(earlier: Mapping[date, Seal], snapshot_of: Callable[[Seal], int | None]) -> dict[int, list[date]]:
    """The days by the snapshot with their earlier rows; without those whose rows have expired or can't be found."""
    found: dict[int, list[date]] = {}
    for day, seal in earlier.items():
        try:
            snapshot = snapshot_of(seal)
        except FormatError as error:
            warn_unread(day, error)
            continue
        if snapshot is not None:
            found.setdefault(snapshot, []).append(day)
    return found


def masked(difference: DayDifference, stream: Stream) -> DayDifference:
    """The same without the values of personal columns."""
    return replace(
        difference,
        examples=tuple(
            replace(row, values=tuple(_masked_value(item, stream) for item in row.values))
            for row in difference.examples
        ),
    )


def _masked_value(item: ChangedValue, stream: Stream) -> ChangedValue:
    return replace(item, before=MASK, after=MASK) if stream.is_personal(item.column) else item


def _readable(earlier: DataFrame, later: DataFrame, days: Sequence[date]) -> list[DayDifference]:
    """``differences`` of the days whose earlier rows can be read; a warning names each other one."""
    before, after = (rows.where(F.col(DAY).isin(list(days))) for rows in (earlier, later))
    try:
        return differences(before, after, days)
    except (PySparkException, Py4JJavaError) as error:
        if _reads(before, later):
            raise
        if len(days) > 1:
            return [item for one in days for item in _readable(earlier, later, [one])]
        warn_unread(days[0], cause_line(str(error)))
        return []


def _reads(rows: DataFrame, model: DataFrame) -> bool:
    try:
        _hashed(rows, model).agg(F.bit_xor("_row")).collect()
    except (PySparkException, Py4JJavaError):
        return False
    return True


def warn_unread(day: date, why: object) -> None:
    """Log that a day is not compared with its earlier version."""
    _logger.warning("%s: not compared with the earlier version, because its rows can't be read: %s", day, why)


def differences(earlier: DataFrame, later: DataFrame, days: Sequence[date]) -> list[DayDifference]:
    """Per day the rows that were added, removed and changed, and examples of the changed ones.

    Both frames have the same columns. Two values of one hash of 64 bits would count as the same.
    """
    sides = [_hashed(rows, later) for rows in (earlier, later)]
    before, after = (side.withColumn("_side", F.lit(sign)) for side, sign in zip(sides, (-1, 1), strict=True))
    # Of a bucket that is the same on both sides every hash occurs twice, so their exclusive or is 0.
    sums = before.unionAll(after).groupBy(*_BUCKET).agg(F.sum("_side").alias("rows"), F.bit_xor("_row").alias("hash"))
    moved = sums.where("rows <> 0 OR hash <> 0").select(*_BUCKET)
    same = Difference(added=0, removed=0, changed=0)
    found = {day: DayDifference(day=day, rows=same, examples=()) for day in days}
    buckets = moved.toArrow()
    if not buckets.num_rows:
        return list(found.values())
    few = F.broadcast(later.sparkSession.createDataFrame(buckets))
    before, after = (side.join(few, on=list(_BUCKET), how="left_semi") for side in sides)
    pairs = before.select(DAY, *PLACE, F.col("_row").alias("_before")).join(
        after.select(DAY, *PLACE, F.col("_row").alias("_after")), on=[DAY, *PLACE], how="full"
    )
    changed = F.col("_before") != F.col("_after")
    pairs = pairs.persist()
    try:
        per_day = pairs.groupBy(DAY).agg(
            F.count_if(F.col("_before").isNull()).alias("added"),
            F.count_if(F.col("_after").isNull()).alias("removed"),
            F.count_if(changed).alias("changed"),
        )
        for row in per_day.collect():
            places = []
            if row["changed"]:
                first = pairs.where(changed & (F.col(DAY) == row[DAY])).orderBy(*PLACE).limit(EXAMPLES_MAX)
                places = [tuple(place) for place in first.select(*PLACE).collect()]
            found[row[DAY]] = DayDifference(
                day=row[DAY],
                rows=Difference(added=row["added"], removed=row["removed"], changed=row["changed"]),
                examples=tuple(_examples(earlier, later, row[DAY], places)) if places else (),
            )
    finally:
        pairs.unpersist()
    return list(found.values())


def _hashed(rows: DataFrame, model: DataFrame) -> DataFrame:
    """Bucket, place and hash of each row, over the columns of ``model`` in its order."""
    names = [name for name in model.columns if name not in PLACE]
    values = [part for name in names for part in _hashable(rows, name)]
    bucket = F.shiftright("_offset", _BUCKET_BITS).alias("_bucket")
    # With the offset, so that two rows which swap their values do not cancel each other out.
    return rows.select(DAY, *PLACE, bucket, F.xxhash64("_offset", *values).alias("_row"))


def _hashable(rows: DataFrame, name: str) -> tuple[Column, Column]:
    """The column's values for Spark's hash. It takes no map, and skips nulls: a value that moved to the next column
    would give the same hash."""
    column = F.col(f"`{name}`")
    nested = isinstance(rows.schema[name].dataType, _NESTED)
    return column.isNull(), F.to_json(column, EXACT_JSON) if nested else column


def _examples(
    earlier: DataFrame, later: DataFrame, day: date, places: Sequence[tuple[Any, ...]]
) -> Iterator[ChangedRow]:
    wanted = reduce(
        or_, (reduce(and_, (F.col(name) == at for name, at in zip(PLACE, place, strict=True))) for place in places)
    )
    before, after = (
        {tuple(row[name] for name in PLACE): row for row in rows.where((F.col(DAY) == day) & wanted).collect()}
        for rows in map(_with_times_as_text, (earlier, later))
    )
    for place in places:
        topic_id, partition, offset = place
        yield ChangedRow(
            topic_id=topic_id,
            partition=partition,
            offset=offset,
            values=tuple(_changed_values(before[place], after[place])),
        )


def _with_times_as_text(rows: DataFrame) -> DataFrame:
    """Rows that Python can hold: it has no years beyond 9999, which an earlier version may have."""
    times = [item for item in rows.schema if has_type(item.dataType, TIMES) and item.name != DAY]
    return rows.withColumns(
        {
            item.name: F.to_json(f"`{item.name}`", EXACT_JSON)
            if isinstance(item.dataType, _NESTED)
            else F.col(f"`{item.name}`").cast("string")
            for item in times
        }
    )


def _changed_values(before: Row, after: Row) -> Iterator[ChangedValue]:
    for name, value in after.asDict().items():
        if repr(before[name]) != repr(value):  # by their text, because NaN is not equal to itself
            yield ChangedValue(column=name, before=safe(before[name]), after=safe(value))
