"""Whether objects hold records of the topic that exists now, as far as Kafka can still show it."""

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from tidemark.adopt.decode import read_object
from tidemark.adopt.listing import ConnectObject, LogObjects, require_before_end
from tidemark.adopt.rows import ValueFields
from tidemark.core.errors import ConflictError, FormatError, ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.kafka.topics import TIMEOUT_S
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

OBJECTS_PER_LOG = 3
CLIP = 120
# Kafka's own names in the client library.
_END, _OUTSIDE = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    log: TopicPartition
    offset: int
    key: str
    value: bytes


def compare_with_kafka(
    settings: Settings, store: ObjectStore, groups: Sequence[LogObjects], fields: ValueFields
) -> int:
    """Compare the first and last value of some objects of each log with Kafka's; how many were compared, all equal.

    Raises ConflictError, naming both sides, where a value differs or an object ends after its log.
    """
    samples = [
        sample
        for group in groups
        for item in _chosen(group)
        for sample in _samples(store, group, item, fields)
        if sample.offset >= group.log_start
    ]
    return _compare(settings, samples, fields)


def _chosen(group: LogObjects) -> list[ConnectObject]:
    """The last object that is not archived yet, and others that Kafka still holds records of."""
    left = [item for item in group.objects if not group.is_archived(item)]
    held = [item for item in left if (bound := group.bound(item)) is None or bound > group.log_start]
    step = max(len(held) - 1, 1) / (OBJECTS_PER_LOG - 1)
    places = {round(number * step) for number in range(OBJECTS_PER_LOG)}
    return [item for place, item in enumerate(held) if place in places]


def _samples(store: ObjectStore, group: LogObjects, item: ConnectObject, fields: ValueFields) -> list[_Sample]:
    try:
        values = read_object(store, item).column("value")
    except FormatError:
        return []  # the import reports it
    bound, last = group.bound(item), values[-1].as_py()
    places: dict[int, bytes] = {item.start: values[0].as_py()}
    if fields.offset is not None:
        offset = _offset(last, fields.offset)
        places |= {} if offset is None else {offset: last}
    elif bound is None or bound == item.start + len(values):
        require_before_end(group, item, item.start + len(values))
        places[item.start + len(values) - 1] = last
    return [_Sample(log=group.log, offset=offset, key=item.key, value=value) for offset, value in places.items()]


def _offset(value: bytes, field: str) -> int | None:
    try:
        found = json.loads(value)[field]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


def _compare(settings: Settings, samples: Sequence[_Sample], fields: ValueFields) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka_bootstrap,
            "group.id": "tidemark-adopt",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    compared = 0
    try:
        for sample in samples:
            held, value = _value(consumer, sample)
            if not held:
                continue
            compared += 1
            if value is None or meaning(value, fields) != meaning(sample.value, fields):
                raise ConflictError(
                    "an object does not hold the topic's records",
                    expected=f"at offset {sample.offset} Kafka's {'null' if value is None else clipped(value)}",
                    found=clipped(sample.value),
                    where=f"{sample.key}, {sample.log}, topic id {sample.log.topic_id}",
                    hint="The object is of another topic, of this topic before it was recreated, or its sink changed"
                    " the values. Move it out of the folder",
                )
    except KafkaException as error:
        where = settings.kafka_bootstrap
        raise ServiceError("Kafka did not return records to compare", found=error, where=where) from error
    finally:
        consumer.close()
    return compared


def _value(consumer: Consumer, sample: _Sample) -> tuple[bool, bytes | None]:
    """Whether Kafka has a record at the offset, and its value. Compaction or retention may have removed it."""
    consumer.assign([KafkaPartition(sample.log.topic, sample.log.partition, sample.offset)])
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        message = consumer.poll(max(deadline - time.monotonic(), 0))
        if message is None:
            raise ServiceError(
                "Kafka did not return a record to compare",
                expected=f"an answer within {TIMEOUT_S} s",
                where=f"{sample.log} at offset {sample.offset}",
            )
        error = message.error()
        if error is None:
            return message.offset() == sample.offset, message.value()
        if error.code() in {_END, _OUTSIDE}:
            return False, None
        raise KafkaException(error)


def meaning(value: bytes, fields: ValueFields) -> str:
    """A hash that is equal for equal JSON.

    Blanks, the order of members, ``1`` or ``1.0``, members that are null and the fields that the sink added do not
    count. For what is no JSON it is the hash of the bytes.
    """
    try:
        found = _plain(json.loads(value))
    except ValueError:
        return hashlib.sha256(value).hexdigest()
    if isinstance(found, dict):
        found = {name: item for name, item in found.items() if name not in {fields.offset, fields.timestamp}}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def clipped(value: bytes) -> str:
    """The beginning of a value, for a message."""
    text = value[: 4 * CLIP].decode(errors="replace")
    return text if len(text) <= CLIP else text[:CLIP] + "…"


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items() if item is not None}
        case list():
            return [_plain(item) for item in value]
        case float() if math.isfinite(value) and value.is_integer():
            return int(value)
    return value
