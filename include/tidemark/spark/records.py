"""Kafka records as rows: the archive's schema, the source, and event time."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidemark.core.errors import ConfigError
from tidemark.core.renames import paths
from tidemark.definitions.sections import FieldTime, RecordTime
from tidemark.definitions.stream import Stream
from tidemark.spark.avro import avro_field
from tidemark.spark.fields import json_field

# ISO 8601, fixed: Spark reads "12:30" as a time of today, so every rebuild would move the record.
LOCAL_TIME_FORMAT = "yyyy-MM-dd[['T'][' ']HH:mm[:ss[.SSSSSSSSS]]]"
TIMESTAMP_FORMAT = LOCAL_TIME_FORMAT + "[XXX][XX][X]"
# Accepted decimals. With an exponent of nine digits Java takes minutes or stops the query.
_NUMBER = r"^\s*[-+]?[0-9.]{1,40}([eE][-+]?[0-9]{1,3})?\s*$"
EARLIEST, LATEST = "0001-01-02 00:00:00", "9999-12-30 00:00:00"

# The archive's columns, in order. Timestamps are in µs, UTC; timestamp_type is Kafka's (0 create, 1 log append).
# Not as DDL: Spark parses DDL only in a running session, and this module is imported before.
ARCHIVE_SCHEMA = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestamp_type", IntegerType())
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("headers", ArrayType(StructType().add("key", StringType()).add("value", BinaryType())))
    .add("event_time", TimestampType())
)

_MOMENTS = (TimestampType, TimestampNTZType, DateType)
_TIME_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "iso8601": (StringType,),
    "epoch_ms": (StringType, NumericType),
    "epoch_s": (StringType, NumericType),
}
_TIME_EXAMPLES = {"iso8601": "2026-01-31T12:30:00Z", "epoch_ms": "1769862600000", "epoch_s": "1769862600"}


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """An empty DataFrame of the schema, which costs no job.

    It is an Arrow table: an empty list would become an RDD and start Python workers. The optimizer removes it with
    everything computed on it, so it can't test whether an expression runs.
    """
    return spark.createDataFrame(to_arrow_schema(schema).empty_table(), schema)


def records(source: DataFrame, stream: Stream) -> DataFrame:
    """Rows of Spark's Kafka source (read with ``includeHeaders``) as rows of ARCHIVE_SCHEMA."""
    headers = ARCHIVE_SCHEMA["headers"].dataType
    return source.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.col("timestampType").alias("timestamp_type"),
        "key",
        "value",
        # Consecutive null lists cost Arrow's writer O(batch²); empty lists do not.
        F.coalesce("headers", F.array().cast(headers)).alias("headers"),
        event_time(stream).alias("event_time"),
    )


def event_time(stream: Stream) -> Column:
    """The event time of a source row; the record's timestamp if the field has none.

    A time without a zone is UTC. A time outside the years 1 to 9999 counts as none, because it has no calendar day. A
    time further than ``max_distance_days`` from the record's timestamp counts as none, if the record has one. A
    record's timestamp outside the years counts as the nearest moment inside. Null if a row has no timestamp either.
    """
    timestamp = _bounded_timestamp()
    match stream.event_time:
        case RecordTime():
            return timestamp
        case FieldTime() as wanted:
            parsed = _field_time(stream, wanted)
            field = F.when(parsed.between(*_calendar()), parsed)
            # Kafka's value for a record without a timestamp is -1 ms.
            near = timestamp.isNull() | (F.unix_micros(timestamp) < 0) | (_distance(field, timestamp) <= _limit(wanted))
            return F.when(field.isNotNull() & near, field).otherwise(timestamp)


def out_of_bounds(stream: Stream) -> Column | None:
    """Whether a row of ARCHIVE_SCHEMA has its record's timestamp because its field lies too far from it.

    Null if it has it because its field has no time that can be read. None if the event time is no field.
    """
    wanted = stream.event_time
    if not isinstance(wanted, FieldTime):
        return None
    far = _distance(_field_time(stream, wanted), _bounded_timestamp()) > _limit(wanted)
    return F.when(_has_timestamp(), far).otherwise(False)


def unreadable_time(stream: Stream) -> Column | None:
    """Why to reject a row of ARCHIVE_SCHEMA whose field has no time that can be read; null for every other row.

    None if the stream keeps such rows.
    """
    wanted = stream.event_time
    if not isinstance(wanted, FieldTime) or wanted.on_unreadable == "timestamp":
        return None
    reason = f"event_time: {wanted.field} has no time such as {_TIME_EXAMPLES[wanted.format]}"
    return F.when(_has_timestamp() & _field_time(stream, wanted).isNull(), reason)


def _has_timestamp() -> Column:
    """Whether a row may have its record's timestamp because of its field: only such rows are parsed again.

    A tombstone has no field.
    """
    return F.col("value").isNotNull() & (F.col("event_time") == _bounded_timestamp())


def _bounded_timestamp() -> Column:
    """The record's timestamp, or the nearest moment with a calendar day; null without one."""
    earliest, latest = _calendar()
    # Where a row has no timestamp, `greatest` would pass the null over, and the row would land in the year 1.
    return F.when(F.col("timestamp").isNotNull(), F.least(F.greatest(F.col("timestamp"), earliest), latest))


def _calendar() -> tuple[Column, Column]:
    earliest, latest = (F.lit(moment).cast("timestamp") for moment in (EARLIEST, LATEST))
    return earliest, latest


def _distance(one: Column, other: Column) -> Column:
    """µs between two moments. As doubles: the difference of two times of 64 bits may not fit in 64 bits."""
    return F.abs(F.unix_micros(one).cast("double") - F.unix_micros(other).cast("double"))


def _limit(wanted: FieldTime) -> Column:
    return F.lit(wanted.max_distance_days * 86_400_000_000)


def _field_time(stream: Stream, wanted: FieldTime) -> Column:
    """The time in a field of the value, null if it has none. Raises as ``require_time``."""
    if stream.value_format == "avro":
        column, kind = avro_field(stream, F.col("value"), wanted.field)
        require_time(kind, stream, wanted)
        if isinstance(kind, _MOMENTS):
            return column.cast("timestamp")
        text = column.cast("string")
    else:
        value = F.col("value").cast("string")
        text = F.coalesce(*(json_field(value, path) for path in paths(wanted.field, stream.renamed)))
    number = F.when(text.rlike(_NUMBER), text)
    match wanted.format:
        case "iso8601":
            return F.try_to_timestamp(text, F.lit(TIMESTAMP_FORMAT))
        case "epoch_ms":
            return _epoch(number.try_cast("decimal(18,3)") / 1000)
        case "epoch_s":
            return _epoch(number.try_cast("decimal(18,6)"))


def require_time(kind: DataType, stream: Stream, wanted: FieldTime) -> None:
    """Raise ConfigError unless a field of the type can hold the event time in its format.

    A time in an Avro value is a number with a unit of its own; one in a JSON value is always text.
    """
    native = stream.value_format == "avro" or wanted.format == "iso8601"
    if not isinstance(kind, (*_TIME_TYPES[wanted.format], *(_MOMENTS if native else ()))):
        raise ConfigError(
            "event_time.field: not a time",
            expected=f"a type that holds {wanted.format}{', or a type of time' if native else ''}",
            found=f"{wanted.field} of type {kind.simpleString()}",
            where=stream.avro_schema_file,
        )


def _epoch(seconds: Column) -> Column:
    """The time so many seconds after the epoch, to the µs. Bounded first, because an overflow stops the query."""
    return F.timestamp_seconds(F.when(F.abs(seconds) < 10**12, seconds.cast("decimal(18,6)")))


def day(stream: Stream) -> Column:
    """The calendar day of ``event_time`` in the stream's time zone."""
    if stream.time_zone == "UTC":  # by integers: Java's calendar costs more than all other expressions of a row
        moment, length = F.unix_micros("event_time"), F.lit(86_400_000_000)
        midnight = moment - F.pmod(moment, length)  # "div" alone would round towards 1970
        return F.date_from_unix_date(F.call_function("div", midnight, length).cast("int"))
    return F.to_date(F.from_utc_timestamp("event_time", stream.time_zone))
