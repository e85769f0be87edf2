"""What the days before a run's days were like: counts, checks and rows per hour. What is read has a bound.

Only versions count that were sealed before the run ended. So a report that is written again says the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TypeVar

from tidemark.core.day_summary import DaySummary, latest_summaries
from tidemark.core.days import micros
from tidemark.core.errors import ConflictError, FormatError
from tidemark.core.outcome import RunStep
from tidemark.reconcile.day_profile import DayProfile
from tidemark.reconcile.earlier_runs import read_results
from tidemark.reconcile.report.values import DayBefore
from tidemark.reconcile.results import AUDIT, REBUILD, AuditResult
from tidemark.run import Run
from tidemark.tables.day_summaries import read_day_summaries

WEEKS = 8
CHECKED_DAYS = 14
DETAILED_DAYS = 3  # the newest days of a run, which are compared by the hour
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DaysBefore:
    """The latest version of each earlier day, the profiles of some, and the audits of the last ones.

    ``unchanged`` are the latest versions of days that the run leaves as they are. ``notes`` say what could not be read.
    """

    days: Mapping[date, DaySummary] = field(default_factory=dict)
    unchanged: Mapping[date, DaySummary] = field(default_factory=dict)
    profiles: Mapping[date, DayProfile] = field(default_factory=dict)
    audits: Mapping[date, AuditResult] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def before(self, day: date) -> DayBefore | None:
        """The day before; None if it is not sealed."""
        return self._counts(day - timedelta(days=1))

    def weekdays(self, day: date) -> tuple[DayBefore, ...]:
        """The same weekdays of the last weeks that are sealed, the newest first."""
        found = (self._counts(item) for item in same_weekdays(day))
        return tuple(item for item in found if item is not None)

    def _counts(self, day: date) -> DayBefore | None:
        found = self.days.get(day)
        if found is None:
            return None
        return DayBefore(
            day=day,
            version=found.version,
            read=found.rows_read,
            published=found.published,
            quarantined=found.quarantined,
        )


def same_weekdays(day: date) -> tuple[date, ...]:
    """The same weekday in each of the last weeks, the newest first."""
    return tuple(day - timedelta(weeks=number) for number in range(1, WEEKS + 1))


def detailed(days: Sequence[date]) -> tuple[date, ...]:
    """The days of a run that are compared by the hour."""
    return tuple(sorted(days)[-DETAILED_DAYS:])


def read_history(
    run: Run, days: Sequence[date], ended_at: datetime | None, unchanged: Sequence[date] = ()
) -> DaysBefore:
    """The history of the days of a run that ended then, and of those that it leaves ``unchanged``."""
    if not (days or unchanged) or ended_at is None:
        return DaysBefore()
    first = min([*(day - timedelta(weeks=WEEKS) for day in days), *unchanged])
    try:
        found = read_day_summaries(run.store, run.layout, first=first, last=max([*days, *unchanged]))
    except (ConflictError, FormatError) as error:
        return DaysBefore(notes=(f"The days before are not compared: {error}",))
    found = tuple(item for item in found if item.sealed_at_us <= micros(ended_at))
    stay = {day: item for day, item in latest_summaries(found).items() if day in unchanged}
    if not days:
        return DaysBefore(unchanged=stay)
    latest = latest_summaries(item for item in found if item.run != run.name)
    hours = {other for day in detailed(days) for other in same_weekdays(day)} & latest.keys()
    newest = max(days)
    checked = [newest - timedelta(days=number) for number in range(1, CHECKED_DAYS)]
    rebuilds, lost = _read(run, REBUILD, {day: latest[day].run for day in hours})
    audits, unread = _read(run, AUDIT, {day: latest[day].run for day in checked if day in latest})
    return DaysBefore(
        days=latest,
        unchanged=stay,
        profiles={day: item for day, result in rebuilds.items() for item in result.profiles if item.day == day},
        audits=audits,
        notes=tuple(sorted(lost | unread)),
    )


def _read(run: Run, step: RunStep[T], wanted: Mapping[date, str]) -> tuple[dict[date, T], set[str]]:
    """The results of a step of earlier runs by day, and a note for each run whose result can't be read."""
    found = read_results(run, step, wanted.values())
    notes = {f"Run {name} is not compared: {item}" for name, item in found.items() if isinstance(item, FormatError)}
    by_day = {day: found[name] for day, name in wanted.items()}
    return {day: item for day, item in by_day.items() if item is not None and not isinstance(item, FormatError)}, notes
