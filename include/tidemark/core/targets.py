"""Decides what a run must prove of each log: values in, values out. ``reconcile.plan.targets`` asks for the values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from tidemark.core.errors import IncompleteError
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import LogPlan, Plan, Target
from tidemark.core.seal import Seal

Extents = Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayEnd:
    """Where the last of the days ends in a log: ``position``, which is the high watermark if nothing came after.

    ``ahead``: the record there has a future timestamp (clock skew), so records of the day may well come after it.
    ``hidden``: offsets before the day's end that committed readers do not get yet, because a transaction is open.
    """

    log_start: int
    position: int
    high_watermark: int
    ahead: bool
    hidden: OffsetRange | None


def decide_targets(
    stream: str, ends: Mapping[TopicPartition, DayEnd], archived: Extents, seals: Sequence[Seal]
) -> tuple[Target, ...]:
    """One target per log of ``ends``, and one per other log that is archived or sealed; in the order of the logs.

    A log ends where its days end, or as far as it is archived or sealed, whichever is higher: later ranges may hold
    late rows of the days. Of a log that is not in ``ends`` (its topic was deleted or recreated) everything archived is
    the target, and whatever is missing of it is lost. A log that is in no seal, while others of its topic are, was
    added since: it starts at offset 0.

    Raises IncompleteError where an open transaction hides a part of the days, because nobody knows yet whether it will
    be committed, and where a log ends before what is archived of it.
    """
    sealed = seal_extents(seals)
    hidden = {log: found.hidden for log, found in ends.items() if found.hidden is not None}
    if hidden:
        raise IncompleteError(
            "an open transaction hides a part of the days",
            expected="every record up to their end committed or aborted",
            found=", ".join(f"{log} undecided from offset {part.start} to {part.end}" for log, part in hidden.items()),
            where=f"stream {stream}",
            hint="Wait for its producer, or for the transaction's time-out; 'kafka-transactions.sh find-hanging' names"
            " one that nobody will end. Then run the days again",
        )
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
                end=max(found.high_watermark if found.ahead else found.position, reached),
                log_start=found.log_start,
                high_watermark=found.high_watermark,
            )
        )
    for log in (archived.keys() | sealed.keys()) - ends.keys():
        extents = [found[log] for found in (archived, sealed) if log in found]
        end = max(end for _, end in extents)
        targets.append(
            Target(log=log, start=min(start for start, _ in extents), end=end, log_start=end, high_watermark=end)
        )
    return tuple(sorted(targets, key=lambda item: item.log))


def _require_reached(log: TopicPartition, reached: int, high_watermark: int) -> None:
    if reached > high_watermark:
        raise IncompleteError(
            "a log ends before what is archived of it: Kafka has lost records that it had",
            expected=f"offset {reached} at least",
            found=f"end offset {high_watermark}",
            where=str(log),
            hint="A broker that was just restarted may need a moment: run the days again. If the error stays (an"
            " unclean leader election, a lost disk), new records take offsets that are archived already: give the"
            " producers another topic, and the stream with it, before they do",
        )


def without_known_start(plan: Plan, seals: Iterable[Seal]) -> tuple[LogPlan, ...]:
    """The logs of which offsets before the target may be of a requested day as well, so that they count as lost.

    A log's start is known where a day before the requested ones is sealed with the log from there on, as one that
    retention had emptied by then.
    """
    first = first_requested(plan)
    if first is None:
        return ()
    known = {(log.log, log.start) for seal in seals if seal.day < first for log in seal.logs}
    return tuple(item for item in plan.logs if item.target.start and (item.target.log, item.target.start) not in known)


def first_requested(plan: Plan) -> date | None:
    """The first requested day that the plan rebuilds; None without one."""
    return min((item.day for item in plan.days if item.reason == "requested"), default=None)


def reach_back(plan: Plan, first_us: Mapping[TopicPartition, int | None], start_us: int) -> tuple[Target, ...]:
    """The plan's targets; from offset 0 in a log whose first known record is of a requested day already.

    ``first_us`` has the timestamps of the first records that are known of some logs, and ``start_us`` is the start of
    the first requested day, in µs since the epoch. What retention took before such a record may be of the day as well.
    Where the first record is older, or none is known, offsets before it are not counted as lost.
    """
    starts = {log for log, first in first_us.items() if first is not None and first >= start_us}
    return tuple(replace(item.target, start=0) if item.target.log in starts else item.target for item in plan.logs)


def seal_extents(seals: Iterable[Seal]) -> dict[TopicPartition, tuple[int, int]]:
    """Per log the lowest start and the highest end of the seals."""
    return _extents((item.log, item.start, item.end) for seal in seals for item in seal.logs)


def _extents(ranges: Iterable[tuple[TopicPartition, int, int]]) -> dict[TopicPartition, tuple[int, int]]:
    extents: dict[TopicPartition, tuple[int, int]] = {}
    for log, start, end in ranges:
        lowest, highest = extents.get(log, (start, end))
        extents[log] = (min(lowest, start), max(highest, end))
    return extents
