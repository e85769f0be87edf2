"""What a backfill started by form does: one reconcile run per day, a few at once. Values only, no Airflow."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from typing import Literal

from tidemark.core.days import day_end
from tidemark.core.errors import ConfigError
from tidemark.orchestration.run_days import form_days
from tidemark.orchestration.steps import BACKFILL_DAYS_MAX, LAST_TASK

# States of a run's last task that will not change by themselves; None and all others are on the way to one of them.
_FAILED = frozenset({"failed", "upstream_failed", "skipped", "removed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRun:
    """How a day stands: ``run`` is its latest run, the ``attempt``-th of this backfill; none yet while it waits."""

    day: date
    state: Literal["waiting", "running", "success", "failed"]
    run: str | None = None
    attempt: int = 0


def backfill_days(from_day: str | None, to_day: str | None, *, now: datetime, zone: tzinfo) -> tuple[date, ...]:
    """The days of a backfill's form; raises ConfigError where one is missing, wrong, not over, or they are too many."""
    days = form_days(from_day, to_day, days_max=BACKFILL_DAYS_MAX)
    if day_end(days[-1], zone) > now:
        raise ConfigError(
            "the last day of the backfill is not over",
            expected=f"a to_day before {now.astimezone(zone).date()}",
            found=days[-1],
            hint="Backfill the days before it; the schedule rebuilds it when it is over",
        )
    return days


def day_run_id(backfill: str, day: date, attempt: int) -> str:
    """The id of a day's run, from that of the backfill's run; known beforehand, so nothing is ever started twice.

    It starts with the day: Airflow keeps ids that start with ``backfill__`` for its own.
    """
    return f"{day}__{backfill}__{attempt}"


def day_run_ids(backfill: str, days: Iterable[date], attempts: int) -> list[str]:
    """Every id that the first ``attempts`` attempts of the backfill may have used."""
    return [day_run_id(backfill, day, attempt) for day in days for attempt in range(1, attempts + 1)]


def day_runs(
    backfill: str,
    days: Sequence[date],
    attempts: int,
    tasks: Mapping[str, Mapping[str, str | None]],
    holds_back: Callable[[str, date], bool],
) -> tuple[DayRun, ...]:
    """How each day stands, from the task states of the runs there are, by run id and task.

    ``holds_back`` tells whether a run that has sealed others has left the day as it was.
    """
    return tuple(_day_run(backfill, day, attempts, tasks, holds_back) for day in days)


def _day_run(
    backfill: str,
    day: date,
    attempts: int,
    tasks: Mapping[str, Mapping[str, str | None]],
    holds_back: Callable[[str, date], bool],
) -> DayRun:
    for attempt in range(attempts, 0, -1):
        run = day_run_id(backfill, day, attempt)
        if run in tasks:
            last = tasks[run].get(LAST_TASK)
            state: Literal["running", "success", "failed"] = "running"
            # A day that is sealed is done, also where its run has something to say of others (see ``held_text``).
            sealed = tasks[run].get("seal") == "success"
            if last == "success" or (last == "failed" and sealed and not holds_back(run, day)):
                state = "success"
            elif last in _FAILED:
                state = "failed"
            return DayRun(day=day, state=state, run=run, attempt=attempt)
    return DayRun(day=day, state="waiting")


def to_start(runs: Sequence[DayRun], attempt: int, at_once: int) -> tuple[date, ...]:
    """The days to start now, earliest first: those without a run, and those that failed in an earlier attempt.

    A day that failed in this one stays failed, and holds up no other.
    """
    free = at_once - sum(item.state == "running" for item in runs)
    return tuple(item.day for item in runs if _is_open(item, attempt))[: max(free, 0)]


def all_ended(runs: Sequence[DayRun], attempt: int) -> bool:
    """Whether every day succeeded, or failed in this attempt."""
    return not any(item.state == "running" or _is_open(item, attempt) for item in runs)


def _is_open(run: DayRun, attempt: int) -> bool:
    return run.state == "waiting" or (run.state == "failed" and run.attempt < attempt)


def progress(runs: Sequence[DayRun]) -> str:
    """How the days stand, in words, for logs."""
    parts = []
    for state in ("success", "failed", "running", "waiting"):
        days = [str(item.day) for item in runs if item.state == state]
        # Of those that are well or to come, the number says enough.
        named = f" ({', '.join(days)})" if days and state in {"failed", "running"} else ""
        parts.append(f"{len(days)} {state}{named}")
    return ", ".join(parts)
