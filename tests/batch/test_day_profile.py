"""Profiles of days against counts in plain Python: hours by the stream's clock, lateness, and reasons of rejections."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.batch.world import World, january, moment, value
from tidemark.core.days import micros
from tidemark.definitions.stream import Stream
from tidemark.reconcile.day_profile import (
    LATE_BOUNDS_S,
    REASONS_MAX,
    HourRows,
    RejectedRecord,
    RejectionReason,
)
from tidemark.reconcile.rebuild.profile import day_profiles
from tidemark.reconcile.results import REBUILD
from tidemark.settings import Settings
from tidemark.tables.columns import QUARANTINE_SCHEMA

# A day of 25 hours in New York, and one with offsets of 45 minutes in Kathmandu.
DAYS = (date(2013, 11, 3), date(2013, 11, 4))


def stream(time_zone: str, event_time: dict[str, str] | None = None) -> Stream:
    return Stream.model_validate(
        {
            "name": "t",
            "topic": "t",
            "time_zone": time_zone,
            "value_schema": "id INT",
            "speed": {"topic": "a", "dead_letter_topic": "b"},
            **({"event_time": event_time} if event_time else {}),
        }
    )


@pytest.fixture
def make_rows(spark: SparkSession, tmp_path: Path) -> Callable[..., DataFrame]:
    """Rows of the quarantine's columns; those of the published table that a profile needs are among them."""

    def make(rows: Iterable[tuple[date, int, datetime, datetime, str | None, bytes | None, int | None]]) -> DataFrame:
        values = [
            (day, "id", 0, at, written, happened, reason, None, body, None, None, kept)
            for day, at, written, happened, reason, body, kept in rows
        ]
        return spark.createDataFrame(values, QUARANTINE_SCHEMA)

    return make


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu", "UTC"])
def test_rows_are_counted_by_the_hours_that_the_streams_clocks_show(
    make_rows: Callable[..., DataFrame], zone: str
) -> None:
    start = datetime(2013, 11, 3, 0, 0, tzinfo=UTC)
    moments = [start + timedelta(minutes=7 * number) for number in range(300)]
    clock = ZoneInfo(zone)
    own = [(item.astimezone(clock).date(), item) for item in moments]
    rows = [(day, at, when, when, None, None, None) for at, (day, when) in enumerate(own) if day in DAYS]
    expected = {day: Counter(item.astimezone(clock).hour for other, item in own if other == day) for day in DAYS}
    found = day_profiles(make_rows(rows), None, DAYS, stream(zone))
    assert {item.day: {hour.hour: hour.published for hour in item.hours} for item in found} == expected
    newest = {day: max(item for other, item in own if other == day) for day in DAYS}
    assert {item.day: item.newest_us for item in found} == {day: micros(newest[day]) for day in DAYS}
    assert [(item.late, item.latest_s, item.reasons) for item in found] == [((), None, ())] * 2


def test_lateness_counts_published_and_quarantined_rows_within_each_bound(make_rows: Callable[..., DataFrame]) -> None:
    happened = datetime(2013, 11, 3, 12, tzinfo=UTC)
    late_s = [-5, 0, 1, 2, 59, 60, 61, 86_400, 86_401, 40 * 86_400]
    rows = [
        (DAYS[0], at, happened + timedelta(seconds=late), happened, "bad" if at % 3 == 0 else None, b"x", None)
        for at, late in enumerate(late_s)
    ]
    published, quarantined = ([row for row in rows if (row[4] is None) is good] for good in (True, False))
    fields = {"extractor": "record_field", "field": "$.at", "format": "iso8601"}
    one, other = day_profiles(make_rows(published), make_rows(quarantined), DAYS, stream("UTC", fields))
    assert [(item.within_s, item.rows) for item in one.late] == [
        (bound, sum(late <= bound for late in late_s)) for bound in LATE_BOUNDS_S
    ]
    assert one.latest_s == 40 * 86_400
    assert one.hours == (HourRows(hour=12, published=6, quarantined=4),)
    assert (other.hours, other.latest_s) == ((), None)


def test_the_most_frequent_reasons_have_their_first_three_records(make_rows: Callable[..., DataFrame]) -> None:
    when = datetime(2013, 11, 3, 12, tzinfo=UTC)
    # Reason number n occurs n + 1 times, and the last one is a duplicate by key, which is no rejection.
    pairs = [(number, copy) for number in range(REASONS_MAX + 2) for copy in range(number + 1)]
    rejected = [
        (DAYS[0], at, when, when, f"reason {number:02}", f"value\n{at}".encode() + b"\xff" * 900, None)
        for at, (number, _) in enumerate(pairs)
    ]
    duplicate = (DAYS[0], 999, when, when, "duplicate by key (id)", b"twice", 1)
    found, _ = day_profiles(make_rows([]), make_rows([*rejected, duplicate]), DAYS, stream("UTC"))
    last = [at for at, (number, _) in enumerate(pairs) if number == REASONS_MAX + 1]
    assert found.reasons_found == REASONS_MAX + 2
    assert [(item.reason, item.rows) for item in found.reasons] == [
        (f"reason {number:02}", number + 1) for number in range(REASONS_MAX + 1, 1, -1)
    ]
    assert [item.offset for item in found.reasons[0].examples] == last[:3]
    shown = found.reasons[0].examples[0].value
    assert shown is not None
    assert shown.startswith(f"value\\n{last[0]}�")
    assert len(shown) == 200


def test_a_rebuild_keeps_the_profile_of_its_days(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    world = World.make(spark, settings, tmp_path)
    world.produce([(moment(14, 9), value(1)), (moment(14, 9), b"{broken"), (moment(14, 10), value(2, "refused"))])
    world.archive(0, 3)
    run = world.plan("first", [january(14)])
    world.rebuild(run)
    (profile,) = run.require(REBUILD).profiles
    assert profile.hours == (
        HourRows(hour=9, published=1, quarantined=1),
        HourRows(hour=10, published=0, quarantined=1),
    )
    assert profile.reasons_found == 2
    assert profile.reasons[0] == RejectionReason(
        reason="refused by the transformation",
        rows=1,
        examples=(
            RejectedRecord(
                topic_id=world.topic_id, partition=0, offset=2, value='{"id": 2, "name": "refused", "delay": 1.5}'
            ),
        ),
    )
