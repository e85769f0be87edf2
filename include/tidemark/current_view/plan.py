"""What the live view takes from the published table and what from the archive: values in, a value out.

Per day, each offset of a log counts for one of the two, so no row can come twice; and what the table can't be trusted
to have whole counts for the archive, so none is missing. The objects to read are the planner's.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import islice, takewhile

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.segment import Tables
from tidemark.core.cover import Copy, best_cover, overlaps
from tidemark.core.manifest import DataFile
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, count, normalise, subtract
from tidemark.core.plan import LogPlan, Slice, Target
from tidemark.core.planner import plan_committed
from tidemark.core.seen import SeenDay, SeenLog

Ranges = Mapping[TopicPartition, OffsetSet]
Key = tuple[date, TopicPartition]
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDay:
    """The offsets that the publication of a day has read, and what its seal says of them where there is one."""

    ranges: Ranges
    sealed: Mapping[TopicPartition, SeenLog] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Offsets of which the archive has several copies that may differ in their rows; ``best`` is the densest."""

    range: OffsetRange
    best: Copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Offsets of a log whose records of one day come from the archive.

    ``first_offset`` is the lowest that may hold one, ``records_max`` how many there are at most: exactly so many unless
    a range starts or ends between the day's first and last record in an object.
    """

    day: date
    log: TopicPartition
    ranges: OffsetSet
    first_offset: int
    records_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """Offsets of a log whose published rows of one day are left out, because the archive has a better copy now."""

    day: date
    log: TopicPartition
    ranges: OffsetSet


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPosition:
    """How far a log has come.

    Every archived record below offset ``published_to`` was published or quarantined; the archive ends at
    ``archived_to`` and has not got ``gaps``, and ``behind_max`` of its records are not published, at most (see Cut).
    """

    log: TopicPartition
    published_to: int
    archived_to: int
    behind_max: int
    gaps: OffsetSet


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentPlan:
    """The view is the published rows without those ``withheld``, and the rows of ``slices`` inside ``cuts``."""

    cuts: tuple[Cut, ...]
    withheld: tuple[Withheld, ...]
    slices: tuple[Slice, ...]
    positions: tuple[LogPosition, ...]


def find_doubts(history: History) -> dict[TopicPartition, tuple[Doubt, ...]]:
    """Of each log the offsets with several copies, of which one at least has holes; disjoint, in order."""
    targets = _targets(history)
    committed = history.committed(targets, (), {})
    return {target.log: found for target in targets if (found := tuple(_doubts(target, committed[target.log])))}


def day_spans(parts: Iterable[Tables]) -> dict[Key, OffsetRange]:
    """Per day and log with archived records the offsets from the first to the last of them."""
    spans: dict[Key, OffsetRange] = {}
    for part in parts:
        logs = part.ranges["log"].take(part.days["range"])
        ends = [("first_offset", "min"), ("last_offset", "max")]
        found = part.days.append_column("log", logs).group_by(["day", "log"]).aggregate(ends)
        for row in found.to_pylist():
            key = _EPOCH + timedelta(days=row["day"]), part.logs[row["log"]]
            span = OffsetRange(start=row["first_offset_min"], end=row["last_offset_max"] + 1)
            known = spans.get(key, span)
            spans[key] = OffsetRange(start=min(known.start, span.start), end=max(known.end, span.end))
    return spans


def plan_current(
    *,
    stream: str,
    history: History,
    spans: Mapping[Key, OffsetRange],
    published: Mapping[date, PublishedDay],
    doubts: Mapping[TopicPartition, Sequence[Doubt]],
) -> CurrentPlan:
    """The view of everything in ``history``; ``published`` has the days with rows in the table.

    ``spans`` and ``doubts`` are what ``day_spans`` and ``find_doubts`` say of the same archive. Costs as much as a plan
    of the days that are not published.
    """
    targets = _targets(history)
    withheld = {
        (day, log): ranges
        for (day, log), span in spans.items()
        if day in published and log in doubts and (ranges := _stale(published[day], log, doubts[log], span))
    }
    trusted: dict[date, Ranges] = {
        day: {log: subtract(ranges, withheld.get((day, log), ())) for log, ranges in item.ranges.items()}
        for day, item in published.items()
    }
    # To the planner a published day was seen where the table is trusted. The view has no use for its version.
    seen = {
        day: SeenDay(version=1, logs={log: SeenLog(ranges=ranges) for log, ranges in logs.items()})
        for day, logs in trusted.items()
    }
    requested = sorted({day for day, _ in spans} - trusted.keys())
    committed = history.committed(targets, requested, seen)
    plan = plan_committed(
        stream=stream,
        run="current",
        requested=requested,
        targets=targets,
        committed=committed,
        seen=seen,
    )
    left = {
        (day, log): subtract([spans[day, log]], _parts(trusted.get(day, {}).get(log, ()), spans[day, log]))
        for day in (item.day for item in plan.days)
        for log in (target.log for target in targets)
        if (day, log) in spans
    }
    files = {file.key: file for copies in committed.values() for item in copies for file in item.files}
    behind: dict[Key, list[tuple[int, int]]] = {}
    slices = []
    for item in plan.slices:
        found = _to_take(item, files[item.key], left)
        for key, first_and_records in found.items():
            behind.setdefault(key, []).append(first_and_records)
        if found:
            slices.append(item)
    cuts = tuple(
        Cut(
            day=day,
            log=log,
            ranges=left[day, log],
            first_offset=min(first for first, _ in parts),
            records_max=sum(records for _, records in parts),
        )
        for (day, log), parts in sorted(behind.items())
    )
    of_log: dict[TopicPartition, list[Cut]] = {}
    for cut in cuts:
        of_log.setdefault(cut.log, []).append(cut)
    return CurrentPlan(
        cuts=cuts,
        withheld=tuple(Withheld(day=day, log=log, ranges=ranges) for (day, log), ranges in sorted(withheld.items())),
        slices=tuple(slices),
        positions=tuple(_position(item, of_log.get(item.target.log, ())) for item in plan.logs),
    )


def _targets(history: History) -> list[Target]:
    return [
        Target(log=log, start=start, end=end, log_start=start, high_watermark=end)
        for log, (start, end) in sorted(history.extents().items())
    ]


def _doubts(target: Target, copies: Sequence[Copy]) -> Iterable[Doubt]:
    """Overlaps with a copy that has holes, each split so that one copy is the best of all of it."""
    holed = normalise(copy.range for copy in copies if copy.rows < len(copy.range))
    if not holed:
        return
    whole = OffsetRange(start=target.start, end=target.end)
    pieces = best_cover(whole, copies)
    for overlap in overlaps(whole, [copy.range for copy in copies]):
        # An overlap lies in all of its copies or outside them, so one offset tells.
        if not _parts(holed, overlap.range):
            continue
        at = bisect_right(pieces, overlap.range.start, key=lambda piece: piece.range.end)
        while at < len(pieces) and pieces[at].range.start < overlap.range.end:
            inside = pieces[at].range.intersect(overlap.range)
            if inside is not None:
                yield Doubt(range=inside, best=copies[pieces[at].index])
            at += 1


def _stale(published: PublishedDay, log: TopicPartition, doubts: Sequence[Doubt], span: OffsetRange) -> OffsetSet:
    """The doubtful offsets of which the publication may have read a worse copy; all of them before it is sealed."""
    sealed = published.sealed.get(log) if published.sealed else None
    first = bisect_right(doubts, span.start, key=lambda item: item.range.end)
    inside = takewhile(lambda item: item.range.start < span.end, islice(doubts, first, None))
    return normalise(item.range for item in inside if sealed is None or sealed.is_new(item.range, item.best))


def _to_take(item: Slice, file: DataFile, left: Mapping[Key, OffsetSet]) -> dict[Key, tuple[int, int]]:
    """The days of which the slice may have records to take: the lowest offset of one, and how many at most."""
    found = {}
    for rows in file.days:
        span = OffsetRange(start=rows.first_offset, end=rows.last_offset + 1).intersect(item.range)
        parts = _parts(left.get((rows.day, item.log), ()), span) if span else ()
        if parts:
            found[rows.day, item.log] = parts[0].start, min(rows.rows, count(parts))
    return found


def _parts(ranges: Sequence[OffsetRange], span: OffsetRange) -> OffsetSet:
    """What of disjoint ranges in order lies inside the span."""
    parts = []
    at = bisect_right(ranges, span.start, key=lambda item: item.end)
    while at < len(ranges) and (inside := ranges[at].intersect(span)) is not None:
        parts.append(inside)
        at += 1
    return tuple(parts)


def _position(found: LogPlan, cuts: Sequence[Cut]) -> LogPosition:
    return LogPosition(
        log=found.target.log,
        published_to=min((cut.first_offset for cut in cuts), default=found.target.end),
        archived_to=found.target.end,
        behind_max=sum(cut.records_max for cut in cuts),
        gaps=tuple(gap.range for gap in found.gaps),
    )
