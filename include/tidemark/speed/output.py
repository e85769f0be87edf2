"""The records of the speed layer: each row becomes one record, for the live topic or for the dead-letter topic."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import Stream
from tidemark.spark.decode import REASON
from tidemark.spark.process import PLATFORM_COLUMNS
from tidemark.speed.headers import DEAD_LETTER_HEADERS, HEADERS, WITHOUT_VALUE, stream_text
from tidemark.speed.record_limits import RecordLimits

HEADERS_TYPE = "array<struct<key: string, value: binary>>"

# Null columns are kept and times have microseconds, so that a live record equals the published row.
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
# A reason is the transformation's own text. It is truncated, so that the space for headers is bounded.
_REASON_CHARACTERS = 4_000
# Kafka's record batch, version 2: its header; a record's attributes, timestamp delta and offset delta; a length.
# https://kafka.apache.org/documentation/#recordbatch
_BATCH_BYTES, _RECORD_BYTES, _LENGTH_BYTES = 61, 1 + 10 + 1, 5
# Of a 64-bit number: -9223372036854775808.
_DIGITS = 20


def output(
    rows: DataFrame, stream: Stream, topic_id: str, *, record_limits: RecordLimits, with_coordinates: bool = True
) -> DataFrame:
    """One record per row of ``classify``, in the rows' order, without a shuffle.

    Columns: topic string, partition int (null: chosen by the key), key and value binary, headers ``HEADERS_TYPE``,
    timestamp (the source record's), source_partition int, source_offset bigint, ``_good`` boolean.

    Good rows go to ``speed.topic`` as a JSON object of the stream's columns. Rejected rows, and rows that may be larger
    than the live topic's limit, go to ``speed.dead_letter_topic`` with their original bytes. A dead letter that may be
    larger than that topic's limit goes there with its coordinates only: the archive has the record. Without
    coordinates, ``add_coordinates`` adds them to the headers later. Raises ConfigError if ``speed.key`` names no usable
    column.
    """
    coordinates = _headers(_coordinates(stream, topic_id) if with_coordinates else {})
    key, value = live_record(rows, stream)
    made = rows.select("source", REASON, key.alias("_key"), value.alias("_value"))
    made = made.select("source", "_key", "_value", _reason(stream, topic_id, record_limits.live).alias(REASON))
    # In a step of its own: the size is used three times, and would be computed as often.
    made = made.select("*", _dead_bytes(stream, topic_id).alias("_dead_bytes"))
    good = F.col(REASON).isNull()
    whole = F.col("_dead_bytes") <= record_limits.dead_letter
    by_source = F.col("source.partition") if stream.speed.partitioning == "source" else F.lit(None)
    dead = _dead(stream, coordinates, whole, record_limits.dead_letter)
    return made.select(
        F.when(good, stream.speed.topic).otherwise(stream.speed.dead_letter_topic).alias("topic"),
        F.when(good, by_source).cast("int").alias("partition"),
        F.when(good, F.col("_key")).when(whole, F.col("source.key")).alias("key"),
        F.when(good, F.col("_value")).when(whole, F.col("source.value")).alias("value"),
        F.when(good, coordinates).otherwise(dead).alias("headers"),
        F.col("source.timestamp").alias("timestamp"),
        F.col("source.partition").alias("source_partition"),
        F.col("source.offset").alias("source_offset"),
        good.alias("_good"),
    )


def live_record(rows: DataFrame, stream: Stream) -> tuple[Column, Column]:
    """Key and value of the live record, from rows of ``classify``. The value of a rejected row is null."""
    own = [name for name in rows.columns if name not in (*PLATFORM_COLUMNS, REASON)]
    value = F.to_json(F.struct(*(f"`{name}`" for name in own)), _JSON).cast("binary")
    return _key(rows, own, stream), F.when(F.col(REASON).isNull(), value)


def _reason(stream: Stream, topic_id: str, limit: int) -> Column:
    """Why a row is a dead letter; null for a good row."""
    size = _bytes("_key") + _bytes("_value") + _room(_names(stream, topic_id))
    large = F.concat(
        F.lit("a record of up to "),
        size.cast("string"),
        F.lit(f" bytes may be larger than max.message.bytes {limit} of {stream.speed.topic}"),
    )
    return (
        F.when(F.col(REASON).isNotNull(), F.substring(REASON, 1, _REASON_CHARACTERS))
        .when(size > limit, large)
        .otherwise(None)
    )


def _dead_bytes(stream: Stream, topic_id: str) -> Column:
    """The most bytes of the whole row as a dead letter; null for a good row, for which nobody asks."""
    original = F.octet_length(F.to_json("source.headers")) + 2 * _LENGTH_BYTES * F.size("source.headers")
    room = _room({**_names(stream, topic_id), "reason": "", "exception": WITHOUT_VALUE, "attempt": "0"})
    size = _bytes("source.key") + _bytes("source.value") + _bytes(REASON) + original + room
    return F.when(F.col(REASON).isNotNull(), size)


def _dead(stream: Stream, coordinates: Column, whole: Column, limit: int) -> Column:
    """A dead letter's headers. Unless it is ``whole``, the source record's are left out, as its key and value are."""
    kind = (
        F.when(F.col(f"source.{REASON}").isNotNull(), "undecodable")
        .when(F.col("_value").isNotNull(), "too_large")  # the row is good
        .otherwise("rejected")
    )
    left_out = F.concat(
        REASON,
        F.lit("; without key, value and headers: the dead letter would have up to "),
        F.col("_dead_bytes").cast("string"),
        F.lit(f" bytes, and max.message.bytes of {stream.speed.dead_letter_topic} is {limit}"),
    )

    def added(reason: Column, kind: Column) -> Column:
        return _headers(dict(zip(DEAD_LETTER_HEADERS, (reason, kind, F.lit("0")), strict=True)))

    return F.when(whole, F.concat("source.headers", coordinates, added(F.col(REASON), kind))).otherwise(
        F.concat(coordinates, added(left_out, F.lit(WITHOUT_VALUE)))
    )


def _coordinates(stream: Stream, topic_id: str) -> dict[str, Column]:
    """Each header's name (without ``tidemark.``) and text. Numbers are decimal, the timestamp in ms since the epoch."""
    partition = F.col("source.partition").cast("string")
    values = (
        F.concat(F.lit(f"{stream.topic}:{topic_id}:"), partition, F.lit(":"), F.col("source.offset").cast("string")),
        F.unix_millis("source.timestamp"),
        F.lit(stream_text(stream.name, stream.version)),
    )
    return dict(zip(HEADERS, values, strict=True))


def _headers(values: Mapping[str, Column]) -> Column:
    # No cast to HEADERS_TYPE: it differs only in nullability, and would copy every row's list.
    pairs = (
        F.struct(F.lit(f"tidemark.{name}").alias("key"), value.cast("string").cast("binary").alias("value"))
        for name, value in values.items()
    )
    return F.array(*pairs) if values else F.array().cast(HEADERS_TYPE)


def _names(stream: Stream, topic_id: str) -> dict[str, str]:
    """The longest texts that ``_coordinates`` can give."""
    number = "9" * _DIGITS
    texts = (f"{stream.topic}:{topic_id}:{number}:{number}", number, stream_text(stream.name, stream.version))
    return dict(zip(HEADERS, texts, strict=True))


def _room(headers: Mapping[str, str]) -> int:
    """The most bytes on the wire of a batch with one record with these headers, without its key and value.

    An exact count would take more code per row than Java compiles.
    """
    lengths = 4 + 2 * len(headers)  # of the record, key, value and list, and of each name and text
    texts = sum(len(f"tidemark.{name}{text}".encode()) for name, text in headers.items())
    return _BATCH_BYTES + _RECORD_BYTES + lengths * _LENGTH_BYTES + texts


def _bytes(name: str) -> Column:
    return F.coalesce(F.octet_length(name), F.lit(0))


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
