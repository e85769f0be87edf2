"""The current view with Spark: the published table, plus the archived records that are not in it.

Archived rows go through the same planner and transformation as in a rebuild, so the view equals the table after a
rebuild of every day. Of a published day, only records that were archived later are read.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.archive.read import read_slices, together
from tidemark.core.errors import ConfigError
from tidemark.current_view.plan import ArchivePart, StalePart
from tidemark.current_view.view import View, pin
from tidemark.settings import Settings
from tidemark.spark import records
from tidemark.spark.process import PLATFORM_COLUMNS, load_transform, process
from tidemark.spark.time_zone import require_same_clocks
from tidemark.tables.columns import DAY, identity
from tidemark.tables.deduplicate import distinct
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.schema_evolution import Moved, evolution

_BOUNDS = pa.schema(
    [
        ("_part_day", pa.date32()),
        ("_part_topic_id", pa.string()),
        ("_part_partition", pa.int32()),
        ("_part_start", pa.int64()),
        ("_part_end", pa.int64()),
    ]
)


def current(spark: SparkSession, settings: Settings, stream_name: str) -> DataFrame:
    """Every good archived record of the stream once, with the columns of its published table.

    The data frame is pinned to this call: later publications, rollbacks and archived records do not change it.
    """
    return frame(spark, pin(settings, stream_name))


def frame(spark: SparkSession, view: View) -> DataFrame:
    """The rows of a pinned view.

    Changes of the definition show as after the next rebuild. Raises ConfigError if the session's time zone is not UTC,
    the transformation breaks its contract or its columns are incompatible with the table, ConflictError for an expired
    snapshot, IncompleteError for missing archive objects. If an object is deleted later, an action on the data frame
    fails: it never reads less.
    """
    _require_utc(spark)
    require_same_clocks(spark, view.stream)
    tail, by_key = _tail(spark, view), view.stream.batch.deduplicate
    if view.snapshot_id is None:
        return distinct(tail, by_key)
    table = IcebergTable(spark, view.settings, view.stream.table)
    published = table.read_at(view.snapshot_id)
    evolved = evolution(published.schema, tail.schema, view.stream.renamed)
    evolved.require_allowed(table.identifier)
    published = published.withColumnsRenamed(
        {item.earlier: item.name for item in evolved.changes if isinstance(item, Moved)}
    )
    if view.days_not_ours:
        published = published.where(~F.col(DAY).isin(list(view.days_not_ours)))
    if view.plan.stale_parts:
        place = (F.col(DAY), F.col("_topic_id"), F.col("_kafka_partition"), F.col("_offset"))
        published = published.join(_bounds(spark, view.plan.stale_parts), on=_inside(*place), how="left_anti")
    # A union matches the fields of a struct by position, so both sides get the same fields.
    published, tail = published.to(evolved.columns), tail.to(evolved.columns)
    if not by_key.key:
        return published.unionByName(tail)
    # A key may be published and in the tail. Days without a tail stay as their rebuild made them.
    with_tail = F.col(DAY).isin(sorted({part.day for part in view.plan.archive_parts}))
    return published.where(~with_tail).unionByName(distinct(published.where(with_tail).unionByName(tail), by_key))


def _require_utc(spark: SparkSession) -> None:
    """In another zone, Spark would compute other days than the archive, and rows would be missing."""
    key = "spark.sql.session.timeZone"
    zone = spark.conf.get(key)
    if zone != "UTC":
        raise ConfigError(
            "the session's time zone would assign records to other days",
            expected="UTC",
            found=zone,
            where=key,
            hint=f"Call spark.conf.set('{key}', 'UTC') first; use from_utc_timestamp to show times in another zone",
        )


def _tail(spark: SparkSession, view: View) -> DataFrame:
    """The archive's rows of the view, in table form; without any, an empty frame with the columns."""
    transform = load_transform(view.stream, view.settings.streams_dir)
    day = records.day(view.stream)
    topic_ids = sorted({item.log.topic_id for item in view.plan.slices})
    parts = []
    for topic_id in topic_ids or [""]:
        slices = [item for item in view.plan.slices if item.log.topic_id == topic_id]
        rows = read_slices(spark, view.settings, slices)
        if slices:
            place = (day, F.lit(topic_id), F.col("partition"), F.col("offset"))
            rows = rows.join(_bounds(spark, view.plan.archive_parts), on=_inside(*place), how="left_semi")
        good = process(rows, view.stream, transform).good
        columns = [F.col(f"`{name}`") for name in good.columns if name not in PLATFORM_COLUMNS]
        parts.append(good.select(*identity(day, topic_id), *columns))
    return together(parts)


def _bounds(spark: SparkSession, parts: Sequence[ArchivePart] | Sequence[StalePart]) -> DataFrame:
    """One row per day, log and range, small enough to broadcast."""
    rows = [
        (part.day, part.log.topic_id, part.log.partition, item.start, item.end)
        for part in parts
        for item in part.ranges
    ]
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _BOUNDS, strict=True)]
    # An Arrow table stays in the JVM: it needs no Python worker.
    return F.broadcast(spark.createDataFrame(pa.table(columns, schema=_BOUNDS)))


def _inside(day: Column, topic_id: Column, partition: Column, offset: Column) -> Column:
    return (
        (day == F.col("_part_day"))
        & (topic_id == F.col("_part_topic_id"))
        & (partition == F.col("_part_partition"))
        & (offset >= F.col("_part_start"))
        & (offset < F.col("_part_end"))
    )
