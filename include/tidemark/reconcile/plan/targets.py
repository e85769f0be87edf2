"""What a run must prove of each log, and whether the archive has come that far."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from time import monotonic, sleep

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import read_and_compact
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.days import day_end, last_ended, micros
from tidemark.core.errors import RequestError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange, TopicPartition, chunks
from tidemark.core.plan import Target
from tidemark.core.seal import Seal
from tidemark.core.targets import DayEnd, Undecided, decide_targets, first_of_days, seal_extents
from tidemark.definitions.stream import Stream
from tidemark.kafka.log_reader import LogReader
from tidemark.kafka.positions import Watermarks, positions_at, watermarks
from tidemark.kafka.topics import describe_topic, logs_of
from tidemark.reconcile.plan.log_extents import read_seen, record_seen
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

READ_MAX = 1_000_000  # records of a log: a few seconds
READ_AT_ONCE = 50_000
_A_BATCH = timedelta(minutes=5)
# Kafka's default for the longest transaction that a producer may ask for; of one poll, less than a poll's interval.
PATIENCE_S = 900.0
POLL_PATIENCE_S = 20.0
_POLL_S = 1.0
_THREADS = 8


def make_targets(run: Run, days: Sequence[date], history: History, seals: Sequence[Seal]) -> tuple[Target, ...]:
    """Ask Kafka where the days end in each log, then decide (``tidemark.core.targets.decide_targets``).

    In Kafka a day ends after the last record with a timestamp before the day's end. A producer whose clock is fast ends
    no day: what is not archived yet is read for such a record (``_with_tail``). Where a field of the value gives the
    day, no timestamp ends it: the target is everything with a timestamp until a moment ago, because a running stream
    may not have archived what is newer. Records of the day that come to Kafka later are late and will reopen the day.
    All that an open transaction hides is read up to the first record that may be of the days (``_undecided``).

    ``history`` must have been read before this is called, so that nothing in it reaches past the high watermark found
    here, unless the log has lost records. A topic that the stream no longer reads, but that Kafka has, ends with the
    day on which it was archived last (``_earlier_ends``). What Kafka has of the stream's topic is recorded for the time
    when that topic is deleted, or loses offsets from its end (``record_seen``).

    Raises RequestError for no day or a day that is not over, ServiceError where the topic does not exist, and what
    ``decide_targets`` raises.
    """
    stream, settings = run.stream, run.settings
    archived, sealed = history.extents(), seal_extents(seals)
    reached: dict[TopicPartition, int] = {}
    for log, (_, reached_end) in (*archived.items(), *sealed.items()):
        reached[log] = max(reached_end, reached.get(log, 0))
    moment, end = _moments(stream, days)
    before = read_seen(run)  # before Kafka is asked: what is seen later may be after the ends found here

    def with_tail(item: tuple[TopicPartition, DayEnd]) -> tuple[TopicPartition, DayEnd]:
        log, found = item
        return log, _with_tail(settings.kafka, log, found, reached.get(log, 0), moment)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="tails") as pool:
        found_ends = _topic_ends(stream, settings, moment, end, patience_s=PATIENCE_S)
        ends = dict(pool.map(with_tail, found_ends.items()))
    earlier = _earlier_ends(stream, settings, max(days), history, archived.keys() | sealed.keys())
    seen = record_seen(run, before, ends, earlier, reached)
    return decide_targets(stream.name, {**ends, **earlier}, archived, seals, seen)


def raise_log_starts(kafka: KafkaConnection, targets: Sequence[Target]) -> tuple[Target, ...]:
    """The targets with the log starts of this moment, of the logs that Kafka still has.

    Raises ServiceError where Kafka does not answer.
    """
    there = {log for topic in {item.log.topic for item in targets} for log in logs_of(kafka, topic)}
    starts = {
        mark.log: mark.log_start for mark in watermarks(kafka, [item.log for item in targets if item.log in there])
    }
    return tuple(replace(item, log_start=max(item.log_start, starts.get(item.log, item.log_start))) for item in targets)


def wait_ready(stream: Stream, settings: Settings, days: Sequence[date]) -> bool:
    """Whether the archive holds a range that reaches the end of the last of the days, in every partition, and no open
    transaction hides a part of them. An empty archive is not waited for: no stream has written to it yet.

    The first record after that end counts here, also one of a producer whose clock is fast: the plan step looks for
    records of the days after it, and the refill fetches them.
    """
    layout = Layout(prefix=settings.prefix, stream=stream.name)
    archived = read_and_compact(ObjectStore(settings), layout, stream).history().extents()
    return not archived or all(
        found.hidden is None and archived.get(log, (found.log_start, found.log_start))[1] >= found.position
        for log, found in _topic_ends(stream, settings, *_moments(stream, days), patience_s=POLL_PATIENCE_S).items()
    )


def _moments(stream: Stream, days: Sequence[date]) -> tuple[datetime, datetime]:
    """The time up to which records are a run's, and the end of its days."""
    if not days:
        raise RequestError("a run needs at least one day", expected="a day", found="none", where=stream.name)
    now = datetime.now(UTC)
    last = max(days)
    end = day_end(last, stream.zone)
    if end > now:
        raise RequestError(
            "a day is not over yet",
            expected=f"a day up to {last_ended(now, stream.zone)}",
            found=last,
            where=f"{stream.name}, now {now.astimezone(stream.zone).isoformat(timespec='seconds')} {stream.time_zone}",
        )
    if stream.event_time.extractor == "record":
        return end, end
    return max(end, now - _a_moment(stream)), end  # no timestamp shows where the day ends


def _topic_ends(
    stream: Stream, settings: Settings, moment: datetime, end: datetime, *, patience_s: float
) -> dict[TopicPartition, DayEnd]:
    kafka = settings.kafka
    return _ends(kafka, describe_topic(kafka, stream.topic), moment, end, patience_s=patience_s)


def _earlier_ends(
    stream: Stream, settings: Settings, last: date, history: History, known: set[TopicPartition]
) -> dict[TopicPartition, DayEnd]:
    """The end of the day on which a topic was archived last, or of the run's last day, if that is earlier.

    It is for topics that the stream read before and that Kafka still has.

    A day with rows of a topic needs all records that the topic has of it, also those that the stream had not read yet.
    Later records are not the stream's: others may continue with the topic.
    """
    kafka = settings.kafka
    found: dict[TopicPartition, DayEnd] = {}
    for topic in sorted({log.topic for log in known} - {stream.topic}):
        logs = logs_of(kafka, topic)
        if known.isdisjoint(logs):  # it was deleted, and the topic that has its name now was never the stream's
            continue
        newest = max((day for log in logs if (day := history.newest_day(log)) is not None), default=last)
        moment = day_end(min(last, newest), stream.zone)
        found |= _ends(kafka, logs, moment, moment, patience_s=PATIENCE_S)
    return found


def _ends(
    kafka: KafkaConnection, logs: Sequence[TopicPartition], moment: datetime, end: datetime, *, patience_s: float
) -> dict[TopicPartition, DayEnd]:
    """Where the logs end for days up to ``end``: at the first record with a timestamp at or after ``moment``.

    Waits at most ``patience_s`` for transactions that hide records of the days and began later (``_decided``).
    """
    positions = positions_at(kafka, logs, moment)
    whole = {mark.log: mark.high_watermark for mark in watermarks(kafka, logs, committed=False)}

    deadline = monotonic() + patience_s

    def day_end_of(mark: Watermarks) -> DayEnd:
        position = positions[mark.log]
        mark, hidden = _decided(kafka, mark, whole[mark.log], end, deadline)
        # A position found by time may be after the last stable offset, inside an open transaction.
        day_position = mark.high_watermark if position is None else min(position, mark.high_watermark)
        return DayEnd(
            log_start=mark.log_start,
            position=max(day_position, mark.log_start),
            high_watermark=mark.high_watermark,
            hidden=hidden,
        )

    # Read after those, because a transaction that ends meanwhile hides its records no more.
    marks = watermarks(kafka, logs)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="hidden") as pool:
        return dict(zip((mark.log for mark in marks), pool.map(day_end_of, marks), strict=True))


def _decided(
    kafka: KafkaConnection, mark: Watermarks, log_end: int, end: datetime, deadline: float
) -> tuple[Watermarks, Undecided | None]:
    """The log's ends, once transactions ended that hide records of the days before ``log_end``, or at the deadline.

    A transaction that began in the days is not waited for: it may hang. Others are. A topic whose producers have one
    open at all times, and that gets late records all the time, would otherwise never be ready: ``log_end`` stays, and
    records after it are late.
    """
    while True:
        found = _undecided(kafka, mark, log_end, end)
        began_in_days = found is not None and found.first == mark.high_watermark and len(found.range) <= READ_MAX
        if found is None or began_in_days or monotonic() >= deadline:
            return mark, found
        reached = max(found.first, log_end - READ_MAX)
        while mark.high_watermark <= reached and monotonic() < deadline:
            sleep(_POLL_S)
            (mark,) = watermarks(kafka, [mark.log])


def _undecided(kafka: KafkaConnection, mark: Watermarks, log_end: int, end: datetime) -> Undecided | None:
    """The offsets up to ``log_end`` that committed readers do not get yet, if a record there may be of the days.

    A record with a later timestamp does not count, also where a field of the value gives the day: a log with one
    transaction open at any time would never be ready. Such a record is late, and reopens its day.
    """
    if mark.high_watermark >= log_end:
        return None
    hidden = OffsetRange(start=mark.high_watermark, end=log_end)
    if len(hidden) > READ_MAX:  # too many to read, so that the first of them may be of the days
        return Undecided(range=hidden, first=hidden.start)
    with LogReader(kafka, mark.log, committed=False) as reader:
        for part in chunks((hidden,), READ_AT_ONCE):
            offsets, timestamps, read_up_to = reader.read(part)
            first = first_of_days(offsets.tolist(), timestamps.tolist(), read_up_to, part, _milliseconds(end))
            if first is not None:
                return Undecided(range=hidden, first=first)
    return None


def _with_tail(kafka: KafkaConnection, log: TopicPartition, found: DayEnd, reached: int, moment: datetime) -> DayEnd:
    """The end after the last record before ``moment`` that Kafka holds and that is not archived.

    Without such a record ``found`` stays as it is. A long tail is not read: then everything that Kafka holds counts.
    """
    start = max(found.position, reached)
    if start >= found.high_watermark:
        return found
    tail = OffsetRange(start=start, end=found.high_watermark)
    if len(tail) > READ_MAX:
        return replace(found, position=tail.end)
    with LogReader(kafka, log, committed=True) as reader:
        offsets, timestamps, _ = reader.read(tail)
    own = offsets[timestamps < _milliseconds(moment)]
    return replace(found, position=int(own[-1]) + 1) if len(own) else found


def _milliseconds(moment: datetime) -> int:
    return micros(moment) // 1000


def _a_moment(stream: Stream) -> timedelta:
    """How long a running stream that keeps up takes, at most, to archive a record."""
    archive = stream.archive
    held_back = archive.max_trigger_delay_seconds if archive.min_offsets_per_trigger is not None else 0
    return _A_BATCH + timedelta(seconds=archive.trigger_seconds + held_back)
