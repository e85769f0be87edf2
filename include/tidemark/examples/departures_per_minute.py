"""A second stream on a stream's topic: departures per minute and airport, counted in event-time windows.

It reads the source topic, where each record exists once. On an at-least-once live topic, a repeated record would be
counted twice; on an exactly-once live topic, this stream would wait for the other stream's transactions.

Exactly-once delivery does not support counts: grouping moves rows to other tasks, but a transaction belongs to one
source partition. So this stream delivers at least once, and repetitions do no harm: each record has the current count
under the key of its minute and airport, and the last record of a key is right.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tidemark.core.errors import ConfigError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.checkpoint import Checkpoint
from tidemark.spark.decode import REASON
from tidemark.spark.kafka_source import client_options
from tidemark.spark.monitor import Monitor
from tidemark.spark.process import classify, load_transform
from tidemark.spark.records import records
from tidemark.spark.streaming import (
    await_stop,
    batch_fields,
    bind_checkpoint,
    kafka_source,
    log_event,
    start_query,
    stream_session,
    trigger,
)
from tidemark.speed.at_least_once import PRODUCER
from tidemark.speed.stream import figures as batch_figures

LAYER = "departures"
# How late a departure may be to be counted, compared with the newest one. Spark drops a minute's count after that.
LATENESS = "10 minutes"
COLUMNS = ("origin", "departed_at")
# Only the last value of a key counts. Older values are deleted within an hour, keys a week after their last value.
TOPIC_CONFIG = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(7 * 24 * 3_600_000),
    "segment.ms": str(3_600_000),  # the segment being written is never compacted
    "max.compaction.lag.ms": str(3_600_000),
}
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ssXXX"}


def run_departures(stream: Stream, settings: Settings, *, available_now: bool = False) -> None:
    """Count until SIGTERM, or with ``available_now`` until all existing records are counted.

    Raises ServiceError also if retention deleted records before they were counted.
    """
    with stream_session(settings, f"tidemark-{LAYER}-{stream.name}", "speed", stream) as spark:
        departures(spark, stream, settings, available_now=available_now)


def departures(spark: SparkSession, stream: Stream, settings: Settings, *, available_now: bool = False) -> None:
    """``run_departures`` in an existing session."""
    with Monitor(stream, settings, layer=LAYER) as monitor:
        logs = describe_topic(settings.kafka, stream.topic)
        layout, store = Layout(prefix=settings.prefix, stream=stream.name), ObjectStore(settings)
        url = bind_checkpoint(store, layout, LAYER, logs[0])
        checkpoint = Checkpoint(store=store, prefix=layout.checkpoint_prefix(LAYER), topic=stream.topic)
        ensure_topic(settings.speed_kafka, topic_of(stream), partitions=len(logs), config=TOPIC_CONFIG)

        def on_batch(progress: Mapping[str, Any]) -> None:
            log_event("batch", layer=LAYER, stream=stream.name, **figures(progress))
            monitor.batch(batch_figures({"observedMetrics": {}, **progress}))  # this query has no observed metrics

        position = checkpoint.position() or {}
        query = start(spark, stream, settings, url, available_now=available_now)
        log_event("started", layer=LAYER, stream=stream.name, topic_id=logs[0].topic_id, query=str(query.id))
        monitor.started(str(query.id), position)
        await_stop(query, on_batch, monitor.beat, personal=stream.has_personal)
    log_event("stopped", layer=LAYER, stream=stream.name)


def topic_of(stream: Stream) -> str:
    """The compacted topic of the counts."""
    return f"{stream.name}.departures-per-minute"


def departures_per_minute(rows: DataFrame) -> DataFrame:
    """Count the good rows of ``classify`` with a departure: (window: start of the minute, origin, count).

    For a streaming write in update mode: a minute is written again, with its whole count, when the count grows.
    """
    return (
        rows.where(F.col(REASON).isNull() & F.col("departed_at").isNotNull())
        .withWatermark("event_time", LATENESS)
        .groupBy(F.window("event_time", "1 minute").alias("minute"), "origin")
        .count()
        .select(F.col("minute.start").alias("window"), "origin", "count")
    )


def start(
    spark: SparkSession, stream: Stream, settings: Settings, checkpoint: str, *, available_now: bool
) -> StreamingQuery:
    """Start the query; ``checkpoint`` (a URL) stores its counts and its position.

    A batch has no size limit. Otherwise partitions could be read up to different times, and the watermark of the most
    advanced one would drop records of the others. The query fails on data loss, because a wrong count would not show.
    """
    source = kafka_source(spark, stream, settings, fail_on_data_loss=True)
    rows = classify(records(source, stream), stream, load_transform(stream, settings.streams_dir))
    missing = sorted(set(COLUMNS) - set(rows.columns))
    if missing:
        raise ConfigError(
            "the stream has no departures",
            expected=f"columns {', '.join(COLUMNS)}",
            found=f"no {', '.join(missing)} among {', '.join(rows.columns)}",
            where=f"transform of stream {stream.name}",
        )
    counts = departures_per_minute(rows).select(
        # A row without an airport (null) has a key too, which a compacted topic requires.
        F.to_json(F.struct("window", "origin"), _JSON).alias("key"),
        F.to_json(F.struct("window", "origin", "count"), _JSON).alias("value"),
    )
    query = (
        counts.writeStream.format("kafka")
        .queryName(f"{stream.name}-{LAYER}")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .options(**client_options(settings.speed_kafka))
        .option("topic", topic_of(stream))
        .options(**PRODUCER)
        .trigger(**trigger(stream.speed.trigger_seconds, available_now=available_now))
    )
    return start_query(spark, query)


def figures(progress: Mapping[str, Any]) -> dict[str, Any]:
    """A batch's log fields: those of every stream, the watermark, and the numbers of open, changed and late counts.

    ``too_late`` counts pairs of minute and airport, not records: Spark counts after the grouping.
    """
    (state,) = progress["stateOperators"]
    return {
        **batch_fields(progress),
        "watermark": progress["eventTime"].get("watermark"),
        "open": state["numRowsTotal"],
        "changed": state["numRowsUpdated"],
        "too_late": state["numRowsDroppedByWatermark"],
    }
