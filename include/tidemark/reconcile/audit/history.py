"""Checks of a day against earlier days of the stream: pure, on figures that the audits have saved.

A value is compared with the median of the same weekdays before it, which one bad day does not move. Fewer than three
such days give no answer: the check is unknown, with the reason, and blocks nothing, or a new stream could seal no day.
"""

from calendar import day_name
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta, tzinfo
from math import ceil, floor, sqrt
from statistics import median
from typing import Any

from tidemark.core.days import day_end, day_spans, micros
from tidemark.definitions.own_checks import (
    DISTINCT_VALUES,
    FRESHNESS,
    HISTORY_CHECKS,
    HOURLY_ROW_COUNTS,
    MEAN,
    NULL_SHARE,
    ROW_COUNT,
    with_defaults,
)
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.audit.figures import HOURS, ColumnFigures, DayFigures

HISTORY_MIN = 3
_CHANCE = 3  # as many standard deviations a count may lie off by chance alone
_HOUR_US = 3_600_000_000
_MINUTE = timedelta(minutes=1)
Past = Mapping[date, DayFigures | str]
Found = Sequence[tuple[DayFigures, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The values that a check allows, and the median that they lie around; None is no bound."""

    median: float
    low: float | None
    high: float | None

    def has(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class HourBand:
    """The fewest and the most rows that a day may have in an hour, and the usual number, by earlier days."""

    hour: int
    usual: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HourOutside(HourBand):
    """An hour with fewer or more rows than that."""

    rows: int


def compared_days(checks: Sequence[Expected], days: Sequence[date]) -> set[date]:
    """The earlier days that the checks of the days compare with."""
    weeks = max((_arguments(item)["weekdays"] for item in checks if item.expectation in HISTORY_CHECKS), default=0)
    return {day - timedelta(weeks=number) for day in days for number in range(1, weeks + 1)}


def judge(expected: Expected, today: DayFigures, past: Past, zone: tzinfo) -> CheckOutcome:
    """A history check's outcome. ``past``: sealed day → its figures, or why they are missing."""
    arguments = _arguments(expected)
    weekdays = [today.day - timedelta(weeks=number) for number in range(1, arguments["weekdays"] + 1)]
    own = _value(expected.expectation, arguments, today, zone)
    found: list[tuple[DayFigures, float]] = []
    missing: list[str] = []
    for day in weekdays:
        figures = past.get(day)
        value = _value(expected.expectation, arguments, figures, zone) if isinstance(figures, DayFigures) else figures
        if isinstance(value, str):
            missing.append(f"{day}: {value}")
        elif value is not None and isinstance(figures, DayFigures):
            found.append((figures, value))
    if len(found) < min(HISTORY_MIN, arguments["weekdays"]):
        return _unknown(expected, today.day, arguments["weekdays"], len(found), missing)
    if isinstance(own, str):
        return CheckOutcome(expected=expected, day=today.day, success=None, observed=own)
    if expected.expectation == HOURLY_ROW_COUNTS:
        return _hours(expected, today, [figures for figures, _ in found], arguments["deviation"], zone)
    band = _BANDS[expected.expectation](arguments, found)
    what, unit = _WORDS[expected.expectation]
    bounds = " and ".join(
        f"{word} {_number(bound, unit)}"
        for word, bound in (("at least", band.low), ("at most", band.high))
        if bound is not None
    )
    of = f"the median of {len(found)} {_weekday(today.day, len(found))} is {_number(band.median, unit)}"
    return CheckOutcome(
        expected=expected,
        day=today.day,
        success=band.has(own),
        observed=f"{what} {_number(own, unit)}, expected {bounds}: {of}",
    )


def _arguments(expected: Expected) -> dict[str, Any]:
    return with_defaults(expected.expectation, expected.kwargs) if expected.expectation in HISTORY_CHECKS else {}


def _unknown(expected: Expected, day: date, weekdays: int, found: int, missing: Sequence[str]) -> CheckOutcome:
    needed = min(HISTORY_MIN, weekdays)
    asked = f"{weekdays} {_weekday(day, weekdays)}"
    text = f"{found} of the last {asked} have figures to compare with; the check needs at least {needed}"
    more = f" ({'; '.join(missing)})" if missing else ""
    return CheckOutcome(expected=expected, day=day, success=None, observed=f"{text}{more}", without_history=True)


def _weekday(day: date, number: int) -> str:
    return day_name[day.weekday()] + ("s" if number != 1 else "")


def _value(name: str, arguments: Mapping[str, Any], of: DayFigures, zone: tzinfo) -> float | str:
    """What a check compares of a day; a text says why there is nothing."""
    if name in {ROW_COUNT, HOURLY_ROW_COUNTS}:
        return of.rows
    if name == FRESHNESS:
        return "no row" if of.newest_us is None else (micros(day_end(of.day, zone)) - of.newest_us) / _HOUR_US
    column = of.column(arguments["column"])
    if column is None:
        return f"no column {arguments['column']}"
    if not of.rows:
        return "no row"
    value = _OF_COLUMN[name](column, of.rows)
    return f"no such figure of column {column.column}" if value is None else value


_OF_COLUMN: Mapping[str, Callable[[ColumnFigures, int], float | None]] = {
    NULL_SHARE: lambda column, rows: None if column.nulls is None else column.nulls / rows,
    DISTINCT_VALUES: lambda column, _: column.distinct,
    MEAN: lambda column, _: column.mean,
}


def _relative(arguments: Mapping[str, Any], found: Found) -> Band:
    middle, deviation = median(value for _, value in found), arguments["deviation"]
    return Band(median=middle, low=max(0.0, middle * (1 - deviation)), high=middle * (1 + deviation))


def _share(arguments: Mapping[str, Any], found: Found) -> Band:
    middle, deviation = median(value for _, value in found), arguments["deviation"]
    return Band(median=middle, low=max(0.0, middle - deviation), high=min(1.0, middle + deviation))


def _drift(arguments: Mapping[str, Any], found: Found) -> Band:
    columns = [figures.column(arguments["column"]) for figures, _ in found]
    spread = median([item.deviation for item in columns if item is not None and item.deviation is not None])
    middle, allowed = median(value for _, value in found), arguments["standard_deviations"] * spread
    return Band(median=middle, low=middle - allowed, high=middle + allowed)


def _age(arguments: Mapping[str, Any], found: Found) -> Band:
    middle = median(value for _, value in found)
    return Band(median=middle, low=None, high=middle + arguments["hours"])


_BANDS: Mapping[str, Callable[[Mapping[str, Any], Found], Band]] = {
    ROW_COUNT: _relative,
    DISTINCT_VALUES: _relative,
    NULL_SHARE: _share,
    MEAN: _drift,
    FRESHNESS: _age,
}
_WORDS = {
    ROW_COUNT: ("rows:", ""),
    DISTINCT_VALUES: ("distinct values: about", ""),
    NULL_SHARE: ("nulls:", "%"),
    MEAN: ("mean", ""),
    FRESHNESS: ("the newest row is from", "h"),
}


def _number(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100 * value:.1f} %"
    if unit == "h":
        return f"{value:.1f} hours before the end of the day"
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _hours(
    expected: Expected, today: DayFigures, found: Sequence[DayFigures], deviation: float, zone: tzinfo
) -> CheckOutcome:
    """Each hour's rows. An hour that a change of clocks leaves out or repeats counts by its length."""
    bands = hour_bands(today.day, {item.day: item.hours for item in found}, deviation, zone)
    outside = [
        HourOutside(hour=band.hour, rows=rows, usual=band.usual, low=band.low, high=band.high)
        for band, rows in zip(bands, today.hours, strict=True)
        if not band.low <= rows <= band.high
    ]
    number = len(outside)
    named = ", ".join(f"{item.hour:02}:00 ({item.rows:,} rows, not {item.low:,} to {item.high:,})" for item in outside)
    of = f"{len(found)} {_weekday(today.day, len(found))}"
    return CheckOutcome(
        expected=expected,
        day=today.day,
        success=not outside,
        observed=f"{number} of {HOURS} hours differ from {of}{f': {named}' if named else ''}",
        examples=tuple(asdict(item) for item in outside),
    )


def hour_bands(
    day: date, earlier: Mapping[date, Sequence[int]], deviation: float, zone: tzinfo
) -> tuple[HourBand, ...]:
    """The rows that a day may have in each hour, by those of earlier days."""
    lengths = {item: hour_lengths(item, zone) for item in (day, *earlier)}
    bands = []
    for hour, length in enumerate(lengths[day]):
        rates = [rows[hour] / lengths[item][hour] for item, rows in earlier.items() if lengths[item][hour]]
        middle = median(rates) * length if rates else 0.0
        allowed = max(deviation * middle, _CHANCE * sqrt(max(middle, 1.0)))
        low, high = max(0, ceil(middle - allowed)), floor(middle + allowed)
        bands.append(HourBand(hour=hour, usual=round(middle), low=low, high=high))
    return tuple(bands)


def hour_lengths(day: date, zone: tzinfo) -> tuple[float, ...]:
    """How many hours each hour of the clock lasts on a day: 1, but for changes of clocks."""
    minutes = [0] * HOURS
    for start, end in day_spans(day, zone):
        for number in range((end - start) // _MINUTE):
            minutes[(start + number * _MINUTE).astimezone(zone).hour] += 1
    return tuple(number / 60 for number in minutes)
