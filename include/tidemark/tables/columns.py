"""Columns that the platform's tables have, and the names of a run's branches."""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

DAY = "_day"
# Not `_partition`: Iceberg keeps that name for itself and then refuses every read that has to plan with it.
QUARANTINE_SCHEMA = (
    StructType()
    .add(DAY, DateType())
    .add("_topic_id", StringType())
    .add("_kafka_partition", IntegerType())
    .add("_offset", LongType())
    .add("_timestamp", TimestampType())
    .add("_event_time", TimestampType())
    .add("reason", StringType())
    .add("key", BinaryType())
    .add("value", BinaryType())
    # Of a duplicate by key the record that was kept, null for a rejected one.
    .add("kept_topic_id", StringType())
    .add("kept_partition", IntegerType())
    .add("kept_offset", LongType())
)


def branch_name(run: str) -> str:
    """The audit branch of a run, in both tables."""
    return f"audit_{run}"


def identity(day: Column, topic_id: str) -> list[Column]:
    """The columns every published and quarantined row starts with, over a row's ``source`` and ``event_time``."""
    return [
        day.alias(DAY),
        F.lit(topic_id).alias("_topic_id"),
        F.col("source.partition").alias("_kafka_partition"),
        F.col("source.offset").alias("_offset"),
        F.col("source.timestamp").alias("_timestamp"),
        F.col("event_time").alias("_event_time"),
    ]
