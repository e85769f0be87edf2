"""What the speed layer writes: every row once, as a record for the live topic or for the dead-letter topic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from tidemark.core.errors import ConfigError
from tidemark.spark.decode import REASON
from tidemark.spark.process import PLATFORM_COLUMNS
from tidemark.streams import Stream

# Behind "tidemark."; dead letters have the second line as well.
HEADERS = ("topic-id", "topic", "partition", "offset", "timestamp", "stream", "version")
DEAD_LETTER_HEADERS = ("reason", "exception", "attempt")
HEADERS_TYPE = "array<struct<key: string, value: binary>>"

# Every column, also one that is null, and times to the µs: the live record says what the published row says.
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
# A reason is the transformation's own text. Longer ones are cut, so that room for headers can be planned.
_REASON_CHARACTERS = 4_000
HEADER_ROOM_BYTES = 64 * 1024
# Kafka's record batch of version 2: its head, and a record's attributes, timestamp delta and offset delta.
_BATCH_BYTES, _RECORD_BYTES = 61, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLimits:
    """``max.message.bytes`` of both output topics."""

    live: int
    dead_letter: int


def output(rows: DataFrame, stream: Stream, topic_id: str, *, record_limits: RecordLimits) -> DataFrame:
    """One record per row of ``classify``, in the rows' order, narrow.

    Columns: topic string, partition int (null: by the key), key and value binary, headers ``HEADERS_TYPE``, timestamp
    (the source record's), source_partition int, source_offset bigint, and ``_good`` boolean to count by. Good rows go
    to ``speed.topic`` as a JSON object of the stream's columns; rejected ones, and those above the live topic's limit,
    to ``speed.dead_letter_topic`` with their original bytes. An action fails at a record that is too large even for
    that. Raises ConfigError when ``speed.key`` names no usable column.
    """
    coordinates = _coordinates(stream, topic_id)
    key, value = live_record(rows, stream)
    made = rows.select("source", REASON, key.alias("_key"), value.alias("_value"))
    sized = made.select("*", _size_if_large(coordinates, record_limits.live).alias("_size"))
    told = sized.select("source", "_key", "_value", _reason(stream, record_limits.live).alias(REASON))
    good = F.col(REASON).isNull()
    by_source = F.col("source.partition") if stream.speed.partitioning == "source" else F.lit(None)
    return told.select(
        F.when(good, stream.speed.topic).otherwise(stream.speed.dead_letter_topic).alias("topic"),
        F.when(good, by_source).cast("int").alias("partition"),
        F.when(good, F.col("_key")).otherwise(F.col("source.key")).alias("key"),
        F.when(good, F.col("_value")).otherwise(F.col("source.value")).alias("value"),
        F.when(good, _headers(coordinates)).otherwise(_dead(stream, coordinates, record_limits)).alias("headers"),
        F.col("source.timestamp").alias("timestamp"),
        F.col("source.partition").alias("source_partition"),
        F.col("source.offset").alias("source_offset"),
        good.alias("_good"),
    )


def live_record(rows: DataFrame, stream: Stream) -> tuple[Column, Column]:
    """Key and value (null for a rejected row) of the live record, over rows of ``classify``. Raises as ``output``."""
    own = [name for name in rows.columns if name not in (*PLATFORM_COLUMNS, REASON)]
    value = F.to_json(F.struct(*(f"`{name}`" for name in own)), _JSON).cast("binary")
    return _key(rows, own, stream), F.when(F.col(REASON).isNull(), value)


def _size_if_large(coordinates: Mapping[str, Column], limit: int) -> Column:
    """The live record's bytes on the wire where they might be above the limit; null for all others, which are cheap."""
    payload = F.coalesce(F.length("_key"), F.lit(0)) + F.length("_value")
    return F.when(payload > limit - HEADER_ROOM_BYTES, _record_bytes(F.col("_key"), F.col("_value"), coordinates))


def _reason(stream: Stream, limit: int) -> Column:
    large = F.concat(
        F.lit("a record of "),
        F.col("_size").cast("string"),
        F.lit(f" bytes is larger than max.message.bytes {limit} of {stream.speed.topic}"),
    )
    cut = F.when(F.col(REASON).isNotNull(), F.substring(REASON, 1, _REASON_CHARACTERS))
    return F.coalesce(cut, F.when(F.col("_size") > limit, large))


def _dead(stream: Stream, coordinates: Mapping[str, Column], limits: RecordLimits) -> Column:
    """A dead letter's headers; at a record above the limit it is an error, because nowhere is left to keep it."""
    kind = (
        F.when(F.col(f"source.{REASON}").isNotNull(), "undecodable")
        .when(F.col("_value").isNotNull(), "too_large")  # it was made into a live record
        .otherwise("rejected")
    )
    told = dict(zip(DEAD_LETTER_HEADERS, (F.col(REASON), kind, F.lit("0")), strict=True))
    own = {**coordinates, **told}
    # At most: five bytes for each length.
    theirs = (
        F.octet_length(F.array_join("source.headers.key", ""))
        + F.octet_length(F.array_join(F.col("source.headers.value").cast("array<string>"), ""))
        + 10 * F.size("source.headers")
        + 5
    )
    size = _record_bytes(F.col("source.key"), F.col("source.value"), own) + theirs
    error = F.concat(
        F.lit("no topic takes this record: partition "),
        F.col("source.partition").cast("string"),
        F.lit(" offset "),
        F.col("source.offset").cast("string"),
        F.lit(f" of {stream.topic} is a dead letter of "),
        size.cast("string"),
        F.lit(
            f" bytes, and max.message.bytes of {stream.speed.dead_letter_topic} is {limits.dead_letter}."
            " Raise that topic's limit and start again"
        ),
    )
    return F.when(size <= limits.dead_letter, F.concat("source.headers", _headers(own))).otherwise(F.raise_error(error))


def _coordinates(stream: Stream, topic_id: str) -> dict[str, Column]:
    """Header name behind ``tidemark.`` to its text. Numbers are decimal, the timestamp in ms since the epoch."""
    values = (
        F.lit(topic_id),
        F.col("source.topic"),
        F.col("source.partition"),
        F.col("source.offset"),
        F.unix_millis("source.timestamp"),
        F.lit(stream.name),
        F.lit(stream.version),
    )
    return dict(zip(HEADERS, values, strict=True))


def _headers(values: Mapping[str, Column]) -> Column:
    pairs = (
        F.struct(F.lit(f"tidemark.{name}").alias("key"), value.cast("string").cast("binary").alias("value"))
        for name, value in values.items()
    )
    return F.array(*pairs).cast(HEADERS_TYPE)


def _record_bytes(key: Column, value: Column, headers: Mapping[str, Column]) -> Column:
    """Bytes of a batch with this one record, uncompressed, which is what a broker holds against its limit.

    https://kafka.apache.org/documentation/#recordbatch
    """
    names = sum(1 + len(f"tidemark.{name}") for name in headers)  # with their lengths of one byte
    body = F.lit(_RECORD_BYTES + names + 1) + _sized(key) + _sized(value)
    for text in headers.values():
        body += _sized(text.cast("string"))
    return F.lit(_BATCH_BYTES) + _varint(body) + body


def _sized(data: Column) -> Column:
    """Bytes of a length and the data behind it; null is a length of -1, which takes the byte that 0 takes."""
    length = F.coalesce(F.octet_length(data), F.lit(0))
    return _varint(length) + length


def _varint(number: Column) -> Column:
    """Bytes of a number that is not negative, as Kafka writes it: zigzag, seven bits a byte.

    The number stands here only once: choices between lengths would repeat it, and sums of sums of such repeats became
    more code than Java can compile.
    """
    return F.ceil(F.length(F.bin(number * 2)) / 7)


def _key(rows: DataFrame, own: Sequence[str], stream: Stream) -> Column:
    name = stream.speed.key
    if name is None:
        return F.col("source.key")
    kinds = {field.name: field.dataType for field in rows.schema if field.name in own}
    if name not in kinds or isinstance(kinds[name], ArrayType | MapType | StructType):
        usable = (column for column, kind in kinds.items() if not isinstance(kind, ArrayType | MapType | StructType))
        raise ConfigError(
            "speed.key names no plain column of the transformation",
            expected=f"one of {', '.join(usable)}",
            found=name,
            where=f"stream {stream.name}",
        )
    return F.col(f"`{name}`").cast("string").cast("binary")
