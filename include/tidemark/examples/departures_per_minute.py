"""A second stream on a stream's topic: departures per minute and airport, counted in event-time windows.

It reads the source topic, not the live one. There each record is once; on an at-least-once live topic a repeated
record would be counted again, and an exactly-once one would make this stream wait for the other's transactions.

The exactly-once mode can't hold a count: grouping moves rows away from the partition they were read from, and a
transaction of one source partition covers only what its own task writes. So this repeats, and a repetition does no
harm: each record says what a minute's count is by now, under the minute's and the airport's key, and the last one of
a key is right.
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
from tidemark.speed.stream import PRODUCER
from tidemark.speed.stream import figures as batch_figures

LAYER = "departures"
# How far behind the newest departure one may come and still be counted; Spark forgets a minute after that.
LATENESS = "10 minutes"
COLUMNS = ("origin", "departed_at")
# Only the last value of a key counts: older ones go within an hour, and a week behind its last value the key too.
TOPIC_CONFIG = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(7 * 24 * 3_600_000),
    "segment.ms": str(3_600_000),  # the segment being written is never compacted
    "max.compaction.lag.ms": str(3_600_000),
}
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ssXXX"}


def run_departures(stream: Stream, settings: Settings, *, available_now: bool = False) -> None:
    """Count until SIGTERM, or with ``available_now`` until everything there is was counted.

    Creates its topic where it is missing. Raises ConfigError for a stream without the columns it needs, ConflictError
    when the topic was made again, ServiceError when Kafka or S3 refuses or retention took records not yet counted.
    """
    with stream_session(settings, f"tidemark-{LAYER}-{stream.name}") as spark:
        departures(spark, stream, settings, available_now=available_now)


def departures(spark: SparkSession, stream: Stream, settings: Settings, *, available_now: bool = False) -> None:
    """``run_departures`` in a session that is there already."""
    with Monitor(stream, settings, layer=LAYER) as monitor:
        logs = describe_topic(settings.kafka_bootstrap, stream.topic)
        layout, store = Layout(prefix=settings.prefix, stream=stream.name), ObjectStore(settings)
        url = bind_checkpoint(store, layout, LAYER, logs[0])
        checkpoint = Checkpoint(store=store, prefix=layout.checkpoint_prefix(LAYER), topic=stream.topic)
        ensure_topic(settings.speed_bootstrap, topic_of(stream), partitions=len(logs), config=TOPIC_CONFIG)

        def on_batch(progress: Mapping[str, Any]) -> None:
            log_event("batch", layer=LAYER, stream=stream.name, **figures(progress))
            monitor.batch(batch_figures({"observedMetrics": {}, **progress}))  # nothing is observed here

        position = checkpoint.position() or {}
        query = start(spark, stream, settings, url, available_now=available_now)
        log_event("started", layer=LAYER, stream=stream.name, topic_id=logs[0].topic_id, query=str(query.id))
        monitor.started(str(query.id), position)
        await_stop(query, on_batch, monitor.beat)
    log_event("stopped", layer=LAYER, stream=stream.name)


def topic_of(stream: Stream) -> str:
    """The compacted topic of the counts."""
    return f"{stream.name}.departures-per-minute"


def departures_per_minute(rows: DataFrame) -> DataFrame:
    """Rows of ``classify`` to (window: start of the minute, origin, count) of those that are good and departed.

    As a stream, to be written in update mode: a minute appears again, with its whole count, each time it grows.
    """
    return (
        rows.where(F.col(REASON).isNull() & F.col("departed_at").isNotNull())
        .withWatermark("event_time", LATENESS)
        .groupBy(F.window("event_time", "1 minute").alias("minute"), "origin")
        .count()
        .select(F.col("minute.start").alias("window"), "origin", "count")
    )


def upserts(counts: DataFrame) -> DataFrame:
    """Rows for Spark's Kafka sink. Key ``{"window":"2013-01-14T12:00:00Z","origin":"JFK"}``, value the same and
    ``count``; both of them text of JSON, so that no airport (null) has a key as well, as compaction demands.
    """
    return counts.select(
        F.to_json(F.struct("window", "origin"), _JSON).alias("key"),
        F.to_json(F.struct("window", "origin", "count"), _JSON).alias("value"),
    )


def start(
    spark: SparkSession, stream: Stream, settings: Settings, checkpoint: str, *, available_now: bool
) -> StreamingQuery:
    """The running query; ``checkpoint`` (a URL) holds its counts as well as its position.

    A batch has no size limit: were partitions read to different times, the furthest one's watermark would drop what
    the others have yet to bring. And it stops where retention took records: a count without them looks like any other.
    """
    source = kafka_source(spark, stream, settings, fail_on_data_loss=True)
    rows = classify(records(source, stream), stream, load_transform(stream, settings.streams_dir))
    missing = sorted(set(COLUMNS) - set(rows.columns))
    if missing:
        raise ConfigError(
            "a stream without departures",
            expected=f"columns {', '.join(COLUMNS)}",
            found=f"no {', '.join(missing)} among {', '.join(rows.columns)}",
            where=f"transform of stream {stream.name}",
        )
    query = (
        upserts(departures_per_minute(rows))
        .writeStream.format("kafka")
        .queryName(f"{stream.name}-{LAYER}")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .option("kafka.bootstrap.servers", settings.speed_bootstrap)
        .option("topic", topic_of(stream))
        .options(**PRODUCER)
        .trigger(**trigger(stream.speed.trigger_seconds, available_now=available_now))
    )
    return start_query(spark, query)


def figures(progress: Mapping[str, Any]) -> dict[str, Any]:
    """A batch's log line: as of every stream, then the watermark, how many counts are open, changed, came too late.

    Spark counts what came too late behind its grouping: minutes and airports of this batch, not records.
    """
    (state,) = progress["stateOperators"]
    return {
        **batch_fields(progress),
        "watermark": progress["eventTime"].get("watermark"),
        "open": state["numRowsTotal"],
        "changed": state["numRowsUpdated"],
        "too_late": state["numRowsDroppedByWatermark"],
    }
