"""Both delivery modes without a stream: rows to a topic, for tests of brokers' faults."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tests.conftest import unique
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.offsets import TopicPartition
from tidemark.settings import Settings
from tidemark.spark.kafka_source import source_options
from tidemark.spark.streaming import trigger
from tidemark.speed.at_least_once import PRODUCER
from tidemark.speed.exactly_once.marker import Sink, TaskRange

SOURCE = TopicPartition(topic="source", topic_id="AAAAAAAAAAAAAAAAAAAAAA", partition=0)
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def spark_query(
    spark: SparkSession,
    settings: Settings,
    source: str,
    bootstrap: str,
    topic: str,
    *,
    checkpoint: str | None = None,
    available_now: bool = True,
    patience: Mapping[str, str] = MappingProxyType({}),
) -> StreamingQuery:
    """Spark's Kafka sink with the speed stream's options; ``patience`` are options with shorter time-outs."""
    rows = (
        spark.readStream.format("kafka")
        .options(**source_options(settings), subscribe=source, startingOffsets="earliest")
        .load()
    )
    folder = checkpoint or unique("sink")
    return (
        rows.select(F.lit(topic).alias("topic"), "key", "value", "headers")
        .writeStream.format("kafka")
        .queryName(folder)
        .option("checkpointLocation", f"s3a://{settings.bucket}/tests/{folder}")
        .options(**{"kafka.bootstrap.servers": bootstrap, **PRODUCER, **patience})
        .trigger(**trigger(0, available_now=available_now))
        .start()
    )


def task(bootstrap: str, *, timeout_s: float = 60, records: int = 1000) -> Sink:
    """A new sink for exactly-once delivery; its marker topic is not created."""
    name = unique("task")
    return Sink(
        kafka=KafkaConnection.plain(bootstrap),
        group=f"tidemark-{name}",
        marker_topic=f"{name}.markers",
        records=records,
        timeout_s=timeout_s,
    )


def span(start: int, until: int, batch: int = 0) -> TaskRange:
    return TaskRange(log=SOURCE, start=start, until=until, batch=batch, first=batch == 0)


def row_batch(topic: str, start: int, values: list[bytes]) -> pa.RecordBatch:
    """Rows at source offsets ``start``, …, as the speed layer's output has them, keyed by their value's first bytes."""
    count = len(values)
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    columns = {
        "topic": pa.array([topic] * count, pa.string()),
        "partition": pa.array([None] * count, pa.int32()),
        "key": pa.array([value[:8] for value in values], pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array([[]] * count, _HEADERS),
        "timestamp": pa.array([moment] * count, pa.timestamp("us", "UTC")),
        "source_partition": pa.array([0] * count, pa.int32()),
        "source_offset": pa.array(range(start, start + count), pa.int64()),
        "_good": pa.array([True] * count, pa.bool_()),
    }
    return pa.record_batch(list(columns.values()), names=list(columns))
