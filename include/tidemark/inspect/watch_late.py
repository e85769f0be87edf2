"""Which sealed days a watch reopens for late records, for streams with ``batch.late_data: as_archived``.

Pure decisions. A run takes every late day within the stream's bound, so one run serves all of them. If checks
of a day fail, it stays as it is, and waits for more late records or for a person.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from tidemark.current_view.day_states import DayState
from tidemark.inspect.problems import Problem
from tidemark.inspect.watch import FoundProblem, Reopening


@dataclass(frozen=True, slots=True, kw_only=True)
class LateDays:
    """A stream's sealed days with late records, and the upper bound of these. ``requested`` is the day to start a run
    for: one without late records if possible, because a run fails with a requested day, and holds a late one back."""

    stream: str
    records: Mapping[date, int]
    requested: date


def find_late_days(stream: str, days: Sequence[DayState], reopen_days: int | None) -> LateDays | None:
    """The late days that a run may reopen; None if there are none."""
    sealed = [item for item in days if item.status == "sealed"]
    if not sealed:
        return None
    last = max(item.day for item in sealed)
    first = date.min if reopen_days is None else last - timedelta(days=reopen_days)
    late = {item.day: item.waiting_max for item in sealed if item.waiting_max and item.day >= first}
    if not late:
        return None
    quiet = [item.day for item in sealed if item.day not in late]
    requested = max(quiet, default=last) if reopen_days is None else last  # a bound counts from the requested day
    return LateDays(stream=stream, records=late, requested=requested)


def to_start(late: LateDays, started: Sequence[Reopening]) -> bool:
    """Whether a run is to be started: a day has other records than when one was started for it."""
    known = {item.day: item.records for item in started if item.stream == late.stream}
    return any(known.get(str(day)) != records for day, records in late.records.items())


def reopenings(late: LateDays, run: str) -> tuple[Reopening, ...]:
    """What to save when a run is started."""
    days = sorted(late.records.items())
    return tuple(Reopening(stream=late.stream, day=str(day), records=count, run=run) for day, count in days)


def still_late(
    started: Sequence[Reopening], late: Sequence[LateDays], unchecked: Collection[str]
) -> tuple[Reopening, ...]:
    """What to keep of what was saved: a day without late records is forgotten, if its stream was checked."""
    days = {(item.stream, str(day)) for item in late for day in item.records}
    kept = (item for item in started if item.stream in unchecked or (item.stream, item.day) in days)
    return tuple(kept)


def paused_problem(late: LateDays, dag: str) -> FoundProblem:
    """Late records wait, and no run can start."""
    count = sum(late.records.values())
    problem = Problem(
        kind="late_data_waits",
        text=f"{late.stream}: up to {count:,} late records wait, and {dag} is paused or unknown to Airflow",
        hint=f"Unpause {dag}, or see Airflow's import errors if it is not there: the next check starts a run",
    )
    return FoundProblem(stream=late.stream, problem=problem, marks=tuple(map(str, late.records)))
