"""The expected side of an audit: the archive objects with the span's rows, and the state of all other offsets.

The plan comes from ``tidemark.core.planner``, so that an audit reads the same rows as a rebuild.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tidemark.archive.ledger.history import History
from tidemark.core.manifest import DataFile
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise, range_or_none, subtract
from tidemark.core.plan import LogPlan, Slice, Target
from tidemark.core.planner import plan_committed
from tidemark.definitions.stream import Stream
from tidemark.delivery_audit.span import TimeSpan
from tidemark.kafka.positions import Watermarks, positions_at, watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.settings import Settings

# Of an offset without a row in the span. "dense": it has a row of another time. "has_holes": it may have no row.
State = Literal["dense", "has_holes", "unarchived"]
_Files = Mapping[tuple[str, int, TopicPartition, OffsetRange], tuple[DataFile, ...]]  # as ``History.files_with_holes``


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRange:
    """The state of a range's offsets. Ranges of one log do not overlap."""

    log: TopicPartition
    range: OffsetRange
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRows:
    """``slices`` contain every archived row of the span, and others. ``with_holes`` contain every row of ranges with
    holes that may have a record in the span, to tell a delivered offset from a hole.

    ``unarchived`` are the offsets that may belong to the span and are in no manifest. ``rows_min`` and ``rows_max``
    are the bounds of the span's rows that the manifests give. ``earliest_us`` is the smallest record timestamp of the
    objects in ``slices``, in µs: None without slices.
    """

    slices: tuple[Slice, ...]
    with_holes: tuple[Slice, ...]
    known: tuple[KnownRange, ...]
    unarchived: tuple[KnownRange, ...]
    topic_ids: tuple[str, ...]
    current_id: str
    rows_min: int
    rows_max: int
    earliest_us: int | None


def find_archived(stream: Stream, settings: Settings, span: TimeSpan, history: History) -> ArchivedRows:
    """Find the archived rows of the span. ``history`` must be read before, so that it ends before Kafka's logs."""
    logs = describe_topic(settings.kafka, stream.topic)
    first, after = (positions_at(settings.kafka, logs, moment) for moment in (span.start, span.end))
    marks = {mark.log: mark for mark in watermarks(settings.kafka, logs)}
    extents = history.extents()
    days = span.days(stream.zone)
    targets = _targets(marks, extents, after)
    committed = history.committed(targets, days, {})
    plan = plan_committed(
        stream=stream.name,
        run="delivery",
        requested=days,
        targets=targets,
        committed=committed,
        seen={},
    )
    files = history.files_with_holes(span.start_us, span.end_us)
    by_key = {file.key: file for ranges in committed.values() for item in ranges for file in item.files}
    read = [by_key[item.key] for item in plan.slices]
    counts = [sum(rows.rows for rows in file.days if rows.day in days) for file in read]
    exact = span.whole_days(stream.zone)
    return ArchivedRows(
        slices=plan.slices,
        with_holes=tuple(item for log in plan.logs for item in _with_holes(log, files)),
        known=tuple(item for log in plan.logs for item in _known(log, marks.get(log.target.log))),
        unarchived=tuple(item for log in plan.logs for item in _unarchived(log, plan.slices, first, after, marks)),
        topic_ids=tuple(sorted({log.topic_id for log in (*extents, *logs)})),
        current_id=logs[0].topic_id,
        rows_min=sum(rows for rows, item in zip(counts, plan.slices, strict=True) if exact and item.whole),
        rows_max=sum(min(rows, len(item.range)) for rows, item in zip(counts, plan.slices, strict=True)),
        earliest_us=min((file.min_timestamp_us for file in read), default=None),
    )


def _targets(
    marks: Mapping[TopicPartition, Watermarks],
    extents: Mapping[TopicPartition, tuple[int, int]],
    after: Mapping[TopicPartition, int | None],
) -> list[Target]:
    """Each log up to its end in the archive, or to the span's end in Kafka if that is later.

    ``after`` has the first offset after the span. A log that Kafka no longer has ends with the archive.
    """
    targets = []
    for log, mark in marks.items():
        start, end = extents.get(log, (mark.log_start, mark.log_start))
        first = min(start, mark.log_start)
        last = max(end, _bounded(after[log], mark))
        targets.append(
            Target(log=log, start=first, end=last, log_start=mark.log_start, high_watermark=mark.high_watermark)
        )
    for log, (start, end) in extents.items():
        if log not in marks:
            targets.append(Target(log=log, start=start, end=end, log_start=end, high_watermark=end))
    return targets


def _bounded(position: int | None, mark: Watermarks) -> int:
    """A position found by time, at most the end for read-committed consumers; that end if there is no position."""
    return mark.high_watermark if position is None else min(position, mark.high_watermark)


def _with_holes(plan: LogPlan, files: _Files) -> Iterable[Slice]:
    log = plan.target.log
    with_holes = {hole.range for hole in plan.holes}
    for used in plan.used:
        if used.range not in with_holes:
            continue
        for file in files.get((used.writer, used.batch, log, used.committed), ()):
            if file.first_offset < used.range.end and file.last_offset >= used.range.start:
                whole = file.first_offset in used.range and file.last_offset in used.range
                yield Slice(key=file.key, log=log, range=used.range, whole=whole, bytes=file.bytes, sha256=file.sha256)


def _known(plan: LogPlan, mark: Watermarks | None) -> Iterable[KnownRange]:
    log = plan.target.log
    used, with_holes = [item.range for item in plan.used], [hole.range for hole in plan.holes]
    written = range_or_none(0, mark.high_watermark) if mark else None
    ranges: tuple[tuple[State, OffsetSet], ...] = (
        ("dense", subtract(used, with_holes)),
        ("has_holes", normalise(with_holes)),
        ("unarchived", subtract([written] if written else [], used)),
    )
    for state, found in ranges:
        for item in found:
            yield KnownRange(log=log, range=item, state=state)


def _unarchived(
    plan: LogPlan,
    slices: Iterable[Slice],
    first: Mapping[TopicPartition, int | None],
    after: Mapping[TopicPartition, int | None],
    marks: Mapping[TopicPartition, Watermarks],
) -> Iterable[KnownRange]:
    """Gaps between the first and the last offset that may be in the span, by archived rows and Kafka's timestamps."""
    log = plan.target.log
    ranges = [item.range for item in slices if item.log == log]
    if log in marks:
        start, end = (_bounded(found[log], marks[log]) for found in (first, after))
        if start < end:
            ranges.append(OffsetRange(start=start, end=end))
    if not ranges:
        return
    window = OffsetRange(start=min(item.start for item in ranges), end=max(item.end for item in ranges))
    for gap in plan.gaps:
        inside = gap.range.intersect(window)
        if inside is not None:
            yield KnownRange(log=log, range=inside, state="unarchived")
