"""Which rows of the current view come from the published table, and which from the archive.

For each day, every offset of a log belongs to exactly one of the two, so no row comes twice. Offsets that the table may
not have completely belong to the archive, so no row is missing. The planner chooses the objects to read.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import islice, takewhile

import numpy as np

from tidemark.archive.ledger.arrays import ints
from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.segment import Tables
from tidemark.core.cover import Copy, best_cover, overlaps
from tidemark.core.manifest import DataFile
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, count, normalise, subtract
from tidemark.core.plan import LogPlan, Slice, Target
from tidemark.core.planner import NO_PREFERENCE, Preference, plan_committed
from tidemark.core.seen import SeenDay, SeenLog

Ranges = Mapping[TopicPartition, OffsetSet]
Key = tuple[date, TopicPartition]
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDay:
    """The offsets that the publication of a day has read, and what its seal says of them if there is one."""

    ranges: Ranges
    sealed: Mapping[TopicPartition, SeenLog] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyConflict:
    """Offsets with several copies in the archive that may differ in their rows; ``best`` is the densest."""

    range: OffsetRange
    best: Copy


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePart:
    """Offsets of a log whose records of one day come from the archive.

    ``first_offset`` is the lowest offset that may have such a record. ``records_max`` is the number of records, or an
    upper bound if a range starts or ends between the day's first and last record in an object.
    """

    day: date
    log: TopicPartition
    ranges: OffsetSet
    first_offset: int
    records_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StalePart:
    """Offsets of a log whose published rows of one day are left out, because the archive has a better copy now."""

    day: date
    log: TopicPartition
    ranges: OffsetSet


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPosition:
    """The progress of a log.

    Every archived record below offset ``published_to`` was published or quarantined. The archive ends at
    ``archived_to``, without ``gaps``. At most ``unpublished_max`` of its records are not published (see ArchivePart).
    """

    log: TopicPartition
    published_to: int
    archived_to: int
    unpublished_max: int
    gaps: OffsetSet


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentPlan:
    """The view: the published rows without ``stale_parts``, and the rows of ``slices`` inside ``archive_parts``."""

    archive_parts: tuple[ArchivePart, ...]
    stale_parts: tuple[StalePart, ...]
    slices: tuple[Slice, ...]
    positions: tuple[LogPosition, ...]


def find_conflicts(history: History) -> dict[TopicPartition, tuple[CopyConflict, ...]]:
    """The offsets of each log with several copies, at least one of them with holes; disjoint and in order."""
    targets = _targets(history)
    committed = history.committed(targets, (), {})
    return {target.log: found for target in targets if (found := tuple(_conflicts(target, committed[target.log])))}


def day_spans(parts: Iterable[Tables]) -> dict[Key, OffsetRange]:
    """The offsets from the first to the last archived record of each day and log."""
    spans: dict[Key, OffsetRange] = {}
    for part in parts:
        for day, log, first, last in _extremes(part):
            key = _EPOCH + timedelta(days=day), part.logs[log]
            span = OffsetRange(start=first, end=last + 1)
            known = spans.get(key, span)
            spans[key] = OffsetRange(start=min(known.start, span.start), end=max(known.end, span.end))
    return spans


def _extremes(part: Tables) -> Iterable[tuple[int, int, int, int]]:
    """Each day and log of a part, with the first and the last offset. pyarrow's own grouping would load pandas."""
    if not part.days.num_rows:
        return ()
    day, first, last = (ints(part.days, name) for name in ("day", "first_offset", "last_offset"))
    log = ints(part.ranges, "log")[ints(part.days, "range")]
    order = np.lexsort((log, day))
    day, log = day[order], log[order]
    begins = np.flatnonzero(np.append([True], (np.diff(day) != 0) | (np.diff(log) != 0)))
    lows, highs = np.minimum.reduceat(first[order], begins), np.maximum.reduceat(last[order], begins)
    return zip(day[begins].tolist(), log[begins].tolist(), lows.tolist(), highs.tolist(), strict=True)


def plan_current(
    *,
    stream: str,
    history: History,
    spans: Mapping[Key, OffsetRange],
    published: Mapping[date, PublishedDay],
    conflicts: Mapping[TopicPartition, Sequence[CopyConflict]],
    prefer: Preference = NO_PREFERENCE,
) -> CurrentPlan:
    """The view of everything in ``history``; ``published`` has the days with rows in the table.

    ``spans`` and ``conflicts`` are the results of ``day_spans`` and ``find_conflicts`` for the same archive. ``prefer``
    names the copies that sealed days have used: another one may put a published record on a second day. This takes
    as long as a plan of the days that are not published.
    """
    targets = _targets(history)
    stale = {
        (day, log): ranges
        for (day, log), span in spans.items()
        if day in published and log in conflicts and (ranges := _stale(published[day], log, conflicts[log], span))
    }
    trusted: dict[date, Ranges] = {
        day: {log: subtract(ranges, stale.get((day, log), ())) for log, ranges in item.ranges.items()}
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
        prefer=prefer,
    )
    left = {
        (day, log): subtract([spans[day, log]], _parts(trusted.get(day, {}).get(log, ()), spans[day, log]))
        for day in (item.day for item in plan.days)
        for log in (target.log for target in targets)
        if (day, log) in spans
    }
    files = {file.key: file for copies in committed.values() for item in copies for file in item.files}
    archive_parts, slices = _from_archive(plan.slices, files, left)
    return CurrentPlan(
        archive_parts=archive_parts,
        stale_parts=tuple(StalePart(day=day, log=log, ranges=ranges) for (day, log), ranges in sorted(stale.items())),
        slices=slices,
        positions=_positions(plan.logs, archive_parts),
    )


def _from_archive(
    slices: Iterable[Slice], files: Mapping[str, DataFile], left: Mapping[Key, OffsetSet]
) -> tuple[tuple[ArchivePart, ...], tuple[Slice, ...]]:
    """The parts that come from the archive, and the slices that have records of them."""
    records: dict[Key, list[tuple[int, int]]] = {}
    read = []
    for item in slices:
        found = _to_take(item, files[item.key], left)
        for key, first_and_records in found.items():
            records.setdefault(key, []).append(first_and_records)
        if found:
            read.append(item)
    parts = tuple(
        ArchivePart(
            day=day,
            log=log,
            ranges=left[day, log],
            first_offset=min(first for first, _ in counts),
            records_max=sum(number for _, number in counts),
        )
        for (day, log), counts in sorted(records.items())
    )
    return parts, tuple(read)


def _targets(history: History) -> list[Target]:
    return [
        Target(log=log, start=start, end=end, log_start=start, high_watermark=end)
        for log, (start, end) in sorted(history.extents().items())
    ]


def _conflicts(target: Target, copies: Sequence[Copy]) -> Iterable[CopyConflict]:
    """Overlaps with a copy that has holes, split so that each has one best copy."""
    with_holes = normalise(copy.range for copy in copies if copy.rows < len(copy.range))
    if not with_holes:
        return
    whole = OffsetRange(start=target.start, end=target.end)
    chunks = best_cover(whole, copies)
    for overlap in overlaps(whole, [copy.range for copy in copies]):
        # A copy has all of an overlap or nothing of it, so one offset decides.
        if not _parts(with_holes, overlap.range):
            continue
        index = bisect_right(chunks, overlap.range.start, key=lambda chunk: chunk.range.end)
        while index < len(chunks) and chunks[index].range.start < overlap.range.end:
            inside = chunks[index].range.intersect(overlap.range)
            if inside is not None:
                yield CopyConflict(range=inside, best=copies[chunks[index].index])
            index += 1


def _stale(
    published: PublishedDay, log: TopicPartition, conflicts: Sequence[CopyConflict], span: OffsetRange
) -> OffsetSet:
    """The offsets of which the publication may have read a worse copy: without a seal, all with a conflict."""
    sealed = published.sealed.get(log) if published.sealed else None
    first = bisect_right(conflicts, span.start, key=lambda item: item.range.end)
    inside = takewhile(lambda item: item.range.start < span.end, islice(conflicts, first, None))
    return normalise(item.range for item in inside if sealed is None or sealed.is_new(item.range, item.best))


def _to_take(item: Slice, file: DataFile, left: Mapping[Key, OffsetSet]) -> dict[Key, tuple[int, int]]:
    """The days with records to take from the slice: the lowest offset, and an upper bound of their number."""
    found = {}
    for rows in file.days:
        span = OffsetRange(start=rows.first_offset, end=rows.last_offset + 1).intersect(item.range)
        parts = _parts(left.get((rows.day, item.log), ()), span) if span else ()
        if parts:
            found[rows.day, item.log] = parts[0].start, min(rows.rows, count(parts))
    return found


def _parts(ranges: Sequence[OffsetRange], span: OffsetRange) -> OffsetSet:
    """The parts of disjoint, ordered ranges inside the span."""
    parts = []
    index = bisect_right(ranges, span.start, key=lambda item: item.end)
    while index < len(ranges) and (inside := ranges[index].intersect(span)) is not None:
        parts.append(inside)
        index += 1
    return tuple(parts)


def _positions(logs: Iterable[LogPlan], parts: Iterable[ArchivePart]) -> tuple[LogPosition, ...]:
    by_log: dict[TopicPartition, list[ArchivePart]] = {}
    for part in parts:
        by_log.setdefault(part.log, []).append(part)
    return tuple(
        LogPosition(
            log=item.target.log,
            published_to=min((part.first_offset for part in by_log.get(item.target.log, ())), default=item.target.end),
            archived_to=item.target.end,
            unpublished_max=sum(part.records_max for part in by_log.get(item.target.log, ())),
            gaps=tuple(gap.range for gap in item.gaps),
        )
        for item in logs
    )
