"""Read ranges of a topic where Spark's Kafka source can't: a record's timestamp does not fit 64 bits of µs.

A producer that writes ns instead of ms makes such records, and a broker accepts them before Kafka 4, or with a raised
``message.timestamp.after.max.ms``. Spark fails before it has a row. So the same ranges are read again by Kafka's client
in a task per log, where such a timestamp becomes the nearest that fits (``tidemark.kafka.times``). All else is as Spark
reads it, but for the name of a header: the client ends it at a NUL, and can't read one that is not UTF-8.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import pyarrow as pa
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import FormatError
from tidemark.core.offsets import OffsetRange, TopicPartition, range_or_none
from tidemark.kafka.log_reader import LogReader
from tidemark.kafka.positions import watermarks
from tidemark.kafka.times import timestamp_ms
from tidemark.settings import Settings
from tidemark.spark.failures import TimeRangeError
from tidemark.spark.records import ARCHIVE_SCHEMA

_logger = logging.getLogger(__name__)
T = TypeVar("T")
Ranges = Mapping[TopicPartition, OffsetRange]

# The columns of Spark's Kafka source with headers.
_SCHEMA = (
    StructType()
    .add("key", ARCHIVE_SCHEMA["key"].dataType)
    .add("value", ARCHIVE_SCHEMA["value"].dataType)
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", ARCHIVE_SCHEMA["timestamp"].dataType)
    .add("timestampType", IntegerType())
    .add("headers", ARCHIVE_SCHEMA["headers"].dataType)
)
_BATCH_BYTES = 4 * 1024 * 1024


def with_any_time(
    read: Callable[[DataFrame], T],
    frame: DataFrame,
    settings: Settings,
    ranges: Callable[[], Ranges],
    *,
    skip_deleted: bool = False,
) -> T:
    """``read(frame)``; if a timestamp in the frame of Spark's Kafka source does not fit, ``read`` of the same records.

    ``ranges`` are the frame's, in the order of its tasks. With ``skip_deleted`` offsets that retention deleted are
    passed over, as in a frame with ``failOnDataLoss`` off; otherwise they are an error.
    """
    try:
        return read(frame)
    except TimeRangeError as error:
        wanted = ranges()
        where = ", ".join(f"{log} {span}" for log, span in wanted.items())
        _logger.warning("%s. Kafka's client reads %s", error, where)
        return read(read_by_client(frame.sparkSession, settings.kafka, wanted, skip_deleted=skip_deleted))


def read_by_client(spark: SparkSession, kafka: KafkaConnection, ranges: Ranges, *, skip_deleted: bool) -> DataFrame:
    """The committed records of the ranges, with the columns of Spark's source; a task per log, in the given order.

    ``skip_deleted`` is as of ``with_any_time``.
    """
    held = _held(kafka, ranges) if skip_deleted else ranges
    parts, schema = tuple(held.items()), to_arrow_schema(_SCHEMA)

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                log, span = parts[number]
                if span is not None:
                    with LogReader(kafka, log, committed=True) as reader:
                        for messages in reader.messages(span):
                            yield from _batches(messages, log, schema)

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, _SCHEMA)


def _held(kafka: KafkaConnection, ranges: Ranges) -> dict[TopicPartition, OffsetRange | None]:
    """The ranges without the offsets that retention deleted; None where it deleted all."""
    starts = {mark.log: mark.log_start for mark in watermarks(kafka, tuple(ranges))}
    return {log: range_or_none(min(max(item.start, starts[log]), item.end), item.end) for log, item in ranges.items()}


def _batches(messages: Iterable[Message], log: TopicPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, object]] = []
    size = 0
    for message in messages:
        rows.append(_row(message, log))
        size += len(message)
        if size >= _BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(rows, schema)
            rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)


def _row(message: Message, log: TopicPartition) -> dict[str, object]:
    try:
        headers = message.headers()
    except SystemError as error:
        raise FormatError(
            "Kafka's client can't read a record's headers",
            expected="names in UTF-8",
            found="other bytes",
            where=f"{log}, offset {message.offset()}",
            hint="The record is in one batch with one whose timestamp does not fit Spark's source. If the batch is"
            " smaller (max_offsets_per_trigger), they may be in two",
        ) from error
    return {
        "key": message.key(),
        "value": message.value(),
        "topic": log.topic,
        "partition": log.partition,
        "offset": message.offset(),
        "timestamp": timestamp_ms(message) * 1000,
        # Java's numbers, which the archive has; the client's are other ones.
        "timestampType": int(message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME),
        "headers": headers,
    }
