"""Dead letters as data: whose they are, which copy of one counts, and the source rows they were made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings
from tidemark.spark.kafka_source import read_ranges
from tidemark.speed.headers import HEADERS, SOURCE_PATTERN, STREAM_PATTERN
from tidemark.speed.output import HEADERS_TYPE

Kind = Literal["unmarked", "other_stream", "other_log"]
_KINDS: tuple[Kind, ...] = ("unmarked", "other_stream", "other_log")
# Milliseconds that fit a timestamp of microseconds.
_MS_MAX = 9_223_372_036_854_775
_FOUND_CHARACTERS = 200
_FIRST = f"tidemark.{HEADERS[0]}"
_ATTEMPT = "tidemark.attempt"
_SOURCE = ("topic", "topic-id", "partition", "offset")  # as the header has them


@dataclass(frozen=True, slots=True, kw_only=True)
class NotOurs:
    """Records on the dead-letter topic that the replay leaves where they are, with the first of them.

    ``unmarked``: without our headers, or with broken ones. ``other_stream``: another stream's dead letters.
    ``other_log``: of another source topic, or of one that was deleted and made again.
    """

    kind: Kind
    count: int
    partition: int
    offset: int
    found: str


def read_letters(
    spark: SparkSession, stream: Stream, settings: Settings, topic_id: str, ranges: Mapping[TopicPartition, OffsetRange]
) -> DataFrame:
    """A row per record in these ranges of the dead-letter topic, aborted ones left out.

    dead_partition, dead_offset: where on the dead-letter topic. kind, found: null for a letter of this stream and this
    source log (``topic_id``), else why it is not and what it says. partition, offset, timestamp, key, value, headers:
    those of its source record, null where it does not say. attempt int.
    """
    there = settings.model_copy(update={"kafka_bootstrap": settings.speed_bootstrap})
    rows = read_ranges(spark, there, ranges).select(
        F.col("partition").alias("dead_partition"),
        F.col("offset").alias("dead_offset"),
        "key",
        "value",
        F.coalesce("headers", F.array().cast(HEADERS_TYPE)).alias("_all"),
    )
    # In steps: each column that is used more than once is worked out once, and the plan stays small.
    # A source record may have headers of the same names, from another Tidemark stream: ours are the last ones.
    rows = rows.select("*", _last_first(F.col("_all")).alias("_from"))
    rows = rows.select("*", F.when(F.col("_from") > 0, _slice_from("_all", "_from")).alias("_own"))
    rows = rows.select(
        "*",
        *(_part("source", SOURCE_PATTERN, at).alias(f"_{name}") for at, name in enumerate(_SOURCE, 1)),
        _part("stream", STREAM_PATTERN, 1).alias("_stream"),
        _said("reason").alias("_reason"),
        _number("timestamp").alias("_timestamp"),
        # Those of an earlier release, which never replayed, have none.
        F.when(F.exists("_own", _is(_ATTEMPT)), _number("attempt")).otherwise(0).alias("_attempt"),
    )
    rows = rows.withColumns({name: F.col(name).try_cast("bigint") for name in ("_partition", "_offset")})
    whole = (
        F.col("_topic-id").isNotNull()
        & F.col("_topic").isNotNull()
        & F.col("_stream").isNotNull()
        & F.col("_reason").isNotNull()
        & F.col("_partition").between(0, 2**31 - 1)
        & (F.col("_offset") >= 0)
        & F.col("_timestamp").between(-_MS_MAX, _MS_MAX)
        & F.col("_attempt").between(0, 2**31 - 2)
    )
    unmarked, other_stream, other_log = _KINDS
    kind = (
        F.when(~F.coalesce(whole, F.lit(False)), unmarked)
        .when(F.col("_stream") != stream.name, other_stream)
        .when((F.col("_topic-id") != topic_id) | (F.col("_topic") != stream.topic), other_log)
    )
    rows = rows.select("*", kind.alias("kind"))
    found = (
        F.when(F.col("kind") == other_stream, F.concat(F.lit("stream "), "_stream"))
        .when(F.col("kind") == other_log, F.concat(F.lit("topic "), "_topic", F.lit(" with id "), "_topic-id"))
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
        F.when(ours, F.slice("_all", 1, F.greatest(F.col("_from") - 1, F.lit(0)))).alias("headers"),
        F.when(ours, F.col("_attempt").cast("int")).alias("attempt"),
        "key",
        "value",
    )


def chosen(letters: DataFrame, starts: Mapping[int, int]) -> DataFrame:
    """The one copy of each source record that is to be replayed.

    Columns: dead_partition, dead_offset, partition, offset, attempt.
    ``letters`` is the whole topic, ``starts`` where the replay begins by partition of the dead-letter topic. Of one
    record the letter of the highest attempt counts: whatever has a lower one was replayed to make it. Of its copies the
    first counts, and those below the starts, which were replayed, before all others.
    """
    # Letters that are not ours are all of one group, that without coordinates, and left out behind the grouping: Spark
    # would move a filter before it down to the source, and work out each column once for each time that it is used.
    wanted = is_new(starts) & F.col("kind").isNull()
    order = F.struct((-F.col("attempt")).alias("attempt"), wanted.alias("_new"), "dead_partition", "dead_offset")
    first = letters.groupBy("partition", "offset").agg(F.min(order).alias("first")).where("first._new")
    return first.select(
        "first.dead_partition", "first.dead_offset", "partition", "offset", (-F.col("first.attempt")).alias("attempt")
    )


def is_new(starts: Mapping[int, int]) -> Column:
    """Whether a letter is behind the start of its log."""
    known = F.create_map(*(item for log, start in starts.items() for item in (F.lit(log), F.lit(start).cast("bigint"))))
    return F.col("dead_offset") >= known[F.col("dead_partition")]


def not_ours(letters: DataFrame, starts: Mapping[int, int]) -> tuple[dict[Kind | None, int], tuple[NotOurs, ...]]:
    """How many letters behind the starts there are of each kind (None: ours), and the account of those that are not."""
    first = F.min(F.struct("dead_partition", "dead_offset", "found")).alias("first")
    rows = letters.where(is_new(starts)).groupBy("kind").agg(F.count(F.lit(1)).alias("count"), first).collect()
    counts = {row["kind"]: row["count"] for row in rows}
    told = [
        NotOurs(
            kind=row["kind"],
            count=row["count"],
            partition=row["first"]["dead_partition"],
            offset=row["first"]["dead_offset"],
            found=row["first"]["found"],
        )
        for row in rows
        if row["kind"] is not None
    ]
    return counts, tuple(sorted(told, key=lambda item: _KINDS.index(item.kind)))


def source_rows(letters: DataFrame, wanted: DataFrame, stream: Stream) -> DataFrame:
    """The source records of the ``wanted`` letters, with the columns of Spark's Kafka source."""
    return letters.join(wanted, ["dead_partition", "dead_offset"], "left_semi").select(
        F.lit(stream.topic).alias("topic"),
        "partition",
        "offset",
        "timestamp",
        F.lit(0).alias("timestampType"),  # a dead letter does not say; nothing that decodes or transforms sees it
        "key",
        "value",
        "headers",
    )


def to_deliver(records: DataFrame, wanted: DataFrame, logs: int) -> DataFrame:
    """Records of ``output`` for the ``wanted`` letters, ordered by log and offset of the dead-letter topic.

    source_partition and source_offset are the dead letter's own from here on; those that are dead again say the next
    attempt. A letter for which there is no record comes with a null topic: it must not pass unseen.
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
    again = rows.withColumn("_from", _last_first(F.col("headers"))).withColumn(
        "headers", F.transform("headers", _next_attempt)
    )
    return (
        again.select(
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


def _next_attempt(header: Column, at: Column) -> Column:
    """Our header of a dead letter that says its attempt, with the letter's next one; any other as it is."""
    next_one = (F.col("attempt") + 1).cast("string").cast("binary")
    ours = (header["key"] == _ATTEMPT) & (at + 1 >= F.col("_from"))
    return F.when(ours, F.struct(header["key"].alias("key"), next_one.alias("value"))).otherwise(header)


def _last_first(headers: Column) -> Column:
    """Where, from 1 on, our own headers begin: at the last of the name that they begin with; 0 where there are none."""
    names = F.reverse(F.transform(headers, lambda header: header["key"]))
    behind = F.array_position(names, _FIRST)
    return F.when(behind > 0, F.size(headers) - behind + 1).otherwise(0).cast("int")


def _slice_from(headers: str, start: str) -> Column:
    return F.slice(headers, F.greatest(F.col(start), F.lit(1)), F.size(headers))


def _is(name: str) -> Callable[[Column], Column]:
    return lambda header: header["key"] == name


def _said(name: str) -> Column:
    """The text of one of our headers; null where it is missing or not UTF-8."""
    value = F.get(F.filter("_own", _is(f"tidemark.{name}")), F.lit(0))["value"].cast("string")
    return F.when(F.is_valid_utf8(value), value)


def _part(name: str, pattern: str, group: int) -> Column:
    """A group of the pattern that one of our headers must have; null where it has not."""
    return F.nullif(F.regexp_extract(_said(name), pattern, group), F.lit(""))


def _number(name: str) -> Column:
    text = _said(name)
    return F.when(text.rlike(r"^-?[0-9]{1,19}$"), text).try_cast("bigint")
