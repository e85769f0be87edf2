"""The days that a run can do without: such a day keeps the version readers have, and the others go on without it."""

import logging
from collections.abc import Collection
from dataclasses import replace
from datetime import date

from tidemark.core.errors import ConflictError, IncompleteError, ServiceError, TidemarkError
from tidemark.core.plan import Plan
from tidemark.reconcile.results import FINALIZE_PLAN, HeldDay
from tidemark.run import Run
from tidemark.spark.failures import FAILS_ON_RECORD
from tidemark.tables.reader import load_table
from tidemark.tables.seals import unsealed_publication

_logger = logging.getLogger(__name__)


def may_wait(run: Run, days: Collection[date]) -> dict[date, bool]:
    """The plan's days among ``days``, and whether the run can do without each: late records alone have reopened it.

    A requested day that was sealed before can wait as well, where nobody asked for it by force.
    """
    finalized = run.require(FINALIZE_PLAN)
    return {
        item.day: item.reason == "late" or (item.version > 1 and not finalized.force)
        for item in finalized.plan.days
        if item.day in days
    }


def without_version(run: Run, days: Collection[date]) -> str:
    """Why days can't be held back: what readers see of them is no sealed version. Empty where it is."""
    table = load_table(run.settings, run.stream.table) if days else None
    for day in sorted(days):
        seen = unsealed_publication(run, table, day)
        if seen is not None:
            return (
                f"{day} can't keep its version meanwhile: readers see rows of run {seen.run}, which are not sealed."
                " Repeat that run's step seal, or mend what did not pass"
            )
    return ""


def without(plan: Plan, days: Collection[date]) -> Plan:
    """The plan of its other days: they are rebuilt from the slices that may have rows of them."""
    left = tuple(item for item in plan.days if item.day not in days)
    names = {item.day for item in left}
    slices = tuple(item for item in plan.slices if any(found.day in names for found in item.rows))
    return replace(plan, days=left, slices=slices)


def days_to_hold_back(run: Run, plan: Plan, error: TidemarkError) -> list[HeldDay]:
    """The days of ``plan`` to leave out, with the reason, when a rebuild failed with ``error``; none where it stands.

    These are the days the error is about, if the run can do without each of them. Where a record that the
    transformation fails on, or a number of rows, names no day, these are all days that the run can do without. Errors
    of Kafka, S3 or another run are no day's fault.
    """
    may = may_wait(run, {item.day for item in plan.days})
    about = _days_of(plan, error)
    if not about and (isinstance(error, IncompleteError) or error.problem == FAILS_ON_RECORD):
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
