"""Days that are no single span of time, wherever times are compared with them. In St. John's, until 2011, the clocks
went back from 00:01 to 23:01: for a minute it was Sunday, then Saturday for 59 more, then Sunday again."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from tidemark.core.days import day_spans, micros
from tidemark.delivery_audit.span import parse_span
from tidemark.objects.days import day_numbers
from tidemark.orchestration.run_days import interval_days
from tidemark.verify.archive import within

ST_JOHNS = ZoneInfo("America/St_Johns")
SATURDAY, SUNDAY = date(2010, 11, 6), date(2010, 11, 7)
MINUTES = [datetime(2010, 11, 6, 12, tzinfo=UTC) + timedelta(minutes=n) for n in range(24 * 60)]
TIMES = np.array([micros(moment) for moment in MINUTES])


@pytest.mark.conformance(60)
def test_compaction_gives_each_row_the_day_that_its_manifest_counted() -> None:
    expected = [(moment.astimezone(ST_JOHNS).date() - date(1970, 1, 1)).days for moment in MINUTES]
    assert day_numbers(TIMES, [SUNDAY, SATURDAY], ST_JOHNS).tolist() == expected


@pytest.mark.parametrize("day", [SATURDAY, SUNDAY])
def test_verify_counts_the_rows_of_the_day_and_no_others(day: date) -> None:
    expected = [moment.astimezone(ST_JOHNS).date() == day for moment in MINUTES]
    assert within(TIMES, day_spans(day, ST_JOHNS)).tolist() == expected
    assert within(TIMES // 1000, day_spans(day, ST_JOHNS), unit_us=1000).tolist() == expected


@pytest.mark.conformance(60)
def test_verify_counts_no_row_of_a_day_that_the_calendar_skipped() -> None:
    assert not within(TIMES, day_spans(date(2011, 12, 30), ZoneInfo("Pacific/Apia"))).any()


def test_an_audits_span_reads_every_day_that_it_touches() -> None:
    now = datetime(2010, 11, 9, tzinfo=UTC)
    for text in ("2010-11-06", "2010-11-07"):
        span = parse_span(text, None, ST_JOHNS, now)
        assert span.days(ST_JOHNS) == (SATURDAY, SUNDAY)
        assert not span.whole_days(ST_JOHNS)
    assert parse_span("2010-11-05", None, ST_JOHNS, now).whole_days(ST_JOHNS)


@pytest.mark.conformance(60)
def test_a_scheduled_run_takes_a_day_when_its_last_instant_has_passed() -> None:
    at_0015, at_0115 = (datetime(2010, 11, 7, 2, 45, tzinfo=UTC) + timedelta(hours=n) for n in (0, 1))
    day_before = at_0015 - timedelta(days=1)
    assert interval_days(day_before, at_0015, ST_JOHNS) == (date(2010, 11, 5),)
    assert interval_days(day_before, at_0115, ST_JOHNS) == (SATURDAY,)
