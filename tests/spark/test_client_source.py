"""Kafka's client reads what Spark's source reads, and what that can't."""

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.conftest import MakeTopic, Produce
from tests.hostile import ARCHIVE_LATEST_MS, hostile_records
from tidemark.core.offsets import OffsetRange
from tidemark.kafka.topics import describe_topic
from tidemark.settings import Settings
from tidemark.spark import client_source
from tidemark.spark.client_source import with_any_time
from tidemark.spark.failures import TimeRangeError
from tidemark.spark.kafka_source import read_ranges

pytestmark = [pytest.mark.conformance(72), pytest.mark.services]
DAY_MS = 86_400_000


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    """Python has no times outside of the years 1 to 9999."""
    return [tuple(row) for row in frame.withColumn("timestamp", F.unix_micros("timestamp")).collect()]


def drop_records(settings: Settings, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    (deleted,) = admin.delete_records([KafkaPartition(topic, 0, before)]).values()
    deleted.result(60)


def test_both_readers_give_the_same_rows(
    spark: SparkSession,
    settings: Settings,
    make_topic: MakeTopic,
    produce: Produce,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = make_topic(2, message_timestamp_after_max_ms=str(2**63 - 1))
    fitting = [item for item in hostile_records() if abs(item.timestamp_ms) <= ARCHIVE_LATEST_MS]
    sent = [(item.key, item.value, item.timestamp_ms, at % 2, item.headers) for at, item in enumerate(fitting)]
    # Ends of February of Julian leap years, and any times from 300,000 years before Christ on.
    leaps = [(year * 100 - 1970) * 31_557_600_000 + day * DAY_MS for year in range(-20, 16) for day in range(55, 63)]
    early = [*leaps, *range(-9_223_000_000_000_000, -12_000_000_000_000, 97_999_999_999_999)]
    sent += [(b"k", b"v", time_ms, 0, []) for time_ms in early]
    offsets = produce(topic, sent)
    logs = describe_topic(settings.kafka, topic)
    ends = {log: 1 + max(at for at, row in zip(offsets, sent, strict=True) if row[3] == log.partition) for log in logs}
    ranges = {log: OffsetRange(start=1, end=end) for log, end in ends.items()}
    by_spark = read_ranges(spark, settings, ranges)
    monkeypatch.setattr(client_source, "_BATCH_BYTES", 100_000)  # several batches of rows

    def refuse_sparks(frame: DataFrame) -> list[tuple[object, ...]]:
        if frame is by_spark:
            raise TimeRangeError("as where a time does not fit")
        return rows(frame)

    found = with_any_time(refuse_sparks, by_spark, settings, lambda: ranges)
    assert found == rows(by_spark)
    assert len(found) == len(sent) - 2


def test_only_offsets_that_retention_deleted_are_passed_over(
    spark: SparkSession, settings: Settings, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(message_timestamp_after_max_ms=str(2**63 - 1))
    produce(topic, [(b"k", b"%d" % n, 2**62, 0, []) for n in range(10)])
    (log,) = describe_topic(settings.kafka, topic)
    ranges = {log: OffsetRange(start=0, end=8)}
    frame = read_ranges(spark, settings, ranges)
    drop_records(settings, topic, 3)

    def values(rows: DataFrame) -> list[bytes]:
        if rows is frame:
            raise TimeRangeError("as where a time does not fit")
        return [bytes(row.value) for row in rows.select("value").collect()]

    kept = with_any_time(values, frame, settings, lambda: ranges, skip_deleted=True)
    assert kept == [b"%d" % n for n in range(3, 8)]
    drop_records(settings, topic, 9)
    assert with_any_time(values, frame, settings, lambda: ranges, skip_deleted=True) == []
    with pytest.raises((PySparkException, Py4JJavaError), match="ServiceError: Kafka could not be read"):
        with_any_time(values, frame, settings, lambda: ranges)
