"""Compares the archive stream with Spark's Parquet file sink, and measures its memory by the number of open paths.

Both read the same topics of a local Kafka and write to the same local S3 server, in one session, in turn. The last line
is JSON: the file sink's median seconds ÷ Tidemark's, and the largest Python worker's peak MiB by open paths.
"""

import argparse
import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from itertools import count
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.table import Table

from benchmarks.common import MIB, PARTITIONS, VALUE_BYTES, Times, console, produce, workers
from tidemark.archive.stream.driver import archive
from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT
from tidemark.settings import Settings
from tidemark.spark.records import event_time
from tidemark.spark.session import DAEMON, spark_session
from tidemark.spark.streaming import kafka_source
from tidemark.stack.local import LocalStack

HEADERS = [("trace", b"4bf92f3577b34da6"), ("source", b"unit-7")]
PATHS = {1: "'year='yyyy", 10: "'day='dd", 100: "'day='dd/'hour='HH"}
_NUMBERS = count(1)


def main() -> None:
    """Run the benchmark; see ``--help``."""
    options = _options()
    with LocalStack("bench-archive", root=PROJECT, fresh=True) as stack:
        os.environ.update(stack.env)
        result = {**_speed(stack.settings, options), "peak_mib": _memory(stack.settings, options)}
    console.print(json.dumps(result), soft_wrap=True, highlight=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=4_000_000, help="per topic, 200 bytes each (4,000,000)")
    parser.add_argument("--runs", type=int, default=5, help="of each sink and topic, after a warm-up run (5)")
    return parser.parse_args()


def _speed(settings: Settings, options: argparse.Namespace) -> dict[str, float]:
    topics = {"without headers": [], "with 2 headers": HEADERS}
    for topic, headers in topics.items():
        produce(settings, _name(topic), options.records, partitions=PARTITIONS, headers=headers)
    sinks: dict[str, Callable[[SparkSession, Settings, str], None]] = {"file sink": _native, "Tidemark": _ours}
    times = {(topic, sink): Times() for topic in topics for sink in sinks}
    spark = spark_session(settings, "bench-archive")
    try:
        for run in range(options.runs + 1):
            for (topic, sink), found in times.items():
                with found.of(f"{sink}, {topic}", run):
                    sinks[sink](spark, settings, _name(topic))
    finally:
        spark.stop()
    ratios = {topic: times[topic, "file sink"].median / times[topic, "Tidemark"].median for topic in topics}
    console.print(_speed_table(times, ratios, options.records))
    plain, headed = (round(ratio, 3) for ratio in ratios.values())
    return {"ratio_native": plain, "ratio_native_headers": headed}


def _speed_table(times: dict[tuple[str, str], Times], ratios: dict[str, float], records: int) -> Table:
    title = f"{records:,} records of {VALUE_BYTES} bytes, {PARTITIONS} partitions"
    table = Table("Topic", "Sink", title=title)
    for column in (*Times.COLUMNS, "Ratio"):
        table.add_column(column, justify="right")
    for (topic, sink), found in times.items():
        table.add_row(topic, sink, *found.cells(records), f"{ratios[topic]:.2f}" if sink == "Tidemark" else "")
    return table


def _memory(settings: Settings, options: argparse.Namespace) -> dict[str, int]:
    produce(settings, _name("paths"), options.records, partitions=1, headers=[])
    # A reused worker would start the next run with the memory of the last one.
    spark = spark_session(settings, "bench-archive-memory", conf={"spark.python.worker.reuse": "false"})
    peaks: dict[str, int] = {}
    try:
        for paths, pattern in PATHS.items():
            partitioner = {"type": "time", "path_format": pattern}
            with _peak_rss() as peak:
                _ours(spark, settings, _name("paths"), partitioner=partitioner, max_open_files=paths)
            peaks[str(paths)] = round(max(peak) / MIB)
            console.print(f"{paths} open paths: at most {peaks[str(paths)]} MiB in a Python worker")
    finally:
        spark.stop()
    table = Table("Open paths", title=f"Peak of the largest Python worker, {options.records:,} records, one partition")
    table.add_column("MiB", justify="right")
    for paths_open, mib in peaks.items():
        table.add_row(paths_open, str(mib))
    console.print(table)
    return peaks


def _ours(spark: SparkSession, settings: Settings, topic: str, **archive_keys: Any) -> None:
    """Run a new archive stream until every record is archived."""
    with redirect_stdout(io.StringIO()):  # its log
        archive(spark, _stream(topic, **archive_keys), settings, available_now=True)


def _native(spark: SparkSession, settings: Settings, topic: str) -> None:
    """Spark's streaming file sink with its defaults: same source, same columns, same server."""
    stream = _stream(topic)
    folder = f"s3a://{settings.bucket}/native/{stream.name}"
    source = kafka_source(spark, stream, settings, fail_on_data_loss=True)
    query = (
        _columns(source, stream)
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/data")
    )
    query.awaitTermination()


def _columns(source: DataFrame, stream: Stream) -> DataFrame:
    """The archive's columns, with unchanged headers."""
    return source.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.col("timestampType").alias("timestamp_type"),
        "key",
        "value",
        "headers",
        event_time(stream).alias("event_time"),
    )


def _stream(topic: str, **archive_keys: Any) -> Stream:
    """A new stream."""
    name = f"bench_{next(_NUMBERS)}"
    return Stream.model_validate(
        {
            "name": name,
            "topic": topic,
            "value_format": "raw",
            "archive": archive_keys,
            "speed": {"topic": f"{name}.live", "dead_letter_topic": f"{name}.dead-letter"},
        }
    )


def _name(topic: str) -> str:
    return "bench-" + topic.replace(" ", "-")


@contextmanager
def _peak_rss() -> Iterator[list[int]]:
    """The largest resident size of any Python worker during the block, in bytes, as the only item of a list."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for process in workers():
                try:
                    if DAEMON in process.cmdline():
                        peak[0] = max(peak[0], process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue

    watcher = threading.Thread(target=watch, name="peak-rss")
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


if __name__ == "__main__":
    main()
