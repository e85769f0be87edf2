"""Whether objects hold the records of the topic that is there now, as far as Kafka can still tell."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from tidemark.adopt.scan import Listed, Sample, Scanned, clipped, meaning
from tidemark.core.errors import ConflictError, ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.kafka.positions import Watermarks
from tidemark.kafka.topics import TIMEOUT_S
from tidemark.settings import Settings

FILES_PER_LOG = 10
# Kafka's own names in the client library.
_END, _OUTSIDE = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    log: TopicPartition
    offset: int
    key: str
    sample: Sample


def to_compare(files: Sequence[tuple[Listed, int | None]], mark: Watermarks) -> list[Listed]:
    """The files of one log to look at before anything is adopted: its last one, and some that Kafka still holds.

    ``files`` are in offset order, each with the start of the next one.
    """
    held = [item for item, bound in files if bound is None or bound > mark.log_start]
    step = max(len(held) - 1, 1) / (FILES_PER_LOG - 1)
    chosen = {round(number * step) for number in range(FILES_PER_LOG)}
    return [item for number, item in enumerate(held) if number in chosen or item is files[-1][0]]


def require_same_log(
    settings: Settings,
    marks: Mapping[TopicPartition, Watermarks],
    files: Sequence[tuple[TopicPartition, Listed, Scanned]],
) -> int:
    """How many values were compared with Kafka's, all alike.

    Raises ConflictError, naming both sides, where the objects reach beyond the log's end or a value is another one.
    """
    places = []
    for log, item, found in files:
        mark, end = marks[log], item.name.start + max(found.rows, 1)
        if end > mark.high_watermark:
            raise ConflictError(
                "an object reaches beyond the end of its log",
                expected=f"offsets below {mark.high_watermark}",
                found=f"[{item.name.start}, {end})",
                where=f"{item.key}, {log}",
                hint="It is of another topic, or of this one before it was deleted and made again",
            )
        if found.problem is None and found.first is not None and found.last is not None:
            spots = {item.name.start: found.first, end - 1: found.last}
            places += [
                _Place(log=log, offset=offset, key=item.key, sample=sample)
                for offset, sample in spots.items()
                if mark.log_start <= offset
            ]
    return _compare(settings, places)


def _compare(settings: Settings, places: Sequence[_Place]) -> int:
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
        for place in places:
            held, value = _value(consumer, place)
            if not held:
                continue
            compared += 1
            if value is None or meaning(value) != place.sample.meaning:
                raise ConflictError(
                    "an object does not hold the topic's records",
                    expected=f"at offset {place.offset} Kafka's {'null' if value is None else clipped(value)}",
                    found=place.sample.text,
                    where=f"{place.key}, {place.log}, topic id {place.log.topic_id}",
                    hint="It is of another topic, of this one before it was made again, or its writer changed values",
                )
    except KafkaException as error:
        where = f"{settings.kafka_bootstrap}"
        raise ServiceError("Kafka could not show records to compare", found=error, where=where) from error
    finally:
        consumer.close()
    return compared


def _value(consumer: Consumer, place: _Place) -> tuple[bool, bytes | None]:
    """Whether Kafka has a record at the offset, and its value; compaction and retention may have taken it."""
    consumer.assign([KafkaPartition(place.log.topic, place.log.partition, place.offset)])
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        message = consumer.poll(max(deadline - time.monotonic(), 0))
        if message is None:
            raise ServiceError(
                "Kafka did not show a record to compare",
                expected=f"an answer within {TIMEOUT_S} s",
                where=f"{place.log} at offset {place.offset}",
            )
        error = message.error()
        if error is None:
            return message.offset() == place.offset, message.value()
        if error.code() in {_END, _OUTSIDE}:
            return False, None
        raise KafkaException(error)
