"""Columns of the platform's tables, and the names of a run's branches."""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DateType, IntegerType, LongType, StringType, StructType, TimestampType

DAY = "_day"
# Not `_partition`: Iceberg reserves that name, and then refuses every read that plans with it.
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
    # The record that was kept instead of a duplicate by key; null for a rejected record.
    .add("kept_topic_id", StringType())
    .add("kept_partition", IntegerType())
    .add("kept_offset", LongType())
)


def branch_name(run: str) -> str:
    """The audit branch of a run, in both tables."""
    return f"audit_{run}"


def identity(day: Column, topic_id: str) -> list[Column]:
    """The first columns of every published and quarantined row, from a row's ``source`` and ``event_time``."""
    return [
        day.alias(DAY),
        F.lit(topic_id).alias("_topic_id"),
        F.col("source.partition").alias("_kafka_partition"),
        F.col("source.offset").alias("_offset"),
        F.col("source.timestamp").alias("_timestamp"),
        F.col("event_time").alias("_event_time"),
    ]
