"""Kafka's view of a topic: identity, watermarks, and positions by time."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # where its stub is

from tidemark.core.errors import ServiceError
from tidemark.core.offsets import TopicPartition

TIMEOUT_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """A log's ends: the first offset still held, and the offset the next committed record will get."""

    log: TopicPartition
    log_start: int
    high_watermark: int


# librdkafka writes ids in the base64 alphabet that Kafka itself does not use.
_URL_SAFE = str.maketrans("+/", "-_")


def describe_topic(bootstrap: str, topic: str) -> tuple[TopicPartition, ...]:
    """The topic's logs by partition number, with Kafka's topic id, written as Kafka's own tools write it.

    Raises ServiceError when the topic does not exist or no broker answers within 20 s.
    """
    admin = _admin(bootstrap)  # a client that is collected drops its pending futures
    try:
        future = admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_S)[topic]
        found = future.result(timeout=TIMEOUT_S + 5)
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            hint = "Create it, or correct the name in the stream's definition; to hidden topics, grant DESCRIBE"
            raise ServiceError("Kafka has no such topic", found=topic, where=bootstrap, hint=hint) from error
        raise ServiceError("Kafka could not describe a topic", found=error, where=f"{topic} at {bootstrap}") from error
    topic_id = str(found.topic_id).translate(_URL_SAFE)
    return tuple(sorted(TopicPartition(topic=topic, topic_id=topic_id, partition=item.id) for item in found.partitions))


def ensure_topic(bootstrap: str, topic: str, *, partitions: int, config: dict[str, str] | None = None) -> bool:
    """Create the topic if it is not there; False where it was.

    Replication factor 3 with two in-sync replicas on three brokers or more, else as many as there are (R8).
    """
    admin = _admin(bootstrap)
    try:
        brokers = len(admin.list_topics(timeout=TIMEOUT_S).brokers)
        settings = {"unclean.leader.election.enable": "false", **(config or {})}
        if brokers >= 3:
            settings.setdefault("min.insync.replicas", "2")
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=min(brokers, 3), config=settings)
        admin.create_topics([wanted], request_timeout=TIMEOUT_S)[topic].result(timeout=TIMEOUT_S + 5)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise ServiceError("Kafka could not create a topic", found=error, where=f"{topic} at {bootstrap}") from error
    return True


def watermarks(bootstrap: str, logs: Sequence[TopicPartition]) -> tuple[Watermarks, ...]:
    """Both ends of each log; the high one is the last stable offset (read_committed)."""
    with _Reader(bootstrap) as consumer:
        try:
            ends = [
                consumer.get_watermark_offsets(KafkaPartition(log.topic, log.partition), timeout=TIMEOUT_S)
                for log in logs
            ]
        except KafkaException as error:
            raise ServiceError("Kafka could not tell the watermarks", found=error, where=bootstrap) from error
    return tuple(
        Watermarks(log=log, log_start=low, high_watermark=high) for log, (low, high) in zip(logs, ends, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What lies between positions and a topic's end: how many offsets, and the timestamp of the oldest record there.

    ``oldest_ms`` is in ms since the epoch, None where no record can be read there (or none of them has a timestamp).
    """

    offsets: int
    oldest_ms: int | None


def backlog(bootstrap: str, topic: str, positions: Mapping[int, int], *, timeout_s: float) -> Backlog:
    """What a reader at ``positions`` (next offset by partition; without one a partition is unread) has before it.

    Reads one record of each partition that has any. Raises ServiceError when Kafka does not tell within the time.
    """
    deadline = time.monotonic() + timeout_s
    with _Reader(bootstrap, {"enable.partition.eof": True, "fetch.message.max.bytes": 1}) as consumer:
        try:
            ahead = {}
            for number in _partitions(consumer, topic, timeout_s):
                partition = KafkaPartition(topic, number)
                left_s = max(deadline - time.monotonic(), 0.01)
                start, end = consumer.get_watermark_offsets(partition, timeout=left_s)
                first = max(positions.get(number, start), start)
                if first < end:
                    ahead[number] = (first, end)
            oldest = _oldest_ms(consumer, topic, {number: first for number, (first, _) in ahead.items()}, deadline)
        except KafkaException as error:
            where = f"{topic} at {bootstrap}"
            raise ServiceError("Kafka could not tell the backlog", found=error, where=where) from error
    return Backlog(offsets=sum(end - first for first, end in ahead.values()), oldest_ms=oldest)


def _partitions(consumer: Consumer, topic: str, timeout_s: float) -> list[int]:
    known = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    return sorted(known.partitions)


def _oldest_ms(consumer: Consumer, topic: str, positions: Mapping[int, int], deadline: float) -> int | None:
    """The least timestamp among each partition's first readable record at or behind its position."""
    found: dict[int, int | None] = {}
    consumer.assign([KafkaPartition(topic, number, first) for number, first in positions.items()])
    while found.keys() != positions.keys():
        message = consumer.poll(max(deadline - time.monotonic(), 0))
        if message is None:
            missing = ", ".join(str(number) for number in sorted(positions.keys() - found.keys()))
            raise ServiceError("Kafka did not tell the backlog in time", where=f"{topic}, partitions {missing}")
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  # its name in the library
            raise KafkaException(error)
        number = message.partition()
        assert number is not None
        kind, stamp = message.timestamp() if error is None else (TIMESTAMP_NOT_AVAILABLE, 0)
        found.setdefault(number, None if kind == TIMESTAMP_NOT_AVAILABLE else stamp)
    return min((stamp for stamp in found.values() if stamp is not None), default=None)


def positions_at(bootstrap: str, logs: Sequence[TopicPartition], moment: datetime) -> dict[TopicPartition, int | None]:
    """Per log the first offset whose record timestamp is at or after ``moment``; None where there is none yet."""
    milliseconds = int(moment.timestamp() * 1000)
    with _Reader(bootstrap) as consumer:
        try:
            found = consumer.offsets_for_times(
                [KafkaPartition(log.topic, log.partition, milliseconds) for log in logs], timeout=TIMEOUT_S
            )
        except KafkaException as error:
            raise ServiceError("Kafka could not find positions by time", found=error, where=bootstrap) from error
    positions: dict[TopicPartition, int | None] = {}
    for log, item in zip(logs, found, strict=True):
        if item.error is not None:
            raise ServiceError("Kafka could not find a position by time", found=item.error, where=f"{log} {moment}")
        positions[log] = item.offset if item.offset >= 0 else None
    return positions


def _admin(bootstrap: str) -> AdminClient:
    # Its log would mix with the applications' own lines; failures come as exceptions.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})


class _Reader:
    """A consumer that joins no group and commits nothing."""

    def __init__(self, bootstrap: str, settings: Mapping[str, object] | None = None) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "tidemark-positions",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **(settings or {}),
            }
        )

    def __enter__(self) -> Consumer:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
