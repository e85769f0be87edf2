"""How far exactly-once delivery of one source log came: the marker, and what it allows a task to do next.

The marker is a committed group offset. Kafka moves it in the same transaction that holds the records, so that it says
exactly which source offsets are in the live topic. Kafka refuses offsets of partitions it does not know, and the source
may be on another cluster: so the offsets are those of an empty marker topic beside the live topic, partition by
partition.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions  # where its stub is

from tidemark.core.errors import ConflictError, FormatError, PositionError, ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.kafka.topics import TIMEOUT_S, describe_topic, ensure_topic

# A group's coordinator starts, moves, or reads the group's offsets.
_MOVING = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TRANSPORT,  # noqa: SLF001  # its name in the library
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRange:
    """What one task delivers: source offsets ``start <= offset < until`` of ``log``, in batch ``batch`` of the query.

    ``first``: this is the query's very first reading of the log, so that there may be no marker yet.
    """

    log: TopicPartition
    start: int
    until: int
    batch: int
    first: bool

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.until:
            found = f"[{self.start}, {self.until})"
            raise PositionError("a span must not end before its start", expected="0 <= start <= until", found=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where records and markers go, and how.

    ``records`` is the most a transaction holds, ``timeout_s`` the time-out of a transaction and of each call.
    ``batch_bytes`` must not pass the least max.message.bytes among the topics: Kafka holds whole batches to it.
    """

    bootstrap: str
    group: str
    marker_topic: str
    records: int
    timeout_s: float
    batch_bytes: int = 1_000_000

    def transactional_id(self, log: TopicPartition) -> str:
        """The id that fences: of all producers that have it, the last one that started is alive."""
        return f"{self.group}-{log.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Everything below source offset ``position`` is in the live topic; ``batch`` is None where a person set it."""

    position: int
    batch: int | None


def resume_at(found: Marker | None, span: TaskRange, sink: Sink) -> int:
    """The first source offset of the span that is not delivered yet; ``until`` where all of it is.

    Raises PositionError, with the marker and the range, where the two can't both be true.
    """
    if found is None:
        if span.first:
            return span.start
        raise _impossible(
            "there is no marker, though earlier batches were delivered",
            found=None,
            span=span,
            sink=sink,
            hint="The group's offsets expired or were deleted, or the live cluster is another one. Find the greatest"
            " offset of this log in tidemark.source of both output topics, and set the marker to the next one",
        )
    if found.position < span.start:
        raise _impossible(
            "the marker is behind the batch",
            found=found,
            span=span,
            sink=sink,
            hint=f"Source offsets [{found.position}, {span.start}) are not in the live topic; the checkpoint is past"
            " them. Remove the checkpoint, and the next start goes on at the markers; or give these records up and set"
            f" the marker to {span.start}",
        )
    if found.position > span.until:
        raise _impossible(
            "the marker is ahead of the batch",
            found=found,
            span=span,
            sink=sink,
            hint="More is in the live topic than the checkpoint says: it is an old copy, or another query delivers this"
            " stream. Stop that one, or remove the checkpoint, and the next start goes on at the markers; to deliver"
            f" records a second time, set the marker to {span.start}",
        )
    return found.position


def _impossible(problem: str, *, found: Marker | None, span: TaskRange, sink: Sink, hint: str) -> PositionError:
    log = span.log
    told = "none" if found is None else str(found.position)
    if found is not None and found.batch is not None:
        told += f" of batch {found.batch}"
    return PositionError(
        f"exactly-once delivery can't go on: {problem}",
        expected=f"a marker in the range [{span.start}, {span.until}] of the checkpoint's batch {span.batch}",
        found=f"marker {told}",
        where=f"source {log} with topic id {log.topic_id}; group {sink.group} at {sink.bootstrap}",
        hint=f"{hint}: kafka-consumer-groups.sh --bootstrap-server {sink.bootstrap} --group {sink.group}"
        f" --reset-offsets --topic {sink.marker_topic}:{log.partition} --to-offset OFFSET --execute",
    )


def marker(sink: Sink, log: TopicPartition) -> Marker | None:
    """The log's marker, None where nothing was ever delivered. Waits for a commit that is under way.

    Raises ServiceError when Kafka does not tell within the sink's time-out, ConflictError when the marker is another
    log's, FormatError when it is not ours.
    """
    with marker_reader(sink) as consumer:
        return read_marker(consumer, sink, log)


def delivered_until(sink: Sink, logs: Sequence[TopicPartition]) -> dict[int, int]:
    """The next source offset to deliver by partition, of those logs that have a marker. Raises as ``marker`` does."""
    with marker_reader(sink) as consumer:
        found = {log.partition: read_marker(consumer, sink, log) for log in logs}
    return {partition: item.position for partition, item in found.items() if item is not None}


@contextmanager
def marker_reader(sink: Sink) -> Iterator[Consumer]:
    """A consumer with the sink's group that never joins it."""
    consumer = Consumer(
        {
            "bootstrap.servers": sink.bootstrap,
            "group.id": sink.group,
            "enable.auto.commit": False,
            # Offsets of a transaction that is still being committed are waited for, not passed over.
            "isolation.level": "read_committed",
            "log_level": 3,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read_marker(consumer: Consumer, sink: Sink, log: TopicPartition) -> Marker | None:
    """What ``marker`` gives, by a consumer that is there already."""
    where = f"group {sink.group}, {sink.marker_topic}-{log.partition} at {sink.bootstrap}"
    item = _committed(consumer, KafkaPartition(sink.marker_topic, log.partition), sink.timeout_s, where)
    if item.offset < 0:
        return None
    if not item.metadata:  # Kafka's own tools set none
        return Marker(position=item.offset, batch=None)
    try:
        said = json.loads(item.metadata)
        batch, topic_id = int(said["batch"]), str(said["log"])
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError("a marker does not parse", found=item.metadata, where=where) from error
    if topic_id != log.topic_id:
        expected, found = f"topic id {log.topic_id}", f"topic id {topic_id}"
        raise ConflictError("a marker is another log's", expected=expected, found=found, where=where)
    return Marker(position=item.offset, batch=batch)


def _committed(consumer: Consumer, wanted: KafkaPartition, timeout_s: float, where: str) -> KafkaPartition:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            (item,) = consumer.committed([wanted], timeout=max(deadline - time.monotonic(), 0.1))
        except KafkaException as error:
            refusal = error.args[0]
            if refusal.code() in _MOVING and time.monotonic() < deadline:
                time.sleep(0.1)  # the client asks who the group's coordinator is now, but does not ask that one again
                continue
            raise ServiceError("Kafka did not tell a marker", found=refusal, where=where) from error
        if item.error is not None:  # the offset beside it says nothing
            raise ServiceError("Kafka did not tell a marker", found=item.error, where=where)
        return item


def marker_offset(span: TaskRange, sink: Sink, position: int) -> KafkaPartition:
    """The marker at ``position``, to be committed."""
    said = json.dumps({"batch": span.batch, "log": span.log.topic_id})
    return KafkaPartition(sink.marker_topic, span.log.partition, position, said)


def ensure_markers(bootstrap: str, topic: str, partitions: int) -> None:
    """Create the marker topic, or give it the partitions it lacks; never fewer than it has.

    Raises ServiceError when Kafka refuses, or does not show the partitions within 20 s.
    """
    if not ensure_topic(bootstrap, topic, partitions=partitions) and len(describe_topic(bootstrap, topic)) < partitions:
        _grow(bootstrap, topic, partitions)
    deadline = time.monotonic() + TIMEOUT_S
    while (found := _known(bootstrap, topic)) < partitions:
        if time.monotonic() > deadline:
            where = f"{topic} at {bootstrap}"
            raise ServiceError(
                "Kafka does not show a topic's partitions", expected=partitions, found=found, where=where
            )
        time.sleep(0.1)


def _grow(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    try:
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(timeout=TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        # Somebody who starts at the same time may have been faster.
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.INVALID_PARTITIONS:
            return
        raise ServiceError("Kafka could not add partitions", found=error, where=f"{topic} at {bootstrap}") from error


def _known(bootstrap: str, topic: str) -> int:
    """How many partitions a broker shows: of a topic that was just made, none at first."""
    try:
        return len(describe_topic(bootstrap, topic))
    except ServiceError:
        return 0
