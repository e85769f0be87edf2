"""Dead letters as data: which ones belong to the stream, which copy of one counts, and their source records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings
from tidemark.spark.kafka_source import read_ranges
from tidemark.speed.headers import HEADERS, SOURCE_PATTERN, STREAM_PATTERN, WITHOUT_VALUE
from tidemark.speed.output import HEADERS_TYPE

Kind = Literal["unmarked", "other_stream", "other_log", "without_value"]
_KINDS: tuple[Kind, ...] = ("unmarked", "other_stream", "other_log", "without_value")
# Milliseconds that fit a timestamp of microseconds.
_MS_MAX = 9_223_372_036_854_775
_FOUND_CHARACTERS = 200
_FIRST = f"tidemark.{HEADERS[0]}"
_ATTEMPT = "tidemark.attempt"
_SOURCE = ("topic", "topic-id", "partition", "offset")  # in the header's order


@dataclass(frozen=True, slots=True, kw_only=True)
class NotOurs:
    """Records on the dead-letter topic that the replay skips, with the first of them as an example.

    ``unmarked``: without Tidemark's headers, or with broken ones. ``other_stream``: another stream's dead letters.
    ``other_log``: of another or a recreated source topic. ``without_value``: too large for the dead-letter topic, so
    that only the archive has the record.
    """

    kind: Kind
    count: int
    partition: int
    offset: int
    found: str


def read_dead_letters(
    spark: SparkSession, stream: Stream, settings: Settings, topic_id: str, ranges: Mapping[TopicPartition, OffsetRange]
) -> DataFrame:
    """One row per committed record in these ranges of the dead-letter topic.

    dead_partition, dead_offset: its place on the dead-letter topic. kind, found: null for a dead letter of this stream
    and source log (``topic_id``), otherwise why it is skipped. partition, offset, timestamp, key, value, headers: those
    of its source record, null where unknown. attempt int.
    """
    rows = _parsed(read_ranges(spark, settings, ranges, settings.speed_kafka))
    rows = rows.select("*", _kind(stream, topic_id).alias("kind"))
    unmarked, other_stream, other_log, without_value = _KINDS
    found = (
        F.when(F.col("kind") == other_stream, F.concat(F.lit("stream "), "_stream"))
        .when(F.col("kind") == other_log, F.concat(F.lit("topic "), "_topic", F.lit(" with id "), "_topic-id"))
        .when(
            F.col("kind") == without_value,
            F.concat(F.lit("source partition "), "_partition", F.lit(" offset "), "_offset"),
        )
        .when(F.size("_all") == 0, F.lit("no headers"))
        .when(F.col("kind") == unmarked, F.concat(F.lit("headers: "), F.array_join("_all.key", ", ")))
    )
    ours = F.col("kind").isNull()
    return rows.select(
        "dead_partition",
        "dead_offset",
        "kind",
        F.substring(found, 1, _FOUND_CHARACTERS).alias("found"),
        F.when(ours, F.col("_partition").cast("int")).alias("partition"),
        F.when(ours, F.col("_offset")).alias("offset"),
        F.when(ours, F.timestamp_millis("_timestamp")).alias("timestamp"),
        F.when(ours, F.slice("_all", 1, F.greatest(F.col("_own_from") - 1, F.lit(0)))).alias("headers"),
        F.when(ours, F.col("_attempt").cast("int")).alias("attempt"),
        "key",
        "value",
    )


def _parsed(rows: DataFrame) -> DataFrame:
    """Rows of the dead-letter topic with the values of Tidemark's headers, null where they are missing or invalid."""
    rows = rows.select(
        F.col("partition").alias("dead_partition"),
        F.col("offset").alias("dead_offset"),
        "key",
        "value",
        F.coalesce("headers", F.array().cast(HEADERS_TYPE)).alias("_all"),
    )
    # In steps: each column that is used more than once is computed once, and the plan stays small.
    rows = rows.select("*", _own_start(F.col("_all")).alias("_own_from"))
    own = F.slice("_all", F.greatest(F.col("_own_from"), F.lit(1)), F.size("_all"))
    rows = rows.select("*", F.when(F.col("_own_from") > 0, own).alias("_own"))
    rows = rows.select(
        "*",
        *(_part("source", SOURCE_PATTERN, group).alias(f"_{name}") for group, name in enumerate(_SOURCE, 1)),
        _part("stream", STREAM_PATTERN, 1).alias("_stream"),
        _text("reason").alias("_reason"),
        _text("exception").alias("_exception"),
        _number("timestamp").alias("_timestamp"),
        _number("attempt").alias("_attempt"),
    )
    return rows.withColumns({name: F.col(name).try_cast("bigint") for name in ("_partition", "_offset")})


def _kind(stream: Stream, topic_id: str) -> Column:
    """Why a row of ``_parsed`` is skipped; null for the stream's own dead letters."""
    complete = (
        F.col("_topic-id").isNotNull()
        & F.col("_topic").isNotNull()
        & F.col("_stream").isNotNull()
        & F.col("_reason").isNotNull()
        & F.col("_partition").between(0, 2**31 - 1)
        & (F.col("_offset") >= 0)
        & F.col("_timestamp").between(-_MS_MAX, _MS_MAX)
        & F.col("_attempt").between(0, 2**31 - 2)
    )
    unmarked, other_stream, other_log, without_value = _KINDS
    return (
        F.when(~F.coalesce(complete, F.lit(False)), unmarked)
        .when(F.col("_stream") != stream.name, other_stream)
        .when((F.col("_topic-id") != topic_id) | (F.col("_topic") != stream.topic), other_log)
        .when(F.col("_exception") == WITHOUT_VALUE, without_value)
    )


def select_copies(rows: DataFrame, starts: Mapping[int, int]) -> DataFrame:
    """The dead letter to replay of each source record that needs a replay.

    Columns: dead_partition, dead_offset, partition, offset, attempt. ``rows`` is the whole topic, ``starts`` the
    first offset to replay by partition of the dead-letter topic. The highest attempt of a record counts: lower ones
    were replayed before it. Among its copies the first one counts. Copies before the starts were replayed, so a record
    that has one is left out.
    """
    # Dead letters of others form one group, the one without coordinates, which is dropped after the grouping. Spark
    # would push an earlier filter down to the source, and compute each column once per use.
    wanted = is_new(starts) & F.col("kind").isNull()
    order = F.struct((-F.col("attempt")).alias("attempt"), wanted.alias("_new"), "dead_partition", "dead_offset")
    first = rows.groupBy("partition", "offset").agg(F.min(order).alias("first")).where("first._new")
    return first.select(
        "first.dead_partition", "first.dead_offset", "partition", "offset", (-F.col("first.attempt")).alias("attempt")
    )


def is_new(starts: Mapping[int, int]) -> Column:
    """Whether a dead letter is at or after the start of its partition."""
    pairs = (item for log, start in starts.items() for item in (F.lit(log), F.lit(start).cast("bigint")))
    return F.col("dead_offset") >= F.create_map(*pairs)[F.col("dead_partition")]


def not_ours(rows: DataFrame, starts: Mapping[int, int]) -> tuple[dict[Kind | None, int], tuple[NotOurs, ...]]:
    """The number of dead letters after the starts by kind (None: ours), and the records of others."""
    first = F.min(F.struct("dead_partition", "dead_offset", "found")).alias("first")
    groups = rows.where(is_new(starts)).groupBy("kind").agg(F.count(F.lit(1)).alias("count"), first).collect()
    counts = {row["kind"]: row["count"] for row in groups}
    skipped = [
        NotOurs(
            kind=row["kind"],
            count=row["count"],
            partition=row["first"]["dead_partition"],
            offset=row["first"]["dead_offset"],
            found=row["first"]["found"],
        )
        for row in groups
        if row["kind"] is not None
    ]
    return counts, tuple(sorted(skipped, key=lambda item: _KINDS.index(item.kind)))


def source_rows(rows: DataFrame, wanted: DataFrame, stream: Stream) -> DataFrame:
    """The source records of the ``wanted`` dead letters, with the columns of Spark's Kafka source."""
    return rows.join(wanted, ["dead_partition", "dead_offset"], "left_semi").select(
        F.lit(stream.topic).alias("topic"),
        "partition",
        "offset",
        "timestamp",
        F.lit(0).alias("timestampType"),  # unknown, but neither decoding nor the transformation sees it
        "key",
        "value",
        "headers",
    )


def to_deliver(records: DataFrame, wanted: DataFrame, logs: int) -> DataFrame:
    """Records of ``output`` for the ``wanted`` dead letters, ordered by partition and offset of the dead-letter topic.

    From here on, source_partition and source_offset are the dead letter's. A record that is dead again has the next
    attempt. A dead letter without a record gets a null topic, so that it is noticed.
    """
    letter = wanted.select(
        "dead_partition",
        "dead_offset",
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        "attempt",
    )
    same = (F.col("_partition") == F.col("source_partition")) & (F.col("_offset") == F.col("source_offset"))
    rows = letter.join(records, same, "left")
    rows = rows.withColumn("_own_from", _own_start(F.col("headers")))
    return (
        rows.withColumn("headers", F.transform("headers", _next_attempt))
        .select(
            "topic",
            "partition",
            "key",
            "value",
            "headers",
            "timestamp",
            F.col("dead_partition").alias("source_partition"),
            F.col("dead_offset").alias("source_offset"),
            "_good",
        )
        .repartition(logs, "source_partition")
        .sortWithinPartitions("source_partition", "source_offset")
    )


def _next_attempt(header: Column, index: Column) -> Column:
    """Tidemark's header of the attempt, with the next attempt; any other header unchanged."""
    next_one = (F.col("attempt") + 1).cast("string").cast("binary")
    ours = (header["key"] == _ATTEMPT) & (index + 1 >= F.col("_own_from"))
    return F.when(ours, F.struct(header["key"].alias("key"), next_one.alias("value"))).otherwise(header)


def _own_start(headers: Column) -> Column:
    """The position, counted from 1, of the first of Tidemark's own headers; 0 if there are none.

    A source record may have headers of the same names, from another stream. Tidemark's own headers are the last ones.
    """
    names = F.reverse(F.transform(headers, lambda header: header["key"]))
    from_end = F.array_position(names, _FIRST)
    return F.when(from_end > 0, F.size(headers) - from_end + 1).otherwise(0).cast("int")


def _text(name: str) -> Column:
    """The text of one of Tidemark's headers; null if it is missing or not UTF-8."""
    ours = F.filter("_own", lambda header: header["key"] == f"tidemark.{name}")
    value = F.get(ours, F.lit(0))["value"].cast("string")
    return F.when(F.is_valid_utf8(value), value)


def _part(name: str, pattern: str, group: int) -> Column:
    """A group of the pattern that one of Tidemark's headers must match; null if it does not."""
    return F.nullif(F.regexp_extract(_text(name), pattern, group), F.lit(""))


def _number(name: str) -> Column:
    text = _text(name)
    return F.when(text.rlike(r"^-?[0-9]{1,19}$"), text).try_cast("bigint")
