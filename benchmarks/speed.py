"""Compares the speed stream with Spark's Kafka sink: the rate for an existing topic, and the latency of records.

First all of them read the same topic of a local Kafka in one session, in turn. Then each runs alone while records
arrive at a steady rate. The last line is JSON: each mode's rate ÷ the bare sink's, and the 99th percentile of the
latency.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from rich.table import Table

from benchmarks.bare_sink import bare
from benchmarks.common import PARTITIONS, VALUE_BYTES, VALUE_SCHEMA, Times, console, produce, progress
from tidemark.connections.kafka import KafkaConnection
from tidemark.definitions.stream import Stream, load_stream
from tidemark.installation import PROJECT
from tidemark.kafka.topics import admin_client, ensure_topic
from tidemark.settings import Settings
from tidemark.spark.session import spark_session
from tidemark.speed.stream import speed
from tidemark.stack.local import LocalStack

SOURCE = "bench-source"
SINKS = ("bare", "at_least_once", "exactly_once")
RATE = 20_000  # records per second, where latency is measured
TICK_S = 0.005
WARM_UP_S = 60  # a cold JVM is slow at first, and has to catch up
SENT_SCHEMA = "sent BIGINT, note STRING"
# The transformation writes the columns in this order, so the time has a fixed position.
SENT = b'{"sent":'
DIGITS = 16  # of µs since the epoch, until the year 2286
READY_S = 240
_NUMBERS = count(1)
TRANSFORM = 'def transform(records):\n    return records.select("source", "event_time", "event.*")\n'


def main() -> None:
    """Run the benchmark; see ``--help``."""
    options = _options()
    streams = PROJECT / ".tidemark" / "bench-speed" / "streams"
    with LocalStack("bench-speed", root=PROJECT, streams_dir=streams, fresh=True) as stack:
        os.environ.update(stack.env)
        streams.mkdir()
        ratios = _rates(stack.settings, options)
        latency = {sink: _latency(stack, sink, options.seconds) for sink in SINKS}
    table = Table("Sink", title=f"Latency at {RATE:,} records/s for {options.seconds} s, each of {VALUE_BYTES} bytes")
    for name in ("Records", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right")
    for sink, found in latency.items():
        table.add_row(sink, f"{found.records:,}", f"{found.p50_ms:,.0f}", f"{found.p99_ms:,.0f}")
    console.print(table)
    result = {**ratios, "latency_ms_p99": {sink: round(found.p99_ms) for sink, found in latency.items()}}
    console.print(json.dumps(result), soft_wrap=True, highlight=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=3_000_000, help="to deliver, 200 bytes each (3,000,000)")
    parser.add_argument("--runs", type=int, default=5, help="of each sink, after a warm-up run (5)")
    parser.add_argument("--seconds", type=int, default=45, help="of steady records, for latency (45)")
    return parser.parse_args()


def _rates(settings: Settings, options: argparse.Namespace) -> dict[str, float]:
    produce(settings, SOURCE, options.records, partitions=PARTITIONS, headers=[])
    times = {sink: Times() for sink in SINKS}
    spark = spark_session(settings, "bench-speed")
    try:
        for run in range(options.runs + 1):
            for sink, found in times.items():
                with _stream(settings, SOURCE, sink, VALUE_SCHEMA) as stream:
                    with found.of(sink, run):
                        _drain(spark, stream, settings, sink)
                    _require_all(settings, stream, options.records)
    finally:
        spark.stop()
    ratios = {sink: times["bare"].median / found.median for sink, found in times.items()}
    console.print(_rates_table(times, ratios, options.records))
    return {f"ratio_{sink}": round(ratios[sink], 3) for sink in ("exactly_once", "at_least_once")}


def _drain(spark: SparkSession, stream: Stream, settings: Settings, sink: str) -> None:
    """Run a new stream until every record is delivered."""
    if sink == "bare":
        bare(spark, stream, settings, available_now=True).awaitTermination()
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):  # its log
        speed(spark, stream, settings, available_now=True)


def _rates_table(times: dict[str, Times], ratios: dict[str, float], records: int) -> Table:
    table = Table("Sink", title=f"{records:,} records of {VALUE_BYTES} bytes, {PARTITIONS} partitions")
    for column in (*Times.COLUMNS, "Ratio"):
        table.add_column(column, justify="right")
    for sink, found in times.items():
        table.add_row(sink, *found.cells(records), f"{ratios[sink]:.2f}")
    return table


@contextmanager
def _stream(settings: Settings, topic: str, sink: str, schema: str) -> Iterator[Stream]:
    """A new stream with its topics, which are deleted after the block."""
    name = f"bench_{next(_NUMBERS)}"
    outputs = {"topic": f"{name}.live", "dead_letter_topic": f"{name}.dead-letter"}
    definition = {
        "name": name,
        "topic": topic,
        "value_schema": schema,
        "speed": {
            **outputs,
            "delivery": "at_least_once" if sink == "bare" else sink,
            "trigger_seconds": 0,
        },
    }
    (settings.streams_dir / f"{name}.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    (settings.streams_dir / f"{name}.py").write_text(TRANSFORM, encoding="utf-8")
    for output in outputs.values():
        ensure_topic(settings.kafka, output, partitions=PARTITIONS)
    try:
        yield load_stream(name, settings.streams_dir)
    finally:
        # Otherwise they would take tens of gigabytes.
        admin = admin_client(settings.kafka)
        for future in admin.delete_topics(list(outputs.values())).values():
            future.result(60)


def _require_all(settings: Settings, stream: Stream, records: int) -> None:
    """Exit unless every record was delivered. Transactions add markers to the count."""
    consumer = _consumer(settings)
    try:
        partitions = [TopicPartition(stream.speed.topic, number) for number in range(PARTITIONS)]
        found = sum(consumer.get_watermark_offsets(partition, timeout=60)[1] for partition in partitions)
    finally:
        consumer.close()
    if found < records:
        raise SystemExit(f"{stream.speed.topic} holds {found} of {records} records")


def _consumer(settings: Settings) -> Consumer:
    return Consumer(
        settings.kafka.client(
            {"group.id": "bench-speed", "enable.auto.commit": False, "isolation.level": "read_committed"}
        )
    )


@dataclass
class Latency:
    """The times from a record's creation until a read-committed consumer has it."""

    micros: list[int] = field(default_factory=list)

    @property
    def records(self) -> int:
        return len(self.micros)

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.micros) / 1000

    @property
    def p99_ms(self) -> float:
        return statistics.quantiles(self.micros, n=100)[98] / 1000


def _latency(stack: LocalStack, sink: str, seconds: int) -> Latency:
    """The latency of the records of ``seconds``, after a warm-up time."""
    settings = stack.settings
    source = f"bench-steady-{sink.replace('_', '-')}"
    ensure_topic(settings.kafka, source, partitions=PARTITIONS)
    with _stream(settings, source, sink, SENT_SCHEMA) as stream, _application(stack, sink, stream):
        feeder = get_context("spawn").Process(
            target=feed, args=(settings.kafka, source, WARM_UP_S + seconds + 2), name="feeder", daemon=True
        )
        consumer = _consumer(settings)
        try:
            consumer.assign([TopicPartition(stream.speed.topic, number, 0) for number in range(PARTITIONS)])
            feeder.start()
            return _measure(consumer, sink, seconds)
        finally:
            consumer.close()
            feeder.terminate()
            feeder.join()


def _measure(consumer: Consumer, sink: str, seconds: int) -> Latency:
    found = Latency()
    first = _sent(consumer, READY_S)[0]
    start = first + WARM_UP_S * 1_000_000
    end = start + seconds * 1_000_000
    wanted, updated = seconds * RATE, 0.0
    with progress() as bar:
        task = bar.add_task(f"latency of {sink}", total=wanted)
        left = set(range(PARTITIONS))  # each is read up to its first record after the end
        while left:
            sent, received, partition = _sent(consumer, READY_S)
            if start <= sent < end:
                found.micros.append(received - sent)
            elif sent >= end:
                left.discard(partition)
            if time.monotonic() - updated > 1:
                updated = time.monotonic()
                bar.update(task, completed=found.records)
        bar.update(task, completed=found.records)
    return found


def _sent(consumer: Consumer, timeout_s: float) -> tuple[int, int, int]:
    """When the next record was made and when it arrived, in µs since the epoch, and its partition."""
    message = consumer.poll(timeout_s)
    received = time.time_ns() // 1000
    if message is None or message.error() is not None:
        raise SystemExit(f"no record was delivered within {timeout_s:g} s: {message and message.error()}")
    value, partition = message.value(), message.partition()
    assert value is not None
    assert partition is not None
    assert value.startswith(SENT)
    return int(value[len(SENT) : len(SENT) + DIGITS]), received, partition


@contextmanager
def _application(stack: LocalStack, sink: str, stream: Stream) -> Iterator[None]:
    """The sink's application as a process, which is stopped after the block."""
    program = ["-m", "benchmarks.bare_sink"] if sink == "bare" else [str(PROJECT / "spark_apps" / "speed_stream.py")]
    log = stack.logs / f"{stream.name}-{sink}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *program, stream.name],
            env={**os.environ, **stack.env},
            cwd=PROJECT,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        if process.wait(120):
            console.print(f"{sink} ended with {process.returncode}, see {log}")


def feed(kafka: KafkaConnection, topic: str, seconds: float) -> None:
    """Produce records at the steady rate to the partitions in turn, each with the time of its creation."""
    producer = Producer(kafka.client({"linger.ms": 1, "queue.buffering.max.messages": 1_000_000}))
    note = os.urandom(VALUE_BYTES).hex()
    size = VALUE_BYTES - len(SENT) - DIGITS - len(',"note":""}')
    started, number = time.monotonic(), 0
    while (passed := time.monotonic() - started) < seconds:
        due = int(passed * RATE)
        while number < due:
            at = number % VALUE_BYTES
            text = note[at : at + size]
            value = f'{SENT.decode()}{time.time_ns() // 1000},"note":"{text}"}}'
            _produce(producer, topic, value, number % PARTITIONS)
            number += 1
        producer.poll(TICK_S)
    producer.flush()


def _produce(producer: Producer, topic: str, value: Any, partition: int) -> None:
    try:
        producer.produce(topic, value, partition=partition)
    except BufferError as error:
        raise SystemExit(f"this machine is too slow for {RATE} records/s") from error


if __name__ == "__main__":
    main()
