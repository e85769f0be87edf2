"""Whether a plan would put a record into several sealed days, or into none, because copies disagree about its day.

What decides a record's day (``event_time``, for example) may have changed between two copies of the same offsets.
``tidemark.core.day_conflicts`` decides. Without copies of several settings, or without rows of the planned days among
them, nothing is read.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import read_archived
from tidemark.core.committed import Committed, contested
from tidemark.core.day_conflicts import DayConflict, find_conflicts, find_contested
from tidemark.core.days import date_ranges
from tidemark.core.errors import ConflictError
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise, subtract
from tidemark.core.plan import Plan, Target, Used
from tidemark.core.planner import Preference
from tidemark.core.seal import Seal
from tidemark.objects.days import RowDays
from tidemark.run import Run
from tidemark.tables.seals import latest_seals

NAMED_MAX = 5
_logger = logging.getLogger(__name__)

Copies = Mapping[TopicPartition, Sequence[Committed]]
Uses = Mapping[date, Sequence[Used]]


def preference(run: Run, seals: Sequence[Seal]) -> Preference:
    """Copies with the stream's own day settings, else what the run that was planned last has used."""
    last = max(seals, key=lambda seal: (seal.planned_at_us, seal.day, seal.version), default=None)
    used = {item.log: item.used for item in last.logs} if last is not None else {}
    return Preference(day_settings=run.stream.day_settings, used=used)


def day_conflicts(
    run: Run, plan: Plan, history: History, committed: Copies, seals: Sequence[Seal], *, force: bool
) -> tuple[DayConflict, ...]:
    """The records that would be in several days, or in none, once the plan's days are sealed.

    ``committed`` is what the plan was made from. A day that the run may hold back counts with its new version and with
    the one that it has.
    """
    days = frozenset(item.day for item in plan.days)
    waiting = {item.day for item in plan.days if item.version > 1 and (item.reason == "late" or not force)}
    kept = [set(), *({day} for day in sorted(waiting)), waiting] if waiting else [set[date]()]
    latest = _latest(seals)
    used = {item.target.log: item.used for item in plan.logs}
    return _conflicts(
        run,
        history,
        {log: _to_compare(committed[log], days) for log in used},
        lambda log: [{**_used(latest, log), **dict.fromkeys(days - stays, used[log])} for stays in kept],
        days,
    )


def rollback_conflicts(run: Run, restored: Seal) -> tuple[DayConflict, ...]:
    """The records that would be in several days, or in none, if a day had the rows of this earlier version again."""
    history = read_archived(run.store, run.layout, run.stream).history()
    if not history.has_other_settings(run.stream.day_settings):
        return ()
    targets = [
        Target(log=item.log, start=item.start, end=item.end, log_start=item.start, high_watermark=item.end)
        for item in restored.logs
    ]
    committed = history.committed(targets, [restored.day], {})
    latest = {**_latest(latest_seals(run.store, run.layout)), restored.day: restored}
    return _conflicts(
        run,
        history,
        {log: _to_compare(copies, {restored.day}) for log, copies in committed.items()},
        lambda log: [_used(latest, log)],
        frozenset({restored.day}),
    )


def _conflicts(
    run: Run,
    history: History,
    within: Mapping[TopicPartition, OffsetSet],
    uses: Callable[[TopicPartition], Sequence[Uses]],
    about: frozenset[date],
) -> tuple[DayConflict, ...]:
    """The conflicts in each of several cases of what the days use of a log; ``about`` are the days that change."""
    rows = RowDays(store=run.store, zone=run.stream.zone)
    found: dict[DayConflict, None] = {}
    for log, offsets in within.items():
        copies = _once(copy for part in offsets for copy in history.overlapping(log, part))
        for case in uses(log) if offsets else ():
            items = tuple(find_contested(log, offsets, copies, case))
            found |= dict.fromkeys(find_conflicts(items, about, rows.read))
    for key in sorted(rows.missing):
        _logger.warning("object %s is missing: the days of its rows can't be compared with other copies", key)
    return tuple(found)


def _latest(seals: Iterable[Seal]) -> dict[date, Seal]:
    found: dict[date, Seal] = {}
    for seal in seals:
        if seal.day not in found or seal.version > found[seal.day].version:
            found[seal.day] = seal
    return found


def _used(seals: Mapping[date, Seal], log: TopicPartition) -> dict[date, Sequence[Used]]:
    return {day: item.used for day, seal in seals.items() if (item := seal.log(log)) is not None}


def conflict_error(run: Run, plan: Plan, conflicts: Sequence[DayConflict]) -> ConflictError:
    """The error that names the first records, their days and settings, and what to do."""
    days = to_rebuild(conflicts)
    first = min(item.day for item in plan.days)
    more = f"; and {len(conflicts) - NAMED_MAX} more" if len(conflicts) > NAMED_MAX else ""
    return ConflictError(
        "copies of the same offsets put records on different days",
        expected="each record in one sealed day",
        found="; ".join(map(str, conflicts[:NAMED_MAX])) + more,
        where=f"run {run.name} of stream {run.stream.name}",
        hint=f"A key that decides days has changed between the copies. To rebuild {date_ranges(days)} together:"
        f" tidemark reconcile {run.stream.name} --from {first} --reassign-days, or the DAG with"
        " 'Reassign days'. See docs/how-to/change-a-days-key.md",
        days=days,
    )


def to_rebuild(conflicts: Sequence[DayConflict]) -> tuple[date, ...]:
    """The days that must be rebuilt together, in order."""
    return tuple(sorted({day for item in conflicts for day in item.days}))


def _to_compare(copies: Sequence[Committed], days: Collection[date]) -> OffsetSet:
    """The offsets of copies that may disagree, from the first to the last row of one of the days per object."""
    mixed = contested(copies)
    if not mixed:
        return ()
    spans = normalise(
        OffsetRange(start=rows.first_offset, end=rows.last_offset + 1)
        for copy in copies
        for file in copy.files
        for rows in file.days
        if rows.day in days
    )
    return subtract(mixed, subtract(mixed, spans))


def _once(copies: Iterable[Committed]) -> list[Committed]:
    return list({(item.writer, item.batch): item for item in copies}.values())
