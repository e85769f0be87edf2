"""Days of a time zone as instants."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.core.days import day_end, day_of, day_start, days_between
from tidemark.core.errors import RequestError

NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("zone", "day", "start", "hours"),
    [
        ("America/New_York", date(2013, 1, 14), datetime(2013, 1, 14, 5), 24),
        ("America/New_York", date(2013, 3, 10), datetime(2013, 3, 10, 5), 23),
        ("America/New_York", date(2013, 11, 3), datetime(2013, 11, 3, 4), 25),
        ("Asia/Kolkata", date(2013, 1, 14), datetime(2013, 1, 13, 18, 30), 24),
        ("UTC", date(2016, 12, 31), datetime(2016, 12, 31), 24),
        # Clocks skipped midnight: the day began at 01:00 of the new time.
        ("America/Sao_Paulo", date(2013, 10, 20), datetime(2013, 10, 20, 3), 23),
        # Midnight came twice: the day began with the first.
        ("America/Havana", date(2013, 11, 3), datetime(2013, 11, 3, 4), 25),
        # Samoa left out a whole day when it crossed the date line.
        ("Pacific/Apia", date(2011, 12, 30), datetime(2011, 12, 30, 10), 0),
    ],
)
def test_a_day_starts_and_lasts_as_the_clocks_of_its_zone_do(zone: str, day: date, start: datetime, hours: int) -> None:
    begins, ends = day_start(day, ZoneInfo(zone)), day_end(day, ZoneInfo(zone))
    assert begins == start.replace(tzinfo=UTC)
    assert ends - begins == timedelta(hours=hours)


@settings(max_examples=300)
@given(st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC)))
def test_every_instant_lies_inside_the_day_it_falls_on(moment: datetime) -> None:
    day = day_of(moment, NEW_YORK)
    assert day_start(day, NEW_YORK) <= moment < day_end(day, NEW_YORK)


def test_a_span_of_days_has_both_its_ends() -> None:
    assert days_between(date(2013, 2, 27), date(2013, 3, 1)) == (
        date(2013, 2, 27),
        date(2013, 2, 28),
        date(2013, 3, 1),
    )
    assert days_between(date(2013, 2, 27), date(2013, 2, 27)) == (date(2013, 2, 27),)


def test_a_span_that_ends_before_it_starts_is_refused_by_both_days() -> None:
    with pytest.raises(RequestError, match="a day from 2013-02-27 on, found 2013-02-26"):
        days_between(date(2013, 2, 27), date(2013, 2, 26))
