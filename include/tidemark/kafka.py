"""Kafka's view of a topic: identity, watermarks, and positions by time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
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


def describe_topic(bootstrap: str, topic: str) -> tuple[TopicPartition, ...]:
    """The topic's logs by partition number, with Kafka's topic id.

    Raises ServiceError when the topic does not exist or no broker answers within 20 s.
    """
    admin = _admin(bootstrap)  # a client that is collected drops its pending futures
    try:
        future = admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_S)[topic]
        found = future.result(timeout=TIMEOUT_S + 5)
    except (KafkaException, TimeoutError) as error:
        raise ServiceError("Kafka could not describe a topic", found=error, where=f"{topic} at {bootstrap}") from error
    return tuple(
        sorted(
            TopicPartition(topic=topic, topic_id=str(found.topic_id), partition=item.id) for item in found.partitions
        )
    )


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

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "tidemark-positions",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )

    def __enter__(self) -> Consumer:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
