"""When unreadable times are an alarm, against counts by hand."""

from datetime import UTC, datetime, timedelta

import pytest

from tidemark.core.unreadable_times import LastHour

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
pytestmark = pytest.mark.conformance(76)


def after(*batches: tuple[float, int, int]) -> LastHour:
    """What is known after batches of (minute, records, unreadable)."""
    found = LastHour()
    for minute, records, unreadable in batches:
        found.add(NOON + timedelta(minutes=minute), records, unreadable)
    return found


@pytest.mark.parametrize(
    ("share", "records", "unreadable", "alarm"),
    [
        (0.01, 1_000, 10, False),
        (0.01, 1_000, 11, True),
        (0.01, 3, 1, False),  # a share of few records says little
        (0.01, 3, 2, True),
        (0.1, 50, 10, False),
        (0.1, 50, 11, True),
        (0.0, 1_000_000, 1, True),
        (0.0, 1_000_000, 0, False),
        (1.0, 500, 500, False),
        (0.29, 100, 29, False),  # as doubles, 0.29 × 100 is less than 29
        (0.57, 10_000, 5_700, False),
    ],
)
def test_an_alarm_needs_more_than_the_share_of_the_records_and_of_a_hundred(
    share: float, records: int, unreadable: int, alarm: bool
) -> None:
    assert after((0, records, unreadable)).exceeds(share) is alarm


def test_batches_of_an_hour_count_together_and_older_ones_no_more() -> None:
    found = after((0, 600, 6), (0.5, 400, 4), (59, 1_000, 0))
    assert (found.records, found.unreadable, found.share(NOON + timedelta(minutes=59))) == (2_000, 10, 0.005)
    found.add(NOON + timedelta(minutes=60), 0, 0)
    assert (found.records, found.unreadable, found.share(NOON + timedelta(minutes=60))) == (1_000, 0, 0.0)
    # Without a further batch, too.
    assert (found.share(NOON + timedelta(minutes=118)), found.share(NOON + timedelta(minutes=119))) == (0.0, None)
    assert (found.records, found.unreadable) == (0, 0)
    found.add(NOON + timedelta(minutes=300), 0, 0)
    assert len(found.minutes) == 1


def test_what_a_fast_clock_counted_in_the_future_raises_no_alarm_once_the_clock_is_right() -> None:
    found = after((24 * 60, 1_000, 1_000), (0, 10_000, 0))
    assert (found.records, found.unreadable, found.exceeds(0.01)) == (10_000, 0, False)
