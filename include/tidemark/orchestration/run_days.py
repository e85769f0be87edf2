"""Which days a reconcile run is for, and how a backfill splits its days into runs."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta, tzinfo

from tidemark.core.days import day_end, days_between, last_ended
from tidemark.core.errors import RequestError
from tidemark.orchestration.steps import SPAN_DAYS_MAX

BACKFILL_RUNS_MAX = 1000  # Airflow maps a task over 1,024 values at most


def run_days(
    *, from_day: str | None, to_day: str | None, interval: tuple[datetime, datetime] | None, zone: tzinfo
) -> tuple[date, ...]:
    """The days of a run: those of its form, else those of its data interval, in the stream's time zone.

    Raises RequestError where the form is filled in by half, wrong or too wide, and where there is neither.
    """
    if from_day or to_day:
        return form_days(from_day, to_day, days_max=SPAN_DAYS_MAX)
    if interval is None:
        raise RequestError(
            "the run says no days",
            expected="from_day and to_day, or a run with a data interval",
            found="neither",
            hint="Trigger the DAG again and fill in from_day and to_day (or give the run a logical date)",
        )
    return interval_days(*interval, zone)


def interval_days(start: datetime, end: datetime, zone: tzinfo) -> tuple[date, ...]:
    """The days that end inside ``(start, end]``; where none does, the last that ended before.

    A schedule a little after midnight thus rebuilds the day before; one that runs more often than daily takes the last
    closed day again, which costs nothing unless late records were archived.
    """
    last = last_ended(end, zone)
    first = min(last_ended(start, zone) + timedelta(days=1), last)
    return days_between(first, last)


def form_days(from_day: str | None, to_day: str | None, *, days_max: int) -> tuple[date, ...]:
    """The days of a form, both ends included; raises RequestError where one is missing or wrong, or too many."""
    days = days_between(_parse("from_day", from_day), _parse("to_day", to_day))
    if len(days) > days_max:
        raise RequestError(
            "the span of days is too wide for one run",
            expected=f"at most {days_max} days",
            found=f"{len(days)} days, {days[0]} to {days[-1]}",
            hint="Use 'tidemark backfill' or the DAG tidemark_backfill: they split the days into several runs",
        )
    return days


def backfill_days(from_day: str | None, to_day: str | None, *, now: datetime, zone: tzinfo) -> tuple[date, ...]:
    """The days of a backfill's form; raises RequestError where it is wrong, or the last day is not over."""
    days = days_between(_parse("from_day", from_day), _parse("to_day", to_day))
    require_over(days, now=now, zone=zone)
    return days


def day_chunks(days: Sequence[date], size: int) -> list[tuple[date, ...]]:
    """Consecutive days in order, at most so many in each chunk."""
    chunks: list[tuple[date, ...]] = []
    for day in days:
        if chunks and len(chunks[-1]) < size and day - chunks[-1][-1] == timedelta(days=1):
            chunks[-1] = (*chunks[-1], day)
        else:
            chunks.append((day,))
    return chunks


def require_possible(runs: Sequence[Sequence[object]]) -> None:
    """Raise RequestError if a backfill in Airflow can't have so many runs."""
    if len(runs) > BACKFILL_RUNS_MAX:
        raise RequestError(
            "the backfill has too many runs",
            expected=f"at most {BACKFILL_RUNS_MAX} runs",
            found=f"{len(runs)} runs for {sum(map(len, runs))} days",
            hint="Raise days_per_run, or backfill the span in parts",
        )


def require_over(days: tuple[date, ...], *, now: datetime, zone: tzinfo) -> None:
    """Raise RequestError if the last of the days is not over."""
    if day_end(days[-1], zone) > now:
        raise RequestError(
            "the last day is not over",
            expected=f"days up to {last_ended(now, zone)}",
            found=days[-1],
            hint="Ask for the days before it; the schedule rebuilds it when it is over",
        )


def _parse(name: str, text: str | None) -> date:
    if not text:
        raise RequestError(
            "the span of days is incomplete",
            expected=f"a day in {name}",
            found="nothing",
            hint="Fill in both from_day and to_day; for one day write it in both",
        )
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise RequestError(f"{name} is not a day", expected="YYYY-MM-DD", found=text) from error
