"""Spark's Kafka source: its options, and reading exact offset ranges of a topic."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.settings import Settings


def source_options(settings: Settings) -> dict[str, str]:
    """The options of every read of a topic: brokers, group, committed records only, headers included, fetch sizes."""
    return {
        "kafka.bootstrap.servers": settings.kafka_bootstrap,
        "groupIdPrefix": settings.client_prefix,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        # After every poll, by default of 500 records, Spark requests both ends of the log.
        "kafka.max.poll.records": "5000",
        "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
        # At the log's end that request waits for an empty fetch: by default half a second per task.
        "kafka.fetch.max.wait.ms": "20",
    }


def read_ranges(spark: SparkSession, settings: Settings, ranges: Mapping[TopicPartition, OffsetRange]) -> DataFrame:
    """The committed records of exactly these ranges (at least one, all of one topic), one Spark partition per log.

    An action on it fails if Kafka no longer holds one of the offsets.
    """
    (topic,) = {log.topic for log in ranges}
    options = {
        **source_options(settings),
        "assign": json.dumps({topic: [log.partition for log in ranges]}),
        "startingOffsets": json.dumps({topic: {str(log.partition): item.start for log, item in ranges.items()}}),
        "endingOffsets": json.dumps({topic: {str(log.partition): item.end for log, item in ranges.items()}}),
        "failOnDataLoss": "true",
    }
    return spark.read.format("kafka").options(**options).load()
