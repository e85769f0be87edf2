"""Days that a run may hold back: readers keep the version they have, and the run continues with its other days."""

import logging
from collections.abc import Collection
from dataclasses import replace
from datetime import date

from tidemark.core.errors import ConflictError, IncompleteError, ServiceError, TidemarkError, TransformError
from tidemark.core.plan import Plan
from tidemark.reconcile.results import FINALIZE_PLAN, HeldDay
from tidemark.run import Run
from tidemark.tables.seals import unsealed_publications
from tidemark.tables.snapshots import shown_days

_logger = logging.getLogger(__name__)


def may_wait(run: Run, days: Collection[date]) -> dict[date, bool]:
    """The plan's days among ``days``, and whether the run may hold back each: only late records have reopened it.

    A requested day that was sealed before may wait as well, unless the run is forced.
    """
    finalized = run.require(FINALIZE_PLAN)
    return {
        item.day: item.reason == "late" or (item.version > 1 and not finalized.force)
        for item in finalized.plan.days
        if item.day in days
    }


def without_version(run: Run, days: Collection[date]) -> str:
    """Why days can't be held back: readers see rows of them that are not sealed. Empty where they are sealed."""
    shown = shown_days(run.settings, run.stream) if days else {}
    for day, seen in unsealed_publications(run.store, run.layout, shown).items():
        if day in days:
            repeat = "that run or rollback" if seen.is_half else "that run's step seal"
            return (
                f"{day} can't keep its version meanwhile: readers see {seen}, which no seal proves."
                f" Repeat {repeat}, or correct what failed"
            )
    return ""


def without(plan: Plan, days: Collection[date]) -> Plan:
    """The plan without the days, and without slices that have rows of no other day."""
    left = tuple(item for item in plan.days if item.day not in days)
    names = {item.day for item in left}
    slices = tuple(item for item in plan.slices if any(found.day in names for found in item.rows))
    return replace(plan, days=left, slices=slices)


def days_to_hold_back(run: Run, plan: Plan, error: TidemarkError) -> list[HeldDay]:
    """The days of ``plan`` to hold back, with the reason, after a rebuild failed with ``error``; none if the run fails.

    These are the days that the error names, if the run may hold back each of them. Where a failing transformation or a
    number of rows names no day, these are all days that the run may hold back. An error of Kafka, of S3 or of another
    run holds back no day.
    """
    may = may_wait(run, {item.day for item in plan.days})
    about = _days_of(plan, error)
    if not about and isinstance(error, IncompleteError | TransformError):
        about = {day for day, wait in may.items() if wait}
    if not about or not all(may[day] for day in about) or about == may.keys():
        return []
    unfit = without_version(run, about)
    if unfit:
        error.hint = ". ".join(part for part in (error.hint, unfit) if part)
        return []
    for day in sorted(about):
        _logger.warning("the rebuild continues without %s, which late records reopened: %s", day, error)
    return [HeldDay(day=day, because=f"{day}: {error}") for day in sorted(about)]


def _days_of(plan: Plan, error: TidemarkError) -> set[date]:
    """The days with rows in the objects that the error names, or else those it names itself."""
    if isinstance(error, ConflictError | ServiceError):
        return set()
    days = {item.day for item in plan.days}
    slices = [item for item in plan.slices if item.key in error.objects]
    if slices:
        return {found.day for item in slices for found in item.rows} & days
    return set(error.days) & days
