"""What a run must prove of each log, and whether the archive has come that far."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import read_and_compact
from tidemark.core.days import day_end, day_of, micros
from tidemark.core.errors import RequestError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Target
from tidemark.core.seal import Seal
from tidemark.core.targets import DayEnd, decide_targets, seal_extents
from tidemark.definitions.stream import Stream
from tidemark.kafka.log_reader import LogReader
from tidemark.kafka.positions import Watermarks, positions_at, watermarks
from tidemark.kafka.topics import describe_topic, logs_of
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

_logger = logging.getLogger(__name__)
_A_BATCH = timedelta(minutes=5)


def make_targets(
    stream: Stream, settings: Settings, days: Sequence[date], history: History, seals: Sequence[Seal]
) -> tuple[Target, ...]:
    """Ask Kafka where the days end in each log, then decide (``tidemark.core.targets.decide_targets``).

    In Kafka a day ends at the first offset whose timestamp is after it. Records of the day after that offset that are
    not archived yet are late and will reopen the day. A record with a future timestamp (clock skew) is ignored when
    looking for the end of the day: everything that Kafka holds is the target then. Where a field of the value gives the
    day, no timestamp ends it: the target is everything with a timestamp until a moment ago, because a running stream
    may not have archived what is newer.

    ``history`` must have been read before this is called, so that nothing in it reaches past the high watermark found
    here, unless the log has lost records. A topic that the stream no longer reads, but that Kafka has, ends with the
    day on which it was archived last (``_earlier_ends``).

    Raises RequestError for no day or a day that is not over, ServiceError where the topic does not exist, and what
    ``decide_targets`` raises.
    """
    archived = history.extents()
    ends = _day_ends(stream, settings, days)
    ends |= _earlier_ends(stream, settings, max(days), history, archived.keys() | seal_extents(seals).keys())
    targets = decide_targets(stream.name, ends, archived, seals)
    for item in targets:
        if item.log in ends and ends[item.log].ahead:
            _logger.warning(
                "%s: the record at offset %d, where the days end, has a future timestamp. The target is everything up"
                " to offset %d. Check the clocks of its producers",
                item.log,
                ends[item.log].position,
                item.end,
            )
    return targets


def raise_log_starts(bootstrap: str, targets: Sequence[Target]) -> tuple[Target, ...]:
    """The targets with the log starts of this moment, of the logs that Kafka still has.

    Raises ServiceError where Kafka does not answer.
    """
    there = {log for topic in {item.log.topic for item in targets} for log in logs_of(bootstrap, topic)}
    starts = {
        mark.log: mark.log_start for mark in watermarks(bootstrap, [item.log for item in targets if item.log in there])
    }
    return tuple(replace(item, log_start=max(item.log_start, starts.get(item.log, item.log_start))) for item in targets)


def wait_ready(stream: Stream, settings: Settings, days: Sequence[date]) -> bool:
    """Whether the archive holds a range that reaches the end of the last of the days, in every partition, and no open
    transaction hides a part of them.

    A record with a future timestamp ends a day here like any other. The refill fetches what is after it: waiting for
    the high watermark, which moves, would take too long.
    """
    layout = Layout(prefix=settings.prefix, stream=stream.name)
    archived = read_and_compact(ObjectStore(settings), layout, stream).history().extents()
    return all(
        found.hidden is None and archived.get(log, (found.log_start, found.log_start))[1] >= found.position
        for log, found in _day_ends(stream, settings, days).items()
    )


def _day_ends(stream: Stream, settings: Settings, days: Sequence[date]) -> dict[TopicPartition, DayEnd]:
    if not days:
        raise RequestError("a run needs at least one day", expected="a day", found="none", where=stream.name)
    now = datetime.now(UTC)
    last, today = max(days), day_of(now, stream.zone)
    moment = end = day_end(last, stream.zone)
    if end > now:
        raise RequestError(
            "a day is not over yet",
            expected=f"a day before {today}",
            found=last,
            where=f"{stream.name}, now {now.astimezone(stream.zone).isoformat(timespec='seconds')} {stream.time_zone}",
        )
    if stream.event_time.extractor != "record":  # then no timestamp shows where the day ends
        moment = max(end, now - _a_moment(stream))
    return _ends(settings.kafka_bootstrap, describe_topic(settings.kafka_bootstrap, stream.topic), moment, end)


def _earlier_ends(
    stream: Stream, settings: Settings, last: date, history: History, known: set[TopicPartition]
) -> dict[TopicPartition, DayEnd]:
    """The end of the day on which a topic was archived last, or of the run's last day, if that is earlier.

    It is for topics that the stream read before and that Kafka still has.

    A day with rows of a topic needs all records that the topic has of it, also those that the stream had not read yet.
    Later records are not the stream's: others may continue with the topic.
    """
    bootstrap = settings.kafka_bootstrap
    found: dict[TopicPartition, DayEnd] = {}
    for topic in sorted({log.topic for log in known} - {stream.topic}):
        logs = logs_of(bootstrap, topic)
        if known.isdisjoint(logs):  # it was deleted, and the topic that has its name now was never the stream's
            continue
        newest = max((day for log in logs if (day := history.newest_day(log)) is not None), default=last)
        moment = day_end(min(last, newest), stream.zone)
        found |= _ends(bootstrap, logs, moment, moment)
    return found


def _ends(
    bootstrap: str, logs: Sequence[TopicPartition], moment: datetime, end: datetime
) -> dict[TopicPartition, DayEnd]:
    """Where the logs end for days up to ``end``: by the records' timestamps, at ``moment``."""
    positions = positions_at(bootstrap, logs, moment)
    future = positions_at(bootstrap, logs, datetime.now(UTC))
    # Of the days' end in any case: a log with a transaction open at any time would never be ready.
    whole = _whole_ends(bootstrap, logs, end)
    ends = {}
    # Read after those, because a transaction that ends meanwhile hides its records no more.
    for mark in watermarks(bootstrap, logs):
        position = positions[mark.log]
        # A position found by time may be after the last stable offset, inside an open transaction.
        day_position = mark.high_watermark if position is None else min(position, mark.high_watermark)
        ends[mark.log] = DayEnd(
            log_start=mark.log_start,
            position=max(day_position, mark.log_start),
            high_watermark=mark.high_watermark,
            ahead=position is not None and position == future[mark.log],
            hidden=_hidden(bootstrap, mark, whole[mark.log], end),
        )
    return ends


def _a_moment(stream: Stream) -> timedelta:
    """How long a running stream that keeps up takes, at most, to archive a record."""
    archive = stream.archive
    held_back = archive.max_trigger_delay_seconds if archive.min_offsets_per_trigger is not None else 0
    return _A_BATCH + timedelta(seconds=archive.trigger_seconds + held_back)


class _Whole(NamedTuple):
    """Where the days end among the records of all transactions, open ones too; ``ahead`` as in ``DayEnd``."""

    end: int
    ahead: bool


def _whole_ends(bootstrap: str, logs: Sequence[TopicPartition], moment: datetime) -> dict[TopicPartition, _Whole]:
    """Per log the first record after the moment; the log's end if there is none, or if it is ``ahead``."""
    positions = positions_at(bootstrap, logs, moment, committed=False)
    future = positions_at(bootstrap, logs, datetime.now(UTC), committed=False)
    found = {}
    for mark in watermarks(bootstrap, logs, committed=False):
        position = positions[mark.log]
        ahead = position is not None and position == future[mark.log]
        end = mark.high_watermark if position is None or ahead else position
        found[mark.log] = _Whole(end=end, ahead=ahead)
    return found


def _hidden(bootstrap: str, mark: Watermarks, whole: _Whole, moment: datetime) -> OffsetRange | None:
    """The undecided offsets before the days' end.

    Where a record with a future timestamp moves that end to the log's own, the first undecided record must be of the
    days: a log with a transaction open at any time would never be ready.
    """
    if mark.high_watermark >= whole.end:
        return None
    if whole.ahead:
        with LogReader(bootstrap, mark.log, committed=False) as reader:
            _, timestamps, _ = reader.read(OffsetRange(start=mark.high_watermark, end=mark.high_watermark + 1))
        if len(timestamps) and timestamps[0] >= micros(moment) // 1000:
            return None
    return OffsetRange(start=mark.high_watermark, end=whole.end)
