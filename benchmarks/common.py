"""Shared by the benchmarks: records, times, CPU time and progress bars."""

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil
from confluent_kafka import Producer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tidemark.kafka.topics import ensure_topic
from tidemark.settings import Settings

PARTITIONS = 4
VALUE_BYTES = 200
VALUE_SCHEMA = "ride STRING, fare INT, currency STRING, kind STRING, note STRING"
# 2013-01-14, 00:00 UTC. The records' times rotate over ten days and ten hours: a hundred interleaved paths.
START_MS = 1_358_121_600_000
MIB = 1024 * 1024
console = Console()


@dataclass
class Times:
    """One sink's runs over one topic."""

    COLUMNS = ("Median s", "Runs", "Records/s", "CPU s per million")
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @contextmanager
    def of(self, name: str, run: int) -> Iterator[None]:
        """Measure the block and print its time; run 0 is a warm-up and does not count."""
        started, cpu = time.monotonic(), cpu_seconds()
        yield
        seconds, cpu = time.monotonic() - started, cpu_seconds() - cpu
        console.print(f"{f'run {run}' if run else 'warming up'}: {name}: {seconds:.1f} s")
        if run:
            self.seconds.append(seconds)
            self.cpu_seconds.append(cpu)

    @property
    def median(self) -> float:
        """The median of the seconds."""
        return statistics.median(self.seconds)

    def cells(self, records: int) -> tuple[str, ...]:
        """The cells for COLUMNS; ``records`` is the number of records per run."""
        return (
            f"{self.median:.2f}",
            " ".join(f"{one:.1f}" for one in self.seconds),
            f"{records / self.median:,.0f}",
            f"{statistics.median(self.cpu_seconds) / records * 1e6:.2f}",
        )


def produce(settings: Settings, topic: str, records: int, *, partitions: int, headers: list[tuple[str, bytes]]) -> None:
    """Produce records of half random, half repeated text to the partitions in turn."""
    ensure_topic(settings.kafka, topic, partitions=partitions, config={"retention.ms": "-1"})
    own = {"linger.ms": 50, "batch.size": MIB, "queue.buffering.max.messages": 500_000}
    producer = Producer(settings.kafka.client(own))
    pool = os.urandom(MIB).hex()
    failures: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    with progress() as bar:
        task = bar.add_task(f"producing {topic}", total=records)
        for number in range(records):
            start = number * 7919 % (len(pool) - VALUE_BYTES)
            moment = START_MS + number % 10 * 86_400_000 + number // 10 % 10 * 3_600_000
            while True:
                try:
                    producer.produce(
                        topic,
                        value(number, pool[start : start + VALUE_BYTES]),
                        partition=number % partitions,
                        timestamp=moment,
                        headers=list(headers),
                        on_delivery=delivered,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 10_000 == 0:
                producer.poll(0)
                bar.update(task, completed=number)
        producer.flush()
        bar.update(task, completed=records)
    if failures:
        raise SystemExit(f"{len(failures)} records were not accepted, the first: {failures[0]}")


def value(number: int, noise: str) -> str:
    """A record's value, VALUE_BYTES long: JSON of VALUE_SCHEMA, with a part of ``noise`` as its note."""
    head = f'{{"ride": "r-{number:012d}", "fare": {number % 9973}, "currency": "EUR", "kind": "bus", "note": "'
    return (head + noise)[: VALUE_BYTES - 2] + '"}'


def workers() -> Iterator[psutil.Process]:
    """This process's descendants: the JVM, the servers, and Python workers."""
    yield from psutil.Process().children(recursive=True)


def cpu_seconds() -> float:
    """The CPU seconds so far of this process, Spark and its Python workers, without the servers."""
    total = sum(psutil.Process().cpu_times()[:2])
    for process in workers():
        try:
            if _is_spark(process):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        except psutil.NoSuchProcess:
            continue
    return total


def _is_spark(process: psutil.Process) -> bool:
    return any("pyspark" in part or "SparkSubmit" in part for part in process.cmdline())


def progress() -> Progress:
    """A progress bar with a known total."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
