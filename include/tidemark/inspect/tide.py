"""The tide: how far each log of a stream is sealed, archived and written, on one axis of offsets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from tidemark.archive.heartbeats import readable_heartbeat
from tidemark.archive.retention import Retention, read_retention
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.layout import Layout
from tidemark.core.offsets import TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectStore
from tidemark.tables.seals import last_sealed, read_seal

_RECENTLY = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTide:
    """One log: ``log_start`` ≤ ``sealed`` ≤ ``archived`` ≤ ``high_watermark`` if all is well. Each is a next offset.

    ``sealed`` is the end of the last sealed day, None if its seal does not have this log. ``hours_left`` is the time
    until Kafka may delete the first record that is not archived, None if nothing waits or no limit is known. ``lost``
    counts the offsets that Kafka deleted before they were archived, and that no day is sealed with.
    """

    log: TopicPartition
    log_start: int
    sealed: int | None
    archived: int
    high_watermark: int
    hours_left: float | None
    lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tide:
    """All logs of the stream's topic at ``found_at`` (UTC). Fewer hours left than ``alarm_hours`` are an alarm."""

    found_at: datetime
    alarm_hours: float
    logs: tuple[LogTide, ...]


def make_tide(
    retention: Retention,
    sealed: Mapping[TopicPartition, int],
    first_missing: Callable[[TopicPartition, int], int],
    now: datetime,
) -> Tide:
    """The tide by what Kafka and the archive have ``now``; ``sealed`` are the ends in the last sealed day.

    ``first_missing`` is that of ``read_retention``.
    """
    left = {item.log: item.hours_left for item in retention.waiting}
    return Tide(
        found_at=now,
        alarm_hours=retention.alarm_hours,
        logs=tuple(
            LogTide(
                log=item.log,
                log_start=item.log_start,
                sealed=sealed.get(item.log),
                archived=item.archived,
                high_watermark=item.high_watermark,
                hours_left=left.get(item.log),
                lost=max(item.log_start - first_missing(item.log, sealed.get(item.log, item.log_start)), 0),
            )
            for item in retention.logs
        ),
    )


def sealed_ends(store: ObjectStore, layout: Layout, last: tuple[date, int] | None) -> dict[TopicPartition, int]:
    """The end of each log in the seal of the ``last`` sealed day and version."""
    seal = None if last is None else read_seal(store, layout, *last)
    return {} if seal is None else {item.log: item.end for item in seal.logs}


def read_tide(kafka: KafkaConnection, store: ObjectStore, layout: Layout, stream: Stream, *, now: datetime) -> Tide:
    """The tide of this moment, from Kafka, the archive layer's heartbeat and the last seal.

    The archive itself is not read: what it lacks before the heartbeat's positions, only a saved status shows. Raises
    ServiceError if S3 or Kafka does not answer.
    """
    beat = readable_heartbeat(store, layout, "archive")
    positions = {} if beat is None else dict(beat.positions)
    ends = sealed_ends(store, layout, last_sealed(store, layout, recent=now.date() - _RECENTLY))

    def first_missing(log: TopicPartition, start: int) -> int:
        return max(start, positions.get(log.partition, start), ends.get(log, start))

    return make_tide(read_retention(kafka, stream, first_missing, now), ends, first_missing, now)
