"""Makes plans: values in, a value out. Nearly linear in the number of committed ranges."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from tidemark.core.cover import Copy, best_cover, overlaps
from tidemark.core.errors import FormatError
from tidemark.core.manifest import DataFile, DayRows, Manifest, replaced_by
from tidemark.core.offsets import OffsetRange, TopicPartition, count, range_or_none, subtract
from tidemark.core.plan import DayPlan, Gap, Hole, LateDay, LogPlan, Plan, RowsOfDay, Slice, Target, Used
from tidemark.core.seal import Seal, require_origin, seen_days
from tidemark.core.seen import SeenDay, SeenLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Copy):
    """A committed range of one log with the files that hold its rows.

    With ``last_batch`` it stands for several ranges in a row, as ``Used`` says; none of them may overlap another range.
    """

    writer: str
    batch: int
    last_batch: int | None = None
    files: tuple[DataFile, ...]


def make_plan(
    *,
    stream: str,
    time_zone: str,
    run: str,
    requested: Sequence[date],
    targets: Sequence[Target],
    manifests: Sequence[Manifest],
    seals: Sequence[Seal],
    force: bool = False,
    reopen_from: date | None = None,
) -> Plan:
    """The plan that proves ``targets`` and rebuilds the affected days; the order of the inputs does not matter.

    Affected are the requested days and every sealed day with late rows: rows at offsets that had no archived copy
    when it was sealed, or only a copy with holes that is less dense than theirs. A requested day that is sealed and has
    none is ``unchanged``, unless ``force``. With ``reopen_from``, days before it and days after the newest requested
    one are reopened on request only, else ``ignored`` with their late rows. Of ``seals`` the highest version of each
    day counts; where that is a rollback, what was seen is what the last rebuilt version saw, or the next run would undo
    it. Manifests of a log that is no target (a topic made again has another id) cover nothing. Raises ConflictError for
    a manifest or seal of another stream or time zone, because its days are not this stream's, and FormatError for a
    file outside its manifest's ranges.
    """
    for manifest in manifests:
        require_origin(
            stream, time_zone, manifest.stream, manifest.time_zone, f"manifest {manifest.writer}/{manifest.batch}"
        )
    return plan_committed(
        stream=stream,
        run=run,
        requested=requested,
        targets=targets,
        committed=_index(targets, manifests),
        seen=seen_days(seals, stream=stream, time_zone=time_zone),
        force=force,
        reopen_from=reopen_from,
    )


def plan_committed(
    *,
    stream: str,
    run: str,
    requested: Sequence[date],
    targets: Sequence[Target],
    committed: Mapping[TopicPartition, Sequence[Committed]],
    seen: Mapping[date, SeenDay],
    force: bool = False,
    reopen_from: date | None = None,
) -> Plan:
    """``make_plan`` from the committed ranges of each target's log, sorted by range, writer and batch.

    ``seen`` are the days that were rebuilt before. Files may be left out that have no row of an affected day, and
    ranges that lie outside their target.
    """
    logs = [_plan_log(target, committed[target.log]) for target in sorted(targets, key=lambda item: item.log)]
    late = {rows.day for rows, _, _ in _late_rows(targets, committed, seen)}
    wanted = {day for day in requested if force or day not in seen or day in late}
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
                reason="requested" if day in requested else "late",
                archived_rows=rows[day],
            )
            for day in days
        ),
        unchanged=tuple(sorted(set(requested) - wanted)),
        logs=tuple(log_plan for log_plan, _ in logs),
        slices=tuple(item for log_plan, sources in logs for item in _slices(log_plan, sources, set(days))),
        ignored=_ignored(targets, committed, {day: seen[day] for day in sorted(ignored)}),
    )


def _index(targets: Sequence[Target], manifests: Sequence[Manifest]) -> dict[TopicPartition, list[Committed]]:
    """Each target's committed ranges that none replaces, in an order that does not depend on the manifests'."""
    found: dict[TopicPartition, list[Committed]] = {target.log: [] for target in targets}
    replaced = replaced_by(manifests)
    for manifest in manifests:
        files = files_by_range(manifest)
        for item in manifest.ranges:
            if item.log in found and (manifest.writer, manifest.batch, item.log) not in replaced:
                found[item.log].append(
                    Committed(
                        range=item.range,
                        writer=manifest.writer,
                        batch=manifest.batch,
                        rows=item.rows,
                        files=tuple(files[item.log, item.range]),
                    )
                )
    for ranges in found.values():
        ranges.sort(key=lambda item: (item.range, item.writer, item.batch))
    return found


def files_by_range(manifest: Manifest) -> dict[tuple[TopicPartition, OffsetRange], list[DataFile]]:
    """The files of each range of a manifest; raises FormatError for a file of none of them."""
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


def _plan_log(target: Target, committed: Sequence[Committed]) -> tuple[LogPlan, list[Committed]]:
    """The findings for one log, and for each used range the committed one it is taken from."""
    whole = range_or_none(target.start, target.end)
    ranges = [item.range for item in committed]
    pieces = best_cover(whole, committed) if whole else ()
    sources = [committed[piece.index] for piece in pieces]
    used = tuple(
        Used(
            range=piece.range,
            committed=source.range,
            writer=source.writer,
            batch=source.batch,
            last_batch=source.last_batch,
        )
        for piece, source in zip(pieces, sources, strict=True)
    )
    missing = subtract([whole], [item.range for item in used]) if whole else ()
    return (
        LogPlan(
            target=target,
            used=used,
            gaps=tuple(gap for item in missing for gap in _gaps(item, target.log_start)),
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
    """The missing range as what retention took, what Kafka still holds, or one of each, split at the log's start."""
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
    """The part of an inclusive span of rows that the target asks for."""
    start, end = max(first_offset, target.start), min(last_offset + 1, target.end)
    return OffsetRange(start=start, end=end) if start < end else None


def _late_rows(
    targets: Sequence[Target], committed: Mapping[TopicPartition, Sequence[Committed]], seen: Mapping[date, SeenDay]
) -> Iterator[tuple[DayRows, OffsetRange, SeenLog | None]]:
    """The rows that bring something new to a day seen before, each with its span and what the day read of its log."""
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
    """Each day with its late records: copies count as often as there are, and what may be new as new."""
    records = dict.fromkeys(ignored, 0)
    for rows, span, read in _late_rows(targets, committed, ignored):
        # Without any offset that was not read it is a denser copy of a hole.
        records[rows.day] += min(rows.rows, count(subtract([span], read.ranges if read else ())) or len(span))
    return tuple(LateDay(day=day, records_max=number) for day, number in sorted(records.items()))


def _archived_rows(
    targets: Sequence[Target], committed: Mapping[TopicPartition, Sequence[Committed]], days: set[date]
) -> dict[date, int]:
    """Rows per day over all committed objects, an object that several manifests list counted once.

    Of an object that reaches beyond the target only the part inside counts; where the manifest does not tell how many
    of the day's rows that is, the most it can be.
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


def _slices(log_plan: LogPlan, sources: Sequence[Committed], days: set[date]) -> list[Slice]:
    """The objects behind the used ranges that may have rows of the days inside the used part."""
    return [
        _slice(log_plan.target.log, used, file)
        for used, source in zip(log_plan.used, sources, strict=True)
        for file in sorted(source.files, key=lambda item: (item.range, item.key))
        if _has_rows_of(file, used.range, days)
    ]


def _slice(log: TopicPartition, used: Used, file: DataFile) -> Slice:
    return Slice(
        key=file.key,
        log=log,
        range=OffsetRange(start=max(used.range.start, file.range.start), end=min(used.range.end, file.range.end)),
        whole=file.first_offset in used.range and file.last_offset in used.range,
        rows=_rows_within(file, used.range),
    )


def _rows_within(file: DataFile, used: OffsetRange) -> tuple[RowsOfDay, ...]:
    """How many of the file's rows are in the used part, per day that may have some."""
    found = []
    for item in file.days:
        span = OffsetRange(start=item.first_offset, end=item.last_offset + 1)
        part = span.intersect(used)
        if part is None:
            continue
        if part == span:
            found.append(RowsOfDay(day=item.day, rows=item.rows))
        else:  # with offsets that are none of the day's rows, these may be on this side or on that
            found.append(RowsOfDay(day=item.day, rows=len(part) if item.rows == len(span) else None))
    return tuple(found)


def _has_rows_of(file: DataFile, used: OffsetRange, days: set[date]) -> bool:
    return any(
        rows.day in days and rows.first_offset < used.end and rows.last_offset >= used.start for rows in file.days
    )
