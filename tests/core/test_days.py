"""Days of a time zone as instants."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.core.days import day_end, day_of, day_spans, day_start, days_between, last_ended, seal_deadline
from tidemark.core.errors import RequestError

MINUTE = timedelta(minutes=1)
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


@pytest.mark.conformance(60)
@pytest.mark.parametrize(
    ("zone", "around"),
    [
        ("America/St_Johns", date(2010, 11, 7)),
        ("America/Goose_Bay", date(1988, 10, 30)),
        ("Antarctica/Casey", date(2010, 3, 5)),
        ("America/Sao_Paulo", date(2013, 10, 20)),
        ("Pacific/Apia", date(2011, 12, 30)),
        ("Pacific/Kwajalein", date(1993, 8, 21)),
        ("UTC", date(2024, 2, 29)),
    ],
)
def test_the_calendar_decides_which_instants_are_of_a_day(zone: str, around: date) -> None:
    """By every minute of five days, asked one by one."""
    own: dict[date, list[datetime]] = {}
    at = datetime(around.year, around.month, around.day, tzinfo=UTC) - timedelta(days=3)
    for minute in range(6 * 24 * 60):
        moment = at + timedelta(minutes=minute)
        own.setdefault(moment.astimezone(ZoneInfo(zone)).date(), []).append(moment)
    for distance in (-1, 0, 1):
        day = around + timedelta(days=distance)
        minutes = own.get(day, [])
        spans = day_spans(day, ZoneInfo(zone))
        inside = [start + timedelta(minutes=n) for start, end in spans for n in range((end - start) // MINUTE)]
        assert inside == minutes
        if minutes:
            assert (day_start(day, ZoneInfo(zone)), day_end(day, ZoneInfo(zone))) == (minutes[0], minutes[-1] + MINUTE)


def test_the_days_that_the_clocks_visited_twice_are_known_to_the_minute() -> None:
    zone = ZoneInfo("America/St_Johns")
    first, back, last = (datetime(2010, 11, 7, 2, 30, tzinfo=UTC) + timedelta(minutes=n) for n in (0, 1, 60))
    assert day_spans(date(2010, 11, 6), zone)[-1] == (back, last)
    assert day_spans(date(2010, 11, 7), zone) == ((first, back), (last, last + timedelta(days=1)))
    assert day_end(date(2010, 11, 6), zone) == last
    assert day_spans(date(2011, 12, 30), ZoneInfo("Pacific/Apia")) == ()


@pytest.mark.parametrize(
    ("moment", "day"),
    [
        (datetime(2010, 11, 7, 2, 29, 59), date(2010, 11, 5)),
        (datetime(2010, 11, 7, 2, 30, 30), date(2010, 11, 5)),  # the 7th for a minute; the 6th has 59 minutes to come
        (datetime(2010, 11, 7, 3, 29, 59), date(2010, 11, 5)),
        (datetime(2010, 11, 7, 3, 30), date(2010, 11, 6)),
        (datetime(2010, 11, 8, 3, 29, 59), date(2010, 11, 6)),
        (datetime(2010, 11, 8, 3, 30), date(2010, 11, 7)),
    ],
)
def test_a_day_is_over_when_its_last_instant_is(moment: datetime, day: date) -> None:
    assert last_ended(moment.replace(tzinfo=UTC), ZoneInfo("America/St_Johns")) == day


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Auckland"])
@pytest.mark.parametrize("day", [date.min, date.min + timedelta(days=1), date.max - timedelta(days=1), date.max])
def test_the_first_and_last_days_of_the_calendar_have_a_start(zone: str, day: date) -> None:
    ((start, end),) = day_spans(day, ZoneInfo(zone))
    assert timedelta() < end - start <= timedelta(days=1)


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


@pytest.mark.parametrize(
    ("zone", "day", "sealed_by", "utc"),
    [
        ("Europe/Berlin", date(2026, 1, 14), "06:00", datetime(2026, 1, 15, 5)),
        ("Europe/Berlin", date(2026, 7, 14), "06:00", datetime(2026, 7, 15, 4)),
        # Clocks went forward in the night before the deadline, and back in the other one.
        ("Europe/Berlin", date(2026, 3, 28), "06:00", datetime(2026, 3, 29, 4)),
        ("Europe/Berlin", date(2026, 10, 24), "06:00", datetime(2026, 10, 25, 5)),
        # 02:30 was skipped: it counts as 03:30. 02:30 came twice: the first counts.
        ("Europe/Berlin", date(2026, 3, 28), "02:30", datetime(2026, 3, 29, 1, 30)),
        ("Europe/Berlin", date(2026, 10, 24), "02:30", datetime(2026, 10, 25, 0, 30)),
        # Clocks changed during the day itself.
        ("America/New_York", date(2013, 3, 10), "23:59", datetime(2013, 3, 12, 3, 59)),
        ("Asia/Kolkata", date(2026, 12, 31), "06:15", datetime(2027, 1, 1, 0, 45)),
        # Samoa left out the next day: the deadline is on the one after it.
        ("Pacific/Apia", date(2011, 12, 29), "06:00", datetime(2011, 12, 30, 16)),
    ],
)
def test_a_deadline_is_the_time_that_clocks_show_on_the_next_day(
    zone: str, day: date, sealed_by: str, utc: datetime
) -> None:
    found = seal_deadline(day, ZoneInfo(zone), sealed_by, timedelta(hours=6))
    assert found == utc.replace(tzinfo=UTC)


@pytest.mark.parametrize(("day", "hours"), [(date(2026, 10, 24), 24), (date(2026, 10, 25), 25)])
def test_without_a_time_the_deadline_is_the_grace_period_after_the_days_end(day: date, hours: int) -> None:
    zone = ZoneInfo("Europe/Berlin")
    found = seal_deadline(day, zone, None, timedelta(hours=6))
    assert found - datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC) == timedelta(hours=hours + 6)


@pytest.mark.parametrize("sealed_by", [None, "23:59"])
def test_the_last_day_that_python_knows_has_a_deadline(sealed_by: str | None) -> None:
    found = seal_deadline(date.max, NEW_YORK, sealed_by, timedelta(hours=6))
    assert found == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
