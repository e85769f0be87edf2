"""Whether an audit is possible: how far the speed stream has come, and which days the live topic still holds."""

import json
from collections.abc import Iterable
from datetime import date, datetime

from tidemark.archive.heartbeats import readable_heartbeat
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.days import day_end
from tidemark.core.delivery import DayDelivery
from tidemark.core.errors import FormatError
from tidemark.core.layout import Layout
from tidemark.core.offsets import TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import positions_at, watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.spark.checkpoint import Checkpoint

LAYER = "speed"
DELETED = "Kafka has deleted what was written to the live topic before the end of the day, so nothing is compared"


def unreadable_days(stream: Stream, kafka: KafkaConnection, days: Iterable[date]) -> tuple[DayDelivery, ...]:
    """The days of which the live topic holds nothing any more: retention has deleted all that is as old as they."""
    logs = describe_topic(kafka, stream.speed.topic)
    found = []
    for day in days:
        first = positions_at(kafka, logs, day_end(day, stream.zone))
        written = [mark for mark in watermarks(kafka, logs) if mark.high_watermark]
        if written and all(
            is_deleted(first[mark.log], start=mark.log_start, end=mark.high_watermark) for mark in written
        ):
            found.append(not_compared(day, DELETED))
    return tuple(found)


def not_compared(day: date, because: str) -> DayDelivery:
    """A day of which nothing is compared."""
    return DayDelivery(day=day, verdict="unknown", sentences=(because,), archived=0, hours=())


def is_deleted(first: int | None, *, start: int, end: int) -> bool:
    """Whether a log from ``start`` to ``end`` has lost all records before a time. ``first`` is the first one from then
    on; None if there is none."""
    return start > 0 and (end if first is None else first) <= start


def last_ran(store: ObjectStore, layout: Layout) -> datetime | None:
    """When the speed stream last ran, by its heartbeat, in UTC; None without a heartbeat that can be read."""
    beat = readable_heartbeat(store, layout, LAYER)
    return None if beat is None else beat.time


def speed_positions(store: ObjectStore, layout: Layout) -> dict[TopicPartition, int]:
    """The next offset that the speed stream delivers, by source log; empty if it never ran."""
    prefix = layout.checkpoint_prefix(LAYER)
    body = store.get(f"{prefix}source.json")
    if body is None:
        return {}
    try:
        bound = json.loads(body)
        topic, topic_id = bound["topic"], bound["topic_id"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "a checkpoint's source does not parse", found=repr(error), where=f"{prefix}source.json"
        ) from error
    position = Checkpoint(store=store, prefix=prefix, topic=topic).position() or {}
    return {
        TopicPartition(topic=topic, topic_id=topic_id, partition=partition): offset
        for partition, offset in position.items()
    }
