"""Which days a run is for. Expected days are written out by hand."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from tidemark.core.days import days_between
from tidemark.core.errors import RequestError
from tidemark.orchestration.run_days import backfill_days, day_chunks, interval_days, require_possible, run_days

pytestmark = pytest.mark.conformance(51)

NEW_YORK = ZoneInfo("America/New_York")
BERLIN = ZoneInfo("Europe/Berlin")
# Santiago put its clocks forward at midnight: 2019-09-08 began at 01:00.
SANTIAGO = ZoneInfo("America/Santiago")


def at(zone: ZoneInfo, text: str) -> datetime:
    """An instant in UTC, as Airflow gives it, from local text."""
    return datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)


def days(*texts: str) -> tuple[date, ...]:
    return tuple(date.fromisoformat(text) for text in texts)


@pytest.mark.parametrize(
    ("zone", "start", "end", "expected"),
    [
        pytest.param(NEW_YORK, "2013-01-14T00:30", "2013-01-15T00:30", days("2013-01-14"), id="half past midnight"),
        pytest.param(NEW_YORK, "2013-01-14T00:00", "2013-01-15T00:00", days("2013-01-14"), id="at midnight"),
        pytest.param(NEW_YORK, "2013-01-14T23:30", "2013-01-15T23:30", days("2013-01-14"), id="late in the evening"),
        pytest.param(BERLIN, "2024-03-31T00:30", "2024-04-01T00:30", days("2024-03-31"), id="a day of 23 hours"),
        pytest.param(BERLIN, "2024-10-27T00:30", "2024-10-28T00:30", days("2024-10-27"), id="a day of 25 hours"),
        pytest.param(SANTIAGO, "2019-09-07T00:30", "2019-09-08T01:00", days("2019-09-07"), id="midnight is skipped"),
        pytest.param(
            NEW_YORK,
            "2013-01-07T03:00",
            "2013-01-14T03:00",
            days("2013-01-07", "2013-01-08", "2013-01-09", "2013-01-10", "2013-01-11", "2013-01-12", "2013-01-13"),
            id="weekly",
        ),
        pytest.param(NEW_YORK, "2013-01-15T00:00", "2013-01-15T01:00", days("2013-01-14"), id="hourly, nothing new"),
        pytest.param(NEW_YORK, "2013-01-14T23:00", "2013-01-15T00:00", days("2013-01-14"), id="hourly, the day ends"),
        pytest.param(NEW_YORK, "2013-01-14T22:00", "2013-01-14T23:00", days("2013-01-13"), id="hourly, still open"),
    ],
)
def test_an_interval_stands_for_the_days_that_end_in_it(
    zone: ZoneInfo, start: str, end: str, expected: tuple[date, ...]
) -> None:
    assert interval_days(at(zone, start), at(zone, end), zone) == expected


def test_a_form_counts_before_the_interval() -> None:
    found = run_days(
        from_day="2013-01-30",
        to_day="2013-02-02",
        interval=(at(NEW_YORK, "2020-01-01T00:30"), at(NEW_YORK, "2020-01-02T00:30")),
        zone=NEW_YORK,
    )
    assert found == days("2013-01-30", "2013-01-31", "2013-02-01", "2013-02-02")


def test_an_empty_form_leaves_it_to_the_interval() -> None:
    interval = (at(NEW_YORK, "2013-01-14T00:30"), at(NEW_YORK, "2013-01-15T00:30"))
    assert run_days(from_day=None, to_day=None, interval=interval, zone=NEW_YORK) == days("2013-01-14")


def test_a_span_of_ninety_two_days_is_the_widest() -> None:
    found = run_days(from_day="2013-01-01", to_day="2013-04-02", interval=None, zone=NEW_YORK)
    assert (len(found), found[0], found[-1]) == (92, date(2013, 1, 1), date(2013, 4, 2))


@pytest.mark.parametrize(
    ("from_day", "to_day", "message"),
    [
        pytest.param("2013-01-14", None, "a day in to_day, found nothing", id="no last day"),
        pytest.param(None, "2013-01-14", "a day in from_day, found nothing", id="no first day"),
        pytest.param("", "2013-01-14", "a day in from_day, found nothing", id="an empty first day"),
        pytest.param("2013-01-15", "2013-01-14", "a day from 2013-01-15 on, found 2013-01-14", id="backwards"),
        pytest.param(
            "14.01.2013", "2013-01-15", "from_day is not a day: expected YYYY-MM-DD, found 14.01.2013", id="no"
        ),
        pytest.param("2013-01-01", "2013-04-03", "at most 92 days, found 93 days, 2013-01-01 to 2013-04-03", id="wide"),
        pytest.param(
            None, None, "Trigger the DAG again and fill in from_day and to_day", id="neither form nor interval"
        ),
    ],
)
def test_the_error_of_a_wrong_form_says_what_to_fill_in(from_day: str | None, to_day: str | None, message: str) -> None:
    with pytest.raises(RequestError) as raised:
        run_days(from_day=from_day, to_day=to_day, interval=None, zone=NEW_YORK)
    assert message in str(raised.value)


def test_a_backfill_takes_days_that_are_over_in_the_streams_zone() -> None:
    over = datetime(2013, 1, 17, 5, tzinfo=UTC)  # midnight in New York
    asked = days("2013-01-14", "2013-01-15", "2013-01-16")
    assert backfill_days("2013-01-14", "2013-01-16", now=over, zone=NEW_YORK) == asked
    before = datetime(2013, 1, 17, 4, 59, tzinfo=UTC)
    with pytest.raises(RequestError, match=r"is not over: expected days up to 2013-01-15, found 2013-01-16"):
        backfill_days("2013-01-14", "2013-01-16", now=before, zone=NEW_YORK)


def test_days_are_split_at_gaps_and_into_runs_of_the_size() -> None:
    asked = [date(2025, 6, number) for number in (1, 2, 3, 4, 5, 8, 9)]
    assert [[day.day for day in chunk] for chunk in day_chunks(asked, 3)] == [[1, 2, 3], [4, 5], [8, 9]]
    assert day_chunks([], 3) == []


def test_a_backfill_takes_a_thousand_runs() -> None:
    asked = days_between(date(2013, 1, 1), date(2015, 9, 28))
    assert len(asked) == 1001
    require_possible(day_chunks(asked[:1000], 1))
    require_possible(day_chunks(asked, 2))
    with pytest.raises(RequestError, match="at most 1000 runs, found 1001 runs for 1001 days"):
        require_possible(day_chunks(asked, 1))


def test_a_backfill_without_a_last_day_is_refused() -> None:
    with pytest.raises(RequestError, match="a day in to_day, found nothing"):
        backfill_days("2013-01-14", None, now=datetime(2020, 1, 1, tzinfo=UTC), zone=UTC)
