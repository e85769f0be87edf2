"""The output topics of an audit: which offsets are read, and why records may be missing from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.offsets import OffsetRange, TopicPartition, range_or_none
from tidemark.kafka.committed_ends import CommittedEnd, committed_ends
from tidemark.kafka.positions import positions_at
from tidemark.kafka.topics import describe_topic, topic_config
from tidemark.speed.topics import TRANSACTION_TIMEOUT_S

# The largest clock difference between the machines.
CLOCK_SKEW_MAX = timedelta(minutes=10)
# A longer limit counts as no limit: Kafka's default was the largest number it has.
AHEAD_MAX = timedelta(days=3650)

# A healthy stream commits a transaction after a third of its time-out at the latest.
OPEN_TRANSACTION_S = TRANSACTION_TIMEOUT_S / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReading:
    """One partition of an output topic: the range to read (None: nothing), and the offsets that Kafka still holds.

    ``open_transaction``: an open transaction hides records that were written.
    """

    log: TopicPartition
    range: OffsetRange | None
    log_start: int
    end: int
    open_transaction: bool

    @property
    def truncated(self) -> bool:
        """Whether retention may have deleted records of the span: Kafka holds nothing older than the range."""
        return self.log_start > 0 and (self.range is None or self.range.start == self.log_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One output topic. ``incomplete`` is the reason why a delivered record may not be on it; None if there is none."""

    topic: str
    readings: tuple[TopicReading, ...]
    incomplete: str | None

    @property
    def ranges(self) -> dict[TopicPartition, OffsetRange]:
        """The ranges to read, by log, without empty ones."""
        return {item.log: item.range for item in self.readings if item.range is not None}


def output_ends(kafka: KafkaConnection, topic: str) -> dict[TopicPartition, CommittedEnd]:
    """``committed_ends`` of the topic, after the open transactions of a healthy stream."""
    return committed_ends(kafka, describe_topic(kafka, topic), patience_s=OPEN_TRANSACTION_S)


def open_output(
    kafka: KafkaConnection, topic: str, ends: Mapping[TopicPartition, CommittedEnd], since: datetime | None
) -> Output:
    """The topic up to ``ends``, from the first record written at ``since`` or later; None means all of it."""
    logs = tuple(ends)
    starts: Mapping[TopicPartition, int | None] = {log: ends[log].log_start for log in logs}
    if since is not None and since > datetime(1970, 1, 1, tzinfo=UTC):
        starts = positions_at(kafka, logs, since)
    readings = []
    for log, own in ends.items():
        found = starts[log]
        start = own.end if found is None else min(max(found, own.log_start), own.end)
        readings.append(
            TopicReading(
                log=log,
                range=range_or_none(start, own.end),
                log_start=own.log_start,
                end=own.end,
                open_transaction=own.hides_records,
            )
        )
    compacted = "compact" in topic_config(kafka, topic)["cleanup.policy"]
    return Output(topic=topic, readings=tuple(readings), incomplete=_incomplete(readings, compacted=compacted))


def _incomplete(readings: Sequence[TopicReading], *, compacted: bool) -> str | None:
    if compacted:
        return "compacted"
    if any(item.truncated for item in readings):
        return "retention"
    return "open_transaction" if any(item.open_transaction for item in readings) else None


def safe_since(kafka: KafkaConnection, source: str, earliest: datetime) -> datetime | None:
    """A time such that no output record of a source record from ``earliest`` on has an earlier timestamp.

    An output record has its source's timestamp, or the time when it was written, which is after the source record was
    appended. The source topic's settings limit how far a timestamp may be ahead of that. None if they set no limit.
    """
    config = topic_config(kafka, source)
    ahead = timedelta(0)
    if config["message.timestamp.type"] == "CreateTime":
        milliseconds = int(config.get("message.timestamp.after.max.ms", AHEAD_MAX // timedelta(milliseconds=1)))
        if milliseconds >= AHEAD_MAX // timedelta(milliseconds=1):
            return None
        ahead = timedelta(milliseconds=milliseconds)
    return earliest - ahead - CLOCK_SKEW_MAX
