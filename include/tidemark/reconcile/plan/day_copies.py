"""Whether a plan would put a record into several sealed days, or into none, because copies disagree about its day.

What decides a record's day (``event_time``, for example) may have changed between two copies of the same offsets.
``tidemark.core.day_conflicts`` decides. Without copies of several settings, or without rows of the planned days among
them, nothing is read.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import date

from tidemark.archive.ledger.history import History
from tidemark.core.committed import Committed, contested
from tidemark.core.day_conflicts import DayConflict, find_conflicts, find_contested
from tidemark.core.days import date_ranges
from tidemark.core.errors import ConflictError
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise, subtract
from tidemark.core.plan import Plan, Used
from tidemark.core.planner import Preference
from tidemark.core.seal import Seal
from tidemark.objects.days import RowDays
from tidemark.run import Run

_NAMED_MAX = 5
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
    days = {item.day for item in plan.days}
    latest: dict[date, Seal] = {}
    for seal in seals:
        if seal.day not in latest or seal.version > latest[seal.day].version:
            latest[seal.day] = seal
    waiting = {item.day for item in plan.days if item.version > 1 and (item.reason == "late" or not force)}
    kept = [set(), *({day} for day in sorted(waiting)), waiting] if waiting else [set[date]()]
    rows = RowDays(store=run.store, zone=run.stream.zone)
    found: dict[DayConflict, None] = {}
    for planned in plan.logs:
        log = planned.target.log
        within = _to_compare(committed[log], days)
        if not within:
            continue
        copies = [copy for part in within for copy in history.overlapping(log, part)]
        sealed = {day: item.used for day, seal in latest.items() if (item := seal.log(log)) is not None}
        for as_they_are in kept:
            uses: Uses = {**sealed, **dict.fromkeys(days - as_they_are, planned.used)}
            items = tuple(find_contested(log, within, _once(copies), uses))
            found |= dict.fromkeys(find_conflicts(items, days, rows.read))
    for key in sorted(rows.missing):
        _logger.warning("the days of its rows can't be compared with those of other copies: no object %s", key)
    return tuple(found)


def conflict_error(run: Run, plan: Plan, conflicts: Sequence[DayConflict]) -> ConflictError:
    """The error that names the first records, their days and settings, and what to do."""
    days = to_rebuild(conflicts)
    first = min(item.day for item in plan.days)
    more = f"; and {len(conflicts) - _NAMED_MAX} more" if len(conflicts) > _NAMED_MAX else ""
    return ConflictError(
        "copies of the same offsets put records on different days",
        expected="each record in one sealed day",
        found="; ".join(map(str, conflicts[:_NAMED_MAX])) + more,
        where=f"run {run.name} of stream {run.stream.name}",
        hint=f"A key that decides days has changed between the copies. To rebuild {date_ranges(days)} together:"
        f" tidemark reconcile {run.stream.name} --from {first} --reassign-days. See docs/how-to/change-a-days-key.md",
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


def _once(copies: Sequence[Committed]) -> list[Committed]:
    return list({(item.writer, item.batch): item for item in copies}.values())
