"""A consumer's Spark job with OpenLineage's own listener: ``python -m tests.consumer_job STREAM EVENTS PACKAGE``.

It reads the stream's table and topic, and writes what it read beside the archive.
"""

import sys

from tidemark.definitions.stream import load_stream
from tidemark.settings import settings
from tidemark.spark.kafka_source import client_options
from tidemark.spark.session import spark_session


def main(name: str, events: str, package: str) -> None:
    given = settings()
    stream = load_stream(name, given.streams_dir)
    conf = {
        "spark.jars.packages": package,
        "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
        "spark.openlineage.transport.type": "file",
        "spark.openlineage.transport.location": events,
    }
    spark = spark_session(given, "consumer", conf=conf)
    out = f"s3a://{given.bucket}/consumer/{name}"
    spark.table(f"{given.catalog}.{given.namespace}.{stream.table}").write.parquet(f"{out}/from-table")
    kafka = spark.read.format("kafka").options(**client_options(given.kafka)).option("subscribe", stream.topic)
    kafka.load().write.parquet(f"{out}/from-topic")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
