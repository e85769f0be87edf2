"""The output topics of an audit: which offsets are read, and why records may be missing from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic, sleep

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.offsets import OffsetRange, TopicPartition, range_or_none
from tidemark.kafka.positions import positions_at, watermarks
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


def output_ends(kafka: KafkaConnection, topic: str) -> dict[TopicPartition, tuple[int, int, bool]]:
    """The start of each log, its end for read-committed consumers, and whether an open transaction hides records.

    Waits for open transactions, because a running exactly-once stream always has some.
    """
    logs = describe_topic(kafka, topic)
    # Read these first: a record that was written by now is hidden if it lies after the read-committed end.
    written = {mark.log: mark.high_watermark for mark in watermarks(kafka, logs, committed=False)}
    deadline = monotonic() + OPEN_TRANSACTION_S
    while True:
        ends = watermarks(kafka, logs)
        waiting = {mark.log for mark in ends if written[mark.log] > mark.high_watermark}
        if not waiting or monotonic() > deadline:
            return {mark.log: (mark.log_start, mark.high_watermark, mark.log in waiting) for mark in ends}
        sleep(0.2)


def open_output(
    kafka: KafkaConnection, topic: str, ends: Mapping[TopicPartition, tuple[int, int, bool]], since: datetime | None
) -> Output:
    """The topic up to ``ends``, from the first record written at ``since`` or later; None means all of it."""
    logs = tuple(ends)
    starts: Mapping[TopicPartition, int | None] = {log: ends[log][0] for log in logs}
    if since is not None and since > datetime(1970, 1, 1, tzinfo=UTC):
        starts = positions_at(kafka, logs, since)
    readings = []
    for log, (log_start, end, open_transaction) in ends.items():
        found = starts[log]
        start = end if found is None else min(max(found, log_start), end)
        readings.append(
            TopicReading(
                log=log,
                range=range_or_none(start, end),
                log_start=log_start,
                end=end,
                open_transaction=open_transaction,
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
