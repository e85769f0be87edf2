"""Compare Connect objects with Kafka, to find those that are not of the topic that exists now."""

import json
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from tidemark.adopt.decode import read_object
from tidemark.adopt.listing import ConnectObject, LogImport, not_of_topic
from tidemark.adopt.rows import ValueFields
from tidemark.core.errors import FormatError, ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.core.text import SHOWN_MAX, cut
from tidemark.kafka.names import ADOPT_GROUP
from tidemark.kafka.topics import TIMEOUT_S, UNAVAILABLE_HINT
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

# Kafka's own names in the client library.
_END, _OUTSIDE = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001


def compare_with_kafka(settings: Settings, store: ObjectStore, logs: Sequence[LogImport], fields: ValueFields) -> int:
    """Compare the first and last value of some objects of each log with Kafka's. Returns how many values were equal.

    Raises ConflictError, naming both sides, if a value differs or an object ends after its log.
    """
    consumer = Consumer(
        settings.kafka.client(
            {
                "group.id": ADOPT_GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
    )
    compared = 0
    try:
        for log in logs:
            for item in _chosen(log):
                for offset, value in _samples(store, log, item, fields).items():
                    record = _record(consumer, log.log, offset) if offset >= log.ends.log_start else None
                    if record is None:
                        continue
                    body = record.value()
                    if body is None or meaning(value, fields) != meaning(body, fields):
                        expected, found = (
                            cut(text.decode(errors="backslashreplace"), SHOWN_MAX) for text in (body or b"null", value)
                        )
                        raise not_of_topic(item.key, f"at offset {offset} Kafka's {expected}", found)
                    compared += 1
    except KafkaException as error:
        raise ServiceError(
            "Kafka did not return records to compare",
            found=error,
            where=settings.kafka_bootstrap,
            hint=UNAVAILABLE_HINT,
        ) from error
    finally:
        consumer.close()
    return compared


def _chosen(log: LogImport) -> list[ConnectObject]:
    """The last object that is not archived yet, and at most two others that Kafka still holds records of."""
    left = [item for item in log.objects if not log.is_archived(item)]
    held = [item for item in left if (bound := log.bound(item)) is None or bound > log.ends.log_start]
    return [*held[: -1 : max(len(held) // 2, 1)], *held[-1:]]


def _samples(store: ObjectStore, log: LogImport, item: ConnectObject, fields: ValueFields) -> dict[int, bytes]:
    """The object's first and last value by offset, as far as their offsets are known."""
    try:
        values = read_object(store, item).column("value")
    except FormatError:
        return {}  # the import reports it
    samples: dict[int, bytes] = {item.start: values[0].as_py()}
    bound, end, last = log.bound(item), item.start + len(values), values[-1].as_py()
    if fields.offset is not None:
        offset = _offset(last, fields.offset)
        if offset is not None:
            samples[offset] = last
    elif bound is None or bound == end:
        log.require_before_end(item, end)
        samples[end - 1] = last
    return samples


def _offset(value: bytes, field: str) -> int | None:
    try:
        found = json.loads(value)[field]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


def _record(consumer: Consumer, log: TopicPartition, offset: int) -> Message | None:
    """Kafka's record at the offset; None if compaction or retention removed it."""
    consumer.assign([KafkaPartition(log.topic, log.partition, offset)])
    message = consumer.poll(TIMEOUT_S)
    if message is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
    error = message.error()
    if error is None:
        return message if message.offset() == offset else None
    if error.code() in {_END, _OUTSIDE}:
        return None
    raise KafkaException(error)


def meaning(value: bytes, fields: ValueFields) -> object:
    """What JSON means, to be compared; the value itself if it is no JSON.

    Members that are null and the fields that the sink added do not count.
    """
    try:
        found = json.loads(value, object_hook=_without_nulls, parse_constant=str)
    except ValueError:
        return value
    if isinstance(found, dict):
        return {name: item for name, item in found.items() if name not in {fields.offset, fields.timestamp}}
    return found


def _without_nulls(members: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in members.items() if item is not None}
