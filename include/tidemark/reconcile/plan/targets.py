"""What a run must prove of each log, and whether the archive has come that far."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import read_and_compact
from tidemark.core.days import day_end, day_of, micros
from tidemark.core.errors import ConfigError, IncompleteError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Target
from tidemark.core.seal import Seal
from tidemark.definitions.stream import Stream
from tidemark.kafka.log_reader import LogReader
from tidemark.kafka.positions import Watermarks, positions_at, watermarks
from tidemark.kafka.topics import describe_topic, logs_of
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

_logger = logging.getLogger(__name__)
_A_BATCH = timedelta(minutes=5)
Extents = Mapping[TopicPartition, tuple[int, int]]


def make_targets(
    stream: Stream, settings: Settings, days: Sequence[date], history: History, seals: Sequence[Seal]
) -> tuple[Target, ...]:
    """One target per log of the topic, and one per other log that was archived.

    A log's end is where the last of the days ends in Kafka, or as far as it was archived or sealed, whichever is
    higher: later ranges may hold late rows of the days. In Kafka a day ends at the first offset whose timestamp is
    past it; records of the day behind that one which are not archived yet are late and will reopen it. Where that one
    is stamped in the future, by a wrong clock, it ends no day, and everything that Kafka holds is the target. Nor does
    any stamp end a day where a field of the value tells the day: then all counts that was stamped until a moment ago,
    behind which a stream that runs may have archived nothing yet, and that committed readers are given.

    ``history`` must have been read before this is called, so that nothing in it reaches past the high watermark found
    here, unless the log has lost records. Of a log that is gone (its topic was deleted, or made again) everything
    archived is the target, and whatever is missing of it is lost. A topic that the stream does not read any more, but
    that Kafka has, ends with the day on which it was archived last (``_earlier_ends``).

    A log that is in no seal, while others of its topic are, came since, as a partition that was added or with a topic
    that was made again: it is answerable for from offset 0.

    Raises ConfigError for no day or a day that is not over, ServiceError where the topic does not exist, and
    IncompleteError where an open transaction hides a part of the days, as whether it will ever be read is not decided
    yet, or where a log ends in front of what is archived of it.
    """
    archived, sealed = history.extents(), _sealed(seals)
    ends = _day_ends(stream, settings, days)
    ends |= _earlier_ends(stream, settings, max(days), history, archived.keys() | sealed.keys())
    hidden = {log: found.hidden for log, found in ends.items() if found.hidden is not None}
    if hidden:
        raise IncompleteError(
            "an open transaction hides a part of the days",
            expected="every record up to their end committed or aborted",
            found=", ".join(f"{log} undecided from offset {part.start} to {part.end}" for log, part in hidden.items()),
            where=f"stream {stream.name}",
            hint="Wait for its producer, or for the transaction's time-out; 'kafka-transactions.sh find-hanging' names"
            " one that nobody will end. Then run the days again",
        )
    known_topics = {log.topic for log in sealed}
    targets = []
    for log, found in ends.items():
        extents = [known[log] for known in (archived, sealed) if log in known]
        reached = max((end for _, end in extents), default=0)
        if reached > found.high_watermark:
            raise IncompleteError(
                "a log ends in front of what is archived of it: Kafka has lost records that it had",
                expected=f"offset {reached} at least",
                found=f"end offset {found.high_watermark}",
                where=str(log),
                hint="A broker that was just restarted may need a moment: run the days again. If it stays so (an"
                " unclean leader election, a lost disk), new records take offsets that are archived already: give the"
                " producers another topic, and the stream with it, before they do",
            )
        position = found.position
        if found.ahead:
            position = found.high_watermark
            _logger.warning(
                "%s: the record at offset %d, behind which nothing else of the days is sought, is stamped in the"
                " future; so the target is everything up to offset %d. Look after the clocks of its producers",
                log,
                found.position,
                position,
            )
        targets.append(
            Target(
                log=log,
                origin=0
                if log not in sealed and log.topic in known_topics
                else min([found.log_start, *(start for start, _ in extents)]),
                end=max(position, reached),
                log_start=found.log_start,
                high_watermark=found.high_watermark,
            )
        )
    for log in (archived.keys() | sealed.keys()) - ends.keys():
        extents = [found[log] for found in (archived, sealed) if log in found]
        end = max(end for _, end in extents)
        targets.append(
            Target(log=log, origin=min(start for start, _ in extents), end=end, log_start=end, high_watermark=end)
        )
    return tuple(sorted(targets, key=lambda item: item.log))


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

    A record stamped in the future ends a day as any other does here: what lies behind it, up to the high watermark,
    which moves, is not worth waiting for, as a refill brings it.
    """
    layout = Layout(prefix=settings.prefix, stream=stream.name)
    archived = read_and_compact(ObjectStore(settings), layout, stream).history().extents()
    return all(
        found.hidden is None and archived.get(log, (found.log_start, found.log_start))[1] >= found.position
        for log, found in _day_ends(stream, settings, days).items()
    )


class _DayEnd(NamedTuple):
    """Where the last day ends in a log: at the high watermark if nothing came after. ``ahead``: the record there is
    stamped in the future, so that records of the day may well lie behind it. ``hidden``: offsets in front of the day's
    end that no committed reader is given yet, for a transaction is open."""

    log_start: int
    position: int
    high_watermark: int
    ahead: bool
    hidden: OffsetRange | None


def _day_ends(stream: Stream, settings: Settings, days: Sequence[date]) -> dict[TopicPartition, _DayEnd]:
    if not days:
        raise ConfigError("a run needs at least one day", expected="a day", found="none", where=stream.name)
    now = datetime.now(UTC)
    last, today = max(days), day_of(now, stream.zone)
    moment = end = day_end(last, stream.zone)
    if end > now:
        raise ConfigError(
            "a day is not over yet",
            expected=f"a day before {today}",
            found=last,
            where=f"{stream.name}, now {now.astimezone(stream.zone).isoformat(timespec='seconds')} {stream.time_zone}",
        )
    if stream.event_time.extractor != "record":  # then no stamp tells where the day ends
        moment = max(end, now - _a_moment(stream))
    return _ends(settings.kafka_bootstrap, describe_topic(settings.kafka_bootstrap, stream.topic), moment, end)


def _earlier_ends(
    stream: Stream, settings: Settings, last: date, history: History, known: set[TopicPartition]
) -> dict[TopicPartition, _DayEnd]:
    """Of topics that the stream read before and Kafka still has: where the day ends of which the last records are that
    were archived of them, or the last of the run's days, if that is earlier.

    A day with rows of a topic needs all that the topic has of it, also what the stream did not come to any more. What
    is stamped later is not the stream's: it may well be that others go on with the topic.
    """
    bootstrap = settings.kafka_bootstrap
    found: dict[TopicPartition, _DayEnd] = {}
    for topic in sorted({log.topic for log in known} - {stream.topic}):
        logs = logs_of(bootstrap, topic)
        if known.isdisjoint(logs):  # it is gone, and what has its name now was never the stream's
            continue
        newest = max((day for log in logs if (day := history.newest_day(log)) is not None), default=last)
        moment = day_end(min(last, newest), stream.zone)
        found |= _ends(bootstrap, logs, moment, moment)
    return found


def _ends(
    bootstrap: str, logs: Sequence[TopicPartition], moment: datetime, end: datetime
) -> dict[TopicPartition, _DayEnd]:
    """Where the logs end for days up to ``end``, as far as a record's stamp can tell: at ``moment``."""
    positions = positions_at(bootstrap, logs, moment)
    future = positions_at(bootstrap, logs, datetime.now(UTC))
    # Of the days' end in any case: a log with a transaction open at any time would never be ready.
    whole = _whole_ends(bootstrap, logs, end)
    ends = {}
    # Behind those: what a transaction that ends meanwhile has hidden, it hides no more.
    for mark in watermarks(bootstrap, logs):
        position = positions[mark.log]
        # A position found by time may lie behind the last stable offset, inside an open transaction.
        day_position = mark.high_watermark if position is None else min(position, mark.high_watermark)
        ends[mark.log] = _DayEnd(
            log_start=mark.log_start,
            position=max(day_position, mark.log_start),
            high_watermark=mark.high_watermark,
            ahead=position is not None and position == future[mark.log],
            hidden=_hidden(bootstrap, mark, whole[mark.log], end),
        )
    return ends


def _a_moment(stream: Stream) -> timedelta:
    """Until when, at the latest, a stream that runs and keeps up has archived a record."""
    archive = stream.archive
    held_back = archive.max_trigger_delay_seconds if archive.min_offsets_per_trigger is not None else 0
    return _A_BATCH + timedelta(seconds=archive.trigger_seconds + held_back)


class _Whole(NamedTuple):
    """Where the days end among records of whatever transaction; ``ahead`` as in ``_DayEnd``."""

    end: int
    ahead: bool


def _whole_ends(bootstrap: str, logs: Sequence[TopicPartition], moment: datetime) -> dict[TopicPartition, _Whole]:
    """Per log the first record past the moment; the end of all there is without one, or where it is ``ahead``."""
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
    """The undecided offsets in front of the days' end.

    Where that is the log's own end, since a record in front is stamped in the future, the first undecided one has to be
    of the days: a log with a transaction open at any time would never be ready.
    """
    if mark.high_watermark >= whole.end:
        return None
    if whole.ahead:
        with LogReader(bootstrap, mark.log, committed=False) as reader:
            _, stamps, _ = reader.read(OffsetRange(start=mark.high_watermark, end=mark.high_watermark + 1))
        if len(stamps) and stamps[0] >= micros(moment) // 1000:
            return None
    return OffsetRange(start=mark.high_watermark, end=whole.end)


def _sealed(seals: Sequence[Seal]) -> dict[TopicPartition, tuple[int, int]]:
    """Per log the lowest origin and the highest end of the seals."""
    return _extents((item.log, item.origin, item.end) for seal in seals for item in seal.logs)


def _extents(ranges: Iterable[tuple[TopicPartition, int, int]]) -> dict[TopicPartition, tuple[int, int]]:
    """Per log the lowest start and the highest end."""
    extents: dict[TopicPartition, tuple[int, int]] = {}
    for log, start, end in ranges:
        lowest, highest = extents.get(log, (start, end))
        extents[log] = (min(lowest, start), max(highest, end))
    return extents
