"""Makes plans, without I/O. Nearly linear in the number of committed ranges."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from tidemark.core.committed import Committed, CopyIndex, contested
from tidemark.core.cover import CoverPart, best_cover, overlaps
from tidemark.core.errors import FormatError
from tidemark.core.manifest import DataFile, DayRows, Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition, count, range_or_none, subtract
from tidemark.core.plan import DayPlan, Gap, Hole, LateDay, LogPlan, Plan, Reason, RowsOfDay, Slice, Target, Used
from tidemark.core.seen import SeenDay, SeenLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Which copy is used where copies of several day settings hold an offset and are equally dense.

    The first choice is a copy with these ``day_settings``, the second one the copy that was used before.
    """

    day_settings: str | None = None
    used: Mapping[TopicPartition, Sequence[Used]] = field(default_factory=dict)


NO_PREFERENCE = Preference()


def plan_committed(
    *,
    stream: str,
    run: str,
    requested: Sequence[date],
    targets: Sequence[Target],
    committed: Mapping[TopicPartition, Sequence[Committed]],
    seen: Mapping[date, SeenDay],
    force: bool = False,
    scheduled: bool = False,
    reopen_from: date | None = None,
    unproven: Collection[date] = (),
    prefer: Preference = NO_PREFERENCE,
) -> Plan:
    """The plan that proves ``targets`` and rebuilds the affected days.

    ``committed`` has each target's log, sorted by range, writer and batch. It may leave out files without a row of an
    affected day, and ranges outside their target. ``seen`` are the days that were rebuilt before.

    The requested days are affected, and every day in ``seen`` with late rows. Late rows have offsets that the day did
    not read, or read from a less dense copy with holes. The ``unproven`` days are affected too: readers see rows of
    them that no seal proves. Another requested day in ``seen`` without late rows is ``unchanged``, unless ``force``.
    With ``reopen_from``, late rows of days before it, or after the newest requested day, are ``ignored``, unless the
    day is requested.
    """
    logs = [_plan_log(target, committed[target.log], prefer) for target in sorted(targets, key=lambda item: item.log)]
    late = {rows.day for rows, _, _ in _late_rows(targets, committed, seen)}
    wanted = {day for day in requested if force or day not in seen or day in late} | set(unproven)
    newest = max(requested, default=date.max)
    ignored = {day for day in late - wanted if reopen_from is not None and not reopen_from <= day <= newest}
    days = sorted((wanted | late) - ignored)
    rows = _archived_rows(targets, committed, set(days))
    return Plan(
        stream=stream,
        run=run,
        days=tuple(
            DayPlan(
                day=day,
                version=seen[day].version + 1 if day in seen else 1,
                reason=_reason(day, requested, unproven, scheduled=scheduled),
                archived_rows=rows[day],
            )
            for day in days
        ),
        unchanged=tuple(sorted(set(requested) - wanted)),
        logs=tuple(log_plan for log_plan, _ in logs),
        slices=tuple(item for log_plan, sources in logs for item in _slices(log_plan, sources, set(days))),
        ignored=_ignored(targets, committed, {day: seen[day] for day in sorted(ignored)}),
    )


def _reason(day: date, requested: Collection[date], unproven: Collection[date], *, scheduled: bool) -> Reason:
    if day in requested:
        return "scheduled" if scheduled else "requested"
    return "unproven" if day in unproven else "late"


def files_by_range(manifest: Manifest) -> dict[tuple[TopicPartition, OffsetRange], list[DataFile]]:
    """The files of each range of a manifest. Raises FormatError for a file that belongs to none of them."""
    files: dict[tuple[TopicPartition, OffsetRange], list[DataFile]] = {
        (item.log, item.range): [] for item in manifest.ranges
    }
    for file in manifest.files:
        if (file.log, file.range) not in files:
            raise FormatError(
                "a file's range is not one its manifest commits",
                expected=", ".join(str(item.range) for item in manifest.ranges if item.log == file.log) or "no file",
                found=file.range,
                where=f"{file.key} in manifest {manifest.writer}/{manifest.batch}",
            )
        files[file.log, file.range].append(file)
    return files


def _cover(
    whole: OffsetRange, target: Target, committed: Sequence[Committed], prefer: Preference
) -> Sequence[CoverPart]:
    """The parts of the target and their copies. A preference counts only where copies may disagree about days."""
    mixed = contested(committed)
    if not mixed:
        return best_cover(whole, committed)

    def is_mixed(part: OffsetRange) -> bool:
        at = bisect_right(mixed, part.start, key=lambda item: item.end)
        return at < len(mixed) and mixed[at].start < part.end

    current = {
        at for at, item in enumerate(committed) if item.day_settings == prefer.day_settings and is_mixed(item.range)
    }
    before = CopyIndex(committed).parts(prefer.used.get(target.log, ()), mixed)
    return best_cover(whole, committed, first=current, then=before)


def _plan_log(target: Target, committed: Sequence[Committed], prefer: Preference) -> tuple[LogPlan, list[Committed]]:
    """The findings for one log, and the committed range of each used one."""
    whole = range_or_none(target.start, target.end)
    ranges = [item.range for item in committed]
    parts = _cover(whole, target, committed, prefer) if whole else ()
    sources = [committed[part.index] for part in parts]
    used = tuple(
        Used(
            range=part.range,
            committed=source.range,
            writer=source.writer,
            batch=source.batch,
            last_batch=source.last_batch,
        )
        for part, source in zip(parts, sources, strict=True)
    )
    missing = subtract([whole], [item.range for item in used]) if whole else ()
    return (
        LogPlan(
            target=target,
            used=used,
            gaps=tuple(
                replace(gap, topic_deleted=target.deleted) for item in missing for gap in _gaps(item, target.log_start)
            ),
            overlaps=overlaps(whole, ranges) if whole else (),
            holes=tuple(
                hole
                for item, source in zip(used, sources, strict=True)
                if (hole := _hole(item, source.rows)) is not None
            ),
            pending=range_or_none(target.end, max(target.end, target.high_watermark)),
        ),
        sources,
    )


def _gaps(missing: OffsetRange, log_start: int) -> tuple[Gap, ...]:
    """The missing range as a loss, a gap that Kafka still holds, or one of each, split at the log's start."""
    if missing.end <= log_start:
        return (Gap(range=missing, kind="lost"),)
    if missing.start >= log_start:
        return (Gap(range=missing, kind="refill"),)
    return (
        Gap(range=OffsetRange(start=missing.start, end=log_start), kind="lost"),
        Gap(range=OffsetRange(start=log_start, end=missing.end), kind="refill"),
    )


def _hole(used: Used, rows: int) -> Hole | None:
    absent = len(used.committed) - rows
    if absent <= 0:
        return None
    return Hole(
        range=used.range,
        missing=min(absent, len(used.range)),
        cause="unexplained",
        # A part's share is known in two cases: all of the range is used, or none of it came out as a row.
        exact=used.range == used.committed or rows == 0,
    )


def _inside(first_offset: int, last_offset: int, target: Target) -> OffsetRange | None:
    """The part of an inclusive span of rows inside the target."""
    start, end = max(first_offset, target.start), min(last_offset + 1, target.end)
    return OffsetRange(start=start, end=end) if start < end else None


def _late_rows(
    targets: Sequence[Target], committed: Mapping[TopicPartition, Sequence[Committed]], seen: Mapping[date, SeenDay]
) -> Iterator[tuple[DayRows, OffsetRange, SeenLog | None]]:
    """The late rows of days in ``seen``, each with its span and what the day has read of the log."""
    for target in targets:
        for item in committed[target.log]:
            for file in item.files:
                for rows in file.days:
                    if rows.day in seen:
                        span = _inside(rows.first_offset, rows.last_offset, target)
                        read = seen[rows.day].logs.get(target.log)
                        if span is not None and (read is None or read.is_new(span, item)):
                            yield rows, span, read


def _ignored(
    targets: Sequence[Target], committed: Mapping[TopicPartition, Sequence[Committed]], ignored: Mapping[date, SeenDay]
) -> tuple[LateDay, ...]:
    """Each day with the most late records that it can have. Every copy counts."""
    records = dict.fromkeys(ignored, 0)
    for rows, span, read in _late_rows(targets, committed, ignored):
        # If the day has read all of these offsets, this is a denser copy of a hole.
        records[rows.day] += min(rows.rows, count(subtract([span], read.ranges if read else ())) or len(span))
    return tuple(LateDay(day=day, records_max=number) for day, number in sorted(records.items()))


def _archived_rows(
    targets: Sequence[Target], committed: Mapping[TopicPartition, Sequence[Committed]], days: set[date]
) -> dict[date, int]:
    """Rows per day over all committed objects. An object that several manifests list counts once.

    If an object reaches beyond the target, the most rows that the part inside can have are counted.
    """
    total = dict.fromkeys(days, 0)
    seen: set[str] = set()
    for target in targets:
        for item in committed[target.log]:
            for file in item.files:
                if file.key in seen:
                    continue
                seen.add(file.key)
                for rows in file.days:
                    if rows.day in days:
                        span = _inside(rows.first_offset, rows.last_offset, target)
                        total[rows.day] += min(rows.rows, len(span)) if span else 0
    return total


def _slices(log_plan: LogPlan, sources: Sequence[Committed], days: set[date]) -> Iterator[Slice]:
    """The objects of the used ranges that may have rows of the days inside the used part."""
    for used, source in zip(log_plan.used, sources, strict=True):
        own = used.range
        for file in sorted(source.files, key=lambda item: (item.range, item.key)):
            rows = _rows_within(file, own)
            if any(item.day in days for item in rows):
                yield Slice(
                    key=file.key,
                    log=log_plan.target.log,
                    range=OffsetRange(start=max(own.start, file.range.start), end=min(own.end, file.range.end)),
                    whole=file.first_offset in own and file.last_offset in own,
                    bytes=file.bytes,
                    sha256=file.sha256,
                    rows=rows,
                )


def _rows_within(file: DataFile, used: OffsetRange) -> tuple[RowsOfDay, ...]:
    """The rows in the used part, for each day that may have some there."""
    found = []
    for item in file.days:
        span = OffsetRange(start=item.first_offset, end=item.last_offset + 1)
        part = span.intersect(used)
        if part is None:
            continue
        if part == span:
            rows: int | None = item.rows
        else:  # exact only if every offset of the span is a row of the day
            rows = len(part) if item.rows == len(span) else None
        found.append(RowsOfDay(day=item.day, rows=rows, unreadable_times=item.unreadable_times))
    return tuple(found)
