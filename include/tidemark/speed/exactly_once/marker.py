"""The marker: the next source offset to deliver of one log, and where a task may resume.

The marker is a committed group offset. The transaction that holds the records also moves the marker, so it says exactly
which source offsets are in the output topics. The source may be on another cluster, whose partitions the live cluster
does not know. So the marker is an offset of an empty topic on the live cluster with the same partitions.
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.cimpl import NewPartitions  # where its stub is

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ConflictError, FormatError, PositionError, ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.kafka.failures import kafka_errors, reporting
from tidemark.kafka.positions import open_consumer
from tidemark.kafka.topics import TIMEOUT_S, admin_client, describe_topic, ensure_topic

# The group's coordinator is starting, moving, or loading the group's offsets.
_COORDINATOR_BUSY = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TRANSPORT,  # noqa: SLF001  # its name in the library
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRange:
    """The range of one task: source offsets ``start <= offset < until`` of ``log``, in batch ``batch`` of the query.

    ``first``: the query has never delivered anything of the log, so there may be no marker yet.
    """

    log: TopicPartition
    start: int
    until: int
    batch: int
    first: bool

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.until:
            found = f"[{self.start}, {self.until})"
            raise PositionError("a range ends before its start", expected="0 <= start <= until", found=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """The destination of records and markers.

    ``records`` is the maximum per transaction, ``timeout_s`` the time-out of a transaction and of each call.
    ``batch_bytes`` must not exceed any topic's max.message.bytes, which limits whole batches. ``record_bytes`` is the
    largest record that the client accepts: at least any topic's limit, so that the topics decide. A record whose
    timestamp is more than ``before_ms`` before now or ``after_ms`` after it gets the time of its delivery, because the
    topics refuse its own. ``set_marker`` is the command by which a person sets a marker: Kafka's own tool accepts no
    offset that its empty topic does not hold.
    """

    kafka: KafkaConnection
    group: str
    marker_topic: str
    records: int
    timeout_s: float
    batch_bytes: int = 1_000_000
    record_bytes: int = 16 * 1024 * 1024
    before_ms: int = 2**63 - 1
    after_ms: int = 2**63 - 1
    set_marker: str = "tidemark markers STREAM --set PARTITION=OFFSET"

    def transactional_id(self, log: TopicPartition) -> str:
        """The id that fences: only the last producer that started with it can write."""
        return f"{self.group}-{log.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Every source offset below ``position`` is delivered; ``batch`` is None if a start or a person set it."""

    position: int
    batch: int | None


def resume_at(found: Marker | None, span: TaskRange, sink: Sink) -> int:
    """The first source offset of the range that is not delivered, or ``until`` if all are.

    Raises PositionError if marker and range contradict each other.
    """
    refusal = partial(_contradiction, found, span, sink)
    if found is None:
        if span.first:
            return span.start
        raise refusal(
            "there is no marker, but earlier batches were delivered",
            "The group's offsets expired or were deleted, or the live cluster was replaced. Find the greatest"
            " offset of this log in tidemark.source of both output topics, and set the marker to the next offset",
        )
    if found.position < span.start:
        raise refusal(
            "the marker is before the batch",
            f"The checkpoint is after source offsets [{found.position}, {span.start}), which are not delivered."
            " Remove the checkpoint, and the next start continues at the markers; or skip these records: set the"
            f" marker to {span.start}",
        )
    if found.position > span.until:
        raise refusal(
            "the marker is after the batch",
            "More is delivered than the checkpoint says: it is an old copy, or another query delivers this stream."
            " Stop that query, or remove the checkpoint, and the next start continues at the markers; to deliver"
            f" records a second time, set the marker to {span.start}",
        )
    return found.position


def _contradiction(found: Marker | None, span: TaskRange, sink: Sink, problem: str, hint: str) -> PositionError:
    log = span.log
    position = "none" if found is None else str(found.position)
    if found is not None and found.batch is not None:
        position += f" of batch {found.batch}"
    return PositionError(
        f"exactly-once delivery cannot continue: {problem}",
        expected=f"a marker in the range [{span.start}, {span.until}] of the checkpoint's batch {span.batch}",
        found=f"marker {position}",
        where=f"source {log} with topic id {log.topic_id}; group {sink.group} at {sink.kafka}",
        hint=f"{hint}: {sink.set_marker.replace('PARTITION', str(log.partition))}",
    )


def delivered_until(sink: Sink, logs: Sequence[TopicPartition]) -> dict[int, int]:
    """The next source offset to deliver, by partition, for each log with a marker. Raises as ``read_marker``."""
    with marker_reader(sink) as consumer:
        found = {log.partition: read_marker(consumer, sink, log) for log in logs}
    return {partition: item.position for partition, item in found.items() if item is not None}


def marker_reader(sink: Sink) -> AbstractContextManager[Consumer]:
    """A consumer with the sink's group. It waits for the offsets of a transaction that is being committed."""
    return open_consumer(sink.kafka, sink.group)


def read_marker(consumer: Consumer, sink: Sink, log: TopicPartition) -> Marker | None:
    """The log's marker, None if nothing was ever delivered. Waits for a commit in progress.

    Raises ConflictError for another log's marker, FormatError for a marker of another program.
    """
    where = f"group {sink.group}, {sink.marker_topic}-{log.partition} at {sink.kafka}"
    item = _committed(consumer, KafkaPartition(sink.marker_topic, log.partition), sink.timeout_s, where)
    if item.offset < 0:
        return None
    if not item.metadata:  # Kafka's own tools set none
        return Marker(position=item.offset, batch=None)
    try:
        value = json.loads(item.metadata)
        batch, topic_id = int(value["batch"]), str(value["topic_id"])
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError("a marker does not parse", found=item.metadata, where=where) from error
    if topic_id != log.topic_id:
        expected, found = f"topic id {log.topic_id}", f"topic id {topic_id}"
        raise ConflictError("the marker belongs to another log", expected=expected, found=found, where=where)
    return Marker(position=item.offset, batch=batch)


def _committed(consumer: Consumer, wanted: KafkaPartition, timeout_s: float, where: str) -> KafkaPartition:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            (item,) = consumer.committed([wanted], timeout=max(deadline - time.monotonic(), 0.1))
        except KafkaException as error:
            refusal = error.args[0]
            if refusal.code() in _COORDINATOR_BUSY and time.monotonic() < deadline:
                time.sleep(0.1)  # the client looks up the new coordinator, but does not repeat the call
                continue
            raise ServiceError("Kafka did not return a marker", found=refusal, where=where) from error
        if item.error is not None:  # then the offset has no meaning
            raise ServiceError("Kafka did not return a marker", found=item.error, where=where)
        return item


def marker_offset(span: TaskRange, sink: Sink, position: int) -> KafkaPartition:
    """The marker at ``position``, ready to be committed."""
    metadata = json.dumps({"batch": span.batch, "topic_id": span.log.topic_id})
    return KafkaPartition(sink.marker_topic, span.log.partition, position, metadata)


def fence(sink: Sink, log: TopicPartition) -> Producer:
    """A producer with the id of the log's task: it fences the log's earlier tasks."""
    producer = Producer(
        sink.kafka.client(
            {
                "transactional.id": sink.transactional_id(log),
                "transaction.timeout.ms": int(sink.timeout_s * 1000),
            }
        )
    )
    with (
        kafka_errors("Kafka refused a producer of markers", f"{sink.transactional_id(log)} at {sink.kafka}"),
        reporting(producer),
    ):
        producer.init_transactions(sink.timeout_s)
    return producer


def commit_markers(producer: Producer, sink: Sink, positions: Mapping[int, int]) -> None:
    """Set these markers in one transaction."""
    offsets = [KafkaPartition(sink.marker_topic, partition, offset) for partition, offset in positions.items()]
    with (
        kafka_errors("Kafka refused markers", f"group {sink.group} at {sink.kafka}"),
        marker_reader(sink) as consumer,
        reporting(producer),
    ):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), sink.timeout_s)
        producer.commit_transaction(sink.timeout_s)


def ensure_markers(kafka: KafkaConnection, topic: str, partitions: int) -> None:
    """Create the marker topic, or add missing partitions, and wait until Kafka shows them."""
    if not ensure_topic(kafka, topic, partitions=partitions) and len(describe_topic(kafka, topic)) < partitions:
        _grow(kafka, topic, partitions)
    deadline = time.monotonic() + TIMEOUT_S
    while (found := _known(kafka, topic)) < partitions:
        if time.monotonic() > deadline:
            where = f"{topic} at {kafka}"
            raise ServiceError(
                "Kafka does not show a topic's partitions", expected=partitions, found=found, where=where
            )
        time.sleep(0.1)


def _grow(kafka: KafkaConnection, topic: str, partitions: int) -> None:
    with (
        kafka_errors("Kafka could not add partitions", f"{topic} at {kafka}"),
        reporting(admin := admin_client(kafka)),
    ):
        try:
            admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(timeout=TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:  # another process added them first
                raise


def _known(kafka: KafkaConnection, topic: str) -> int:
    """How many partitions a broker shows; none at first for a new topic."""
    try:
        return len(describe_topic(kafka, topic))
    except ServiceError:
        return 0
