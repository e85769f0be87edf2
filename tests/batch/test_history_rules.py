"""What a check against earlier days says of figures, without Spark and without a run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tidemark.definitions.own_checks import (
    DISTINCT_VALUES,
    FRESHNESS,
    HISTORY_CHECKS,
    HOURLY_ROW_COUNTS,
    MEAN,
    NULL_SHARE,
    ROW_COUNT,
)
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.audit.figures import ColumnFigures, DayFigures
from tidemark.reconcile.audit.history import compared_days, hour_lengths, judge

NEW_YORK = ZoneInfo("America/New_York")
TODAY = date(2013, 3, 11)  # a Monday, the day after the clocks went forward
HOUR_US = 3_600_000_000


def expected(name: str, **kwargs: Any) -> Expected:
    return Expected(expectation=name, kwargs=kwargs, severity="critical", built_in=False)


def figures(day: date, rows: int = 240, **column: Any) -> DayFigures:
    """A day of as many rows in each hour, the newest one an hour before its end."""
    values = {"nulls": 0, "distinct": 100, "mean": 50.0, "deviation": 10.0, **column}
    return DayFigures(
        day=day,
        rows=rows,
        hours=(rows // 24,) * 24,
        newest_us=int(datetime.combine(day, time(23), tzinfo=NEW_YORK).timestamp()) * 1_000_000,
        columns=(ColumnFigures(column="delay", **values),),
    )


def history(*days: DayFigures | str) -> Mapping[date, DayFigures | str]:
    """The Mondays before today, the latest first."""
    weeks = [TODAY - timedelta(weeks=number) for number in range(1, len(days) + 1)]
    return {
        day: replace(item, day=day) if isinstance(item, DayFigures) else item
        for day, item in zip(weeks, days, strict=True)
    }


PAST = history(*(figures(TODAY - timedelta(weeks=week), 240 + week) for week in range(1, 9)))


def said(name: str, today: DayFigures, past: Mapping[date, DayFigures | str] = PAST, **kwargs: Any) -> CheckOutcome:
    return judge(expected(name, **kwargs), today, past, NEW_YORK)


@pytest.mark.parametrize(("rows", "success"), [(123, True), (122, False), (366, True), (367, False), (0, False)])
def test_a_row_count_lies_within_the_band_around_the_median(rows: int, success: bool) -> None:
    # The counts are 241 to 248, so the median is 244.5, half of it 122.25 and half as much again 366.75.
    assert said(ROW_COUNT, figures(TODAY, rows)).success is success


def test_one_bad_day_among_the_earlier_ones_moves_no_band() -> None:
    past = {**PAST, TODAY - timedelta(weeks=3): figures(TODAY - timedelta(weeks=3), 0)}
    assert said(ROW_COUNT, figures(TODAY), past).success is True
    assert said(ROW_COUNT, figures(TODAY, 0), past).success is False


@pytest.mark.parametrize(
    ("name", "column", "success"),
    [
        (NULL_SHARE, {"nulls": 24}, True),
        (NULL_SHARE, {"nulls": 25}, False),
        (DISTINCT_VALUES, {"distinct": 50}, True),
        (DISTINCT_VALUES, {"distinct": 49}, False),
        (DISTINCT_VALUES, {"distinct": 151}, False),
        (MEAN, {"mean": 45.0}, True),
        (MEAN, {"mean": 44.9}, False),
        (MEAN, {"mean": 55.1}, False),
        (MEAN, {"mean": None}, None),
    ],
)
def test_a_columns_figures_lie_within_the_bands(name: str, column: dict[str, Any], success: bool | None) -> None:
    found = said(name, figures(TODAY, **column), column="delay")
    assert (found.success, found.without_history) == (success, False)


def test_the_newest_row_may_be_older_by_the_given_hours() -> None:
    end = 1_363_060_800_000_000  # 2013-03-12 00:00 in New York
    today = replace(figures(TODAY), newest_us=end - 2 * HOUR_US)
    past = history(*(replace(figures(TODAY), newest_us=_end(week) - HOUR_US) for week in range(1, 4)))
    assert said(FRESHNESS, today, past).success is True
    late = replace(today, newest_us=end - 2 * HOUR_US - 1)
    assert said(FRESHNESS, late, past).success is False
    assert said(FRESHNESS, late, past, hours=1.5).success is True
    fresh = replace(today, newest_us=end - 1)
    assert said(FRESHNESS, fresh, past).success is True
    assert said(FRESHNESS, replace(today, newest_us=None), past).success is None


def _end(week: int) -> int:
    """The end of the Monday so many weeks before today: before the change of clocks it is an hour later in UTC."""
    return 1_363_060_800_000_000 - week * 7 * 24 * HOUR_US + HOUR_US


def test_a_dropped_and_a_doubled_hour_are_named() -> None:
    today = figures(TODAY, 2400)
    past = history(*[figures(TODAY, 2400)] * 8)
    assert said(HOURLY_ROW_COUNTS, today, past).success is True
    hours = list(today.hours)
    hours[7], hours[15] = 0, 200
    found = said(HOURLY_ROW_COUNTS, replace(today, hours=tuple(hours)), past)
    assert found.success is False
    assert (
        found.observed
        == "2 of 24 hours differ from 8 Mondays: 07:00 (0 rows, not 50 to 150), 15:00 (200 rows, not 50 to 150)"
    )
    assert found.examples == (
        {"hour": 7, "rows": 0, "usual": 100, "low": 50, "high": 150},
        {"hour": 15, "rows": 200, "usual": 100, "low": 50, "high": 150},
    )


def test_few_rows_of_an_hour_may_differ_by_chance() -> None:
    past = history(*[figures(TODAY, 4 * 24)] * 8)
    for rows, success in ((0, True), (10, True), (11, False)):  # 4 and three times its root, which is 6
        hours = (4,) * 23 + (rows,)
        assert said(HOURLY_ROW_COUNTS, replace(figures(TODAY, 96), hours=hours), past).success is success


@pytest.mark.parametrize(("rows", "success"), [(3, True), (4, False)])
def test_three_rows_in_an_hour_that_usually_has_none_are_chance(rows: int, success: bool) -> None:
    past = history(*[replace(figures(TODAY, 2300), hours=(0, *(100,) * 23))] * 8)
    today = replace(figures(TODAY, 2300), hours=(rows, *(100,) * 23))
    assert said(HOURLY_ROW_COUNTS, today, past).success is success


def test_an_hour_that_the_clocks_skip_or_repeat_counts_by_its_length() -> None:
    spring, autumn = date(2013, 3, 10), date(2013, 11, 3)
    assert hour_lengths(spring, NEW_YORK) == (1, 1, 0, *(1,) * 21)
    assert hour_lengths(autumn, NEW_YORK) == (1, 2, *(1,) * 22)
    assert hour_lengths(date(2013, 4, 7), ZoneInfo("Australia/Lord_Howe")) == (1, 1.5, *(1,) * 22)
    for day, hours in ((spring, (100, 100, 0, *(100,) * 21)), (autumn, (100, 200, *(100,) * 22))):
        past = {day - timedelta(weeks=week): figures(day - timedelta(weeks=week), 2400) for week in range(1, 4)}
        today = replace(figures(day, 2400), hours=hours)
        assert judge(expected(HOURLY_ROW_COUNTS), today, past, NEW_YORK).success is True


@pytest.mark.parametrize(
    ("days", "text"),
    [
        ([], "0 of the last 8 Mondays have figures to compare with; the check needs at least 3"),
        ([figures(TODAY)] * 2, "2 of the last 8 Mondays have figures to compare with; the check needs at least 3"),
        (
            [figures(TODAY), figures(TODAY), "the audit of run a has no figures"],
            (
                "2 of the last 8 Mondays have figures to compare with; the check needs at least 3"
                " (2013-02-18: the audit of run a has no figures)"
            ),
        ),
    ],
)
def test_too_few_earlier_days_are_unknown_and_block_nothing(days: Sequence[DayFigures | str], text: str) -> None:
    found = said(ROW_COUNT, figures(TODAY, 0), history(*days))
    assert (found.success, found.without_history, found.blocks, found.observed) == (None, True, False, text)


def test_a_column_that_earlier_days_lack_is_unknown_with_the_reason() -> None:
    past = history(*(replace(figures(TODAY), columns=()) for _ in range(3)))
    found = said(NULL_SHARE, figures(TODAY), past, column="delay")
    assert (found.success, found.without_history) == (None, True)
    assert "(2013-03-04: no column delay; 2013-02-25: no column delay; 2013-02-18: no column delay)" in found.observed
    missing = said(NULL_SHARE, figures(TODAY), PAST, column="missing")
    assert (missing.success, missing.blocks) == (None, False)


def test_the_days_to_compare_with_are_the_same_weekdays_before() -> None:
    checks = [expected(ROW_COUNT, weekdays=2), expected(FRESHNESS, weekdays=1), expected("expect_column_to_exist")]
    assert compared_days(checks, [TODAY]) == {date(2013, 3, 4), date(2013, 2, 25)}
    assert compared_days([expected("expect_column_to_exist")], [TODAY]) == set()


def test_every_check_against_history_is_judged() -> None:
    for name, arguments in HISTORY_CHECKS.items():
        column: dict[str, Any] = {"column": "delay"} if "column" in arguments else {}
        assert said(name, figures(TODAY), **column).success is True, name
