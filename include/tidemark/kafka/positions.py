"""Positions of a topic's logs: watermarks, first records, the offsets at a time, a consumer's backlog."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeVar

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.logged_record import LoggedRecord, record_digest
from tidemark.core.offsets import TopicPartition
from tidemark.kafka.failures import explained, hear, kafka_errors, reporting
from tidemark.kafka.names import POSITIONS_GROUP
from tidemark.kafka.times import timestamp_ms
from tidemark.kafka.topics import TIMEOUT_S

T = TypeVar("T")
_ONE_RECORD = {"enable.partition.eof": True, "fetch.message.max.bytes": 1}

# Errors of a request while brokers come and go. Consumers do not repeat such a request themselves.
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001  # its name in the library
        KafkaError._DESTROY_BROKER,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """A log's ends: its first offset, and the offset of the next committed record."""

    log: TopicPartition
    log_start: int
    high_watermark: int


def watermarks(
    kafka: KafkaConnection, logs: Sequence[TopicPartition], *, committed: bool = True
) -> tuple[Watermarks, ...]:
    """Both ends of each log; the high one is the last stable offset if ``committed``, else the log's end."""

    def ends(consumer: Consumer) -> list[tuple[int, int]]:
        partitions = [KafkaPartition(log.topic, log.partition) for log in logs]
        return [consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S) for partition in partitions]

    with kafka_errors("Kafka could not return the watermarks", str(kafka)):
        found = _ask(kafka, ends, committed=committed)
    return tuple(
        Watermarks(log=log, log_start=low, high_watermark=high) for log, (low, high) in zip(logs, found, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The offsets between positions and a topic's end, and the timestamp of the oldest record there.

    ``oldest_ms`` is in ms since the epoch; None if there is no readable record with a timestamp. ``extents`` are the
    first and the next offset by partition.
    """

    offsets: int
    oldest_ms: int | None
    extents: Mapping[int, tuple[int, int]] = field(default_factory=dict)


def backlog(kafka: KafkaConnection, topic: str, positions: Mapping[int, int], *, timeout_s: float) -> Backlog:
    """What a reader at ``positions`` has not read yet: next offsets by partition, without one all of the partition.

    Reads one record per partition.
    """
    deadline = time.monotonic() + timeout_s
    with (
        kafka_errors("Kafka could not return the backlog", f"{topic} at {kafka}"),
        open_consumer(kafka, POSITIONS_GROUP, _ONE_RECORD) as consumer,
    ):
        unread, extents = {}, {}
        for number in _partitions(consumer, topic, timeout_s):
            partition = KafkaPartition(topic, number)
            left_s = max(deadline - time.monotonic(), 0.01)
            start, end = consumer.get_watermark_offsets(partition, timeout=left_s)
            extents[number] = (start, end)
            first = max(positions.get(number, start), start)
            if first < end:
                unread[number] = (first, end)
        found = _first_messages(consumer, topic, {number: first for number, (first, _) in unread.items()}, deadline)
    times = [time_ms for item in found.values() if (time_ms := _timestamp_ms(item)) is not None]
    return Backlog(
        offsets=sum(end - first for first, end in unread.values()), oldest_ms=min(times, default=None), extents=extents
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRecord:
    """A record's offset, its timestamp in ms since the epoch, and its leader's epoch; None where unknown."""

    offset: int
    timestamp_ms: int | None
    leader_epoch: int | None = None


def first_records(
    kafka: KafkaConnection, positions: Mapping[TopicPartition, int], *, committed: bool = True
) -> dict[TopicPartition, FirstRecord]:
    """The first record of each log at or after its position; logs without one are left out.

    All logs are of one topic. A position before the log's start counts as the start.
    """
    found = _first_of_logs(kafka, positions, committed=committed)
    return {
        log: FirstRecord(
            offset=message.offset() or 0, timestamp_ms=_timestamp_ms(message), leader_epoch=message.leader_epoch()
        )
        for log, message in found.items()
    }


def records_at(kafka: KafkaConnection, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, LoggedRecord]:
    """The record at the offset of each log, of open and aborted transactions too; logs without one are left out.

    All logs are of one topic.
    """
    return {
        log: LoggedRecord(
            log=log,
            offset=offsets[log],
            timestamp_us=timestamp_ms(message) * 1000,
            digest=record_digest(message.key(), message.value()),
            leader_epoch=message.leader_epoch(),
        )
        for log, message in _first_of_logs(kafka, offsets, committed=False).items()
        if message.offset() == offsets[log]
    }


def _first_of_logs(
    kafka: KafkaConnection, positions: Mapping[TopicPartition, int], *, committed: bool
) -> dict[TopicPartition, Message]:
    """The first record of each log at or after its position, or the log's first one if it ends before the position."""
    if not positions:
        return {}
    logs = {log.partition: log for log in positions}
    topic = next(iter(positions)).topic
    settings = {**_ONE_RECORD, "auto.offset.reset": "earliest"}
    with (
        kafka_errors("Kafka could not return the first records", f"{topic} at {kafka}"),
        open_consumer(kafka, POSITIONS_GROUP, settings, committed=committed) as consumer,
    ):
        wanted = {log.partition: position for log, position in positions.items()}
        found = _first_messages(consumer, topic, wanted, time.monotonic() + TIMEOUT_S)
    return {logs[number]: item for number, item in found.items()}


def _partitions(consumer: Consumer, topic: str, timeout_s: float) -> list[int]:
    known = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    return sorted(known.partitions)


def _first_messages(
    consumer: Consumer, topic: str, positions: Mapping[int, int], deadline: float
) -> dict[int, Message]:
    """Each partition's first readable record at or after its position; partitions without one are left out."""
    found: dict[int, Message | None] = {}
    consumer.assign([KafkaPartition(topic, number, first) for number, first in positions.items()])
    while found.keys() != positions.keys():
        message = consumer.poll(max(deadline - time.monotonic(), 0))
        if message is None:
            missing = ", ".join(str(number) for number in sorted(positions.keys() - found.keys()))
            where = f"{topic}, partitions {missing}"
            hear(consumer)
            raise explained("Kafka did not return the first records in time", "no records", where)
        error, number = message.error(), message.partition()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  # its name in the library
            raise KafkaException(error)
        assert number is not None
        found.setdefault(number, message if error is None else None)
    return {number: item for number, item in found.items() if item is not None}


def _timestamp_ms(message: Message) -> int | None:
    kind, timestamp = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp


def positions_at(
    kafka: KafkaConnection, logs: Sequence[TopicPartition], moment: datetime, *, committed: bool = True
) -> dict[TopicPartition, int | None]:
    """Per log the first offset with a record timestamp at or after ``moment``; None if there is none yet.

    With ``committed`` below the last stable offset only, else among all records. A moment before 1970 counts as 1970,
    because Kafka searches no earlier one.
    """
    milliseconds = max(int(moment.timestamp() * 1000), 0)

    def offsets(consumer: Consumer) -> list[int]:
        wanted = [KafkaPartition(log.topic, log.partition, milliseconds) for log in logs]
        found: list[KafkaPartition] = consumer.offsets_for_times(wanted, timeout=TIMEOUT_S)
        for item in found:
            if item.error is not None:
                raise KafkaException(item.error)
        return [item.offset for item in found]

    with kafka_errors("Kafka could not find positions by time", f"{moment} at {kafka}"):
        found = _ask(kafka, offsets, committed=committed)
    return {log: offset if offset >= 0 else None for log, offset in zip(logs, found, strict=True)}


def _ask(kafka: KafkaConnection, question: Callable[[Consumer], T], *, committed: bool) -> T:
    """Ask Kafka; repeat it for 20 s while leaders come and go, then raise Kafka's error."""

    def ask() -> T:
        # A new consumer each time: one keeps the metadata of a broker that had not caught up with the cluster.
        with open_consumer(kafka, POSITIONS_GROUP, committed=committed) as consumer:
            return question(consumer)

    return repeat_while_leaders_change(ask)


def repeat_while_leaders_change(ask: Callable[[], T]) -> T:
    """What ``ask`` returns; repeats it for 20 s while leaders come and go, then raises Kafka's error."""
    attempts = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, KafkaException) and error.args[0].code() in _PASSING),
        stop=stop_after_delay(TIMEOUT_S),
        wait=wait_fixed(0.1),
        reraise=True,
    )
    return attempts(ask)


@contextmanager
def open_consumer(
    kafka: KafkaConnection, group: str, settings: Mapping[str, Any] = MappingProxyType({}), *, committed: bool = True
) -> Iterator[Consumer]:
    """A consumer that never joins its group."""
    consumer = Consumer(
        kafka.client(
            {
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                **settings,
            }
        )
    )
    try:
        with reporting(consumer):
            yield consumer
    finally:
        consumer.close()
