"""The calendar of a stream's days: twelve months, and the state of each day by a letter as well as a colour."""

from calendar import Calendar, month_name
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from tidemark.core.day_summary import DaySummary, latest_summaries
from tidemark.inspect.last_run import LastRun
from tidemark.inspect.status_rows import DayRow

CellState = Literal[
    "sealed",
    "amended",
    "lost",
    "waiting",
    "held_back",
    "to_approve",
    "failed",
    "missing",
    "unproven",
    "open",
    "quiet",
    "none",
]
# Letter and meaning of each state, in the order of the legend.
LEGEND: Mapping[CellState, tuple[str, str]] = {
    "sealed": ("", "sealed: proven and published"),
    "amended": ("2", "amended: a later version, with its number"),
    "lost": ("L", "sealed, with lost offsets that may belong to the day"),
    "waiting": ("W", "sealed, and late records wait for the next version"),
    "held_back": ("H", "held back: late records did not pass"),
    "to_approve": ("A", "its run waits for a person's approval"),
    "failed": ("F", "not sealed: its last run failed"),
    "missing": ("M", "missing: not sealed, and the deadline has passed"),
    "unproven": ("U", "readers see rows that no seal proves"),
    "open": ("·", "not sealed yet, and not overdue"),
    "quiet": ("–", "no record of this day or a later one"),
}
_MONTHS = 12
_TITLE_NUMBER_MAX = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCell:
    """A day of the calendar. ``mark`` is a letter or number; ``title`` says the same in words."""

    day: date
    state: CellState
    mark: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarMonth:
    """A month with its weeks, Monday first. None stands for a day of another month."""

    name: str
    weeks: tuple[tuple[DayCell | None, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCalendar:
    """Twelve months. ``counts`` are the days by state that occur, and ``earlier`` and ``later`` are the years
    before and after, None if there is nothing of them."""

    title: str
    months: tuple[CalendarMonth, ...]
    counts: tuple[tuple[CellState, int], ...]
    earlier: int | None
    later: int | None


def calendar_span(today: date, year: int | None) -> tuple[date, date]:
    """The first and the last day that a calendar may show: of a year, or of the twelve months up to today's."""
    if year:
        return date(year, 1, 1), date(year, _MONTHS, 31)
    return date(*_up_to(today)[0], 1), today


def make_calendar(
    summaries: Sequence[DaySummary],
    states: Iterable[DayRow],
    last_run: LastRun | None,
    *,
    today: date,
    year: int | None,
    first_sealed: date | None = None,
    failed: Collection[date] = (),
) -> DayCalendar:
    """A whole year, or the twelve months up to today's without those before the first known day.

    ``summaries`` are at least those of ``calendar_span``; ``first_sealed`` may be before it.
    ``failed`` are the days whose newest run failed; that of a day need not be the stream's ``last_run``.
    """
    latest, known = latest_summaries(summaries), {item.day: item for item in states}
    first_day = min((*latest, *known, first_sealed or today))
    recent = [item for item in _up_to(today) if item >= (first_day.year, first_day.month)] or _up_to(today)[-1:]
    months = [(year, month) for month in range(1, _MONTHS + 1)] if year else recent
    cells = {
        day: _cell(day, latest.get(day), known.get(day), last_run, failed=day in failed)
        for number, month in months
        for day in Calendar().itermonthdates(number, month)
    }
    shown = [cell.state for day, cell in cells.items() if (day.year, day.month) in months]
    shown_year = year or today.year
    return DayCalendar(
        title=str(year) if year else _span_text(months[0], months[-1]),
        months=tuple(_month(number, month, cells) for number, month in months),
        counts=tuple((state, shown.count(state)) for state in LEGEND if state in shown),
        earlier=shown_year - 1 if first_day.year < shown_year else None,
        later=shown_year + 1 if shown_year < today.year else None,
    )


def _span_text(first: tuple[int, int], last: tuple[int, int]) -> str:
    texts = [f"{month_name[month]} {year}" for year, month in (first, last)]
    return " to ".join(dict.fromkeys(texts))


def _up_to(today: date) -> list[tuple[int, int]]:
    last = today.year * _MONTHS + today.month - 1
    return [(number // _MONTHS, number % _MONTHS + 1) for number in range(last - _MONTHS + 1, last + 1)]


def _month(year: int, month: int, cells: Mapping[date, DayCell]) -> CalendarMonth:
    weeks = Calendar().monthdatescalendar(year, month)
    return CalendarMonth(
        name=f"{month_name[month]} {year}",
        weeks=tuple(tuple(cells[day] if day.month == month else None for day in week) for week in weeks),
    )


def _cell(
    day: date, summary: DaySummary | None, state: DayRow | None, last_run: LastRun | None, *, failed: bool
) -> DayCell:
    found = _state(day, summary, state, last_run, failed=failed)
    if found == "none" or summary is None:
        text = LEGEND[found][1] if found != "none" else "nothing known"
        return DayCell(day=day, state=found, mark=LEGEND[found][0] if found != "none" else "", title=f"{day}: {text}")
    text = LEGEND[found][1].split(":")[0].split(",")[0]
    more = {
        "lost": f", {summary.lost_of_day:,} offsets lost",
        "waiting": f", at most {state.waiting_max:,} late records wait" if state else "",
        "held_back": ", newer records are held back",
    }.get(found, "")
    mark = str(min(summary.version, _TITLE_NUMBER_MAX)) if found == "amended" else LEGEND[found][0]
    title = f"{day}: {text}{more}, version {summary.version}, {summary.published:,} records"
    return DayCell(day=day, state=found, mark=mark, title=title)


def _state(
    day: date, summary: DaySummary | None, state: DayRow | None, last_run: LastRun | None, *, failed: bool
) -> CellState:
    concerned = last_run is not None and day in last_run.days
    if state is not None and state.state == "unproven":
        return "unproven"
    if concerned and last_run is not None and last_run.verdict == "waiting":
        return "to_approve"
    if summary is None:
        if failed or (concerned and last_run is not None and last_run.failed):
            return "failed"
        by_status: dict[str, CellState] = {
            "overdue": "missing",
            "unsealed": "open",
            "not_over": "open",
            "quiet": "quiet",
        }
        return by_status.get(state.state, "none") if state else "none"
    if concerned and last_run is not None and last_run.verdict == "days held back":
        return "held_back"
    if state is not None and state.waiting_max:
        return "waiting"
    if summary.lost_of_day:
        return "lost"
    return "amended" if summary.version > 1 else "sealed"
