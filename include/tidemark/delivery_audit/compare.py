"""The comparison in Spark: archived rows and delivered records, brought together by one shuffle by source coordinates.

Every archived row of the span and every record of an output topic gets one ``outcome``. The result is the counts per
hour and source partition, with the first and the last example of each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from math import ceil

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidemark.archive.read import read_slices, together
from tidemark.core.offsets import TopicPartition, count
from tidemark.definitions.stream import Stream
from tidemark.delivery_audit.archived import ArchivedRows
from tidemark.delivery_audit.output_topics import Output
from tidemark.delivery_audit.report import Example, RecordGroup
from tidemark.delivery_audit.span import TimeSpan
from tidemark.settings import Settings
from tidemark.spark.decode import REASON
from tidemark.spark.kafka_source import read_ranges
from tidemark.spark.process import classify, load_transform
from tidemark.spark.session import ROWS_PER_TASK
from tidemark.speed.headers import SOURCE_PATTERN, STREAM_PATTERN, WITHOUT_VALUE
from tidemark.speed.output import live_record

HOUR_US = timedelta(hours=1) // timedelta(microseconds=1)
_SOURCE = ["topic_id", "source_partition", "source_offset"]
_ROW = "struct<in_span: boolean, good: boolean, hour_us: bigint, live: bigint, dead: bigint>"
_RECORDS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " headers array<struct<key: string, value: binary>>"
)
_MS_DIGITS, _ATTEMPT_DIGITS = r"^-?\d{1,15}$", r"^\d{1,9}$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both sides of the comparison, fixed.

    ``positions``: the next offset that the speed stream delivers, by source log. ``replayed``: the end of the replayed
    dead letters, by log of the dead-letter topic.
    """

    archived: ArchivedRows
    live: Output
    dead: Output
    positions: Mapping[TopicPartition, int]
    replayed: Mapping[TopicPartition, int]


def compare(
    spark: SparkSession, stream: Stream, settings: Settings, span: TimeSpan, sides: Sides
) -> tuple[RecordGroup, ...]:
    """The counts of all outcomes, which ``tidemark.delivery_audit.report`` defines."""
    offsets = count(item.range for item in (*sides.archived.slices, *sides.archived.with_holes))
    offsets += count([*sides.live.ranges.values(), *sides.dead.ranges.values()])
    tasks = max(4, ceil(offsets / ROWS_PER_TASK))
    both = _expected(spark, stream, settings, span, sides).unionByName(
        _delivered(spark, stream, settings, span, sides), allowMissingColumns=True
    )
    outcomes = _outcomes(both.repartition(tasks, *_SOURCE), sides)
    return _collected(outcomes)


def _expected(spark: SparkSession, stream: Stream, settings: Settings, span: TimeSpan, sides: Sides) -> DataFrame:
    """Archived rows, once each: rows in the span with their expected records, other rows with their coordinates only.

    ``position`` is the speed stream's position in the row's log, null if unknown.
    """
    transform = load_transform(stream, settings.streams_dir)
    inside = F.unix_micros("event_time").between(span.start_us, span.end_us - 1)
    parts: list[DataFrame] = []
    for topic_id in sides.archived.topic_ids:
        own = [item for item in sides.archived.slices if item.log.topic_id == topic_id]
        source = [F.lit(topic_id), F.col("source.partition"), F.col("source.offset")]
        if own or not parts:  # the transformation is checked even where the archive is empty
            rows = classify(read_slices(spark, settings, own).where(inside), stream, transform)
            parts.append(
                rows.select(
                    *(column.alias(name) for column, name in zip(source, _SOURCE, strict=True)),
                    F.struct(
                        F.lit(True).alias("in_span"),
                        F.col(REASON).isNull().alias("good"),
                        hour_start(F.unix_micros("event_time"), stream.time_zone).alias("hour_us"),
                        _content(*live_record(rows, stream)).alias("live"),
                        _content(F.col("source.key"), F.col("source.value")).alias("dead"),
                    )
                    .cast(_ROW)
                    .alias("row"),
                )
            )
        with_holes = [item for item in sides.archived.with_holes if item.log.topic_id == topic_id]
        if with_holes:
            rows = read_slices(spark, settings, with_holes).where(~inside)
            parts.append(
                rows.select(
                    F.lit(topic_id).alias("topic_id"),
                    F.col("partition").alias("source_partition"),
                    F.col("offset").alias("source_offset"),
                    F.struct(F.lit(False), *(F.lit(None) for _ in range(4))).cast(_ROW).alias("row"),
                )
            )
    positions = spark.createDataFrame(
        [(log.topic_id, log.partition, offset) for log, offset in sides.positions.items()],
        "topic_id string, source_partition int, position bigint",
    )
    return together(parts).join(F.broadcast(positions), ["topic_id", "source_partition"], "left")


def _delivered(spark: SparkSession, stream: Stream, settings: Settings, span: TimeSpan, sides: Sides) -> DataFrame:
    """The output topics' records with the values of their headers; ``state`` is the state of their source offset."""
    topics = [item.ranges for item in (sides.live, sides.dead) if item.ranges]
    parts = [read_ranges(spark, settings, ranges, settings.speed_kafka) for ranges in topics]
    timestamp, attempt = _header("timestamp"), _header("attempt")
    own_us = F.unix_micros("timestamp")
    replayed = reduce(
        lambda found, item: found | ((F.col("out_partition") == item[0].partition) & (F.col("out_offset") < item[1])),
        sides.replayed.items(),
        F.lit(False),
    )
    records = together(parts or [spark.createDataFrame([], _RECORDS)]).select(
        _part("source", SOURCE_PATTERN, 2).alias("topic_id"),
        _part("source", SOURCE_PATTERN, 3).try_cast("int").alias("source_partition"),
        _part("source", SOURCE_PATTERN, 4).try_cast("bigint").alias("source_offset"),
        F.col("topic").alias("out_topic"),
        F.col("partition").alias("out_partition"),
        F.col("offset").alias("out_offset"),
        (F.col("topic") == stream.speed.topic).alias("on_live"),
        F.when(attempt.rlike(_ATTEMPT_DIGITS), attempt.try_cast("bigint")).otherwise(F.lit(0)).alias("attempt"),
        F.coalesce(_part("stream", STREAM_PATTERN, 1) != stream.name, F.lit(False)).alias("other_stream"),
        F.coalesce(_part("stream", STREAM_PATTERN, 2) == str(stream.version), F.lit(False)).alias("this_version"),
        F.coalesce(_header("exception").isin("too_large", WITHOUT_VALUE), F.lit(False)).alias("too_large"),
        F.coalesce(_header("exception") == WITHOUT_VALUE, F.lit(False)).alias("without_value"),
        F.when(timestamp.rlike(_MS_DIGITS), timestamp.try_cast("bigint") * 1000).otherwise(own_us).alias("claimed_us"),
        _content(F.col("key"), F.col("value")).alias("content"),
    )
    records = records.withColumn("replayed_letter", ~F.col("on_live") & replayed)
    known = spark.createDataFrame(
        [
            (item.log.topic_id, item.log.partition, item.range.start, item.range.end, item.state)
            for item in sides.archived.known
        ],
        "_id string, _partition int, _start bigint, _end bigint, state string",
    )
    found = (
        (F.col("topic_id") == F.col("_id"))
        & (F.col("source_partition") == F.col("_partition"))
        & (F.col("source_offset") >= F.col("_start"))
        & (F.col("source_offset") < F.col("_end"))
    )
    located = records.join(F.broadcast(known), found, "left").drop("_id", "_partition", "_start", "_end")
    named = F.col("topic_id").isNotNull() & F.col("source_partition").isNotNull() & F.col("source_offset").isNotNull()
    in_span = F.col("claimed_us").between(span.start_us, span.end_us - 1)
    # A record without coordinates gets a group of its own, so that no group gets large. Another
    # stream's record gets one too: with the same source topic, it has the coordinates of this stream's rows.
    placed = named & ~F.col("other_stream")
    return located.select(
        F.when(placed, F.col("topic_id")).otherwise(F.concat(F.lit("?"), "out_topic")).alias("topic_id"),
        F.when(placed, F.col("source_partition")).otherwise(F.col("out_partition")).alias("source_partition"),
        F.when(placed, F.col("source_offset")).otherwise(F.col("out_offset")).alias("source_offset"),
        named.alias("named"),
        *(name for name in located.columns if name not in _SOURCE),
        F.when(in_span, hour_start(F.col("claimed_us"), stream.time_zone)).alias("claimed_hour_us"),
        in_span.alias("claimed_in_span"),
    )


def _outcomes(both: DataFrame, sides: Sides) -> DataFrame:
    """Each row of both sides with ``outcome`` and ``kind``; docs/how-to/check-delivery.md explains both."""
    rows = _compared(both)
    kind = _kind(sides)
    outcomes = rows.select("*", kind.alias("kind")).select(
        "*", F.when(F.col("is_row"), _row_outcome()).otherwise(_record_outcome()).alias("outcome")
    )
    has_kind = F.col("outcome").isin("unexpected", "pending", "not_archived")
    outside = F.col("outcome").isin("outside", "other_stream")
    return outcomes.select(
        "is_row",
        "outcome",
        F.when(has_kind, F.col("kind")).alias("kind"),
        "on_live",
        F.when(~outside, F.coalesce(F.col("truth")["hour_us"], F.col("claimed_hour_us"))).alias("hour_us"),
        F.when(~outside, F.col("source_partition")).alias("partition"),
        F.struct("source_offset", "out_topic", "out_partition", "out_offset").alias("example"),
    )


def _compared(both: DataFrame) -> DataFrame:
    """Each row of both sides, compared with the archived row of its source offset.

    New columns: ``is_row``; ``truth``, the archived row, null if there is none; ``expected``: the record's archived row
    is in the span; ``right``: the record is a right copy of it; ``first``: the first right copy; ``repeated``: a later
    right copy of the same attempt; ``arrived``: the archived row has a right copy; ``touched``: it has any record.
    """
    group = Window.partitionBy(*_SOURCE)
    is_row = F.col("out_topic").isNull()
    rows = both.select("*", F.max("row").over(group).alias("truth"), is_row.alias("is_row"))
    truth = F.col("truth")
    expected = ~is_row & F.coalesce(truth["in_span"], F.lit(False))
    # A dead letter that was too large for its topic has no content to compare.
    dead = F.when(F.col("without_value"), _content(*(F.lit(None).cast("binary"),) * 2)).otherwise(truth["dead"])
    same = F.col("content") == F.when(F.col("on_live"), truth["live"]).otherwise(dead)
    rows = rows.select(
        "*",
        expected.alias("expected"),
        F.coalesce(expected & same, F.lit(False)).alias("same"),
        F.coalesce(expected & same & F.col("on_live") & truth["good"], F.lit(False)).alias("right_live"),
    )
    rows = rows.select("*", F.max("right_live").over(group).alias("has_live"))
    # A good row may have a dead letter if it was replayed, or was too large for the live topic.
    good_but_dead = F.when(F.col("has_live"), F.col("replayed_letter")).otherwise(F.col("too_large"))
    right_dead = F.col("same") & ~F.col("on_live") & (~truth["good"] | good_but_dead)
    rows = rows.select("*", F.coalesce(F.col("right_live") | right_dead, F.lit(False)).alias("right"))
    order = [F.col("on_live").desc(), F.col("attempt"), F.col("out_topic"), F.col("out_partition"), F.col("out_offset")]
    first = F.row_number().over(Window.partitionBy(*_SOURCE, "right").orderBy(*order)) == 1
    # One copy on the live topic is right, and one dead letter of each attempt.
    attempt = F.when(F.col("on_live"), F.lit(-1)).otherwise(F.col("attempt"))
    rows = rows.select("*", first.alias("first"), attempt.alias("at_attempt"))
    repeated = F.row_number().over(Window.partitionBy(*_SOURCE, "right", "at_attempt").orderBy(*order)) > 1
    return rows.select(
        "*",
        repeated.alias("repeated"),
        F.max("right").over(group).alias("arrived"),
        F.max(~F.col("is_row")).over(group).alias("touched"),
    )


def _kind(sides: Sides) -> Column:
    """Why a row of ``_compared`` is pending, unexpected or not archived; null for other rows."""
    truth = F.col("truth")
    version = F.when(F.col("this_version"), "").otherwise("_other_version")
    wrong_topic = F.col("on_live") != truth["good"]
    return (
        F.when(F.col("is_row"), F.when(F.col("row.in_span"), _absence(sides)))
        .when(F.col("expected"), F.concat(F.when(wrong_topic, "wrong_topic").otherwise("changed"), version))
        .when(truth.isNull() & F.col("claimed_in_span") & ~F.col("other_stream"), _without_row(sides))
    )


def _row_outcome() -> Column:
    return (
        F.when(~F.col("row.in_span"), "outside")
        .when(F.col("arrived"), "delivered")
        .when(F.col("touched"), "mismatched")
        .when(F.col("kind").isNull(), "missing")
        .otherwise("pending")
    )


def _record_outcome() -> Column:
    right = F.when(F.col("first"), "delivered").when(F.col("repeated"), "duplicated").otherwise("replayed")
    return (
        F.when(F.col("right"), right)
        .when(F.col("expected"), "unexpected")
        .when(F.col("other_stream"), "other_stream")
        .when(F.col("kind").isNull(), "outside")
        .when(F.col("kind") == "not_archived", "not_archived")
        .otherwise("unexpected")
    )


def _absence(sides: Sides) -> Column:
    """Why an archived row without a record is pending; null if it is missing."""
    not_delivered = F.col("position").isNull() | (F.col("source_offset") >= F.col("position"))
    # Nothing more is delivered of a log that Kafka no longer has.
    not_delivered &= F.col("topic_id") == sides.archived.current_id
    incomplete = F.when(F.col("row.good"), F.lit(sides.live.incomplete)).otherwise(F.lit(sides.dead.incomplete))
    return F.when(not_delivered, "not_delivered").otherwise(incomplete)


def _without_row(sides: Sides) -> Column:
    """The kind of a record without an archived row in the span; null if its row is known to be outside the span."""
    known = list(sides.archived.topic_ids)
    other_topic = F.col("topic_id") != sides.archived.current_id
    return (
        F.when(~F.col("named"), "no_coordinates")
        .when(~F.col("topic_id").isin(known), "other_log")
        .when(F.col("state") == "has_holes", "no_such_record")
        .when(F.col("state") == "dense", None)
        .when((F.col("state") == "unarchived") | other_topic, "not_archived")
        .otherwise("no_such_record")
    )


def _collected(outcomes: DataFrame) -> tuple[RecordGroup, ...]:
    keys = ("is_row", "outcome", "kind", "on_live", "hour_us", "partition")
    rows = outcomes.groupBy(*keys).agg(
        F.count(F.lit(1)).alias("count"), F.min("example").alias("first"), F.max("example").alias("last")
    )
    return tuple(
        RecordGroup(
            **{name: row[name] for name in (*keys, "count")},
            examples=tuple(
                Example(offset=item[0], topic=item[1], partition=item[2], at=item[3])
                for item in dict.fromkeys(tuple(row[name]) for name in ("first", "last"))
            ),
        )
        for row in rows.collect()
    )


def _header(name: str) -> Column:
    """The text of the last header ``tidemark.<name>``, null if there is none."""
    found = F.filter("headers", lambda header: header["key"] == f"tidemark.{name}")
    return F.try_element_at(found, F.lit(-1))["value"].cast("string")


def _part(name: str, pattern: str, group: int) -> Column:
    """A group of the pattern that the header's text must match; null if it does not."""
    return F.nullif(F.regexp_extract(_header(name), pattern, group), F.lit(""))


def _content(key: Column, value: Column) -> Column:
    """A 64-bit hash of key and value. Null and empty differ."""
    parts = [key, value]
    return F.xxhash64(*(item.isNull() for item in parts), *(F.coalesce(item, F.lit(b"")) for item in parts))


def hour_start(micros: Column, time_zone: str) -> Column:
    """The start of the hour in the time zone, in µs since the epoch. A repeated hour counts as two hours."""
    local = F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(micros), time_zone))
    return micros - F.pmod(local, F.lit(HOUR_US))
