"""How long Kafka still keeps records that are not archived. Found from the archive and Kafka; no stream need run.

Kafka deletes a log segment once its newest record is older than ``retention.ms``. The oldest unarchived record is at
most as new as that one. So its timestamp gives the earliest time of deletion; the segment may stay longer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.days import moment_text
from tidemark.core.offsets import TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import first_records, watermarks
from tidemark.kafka.topics import describe_topic, topic_config

_HOUR_MS = 3_600_000
_UNLIMITED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPositions:
    """A log's ends in Kafka, and the first offset at or after its start that is not archived."""

    log: TopicPartition
    log_start: int
    archived: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The first unarchived offset of a log, with the timestamp of the first record there or after it.

    ``hours_left`` is the time until Kafka may delete that record by its age. It is below 0 if Kafka already may, and
    None if the topic deletes no record by age.
    """

    log: TopicPartition
    offset: int
    timestamp_ms: int
    hours_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is not archived yet, and how long the topic keeps it: all ``logs``, and those where records wait.

    A limit is None if the topic has none. ``limit_bytes`` gives no estimate, because clients can't see a log's size.
    ``alarm_hours`` is the stream's, but at most half of the topic's retention: a topic that keeps six hours would
    otherwise always raise the alarm.
    """

    limit_ms: int | None
    limit_bytes: int | None
    alarm_hours: float
    logs: tuple[LogPositions, ...]
    waiting: tuple[Waiting, ...]

    @property
    def hours_left(self) -> float | None:
        """The least of all logs; None if nothing waits, or if Kafka deletes nothing by age."""
        return min((item.hours_left for item in self.waiting if item.hours_left is not None), default=None)

    @property
    def late(self) -> tuple[Waiting, ...]:
        """The logs that raise the alarm, the most urgent first."""
        found = [item for item in self.waiting if item.hours_left is not None and item.hours_left < self.alarm_hours]
        return tuple(sorted(found, key=lambda item: item.hours_left or 0.0))

    @property
    def summary(self) -> str:
        """In a few words, for example ``5.0 h left``."""
        if not self.waiting:
            return "nothing waits"
        bytes_too = "" if self.limit_bytes is None else "; not estimated: retention.bytes"
        least = self.hours_left
        if least is None:
            return f"no limit{bytes_too}"
        return f"{hours(least)}{bytes_too}"

    def lines(self) -> tuple[str, ...]:
        """A sentence for each log that raises the alarm."""
        kept = f"the topic keeps {(self.limit_ms or 0) / _HOUR_MS:,.1f} h"
        return tuple(
            f"{item.log}: offset {item.offset:,} is unarchived, its record is of"
            f" {moment_text(item.timestamp_ms * 1000, UTC)}, {kept}:"
            f" {hours(item.hours_left or 0.0)} (alarm below {self.alarm_hours:,.1f} h)"
            for item in self.late
        )


def hours(left: float) -> str:
    """The time left in words."""
    return f"{left:,.1f} h left" if left > 0 else "no time left: Kafka may delete it at any moment"


def read_retention(
    kafka: KafkaConnection, stream: Stream, first_missing: Callable[[TopicPartition, int], int], now: datetime
) -> Retention:
    """What is not archived of the stream's topic, and how long Kafka keeps it.

    ``first_missing`` gives a log's first offset, at or after another one, that is not archived. It must know the
    archive from before this call. Records of open and aborted transactions count too. Raises ServiceError if the topic
    does not exist or Kafka does not answer.
    """
    config = topic_config(kafka, stream.topic)
    by_age = "delete" in config["cleanup.policy"]
    limit_ms = _limit(config["retention.ms"]) if by_age else None
    limit_bytes = _limit(config["retention.bytes"]) if by_age else None
    logs = tuple(
        LogPositions(
            log=mark.log,
            log_start=mark.log_start,
            archived=first_missing(mark.log, mark.log_start),
            high_watermark=mark.high_watermark,
        )
        for mark in watermarks(kafka, describe_topic(kafka, stream.topic), committed=False)
    )
    first = {item.log: item.archived for item in logs if item.archived < item.high_watermark}
    records = first_records(kafka, first, committed=False)
    now_ms = round(now.timestamp() * 1000)
    waiting = []
    for log, record in records.items():
        timestamp = record.timestamp_ms or 0  # a record without one may be of any age
        left = None if limit_ms is None else (timestamp + limit_ms - now_ms) / _HOUR_MS
        waiting.append(Waiting(log=log, offset=first[log], timestamp_ms=timestamp, hours_left=left))
    wanted = stream.archive.retention_alarm_hours
    return Retention(
        limit_ms=limit_ms,
        limit_bytes=limit_bytes,
        alarm_hours=wanted if limit_ms is None else min(wanted, limit_ms / _HOUR_MS / 2),
        logs=logs,
        waiting=tuple(sorted(waiting, key=lambda item: item.log)),
    )


def _limit(value: str) -> int | None:
    return None if int(value) == _UNLIMITED else int(value)
