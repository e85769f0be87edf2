"""The live view with Spark: the published table, plus what the archive holds that is not in it.

The rows of the archive pass through the planner and the transformation that a rebuild uses, so the view has what the
table would have if every day were rebuilt now; a day that was published is only read where something came since.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.archive.read import read_slices, together
from tidemark.core.errors import ConfigError
from tidemark.current_view.plan import Cut, Withheld
from tidemark.current_view.view import View, pin
from tidemark.settings import Settings
from tidemark.spark import records
from tidemark.spark.process import PLATFORM_COLUMNS, load_transform, process
from tidemark.tables.columns import DAY, identity
from tidemark.tables.deduplicate import distinct
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.schema_evolution import Moved, evolution

_BOUNDS = pa.schema(
    [
        ("_cut_day", pa.date32()),
        ("_cut_topic_id", pa.string()),
        ("_cut_partition", pa.int32()),
        ("_cut_start", pa.int64()),
        ("_cut_end", pa.int64()),
    ]
)


def current(spark: SparkSession, settings: Settings, stream_name: str) -> DataFrame:
    """Every good archived record of the stream once, in the columns of its published table, as of this call.

    The data frame is pinned: whatever is published, rolled back or archived later does not show in it. Raises what
    ``pin`` and ``frame`` raise.
    """
    return frame(spark, pin(settings, stream_name))


def frame(spark: SparkSession, view: View) -> DataFrame:
    """The rows of a pinned view.

    What the definition changed and the table does not have yet shows as the next rebuild will make it. Raises
    ConfigError where the session's time zone is not UTC, the transformation breaks its contract or its columns can't
    become the table's, ConflictError where the snapshot has expired, IncompleteError where objects of the archive are
    gone. Where that happens later, an action on the data frame fails; it never reads less.
    """
    _require_utc(spark)
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
    if view.foreign_days:
        published = published.where(~F.col(DAY).isin(list(view.foreign_days)))
    if view.plan.withheld:
        place = (F.col(DAY), F.col("_topic_id"), F.col("_kafka_partition"), F.col("_offset"))
        published = published.join(_bounds(spark, view.plan.withheld), on=_inside(*place), how="left_anti")
    # A union takes the fields of a struct by their place, so both sides get the same ones.
    published, tail = published.to(evolved.columns), tail.to(evolved.columns)
    if not by_key.key:
        return published.unionByName(tail)
    # A key may be published and in the tail; the days without a tail are left as their rebuild made them.
    moving = F.col(DAY).isin(sorted({cut.day for cut in view.plan.cuts}))
    return published.where(~moving).unionByName(distinct(published.where(moving).unionByName(tail), by_key))


def _require_utc(spark: SparkSession) -> None:
    """In any other zone Spark gives records another day than the archive has them on: rows would go missing."""
    key = "spark.sql.session.timeZone"
    zone = spark.conf.get(key)
    if zone != "UTC":
        raise ConfigError(
            "the session's time zone would put records on other days",
            expected="UTC",
            found=zone,
            where=key,
            hint=f"Call spark.conf.set('{key}', 'UTC') first; to show a result's times in another zone, use"
            " from_utc_timestamp",
        )


def _tail(spark: SparkSession, view: View) -> DataFrame:
    """The archive's rows inside the cuts, in table form; without any the columns alone."""
    transform = load_transform(view.stream, view.settings.streams_dir)
    day = records.day(view.stream)
    topic_ids = sorted({item.log.topic_id for item in view.plan.slices})
    parts = []
    for topic_id in topic_ids or [""]:
        slices = [item for item in view.plan.slices if item.log.topic_id == topic_id]
        rows = read_slices(spark, view.settings, slices)
        if slices:
            place = (day, F.lit(topic_id), F.col("partition"), F.col("offset"))
            rows = rows.join(_bounds(spark, view.plan.cuts), on=_inside(*place), how="left_semi")
        good = process(rows, view.stream, transform).good
        columns = [F.col(f"`{name}`") for name in good.columns if name not in PLATFORM_COLUMNS]
        parts.append(good.select(*identity(day, topic_id), *columns))
    return together(parts)


def _bounds(spark: SparkSession, ranges: Sequence[Cut] | Sequence[Withheld]) -> DataFrame:
    """One row per day, log and range, small enough for every task to have all of them."""
    rows = [
        (item.day, item.log.topic_id, item.log.partition, part.start, part.end)
        for item in ranges
        for part in item.ranges
    ]
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _BOUNDS, strict=True)]
    # As an Arrow table it stays in the JVM: no Python worker is started for it.
    return F.broadcast(spark.createDataFrame(pa.table(columns, schema=_BOUNDS)))


def _inside(day: Column, topic_id: Column, partition: Column, offset: Column) -> Column:
    return (
        (day == F.col("_cut_day"))
        & (topic_id == F.col("_cut_topic_id"))
        & (partition == F.col("_cut_partition"))
        & (offset >= F.col("_cut_start"))
        & (offset < F.col("_cut_end"))
    )
