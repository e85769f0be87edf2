"""Which days of a run have their live topic compared with the table, and why it compares none."""

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from tidemark.core.days import day_start, micros, utc_second
from tidemark.core.delivery import DELIVERY, DayDelivery, DeliveryAudit
from tidemark.core.errors import TidemarkError
from tidemark.reconcile.results import PLAN, SEAL

if TYPE_CHECKING:
    from tidemark.run import Run

DAYS_MAX = 3  # of a run that a person or a backfill asked for


def days_to_compare(requested: Sequence[date], sealed: Sequence[date], *, scheduled: bool) -> tuple[date, ...]:
    """The sealed days that the run was asked for: none of a backfill, because each of its runs asks for many days."""
    if len(requested) > DAYS_MAX and not scheduled:
        return ()
    return tuple(sorted(set(requested) & set(sealed)))


def compared_days(run: "Run") -> tuple[date, ...]:
    """The days of this run, whether the live topic still holds them or not."""
    planned = run.require(PLAN)
    sealed = [item.day for item in run.require(SEAL).seals]
    return days_to_compare(planned.requested, sealed, scheduled=planned.scheduled)


def unreadable_days(run: "Run") -> tuple[DayDelivery, ...]:
    """The days of this run that the live topic does not hold any more, or that began after the speed layer last ran."""
    from tidemark.delivery_audit import readable

    days, ran = compared_days(run), readable.last_ran(run.store, run.layout)
    off = {
        day: f"The speed layer last ran at {utc_second(micros(ran))}, before {day} began"
        for day in days
        if ran is not None and ran < day_start(day, run.stream.zone)
    }
    on = [day for day in days if day not in off]
    return (
        *readable.unreadable_days(run.stream, run.settings.speed_kafka, on),
        *(readable.not_compared(day, because) for day, because in off.items()),
    )


def nothing_to_compare(run: "Run") -> str | None:
    """Why step ``delivery`` has nothing to do, which is saved as its result; None if it has."""
    from tidemark.delivery_audit.step import delivery_step

    try:
        because = _never_compared(run)
        if because is not None:
            with run.step(DELIVERY) as attempt:
                attempt.result = DeliveryAudit(days=(), because=because)
            return because
        unreadable = unreadable_days(run)
    except TidemarkError:
        with delivery_step(run):  # the report shows it, and the watch announces it
            raise
    if len(unreadable) < len(compared_days(run)):
        return None
    because = unreadable[0].sentences[0]
    with delivery_step(run) as attempt:  # nobody can mend what the watch announced of an earlier day
        attempt.result = DeliveryAudit(days=(), because=because)
    return because


def _never_compared(run: "Run") -> str | None:
    from tidemark.delivery_audit.readable import speed_positions

    if not {item.day for item in run.require(SEAL).seals}.intersection(run.require(PLAN).requested):
        return "The run has sealed no day that it was asked for"
    if not compared_days(run):
        return f"A person or a backfill asked for more than {DAYS_MAX} days"
    return None if speed_positions(run.store, run.layout) else "The speed layer has delivered nothing"
