"""The comparison, in Spark: archived rows and delivered records side by side, one shuffle by source coordinates.

Every archived row of the span gets one ``outcome``, and every record read from an output topic gets one. Only their
counts per hour and source partition come back, with the first and the last example of each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from math import ceil

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidemark.archive.read import read_slices
from tidemark.core.offsets import TopicPartition, count
from tidemark.definitions.stream import Stream
from tidemark.delivery_audit.archived import ArchivedRows, Known
from tidemark.delivery_audit.output_topics import Output
from tidemark.delivery_audit.report import Example, RecordGroup
from tidemark.delivery_audit.span import TimeSpan
from tidemark.objects.connect import is_connect_key
from tidemark.settings import Settings
from tidemark.spark.decode import REASON
from tidemark.spark.kafka_source import read_ranges
from tidemark.spark.process import classify, load_transform
from tidemark.speed.headers import SOURCE_PATTERN, STREAM_PATTERN
from tidemark.speed.output import live_record

ROWS_PER_TASK = 500_000
HOUR_US = timedelta(hours=1) // timedelta(microseconds=1)
_SOURCE = ["topic_id", "source_partition", "source_offset"]
# ``keyless``: ``live`` is without the key, which the archive does not hold. ``dead`` is null where it can't be told.
_ROW = "struct<in_span: boolean, good: boolean, hour_us: bigint, keyless: boolean, live: bigint, dead: bigint>"
_RECORDS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " headers array<struct<key: string, value: binary>>"
)
_MS_DIGITS, _ATTEMPT_DIGITS = r"^-?\d{1,15}$", r"^\d{1,9}$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both sides, fixed: what of the archive is read, what of the topics, and what decides over an absent record.

    ``positions``: per source log the next offset that the speed stream will deliver. ``replayed``: per dead-letter
    log the offset up to which its letters were replayed.
    """

    archived: ArchivedRows
    live: Output
    dead: Output
    positions: Mapping[TopicPartition, int]
    replayed: Mapping[TopicPartition, int]


def compare(
    spark: SparkSession, stream: Stream, settings: Settings, span: TimeSpan, sides: Sides
) -> tuple[RecordGroup, ...]:
    """The counts of all outcomes; see ``tidemark.delivery_audit.report`` for the words.

    Raises ConfigError for a transformation that breaks its contract, IncompleteError where objects of the archive are
    gone; an action's own failures are Spark's.
    """
    offsets = count(item.range for item in (*sides.archived.slices, *sides.archived.holed))
    offsets += count([*sides.live.ranges.values(), *sides.dead.ranges.values()])
    tasks = max(4, ceil(offsets / ROWS_PER_TASK))
    both = _expected(spark, stream, settings, span, sides).unionByName(
        _delivered(spark, stream, settings, span, sides), allowMissingColumns=True
    )
    outcomes = _outcomes(both.repartition(tasks, *_SOURCE), sides)
    return _collected(outcomes)


def _expected(spark: SparkSession, stream: Stream, settings: Settings, span: TimeSpan, sides: Sides) -> DataFrame:
    """Archived rows, once each: those of the span with what they must come out as; others, where they must be known,
    with their coordinates only. ``position`` is the stream's own in their log, null where nobody knows it."""
    transform = load_transform(stream, settings.streams_dir)
    inside = F.unix_micros("event_time").between(span.start_us, span.end_us - 1)
    parts: list[DataFrame] = []
    for topic_id in sides.archived.topic_ids:
        own = [item for item in sides.archived.slices if item.log.topic_id == topic_id]
        adopted = [item for item in own if is_connect_key(item.key)]
        own = [item for item in own if not is_connect_key(item.key)]
        source = [F.lit(topic_id), F.col("source.partition"), F.col("source.offset")]
        for slices, has_bytes in ((own, True), (adopted, False)):
            if not slices and parts:  # the transformation is checked even where the archive is empty
                continue
            rows = classify(read_slices(spark, settings, stream, slices).where(inside), stream, transform)
            key, value = live_record(rows, stream)
            keyless = not has_bytes and stream.speed.key is None
            parts.append(
                rows.select(
                    *(column.alias(name) for column, name in zip(source, _SOURCE, strict=True)),
                    F.struct(
                        F.lit(True).alias("in_span"),
                        F.col(REASON).isNull().alias("good"),
                        hour_start(F.unix_micros("event_time"), stream.time_zone).alias("hour_us"),
                        F.lit(keyless).alias("keyless"),
                        _content(None if keyless else key, value).alias("live"),
                        F.when(F.lit(has_bytes), _content(F.col("source.key"), F.col("source.value"))).alias("dead"),
                    )
                    .cast(_ROW)
                    .alias("row"),
                )
            )
        holed = [item for item in sides.archived.holed if item.log.topic_id == topic_id]
        if holed:
            rows = read_slices(spark, settings, stream, holed).where(~inside)
            parts.append(
                rows.select(
                    F.lit(topic_id).alias("topic_id"),
                    F.col("partition").alias("source_partition"),
                    F.col("offset").alias("source_offset"),
                    F.struct(F.lit(False), *(F.lit(None) for _ in range(5))).cast(_ROW).alias("row"),
                )
            )
    positions = spark.createDataFrame(
        [(log.topic_id, log.partition, offset) for log, offset in sides.positions.items()],
        "topic_id string, source_partition int, position bigint",
    )
    return _together(parts).join(F.broadcast(positions), ["topic_id", "source_partition"], "left")


def _delivered(spark: SparkSession, stream: Stream, settings: Settings, span: TimeSpan, sides: Sides) -> DataFrame:
    """The output topics' records with what their headers say; ``state`` is what is known of the offset they name."""
    there = settings.model_copy(update={"kafka_bootstrap": settings.speed_bootstrap})
    parts = [read_ranges(spark, there, item.ranges) for item in (sides.live, sides.dead) if item.ranges]
    stamp = _header("timestamp")
    own_us = F.unix_micros("timestamp")
    replayed = reduce(
        lambda found, item: found | ((F.col("out_partition") == item[0].partition) & (F.col("out_offset") < item[1])),
        sides.replayed.items(),
        F.lit(False),
    )
    records = _together(parts or [spark.createDataFrame([], _RECORDS)]).select(
        _part("source", SOURCE_PATTERN, 2).alias("topic_id"),
        _part("source", SOURCE_PATTERN, 3).try_cast("int").alias("source_partition"),
        _part("source", SOURCE_PATTERN, 4).try_cast("bigint").alias("source_offset"),
        F.col("topic").alias("out_topic"),
        F.col("partition").alias("out_partition"),
        F.col("offset").alias("out_offset"),
        (F.col("topic") == stream.speed.topic).alias("on_live"),
        F.coalesce(_number("attempt", _ATTEMPT_DIGITS), F.lit(0)).alias("attempt"),
        F.coalesce(_part("stream", STREAM_PATTERN, 1) != stream.name, F.lit(False)).alias("other_stream"),
        F.coalesce(_part("stream", STREAM_PATTERN, 2) == str(stream.version), F.lit(False)).alias("this_version"),
        F.coalesce(_header("exception") == "too_large", F.lit(False)).alias("too_large"),
        F.when(stamp.rlike(_MS_DIGITS), stamp.try_cast("bigint") * 1000).otherwise(own_us).alias("claimed_us"),
        _content(F.col("key"), F.col("value")).alias("content"),
        _content(None, F.col("value")).alias("keyless_content"),
    )
    records = records.withColumn("replayed_letter", ~F.col("on_live") & replayed)
    known = spark.createDataFrame(
        [_known_row(item) for item in sides.archived.known],
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
    # A record without coordinates is alone with its own, so that none shares a group, and no group gets large. So is
    # another stream's: of the same source topic its coordinates are those of this stream's rows.
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
    group = Window.partitionBy(*_SOURCE)
    is_row = F.col("out_topic").isNull()
    rows = both.select("*", F.max("row").over(group).alias("truth"), is_row.alias("is_row"))
    truth = F.col("truth")
    expected = ~is_row & F.coalesce(truth["in_span"], F.lit(False))
    live = F.when(truth["keyless"], F.col("keyless_content")).otherwise(F.col("content"))
    dead = truth["dead"].isNull() | (F.col("content") == truth["dead"])
    same = F.when(F.col("on_live"), live == truth["live"]).otherwise(dead)
    rows = rows.select(
        "*",
        expected.alias("expected"),
        F.coalesce(expected & same, F.lit(False)).alias("same"),
        F.coalesce(expected & same & F.col("on_live") & truth["good"], F.lit(False)).alias("right_live"),
    )
    rows = rows.select("*", F.max("right_live").over(group).alias("has_live"))
    settled = F.when(F.col("has_live"), F.col("replayed_letter")).otherwise(F.col("too_large"))
    right_letter = F.col("same") & ~F.col("on_live") & (~truth["good"] | settled)
    rows = rows.select("*", F.coalesce(F.col("right_live") | right_letter, F.lit(False)).alias("right"))
    order = [F.col("on_live").desc(), F.col("attempt"), F.col("out_topic"), F.col("out_partition"), F.col("out_offset")]
    first = F.row_number().over(Window.partitionBy(*_SOURCE, "right").orderBy(*order)) == 1
    # On the live topic one copy is right, of a letter one for each attempt.
    attempt = F.when(F.col("on_live"), F.lit(-1)).otherwise(F.col("attempt"))
    rows = rows.select("*", first.alias("first"), attempt.alias("at_attempt"))
    again = F.row_number().over(Window.partitionBy(*_SOURCE, "right", "at_attempt").orderBy(*order)) > 1
    rows = rows.select(
        "*",
        again.alias("again"),
        F.max("right").over(group).alias("arrived"),
        F.max(~F.col("is_row")).over(group).alias("touched"),
    )
    version = F.when(F.col("this_version"), "").otherwise("_other_version")
    wrong_topic = F.col("on_live") != truth["good"]
    kind = (
        F.when(F.col("is_row"), F.when(F.col("row.in_span"), _absence(sides)))
        .when(F.col("expected"), F.concat(F.when(wrong_topic, "wrong_topic").otherwise("changed"), version))
        .when(truth.isNull() & F.col("claimed_in_span") & ~F.col("other_stream"), _stranger(sides))
    )
    record = (
        F.when(
            F.col("right"), F.when(F.col("first"), "delivered").when(F.col("again"), "duplicated").otherwise("replayed")
        )
        .when(F.col("expected"), "unexpected")
        .when(F.col("other_stream"), "other_stream")
        .when(F.col("kind").isNull(), "outside")
        .when(F.col("kind") == "not_archived", "not_archived")
        .otherwise("unexpected")
    )
    row = (
        F.when(~F.col("row.in_span"), "outside")
        .when(F.col("arrived"), "delivered")
        .when(F.col("touched"), "unlike")
        .when(F.col("kind").isNull(), "missing")
        .otherwise("pending")
    )
    outcomes = rows.select("*", kind.alias("kind")).select(
        "*", F.when(F.col("is_row"), row).otherwise(record).alias("outcome")
    )
    told = F.col("outcome").isin("unexpected", "pending", "not_archived")
    outside = F.col("outcome").isin("outside", "other_stream")
    return outcomes.select(
        "is_row",
        "outcome",
        F.when(told, F.col("kind")).alias("kind"),
        "on_live",
        F.when(~outside, F.coalesce(truth["hour_us"], F.col("claimed_hour_us"))).alias("hour_us"),
        F.when(~outside, F.col("source_partition")).alias("partition"),
        F.struct("source_offset", "out_topic", "out_partition", "out_offset").alias("example"),
    )


def _absence(sides: Sides) -> Column:
    """Why an archived row that arrived nowhere is not missing yet; null where it is."""
    behind = F.col("position").isNull() | (F.col("source_offset") >= F.col("position"))
    # What nobody has delivered of a log that is gone will not come any more.
    behind &= F.col("topic_id") == sides.archived.current_id
    doubt = F.when(F.col("row.good"), F.lit(sides.live.doubt)).otherwise(F.lit(sides.dead.doubt))
    return F.when(behind, "not_delivered").otherwise(doubt)


def _stranger(sides: Sides) -> Column:
    """What a record without an archived row is, null where its row is known to be of another time."""
    known = list(sides.archived.topic_ids)
    gone = F.col("topic_id") != sides.archived.current_id
    return (
        F.when(~F.col("named"), "no_coordinates")
        .when(~F.col("topic_id").isin(known), "other_log")
        .when(F.col("state") == "holed", "no_such_record")
        .when(F.col("state") == "dense", None)
        .when((F.col("state") == "unarchived") | gone, "not_archived")
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


def _known_row(item: Known) -> tuple[str, int, int, int, str]:
    return item.log.topic_id, item.log.partition, item.range.start, item.range.end, item.state


def _header(name: str) -> Column:
    """The text of the last header ``tidemark.<name>``, null where there is none."""
    found = F.filter("headers", lambda header: header["key"] == f"tidemark.{name}")
    return F.try_element_at(found, F.lit(-1))["value"].cast("string")


def _part(name: str, pattern: str, group: int) -> Column:
    """A group of the pattern that the header's text must have; null where it has not."""
    return F.nullif(F.regexp_extract(_header(name), pattern, group), F.lit(""))


def _number(name: str, digits: str) -> Column:
    text = _header(name)
    return F.when(text.rlike(digits), text.try_cast("bigint"))


def _content(key: Column | None, value: Column) -> Column:
    """64 bits of key (None: left out) and value; null is not empty."""
    parts = [value] if key is None else [key, value]
    return F.xxhash64(*(item.isNull() for item in parts), *(F.coalesce(item, F.lit(b"")) for item in parts))


def hour_start(micros: Column, time_zone: str) -> Column:
    """The start of the hour in the time zone, in µs since the epoch: an hour that comes twice is two."""
    local = F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(micros), time_zone))
    return micros - F.pmod(local, F.lit(HOUR_US))


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda first, frame: first.unionByName(frame), frames)
