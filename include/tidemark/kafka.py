"""Kafka's view of a topic: identity, watermarks, and positions by time."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # in its docs
from confluent_kafka.cimpl import NewTopic  # where its stub is
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from tidemark.core.errors import ServiceError
from tidemark.core.offsets import TopicPartition

T = TypeVar("T")

TIMEOUT_S = 20
AWAY = "Look whether its brokers answer there and the user may ask, then try again"
# While brokers come and go a question fails so for a moment; consumers do not ask it again themselves.
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
    found = logs_of(bootstrap, topic)
    if not found:
        hint = "Create it, or correct the name in the stream's definition; to hidden topics, grant DESCRIBE"
        raise ServiceError("Kafka has no such topic", found=topic, where=bootstrap, hint=hint)
    return found


def logs_of(bootstrap: str, topic: str) -> tuple[TopicPartition, ...]:
    """``describe_topic``, but none of a topic that is not there."""
    found = _described(bootstrap, topic)
    if found is None:
        return ()
    topic_id = str(found.topic_id).translate(_URL_SAFE)
    return tuple(sorted(TopicPartition(topic=topic, topic_id=topic_id, partition=item.id) for item in found.partitions))


def _described(bootstrap: str, topic: str) -> Any:
    """The library's ``TopicDescription``, untyped because its leaders may be None against their type.

    None where there is no such topic; raises ServiceError when Kafka does not tell within 20 s.
    """
    admin = _admin(bootstrap)  # a client that is collected drops its pending futures
    try:
        future = admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_S)[topic]
        return future.result(timeout=TIMEOUT_S + 5)
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise ServiceError(
            "Kafka could not describe a topic", found=error, where=f"{topic} at {bootstrap}", hint=AWAY
        ) from error


def ensure_topic(bootstrap: str, topic: str, *, partitions: int, config: dict[str, str] | None = None) -> bool:
    """Create the topic if it is not there, and return when every broker knows it; False where it was.

    Three copies, or as many as there are brokers if fewer; a majority of them must have a record before it counts as
    delivered (R8). With two brokers that is both: without one, records wait in the source instead of being lost.
    """
    admin = _admin(bootstrap)
    try:
        known = admin.list_topics(timeout=TIMEOUT_S)
        replicas = min(len(known.brokers), 3)
        settings = {
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(replicas // 2 + 1),
            **(config or {}),
        }
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=settings)
        admin.create_topics([wanted], request_timeout=TIMEOUT_S)[topic].result(timeout=TIMEOUT_S + 5)
        for broker in known.brokers.values():
            _await_known(f"{broker.host}:{broker.port}", topic, partitions)
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise ServiceError("Kafka could not create a topic", found=error, where=f"{topic} at {bootstrap}") from error
    return True


def _await_known(broker: str, topic: str, partitions: int) -> None:
    """Until this broker tells of a new topic's leaders: brokers hear of it one after the other."""
    deadline = time.monotonic() + TIMEOUT_S
    admin = _admin(broker)  # its first question goes to the one broker it was told of
    while time.monotonic() < deadline:
        found = admin.list_topics(timeout=TIMEOUT_S).topics.get(topic)
        if found is not None and sum(item.leader >= 0 for item in found.partitions.values()) == partitions:
            return
        time.sleep(0.05)


def copies(bootstrap: str, topic: str) -> int | None:
    """The least number of replicas that any partition of the topic has; None where there is no such topic.

    Raises ServiceError when Kafka does not tell.
    """
    found = _described(bootstrap, topic)
    return None if found is None else min(len(item.replicas) for item in found.partitions)


def unwritable(bootstrap: str, topic: str) -> tuple[str, ...]:
    """Why records for the topic are not acknowledged now: a phrase per partition that is short of brokers.

    Raises ServiceError when Kafka does not tell.
    """
    found = _described(bootstrap, topic)
    if found is None:
        return (f"{topic} does not exist",)
    wanted = int(topic_config(bootstrap, topic)["min.insync.replicas"])
    short = []
    for item in found.partitions:
        if item.leader is None or item.leader.id < 0:
            short.append(f"{topic}-{item.id} has no leader")
        elif len(item.isr) < min(wanted, len(item.replicas)):
            short.append(f"{topic}-{item.id} has {len(item.isr)} copies in sync, min.insync.replicas is {wanted}")
    return tuple(short)


def broker_configs(bootstrap: str) -> tuple[dict[str, str], ...]:
    """The settings in force of every broker that is up, at least one, as Kafka writes them; those unset are left out.

    Raises ServiceError when no broker answers, or the user may not see settings (DESCRIBE_CONFIGS on the cluster).
    """
    admin = _admin(bootstrap)
    configs = []
    try:
        for broker in admin.list_topics(timeout=TIMEOUT_S).brokers:
            resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
            answer = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource]
            told = answer.result(timeout=TIMEOUT_S + 5)
            configs.append({name: entry.value for name, entry in told.items() if entry.value is not None})
    except (KafkaException, TimeoutError) as error:
        raise ServiceError("Kafka could not tell the brokers' settings", found=error, where=bootstrap) from error
    return tuple(configs)


def topic_config(bootstrap: str, topic: str) -> dict[str, str]:
    """The topic's settings as they are in force, the broker's defaults included, as Kafka writes them.

    Raises ServiceError when the topic does not exist, or the user may not see its settings (DESCRIBE_CONFIGS).
    """
    admin = _admin(bootstrap)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        found = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result(timeout=TIMEOUT_S + 5)
    except (KafkaException, TimeoutError) as error:
        raise ServiceError(
            "Kafka could not tell a topic's settings", found=error, where=f"{topic} at {bootstrap}", hint=AWAY
        ) from error
    return {name: entry.value for name, entry in found.items()}


def watermarks(bootstrap: str, logs: Sequence[TopicPartition], *, committed: bool = True) -> tuple[Watermarks, ...]:
    """Both ends of each log; the high one is the last stable offset (read_committed), or the end of all there is."""

    def ends(consumer: Consumer) -> list[tuple[int, int]]:
        partitions = [KafkaPartition(log.topic, log.partition) for log in logs]
        return [consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S) for partition in partitions]

    try:
        found = _ask(bootstrap, "read_committed" if committed else "read_uncommitted", ends)
    except KafkaException as error:
        raise ServiceError("Kafka could not tell the watermarks", found=error, where=bootstrap, hint=AWAY) from error
    return tuple(
        Watermarks(log=log, log_start=low, high_watermark=high) for log, (low, high) in zip(logs, found, strict=True)
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
            found = _first_records(consumer, topic, {number: first for number, (first, _) in ahead.items()}, deadline)
        except KafkaException as error:
            where = f"{topic} at {bootstrap}"
            raise ServiceError("Kafka could not tell the backlog", found=error, where=where) from error
    stamps = [item.timestamp_ms for item in found.values() if item.timestamp_ms is not None]
    return Backlog(offsets=sum(end - first for first, end in ahead.values()), oldest_ms=min(stamps, default=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRecord:
    """Where a record is, and its timestamp in ms since the epoch, None where it has none."""

    offset: int
    timestamp_ms: int | None


def first_records(
    bootstrap: str, positions: Mapping[TopicPartition, int], *, committed: bool = True
) -> dict[TopicPartition, FirstRecord]:
    """Of each log, all of one topic, the first record that Kafka gives at or behind a position; logs without one are
    left out, and a position in front of the log's start counts as that.

    Raises ServiceError when Kafka does not tell within 20 s.
    """
    if not positions:
        return {}
    logs = {log.partition: log for log in positions}
    topic = next(iter(positions)).topic
    settings = {
        "enable.partition.eof": True,
        "fetch.message.max.bytes": 1,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed" if committed else "read_uncommitted",
    }
    with _Reader(bootstrap, settings) as consumer:
        try:
            wanted = {log.partition: position for log, position in positions.items()}
            found = _first_records(consumer, topic, wanted, time.monotonic() + TIMEOUT_S)
        except KafkaException as error:
            where = f"{topic} at {bootstrap}"
            raise ServiceError("Kafka could not tell the first records", found=error, where=where) from error
    return {logs[number]: item for number, item in found.items()}


def _partitions(consumer: Consumer, topic: str, timeout_s: float) -> list[int]:
    known = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    return sorted(known.partitions)


def _first_records(
    consumer: Consumer, topic: str, positions: Mapping[int, int], deadline: float
) -> dict[int, FirstRecord]:
    """Each partition's first readable record at or behind its position; partitions without one are left out."""
    found: dict[int, FirstRecord | None] = {}
    consumer.assign([KafkaPartition(topic, number, first) for number, first in positions.items()])
    while found.keys() != positions.keys():
        message = consumer.poll(max(deadline - time.monotonic(), 0))
        if message is None:
            missing = ", ".join(str(number) for number in sorted(positions.keys() - found.keys()))
            where = f"{topic}, partitions {missing}"
            raise ServiceError("Kafka did not tell the first records in time", where=where, hint=AWAY)
        error, number, offset = message.error(), message.partition(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  # its name in the library
            raise KafkaException(error)
        assert number is not None
        assert offset is not None
        kind, stamp = message.timestamp() if error is None else (TIMESTAMP_NOT_AVAILABLE, 0)
        stamp_ms = None if kind == TIMESTAMP_NOT_AVAILABLE else stamp
        found.setdefault(number, None if error is not None else FirstRecord(offset=offset, timestamp_ms=stamp_ms))
    return {number: item for number, item in found.items() if item is not None}


def positions_at(
    bootstrap: str, logs: Sequence[TopicPartition], moment: datetime, *, committed: bool = True
) -> dict[TopicPartition, int | None]:
    """Per log the first offset whose record timestamp is at or after ``moment``; None where there is none yet.

    ``committed``: below the last stable offset only, else among all records. Kafka looks for no moment before 1970; for
    such a one it is the first record stamped since.
    """
    milliseconds = max(int(moment.timestamp() * 1000), 0)

    def offsets(consumer: Consumer) -> list[int]:
        wanted = [KafkaPartition(log.topic, log.partition, milliseconds) for log in logs]
        found: list[KafkaPartition] = consumer.offsets_for_times(wanted, timeout=TIMEOUT_S)
        for item in found:
            if item.error is not None:
                raise KafkaException(item.error)
        return [item.offset for item in found]

    try:
        found = _ask(bootstrap, "read_committed" if committed else "read_uncommitted", offsets)
    except KafkaException as error:
        where = f"{moment} at {bootstrap}"
        raise ServiceError("Kafka could not find positions by time", found=error, where=where, hint=AWAY) from error
    return {log: offset if offset >= 0 else None for log, offset in zip(logs, found, strict=True)}


def _ask(bootstrap: str, isolation: str, question: Callable[[Consumer], T]) -> T:
    """The answer; while leaders come and go it is asked again, and what Kafka says after 20 s of that is raised."""

    def ask() -> T:
        # Anew each time: a consumer keeps what a broker told it that had not caught up with the cluster.
        with _Reader(bootstrap, {"isolation.level": isolation}) as consumer:
            return question(consumer)

    attempts = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, KafkaException) and error.args[0].code() in _PASSING),
        stop=stop_after_delay(TIMEOUT_S),
        wait=wait_fixed(0.1),
        reraise=True,
    )
    return attempts(ask)


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
