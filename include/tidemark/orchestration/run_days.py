"""Which days a reconcile run is for."""

from datetime import date, datetime, timedelta, tzinfo

from tidemark.core.days import day_end, day_of, days_between
from tidemark.core.errors import ConfigError
from tidemark.orchestration.steps import BACKFILL_DAYS_MAX, SPAN_DAYS_MAX


def run_days(
    *,
    from_day: str | None,
    to_day: str | None,
    interval: tuple[datetime, datetime] | None,
    zone: tzinfo,
) -> tuple[date, ...]:
    """The days of a run: those of its form, else those of its data interval, in the stream's time zone.

    Raises ConfigError where the form is filled in by half, wrong or too wide, and where there is neither.
    """
    if from_day or to_day:
        return form_days(from_day, to_day, days_max=SPAN_DAYS_MAX)
    if interval is None:
        raise ConfigError(
            "the run says no days",
            expected="from_day and to_day, or a run with a data interval",
            found="neither",
            hint="Trigger the DAG again and fill in from_day and to_day (or give the run a logical date)",
        )
    return interval_days(*interval, zone)


def interval_days(start: datetime, end: datetime, zone: tzinfo) -> tuple[date, ...]:
    """The days that end inside ``(start, end]``; where none does, the last that ended before.

    A schedule a little after midnight thus rebuilds the day before; one that runs more often than daily looks at the
    last closed day again, which costs nothing unless late records came in.
    """
    last = _last_ended(end, zone)
    first = min(_last_ended(start, zone) + timedelta(days=1), last)
    return days_between(first, last)


def _last_ended(moment: datetime, zone: tzinfo) -> date:
    """The latest day that is over at ``moment``; the moment a day ends at counts."""
    today = day_of(moment, zone)
    return today if day_end(today, zone) <= moment else today - timedelta(days=1)


def form_days(from_day: str | None, to_day: str | None, *, days_max: int) -> tuple[date, ...]:
    """The days of a form, both ends included; raises ConfigError where one is missing or wrong, or too many."""
    first, last = _parse("from_day", from_day), _parse("to_day", to_day)
    days = days_between(first, last)
    if len(days) > days_max:
        raise ConfigError(
            "the span of days is too wide for one run",
            expected=f"at most {days_max} days",
            found=f"{len(days)} days, {first} to {last}",
            hint=f"Trigger one run per part of it. A backfill, with a run per day, takes {BACKFILL_DAYS_MAX} days",
        )
    return days


def _parse(name: str, text: str | None) -> date:
    if not text:
        raise ConfigError(
            "the span of days is incomplete",
            expected=f"a day in {name}",
            found="nothing",
            hint="Fill in both from_day and to_day; for one day write it in both",
        )
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{name} is not a day", expected="YYYY-MM-DD", found=text) from error
