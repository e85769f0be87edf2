"""Decides which offsets a run must prove, without I/O. ``reconcile.plan.targets`` asks Kafka for the values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from tidemark.core.errors import IncompleteError
from tidemark.core.log_extents import SeenLogs
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import LogPlan, Plan, Target, Truncation
from tidemark.core.seal import Seal

Extents = Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Offsets that committed readers do not get yet: from the first one of an open transaction to the log's end.

    ``first`` is the first of them whose record may be of the days. Acknowledged records of other producers are hidden
    as well. They can't be distinguished from aborted ones.
    """

    range: OffsetRange
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayEnd:
    """The position where the last of the days ends in a log: the high watermark if no later record exists.

    ``hidden``: what an open transaction hides, if a record of the days may be there.
    """

    log_start: int
    position: int
    high_watermark: int
    hidden: Undecided | None


def first_of_days(
    offsets: Sequence[int], timestamps_ms: Sequence[int], read_up_to: int, hidden: OffsetRange, end_ms: int
) -> int | None:
    """The first of these hidden offsets whose record may be of days that end at ``end_ms``; None without one.

    ``offsets`` and their timestamps are the records that were read up to ``read_up_to``. What was not read counts too.
    """
    found = (offset for offset, time_ms in zip(offsets, timestamps_ms, strict=True) if time_ms < end_ms)
    return next(found, read_up_to if read_up_to < hidden.end else None)


def decide_targets(
    stream: str,
    ends: Mapping[TopicPartition, DayEnd],
    archived: Extents,
    seals: Sequence[Seal],
    seen: SeenLogs = SeenLogs(),  # noqa: B008  # it is frozen
) -> tuple[Target, ...]:
    """One target per log of ``ends``, and one per other log that is archived, sealed or seen; in the order of the logs.

    A log ends where its days end, or where its archived or sealed offsets end if that is higher: later ranges may have
    late rows of the days. If a log is not in ``ends``, its topic was deleted or recreated: everything up to the last
    end in ``seen`` is the target, and missing offsets are lost. What was seen of a topic that the stream neither reads
    nor has read does not count. A log without a seal was added since if its topic has one: it starts at 0. Each target
    has what its log was seen to lose from its end.

    Raises IncompleteError if an open transaction hides a part of the days, because it may still be committed, and if a
    log ends before its archived offsets end.
    """
    sealed = seal_extents(seals)
    _require_decided(stream, ends)
    known_topics = {log.topic for log in sealed}
    targets = []
    for log, found in ends.items():
        extents = [known[log] for known in (archived, sealed) if log in known]
        reached = max((end for _, end in extents), default=0)
        _require_reached(log, reached, found.high_watermark)
        added_since = log not in sealed and log.topic in known_topics
        targets.append(
            Target(
                log=log,
                start=0 if added_since else min([found.log_start, *(start for start, _ in extents)]),
                end=max(found.position, reached),
                log_start=found.log_start,
                high_watermark=found.high_watermark,
                truncated=_truncated(seen, log),
            )
        )
    own_topics = {log.topic for log in (*ends, *archived, *sealed)}
    in_kafka = {item.log: (item.range.start, item.range.end) for item in seen.extents if item.log.topic in own_topics}
    for log in (archived.keys() | sealed.keys() | in_kafka.keys()) - ends.keys():
        extents = [found[log] for found in (archived, sealed) if log in found] or [in_kafka[log]]
        end = max(end for _, end in (*extents, in_kafka.get(log, (0, 0))))
        start = min(start for start, _ in extents)
        lost = _truncated(seen, log)
        targets.append(
            Target(log=log, start=start, end=end, log_start=end, high_watermark=end, deleted=True, truncated=lost)
        )
    return tuple(sorted(targets, key=lambda item: item.log))


def _require_decided(stream: str, ends: Mapping[TopicPartition, DayEnd]) -> None:
    hidden = {log: found.hidden for log, found in ends.items() if found.hidden is not None}
    if hidden:
        raise IncompleteError(
            "an open transaction hides a part of the days",
            expected="every record before the end of the days committed or aborted",
            found=", ".join(
                f"{log} undecided from offset {part.range.start} to {part.range.end} (offset {part.first} may be of"
                " these days)"
                for log, part in hidden.items()
            ),
            where=f"stream {stream}",
            hint="Wait for its producer, or for the transaction's time-out. 'kafka-transactions.sh find-hanging' shows"
            " transactions that no producer will end. Then run the days again",
        )


def _truncated(seen: SeenLogs, log: TopicPartition) -> tuple[Truncation, ...]:
    return tuple(item for item in seen.truncated if item.log == log)


def _require_reached(log: TopicPartition, reached: int, high_watermark: int) -> None:
    if reached > high_watermark:
        raise IncompleteError(
            "a log ends before its archived offsets end: Kafka has lost records",
            expected=f"offset {reached} at least",
            found=f"end offset {high_watermark}",
            where=str(log),
            hint="A broker that was just restarted may need a moment: run the days again. If the error stays (an"
            " unclean leader election, a lost disk), new records take offsets that are archived already: give the"
            " producers another topic, and the stream with it, before they do",
        )


def without_known_start(plan: Plan, seals: Iterable[Seal]) -> tuple[LogPlan, ...]:
    """The logs in which offsets before the target may be of a requested day too, so that they count as lost.

    A log's start is known if a day before the requested ones is sealed with the same start.
    """
    first = first_requested(plan)
    if first is None:
        return ()
    known = {(log.log, log.start) for seal in seals if seal.day < first for log in seal.logs}
    return tuple(item for item in plan.logs if item.target.start and (item.target.log, item.target.start) not in known)


def first_requested(plan: Plan) -> date | None:
    """The first requested day that the plan rebuilds."""
    return min((item.day for item in plan.days if item.reason in {"requested", "scheduled"}), default=None)


def reach_back(plan: Plan, first_us: Mapping[TopicPartition, int | None], start_us: int) -> tuple[Target, ...]:
    """The plan's targets, from offset 0 in a log whose first known record is not before the first requested day.

    ``first_us`` has the timestamps of these records, and ``start_us`` is the start of that day, in µs since the epoch.
    Offsets before such a record may be of the day too. Offsets before an older record are not counted as lost.
    """
    starts = {log for log, first in first_us.items() if first is not None and first >= start_us}
    return tuple(replace(item.target, start=0) if item.target.log in starts else item.target for item in plan.logs)


def seal_extents(seals: Iterable[Seal]) -> dict[TopicPartition, tuple[int, int]]:
    """Per log the lowest start and the highest end of the seals."""
    extents: dict[TopicPartition, tuple[int, int]] = {}
    for item in (log for seal in seals for log in seal.logs):
        lowest, highest = extents.get(item.log, (item.start, item.end))
        extents[item.log] = (min(lowest, item.start), max(highest, item.end))
    return extents
