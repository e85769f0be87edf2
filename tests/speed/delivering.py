"""Rows for exactly-once delivery, what consumers see of them, and a process that delivers them step by step."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from tests.waiting import wait_until
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import TidemarkError
from tidemark.core.offsets import TopicPartition
from tidemark.installation import PROJECT
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.speed.exactly_once.marker import Marker, Sink, TaskRange, marker_reader, read_marker
from tidemark.speed.exactly_once.transactions import Delivered, deliver

LOG = TopicPartition(topic="source", topic_id="kXWqb5YJRMmUXkvGyKEUyg", partition=2)
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("source_partition", pa.int32()),
        ("source_offset", pa.int64()),
        ("_good", pa.bool_()),
    ]
)


class MakeSink(Protocol):
    def __call__(self, *, records: int = 100, timeout_s: float = 120, batch_bytes: int = 1_000_000) -> Sink: ...


def row(topic: str, offset: int, **given: Any) -> dict[str, Any]:
    """A good row for partition 0 of the topic, with its source offset as value; ``given`` are other columns."""
    return {
        "topic": topic,
        "partition": 0,
        "key": None,
        "value": b"%d" % offset,
        "headers": [],
        "timestamp": 1_700_000_000_000_000,
        "source_partition": LOG.partition,
        "source_offset": offset,
        "_good": True,
        **given,
    }


def batch(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)


def numbered(topic: str, *offsets: int) -> pa.RecordBatch:
    return batch(row(topic, offset) for offset in offsets)


def span(start: int, until: int, *, number: int = 0, first: bool = False) -> TaskRange:
    return TaskRange(log=LOG, start=start, until=until, batch=number, first=first)


def delivered(wanted: TaskRange, *, skipped: int = 0, good: int = 0, dead: int = 0, transactions: int) -> Delivered:
    return Delivered(
        log=LOG,
        start=wanted.start,
        until=wanted.until,
        skipped=skipped,
        good=good,
        dead=dead,
        transactions=transactions,
    )


def transactions_ended(bootstrap: str, topic: str) -> bool:
    """Whether every transaction in the topic ended: brokers write its markers after they answered the producer."""
    logs = describe_topic(KafkaConnection.plain(bootstrap), topic)
    stable = [item.high_watermark for item in watermarks(KafkaConnection.plain(bootstrap), logs)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests", "isolation.level": "read_uncommitted"})
    partitions = [KafkaPartition(topic, log.partition) for log in logs]
    ends = [consumer.get_watermark_offsets(partition, timeout=60)[1] for partition in partitions]
    consumer.close()
    return stable == ends


def messages(bootstrap: str, topic: str, *, isolation: str = "read_committed", wait: bool = True) -> list[Message]:
    """All records that a consumer sees, by partition and offset; ``wait``: after all transactions ended."""
    if wait:
        wait_until(lambda: transactions_ended(bootstrap, topic), "transactions ended")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 20_000_000,
        }
    )
    try:
        count = len(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
        consumer.assign([KafkaPartition(topic, number, 0) for number in range(count)])
        found: list[Message] = []
        ended: set[int | None] = set()
        while len(ended) < count:
            message = consumer.poll(120)
            assert message is not None, "Kafka is silent"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.name() == "_PARTITION_EOF", error
                ended.add(message.partition())
    finally:
        consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def values(bootstrap: str, topic: str, *, isolation: str = "read_committed", wait: bool = True) -> list[int]:
    """The source offsets in the ``numbered`` rows of one partition, in the order they were written."""
    return [int(message.value() or b"") for message in messages(bootstrap, topic, isolation=isolation, wait=wait)]


def set_marker(sink: Sink, position: int, *, metadata: str = "") -> None:
    """Commit an offset as Kafka's tools do: without a transaction."""
    consumer = Consumer({"bootstrap.servers": sink.kafka.servers, "group.id": sink.group, "enable.auto.commit": False})
    wanted = KafkaPartition(sink.marker_topic, LOG.partition, position, metadata)

    def committed() -> bool:
        try:
            (done,) = consumer.commit(offsets=[wanted], asynchronous=False) or []
        except KafkaException:  # the group's coordinator is starting
            return False
        return done.error is None

    wait_until(committed, "the marker is set")
    consumer.close()


@dataclass(frozen=True)
class Child:
    """A process that delivers ``parts`` (lists of source offsets) and waits after each for a line on its input."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, topic: str, parts: Sequence[Sequence[int]], wanted: TaskRange, sink: Sink) -> "Child":
        arguments = {
            "topic": topic,
            "parts": [list(part) for part in parts],
            "sink": asdict(sink),
            "span": {key: value for key, value in asdict(wanted).items() if key != "log"},
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.speed.delivering", json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(PROJECT), str(PROJECT / "include")))},
        )
        return cls(process)

    def reached(self) -> str:
        """The number of the part that it has delivered."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ended(self) -> str:
        """Let it run to its end. Return the error it ended with."""
        _, output = self.process.communicate("\n" * 100, timeout=180)
        assert self.process.returncode == 1, output  # if it aborts, librdkafka or Python prints why
        return output

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def _main() -> None:
    arguments = json.loads(sys.argv[1])

    def rows() -> Iterator[pa.RecordBatch]:
        for number, offsets in enumerate(arguments["parts"]):
            yield numbered(arguments["topic"], *offsets)
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            sys.stdin.readline()

    try:
        deliver(
            rows(),
            TaskRange(log=LOG, **arguments["span"]),
            Sink(**{**arguments["sink"], "kafka": KafkaConnection(**arguments["sink"]["kafka"])}),
        )
    except TidemarkError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    _main()


def marker(sink: Sink, log: TopicPartition) -> Marker | None:
    """The log's marker in Kafka."""
    with marker_reader(sink) as consumer:
        return read_marker(consumer, sink, log)
