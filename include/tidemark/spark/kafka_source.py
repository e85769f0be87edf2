"""Exact offset ranges of a topic in Spark: reading them, and seeing which ones a micro-batch reads."""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidemark.core.errors import FormatError
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.settings import Settings


def source_options(settings: Settings) -> dict[str, str]:
    """What every reading of a topic has in common: where, committed records only, headers included, and the pace."""
    return {
        "kafka.bootstrap.servers": settings.kafka_bootstrap,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        # Behind every poll Spark asks the broker for both ends of the log: by default behind 500 records.
        "kafka.max.poll.records": "5000",
        "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
        # At the log's end that question waits behind a fetch that finds nothing: by default half a second a task.
        "kafka.fetch.max.wait.ms": "20",
    }


def read_ranges(spark: SparkSession, settings: Settings, ranges: Mapping[TopicPartition, OffsetRange]) -> DataFrame:
    """Exactly the ranges (at least one, all of one topic), one Spark partition per log, aborted records left out.

    An action on it fails where Kafka no longer holds one of the offsets.
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


def ranges_read(frame: DataFrame) -> dict[int, OffsetRange]:
    """The offsets by partition that an action on a micro-batch's frame reads, as its tasks are told them.

    A partition of which nothing is read is left out. Raises FormatError for a frame that reads no Kafka topic.
    """
    return {partition: span for task in tasks_read(frame) for partition, span in task}


def tasks_read(frame: DataFrame) -> list[list[tuple[int, OffsetRange]]]:
    """What ``ranges_read`` gives, as partition and offsets, by the task that reads it: the first one's, and so on."""
    rdd: Any = frame._jdf.queryExecution().toRdd()
    while not rdd.getClass().getName().endswith(".DataSourceRDD"):
        parents = rdd.dependencies()
        if parents.size() != 1:
            raise FormatError("not the frame of a Kafka source", found=rdd.getClass().getName(), where="micro-batch")
        rdd = parents.apply(0).rdd()
    tasks = []
    for task in rdd.partitions():
        parts = [task.inputPartitions().apply(at).offsetRange() for at in range(task.inputPartitions().size())]
        spans = [OffsetRange(start=part.fromOffset(), end=part.untilOffset()) for part in parts]
        tasks.append([(part.topicPartition().partition(), span) for part, span in zip(parts, spans, strict=True)])
    return tasks
