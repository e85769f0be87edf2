"""The output topics of an audit: from where to where they are read, and what they may not show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic, sleep

from tidemark.core.offsets import OffsetRange, TopicPartition, range_or_none
from tidemark.kafka.positions import positions_at, watermarks
from tidemark.kafka.topics import describe_topic, topic_config
from tidemark.speed.topics import TRANSACTION_TIMEOUT_S

# How far the clocks of the machines concerned may be apart.
CLOCKS_APART = timedelta(minutes=10)
# A bound of this length is none: Kafka's own default was the largest number it has.
AHEAD_MAX = timedelta(days=3650)

# As long as a transaction of a stream that is well may take: after a third of its time-out it commits.
SETTLE_S = TRANSACTION_TIMEOUT_S / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReading:
    """One partition of an output topic: what is read of it (None: nothing), and the offsets that Kafka still holds.

    ``hidden``: records behind an open transaction that no reader sees yet.
    """

    log: TopicPartition
    range: OffsetRange | None
    log_start: int
    end: int
    hidden: bool

    @property
    def truncated(self) -> bool:
        """Whether retention may have taken records of the span: nothing older than what is read is left."""
        return self.log_start > 0 and (self.range is None or self.range.start == self.log_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One output topic. ``doubt`` says why a record that is not there may have been delivered all the same."""

    topic: str
    readings: tuple[TopicReading, ...]
    doubt: str | None

    @property
    def ranges(self) -> dict[TopicPartition, OffsetRange]:
        """What to read, by log; the empty ones left out."""
        return {item.log: item.range for item in self.readings if item.range is not None}


def output_ends(bootstrap: str, topic: str) -> dict[TopicPartition, tuple[int, int, bool]]:
    """Per log of an output topic: its start, its end for read-committed readers, and whether more lies behind that.

    Waits for the transactions that are under way: a running exactly-once stream always has some, and what lies behind
    one that stays open is hidden. Raises ServiceError where there is no such topic.
    """
    logs = describe_topic(bootstrap, topic)
    # These first: what was written until now is hidden if it lies behind the end that readers are told from now on.
    written = {mark.log: mark.high_watermark for mark in watermarks(bootstrap, logs, committed=False)}
    deadline = monotonic() + SETTLE_S
    while True:
        ends = watermarks(bootstrap, logs)
        hidden = {mark.log for mark in ends if written[mark.log] > mark.high_watermark}
        if not hidden or monotonic() > deadline:
            return {mark.log: (mark.log_start, mark.high_watermark, mark.log in hidden) for mark in ends}
        sleep(0.2)


def open_output(
    bootstrap: str, topic: str, ends: Mapping[TopicPartition, tuple[int, int, bool]], since: datetime | None
) -> Output:
    """The topic up to ``ends``, from the first record written at ``since`` or later; None reads all of it."""
    logs = tuple(ends)
    starts: Mapping[TopicPartition, int | None] = {log: ends[log][0] for log in logs}
    if since is not None and since > datetime(1970, 1, 1, tzinfo=UTC):
        starts = positions_at(bootstrap, logs, since)
    readings = []
    for log, (log_start, end, hidden) in ends.items():
        found = starts[log]
        start = end if found is None else min(max(found, log_start), end)
        readings.append(
            TopicReading(log=log, range=range_or_none(start, end), log_start=log_start, end=end, hidden=hidden)
        )
    compacted = "compact" in topic_config(bootstrap, topic)["cleanup.policy"]
    return Output(topic=topic, readings=tuple(readings), doubt=_doubt(readings, compacted=compacted))


def _doubt(readings: Sequence[TopicReading], *, compacted: bool) -> str | None:
    if compacted:
        return "compacted"
    if any(item.truncated for item in readings):
        return "retention"
    return "open_transaction" if any(item.hidden for item in readings) else None


def safe_since(bootstrap: str, source: str, earliest: datetime) -> datetime | None:
    """The moment before which no delivery of a source record stamped ``earliest`` or later can be stamped.

    An output record is stamped with the source's time or with the time of its writing, which is after the source
    record was appended. How far a stamp may be ahead of that the source topic's settings bound; None where they don't.
    """
    config = topic_config(bootstrap, source)
    ahead = timedelta(0)
    if config["message.timestamp.type"] == "CreateTime":
        milliseconds = int(config.get("message.timestamp.after.max.ms", AHEAD_MAX // timedelta(milliseconds=1)))
        if milliseconds >= AHEAD_MAX // timedelta(milliseconds=1):
            return None
        ahead = timedelta(milliseconds=milliseconds)
    return earliest - ahead - CLOCKS_APART
