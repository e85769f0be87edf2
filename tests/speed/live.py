"""The speed stream as a process, and the records in its two output topics."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack

DEADLINE_S = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """One record of an output topic; ``headers`` in order, as they are on the wire."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int
    timestamp_ms: int

    def header(self, name: str) -> str:
        """The text of the last header ``tidemark.<name>``."""
        found = dict(self.headers)[f"tidemark.{name}"]
        assert found is not None
        return found.decode()

    @property
    def source(self) -> tuple[int, int]:
        """Partition and offset of the source record."""
        _topic, _topic_id, partition, offset = self.header("source").split(":")
        return int(partition), int(offset)


def printed_events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The log lines of streams that ran in this process since the last call."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


def read_topic(settings: Settings, topic: str) -> list[Delivered]:
    """All committed records of an output topic, in log order per partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.speed_kafka.servers,
            "group.id": "speed-tests",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[Delivered] = []
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        left = set(partitions)
        while left:
            message = consumer.poll(20)
            assert message is not None, f"{topic}: partitions {left} did not reach their end"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
                continue
            partition = message.partition()
            assert partition is not None
            found.append(
                Delivered(
                    key=message.key(),
                    value=message.value(),
                    headers=_pairs(message.headers()),
                    partition=partition,
                    timestamp_ms=message.timestamp()[1],
                )
            )
    finally:
        consumer.close()
    return found


def _pairs(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(headers or ())


class SpeedApp:
    """A running ``spark_apps/speed_stream.py``; ``output`` is what it printed so far to both streams."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def events(self, event: str) -> list[dict[str, Any]]:
        """The structured lines of one kind; a line still being written is left out."""
        lines = [
            line for line in self.output.splitlines(keepends=True) if line.startswith("{") and line.endswith("}\n")
        ]
        return [fields for fields in map(json.loads, lines) if fields["event"] == event]

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait for the condition; fail with the output if the process ends or after two minutes."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.output}"
            assert time.monotonic() < deadline, f"waited {DEADLINE_S} s in vain:\n{self.output}"
            time.sleep(0.1)

    def jvms(self) -> list[psutil.Process]:
        """Its Java processes, without a launcher script that is about to become one."""
        return [child for child in psutil.Process(self.process.pid).children(recursive=True) if child.name() == "java"]

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(DEADLINE_S)

    def kill(self) -> None:
        """Send SIGKILL to Python and to its JVM at once."""
        parent = psutil.Process(self.process.pid)
        family = [parent, *parent.children(recursive=True)]
        for member in family:
            member.kill()
        self.process.wait(30)
        psutil.wait_procs(family[1:], timeout=30)


def running(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> AbstractContextManager[SpeedApp]:
    """``started`` with the memory of a test's driver."""
    return started(command, log, {**environment, "TIDEMARK_SPARK": '{"driver_memory": "1g"}'})


@contextmanager
def started(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[SpeedApp]:
    """Start an application of the project, and kill what is left of it at the end."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            cwd=PROJECT,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    app = SpeedApp(process, log)
    try:
        yield app
    finally:
        if process.poll() is None:
            app.kill()


def speed_app(stack: LocalStack, stream: Stream, log: Path, *arguments: str) -> AbstractContextManager[SpeedApp]:
    """Start the speed stream, and kill what is left of it at the end."""
    program = str(PROJECT / "spark_apps" / "speed_stream.py")
    return running([sys.executable, program, stream.name, *arguments], log, stack.env)
