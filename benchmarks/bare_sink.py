"""Spark's Kafka sink for comparison: same source, transformation, JSON value and key, without Tidemark's sink.

As a program, it runs a stream until SIGTERM.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tidemark.definitions.stream import Stream
from tidemark.settings import Settings
from tidemark.spark.app import stream_app
from tidemark.spark.kafka_source import client_options
from tidemark.spark.process import PLATFORM_COLUMNS, classify, load_transform
from tidemark.spark.records import records
from tidemark.spark.streaming import await_stop, kafka_source, stream_session, trigger


def bare(spark: SparkSession, stream: Stream, settings: Settings, *, available_now: bool) -> StreamingQuery:
    """Start the query: every record to the live topic, without headers and dead letters."""
    source = kafka_source(spark, stream, settings, fail_on_data_loss=True)
    rows = classify(records(source, stream), stream, load_transform(stream, settings.streams_dir))
    own = [name for name in rows.columns if name not in PLATFORM_COLUMNS and not name.startswith("_")]
    return (
        rows.select(F.col("source.key").alias("key"), F.to_json(F.struct(*own)).alias("value"))
        .writeStream.format("kafka")
        .options(**client_options(settings.kafka))
        .option("topic", stream.speed.topic)
        .option("checkpointLocation", f"s3a://{settings.bucket}/bare/{stream.name}")
        .trigger(**trigger(stream.speed.trigger_seconds, available_now=available_now))
        .start()
    )


def _run(stream: Stream, settings: Settings, *, available_now: bool) -> None:
    with stream_session(settings, f"bare-{stream.name}", "speed", stream) as spark:
        await_stop(bare(spark, stream, settings, available_now=available_now), personal=False)


if __name__ == "__main__":
    stream_app(_run, __doc__)
