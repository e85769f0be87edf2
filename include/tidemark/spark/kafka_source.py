"""Spark's Kafka source: its options, and reading exact offset ranges of a topic."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.settings import Settings


def client_options(kafka: KafkaConnection) -> dict[str, str]:
    """The options by which Spark's source and sink reach the cluster."""
    return {f"kafka.{name}": value for name, value in kafka.java().items()}


def source_options(settings: Settings, kafka: KafkaConnection | None = None) -> dict[str, str]:
    """The options of every read of a topic: group, committed records only, headers included, fetch sizes.

    ``kafka`` is the topic's cluster, by default that of the source topics.
    """
    return {
        **client_options(kafka or settings.kafka),
        "groupIdPrefix": settings.client_prefix,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        # After every poll, by default of 500 records, Spark requests both ends of the log.
        "kafka.max.poll.records": "5000",
        "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
        # At the log's end that request waits for an empty fetch: by default half a second per task.
        "kafka.fetch.max.wait.ms": "20",
    }


def read_ranges(
    spark: SparkSession,
    settings: Settings,
    ranges: Mapping[TopicPartition, OffsetRange],
    kafka: KafkaConnection | None = None,
) -> DataFrame:
    """The committed records of exactly these ranges (at least one, all of one topic), one Spark partition per log.

    An action on it fails if Kafka no longer holds one of the offsets.
    """
    (topic,) = {log.topic for log in ranges}
    options = {
        **source_options(settings, kafka),
        "assign": json.dumps({topic: [log.partition for log in ranges]}),
        "startingOffsets": json.dumps({topic: {str(log.partition): item.start for log, item in ranges.items()}}),
        "endingOffsets": json.dumps({topic: {str(log.partition): item.end for log, item in ranges.items()}}),
        "failOnDataLoss": "true",
    }
    return spark.read.format("kafka").options(**options).load()
