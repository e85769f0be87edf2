"""The audit's span, verdict, balance and table, without a server."""

import io
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from rich.console import Console

from tidemark.cli.delivery import EXAMPLES_MAX, print_audit
from tidemark.core.errors import IncompleteError, RequestError
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.delivery_audit.archived import KnownRange
from tidemark.delivery_audit.readable import is_deleted
from tidemark.delivery_audit.report import EXIT_CODES, Example, RecordGroup, Tally, by_day, sentences
from tidemark.delivery_audit.span import parse_span
from tidemark.orchestration.compared_days import days_to_compare

NEW_YORK = ZoneInfo("America/New_York")
NOW = datetime(2013, 11, 4, 12, tzinfo=UTC)
HOUR_US = int(datetime(2013, 1, 14, 14, tzinfo=UTC).timestamp()) * 1_000_000
WIDE = {"rows_min": 0, "rows_max": 1000, "records_max": 1000}


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, ("2013-11-03T04:00", "2013-11-04T05:00")),  # yesterday had 25 hours
        ("2013-01-14", None, ("2013-01-14T05:00", "2013-01-15T05:00")),
        ("2013-01-14", "2013-01-15", ("2013-01-14T05:00", "2013-01-16T05:00")),
        ("2013-01-14T09:30", None, ("2013-01-14T14:30", "2013-01-15T05:00")),
        ("2013-01-14T09:30", "2013-01-14T09:31", ("2013-01-14T14:30", "2013-01-14T14:31")),
        ("2013-11-03T01:30", "2013-11-03T01:30-05:00", ("2013-11-03T05:30", "2013-11-03T06:30")),
        ("2013-01-14T00:00Z", "2013-01-14T01:00+01:00:01", None),
    ],
)
def test_a_span_is_days_or_times_in_the_streams_time_zone(
    start: str | None, end: str | None, expected: tuple[str, str] | None
) -> None:
    if expected is None:
        with pytest.raises(RequestError, match="a span ends before it starts"):
            parse_span(start, end, NEW_YORK, NOW)
        return
    span = parse_span(start, end, NEW_YORK, NOW)
    assert (span.start, span.end) == tuple(datetime.fromisoformat(text).replace(tzinfo=UTC) for text in expected)


@pytest.mark.parametrize(("start", "end"), [(None, "2013-01-14"), ("yesterday", None), ("2013-02-30", None)])
def test_an_invalid_span_is_refused(start: str | None, end: str | None) -> None:
    with pytest.raises(RequestError):
        parse_span(start, end, NEW_YORK, NOW)


def test_days_are_those_that_overlap_the_span() -> None:
    span = parse_span("2013-11-02T23:59", "2013-11-04", NEW_YORK, NOW)
    assert [str(day) for day in span.days(NEW_YORK)] == ["2013-11-02", "2013-11-03", "2013-11-04"]
    assert not span.whole_days(NEW_YORK)
    assert parse_span("2013-11-02", "2013-11-03", NEW_YORK, NOW).whole_days(NEW_YORK)


def group(outcome: str, count: int, *, is_row: bool, kind: str | None = None, hour: int = 0) -> RecordGroup:
    place = (None, None, None) if is_row else ("live", 1, 70)
    return RecordGroup(
        is_row=is_row,
        outcome=outcome,
        kind=kind,
        on_live=None if is_row else True,
        hour_us=HOUR_US + hour * 3_600_000_000,
        partition=2,
        count=count,
        examples=(Example(offset=7, topic=place[0], partition=place[1], at=place[2]),),
    )


WHOLE = (group("delivered", 5, is_row=True), group("delivered", 5, is_row=False))
LOG = TopicPartition(topic="flights", topic_id="id", partition=2)
GAP = KnownRange(log=LOG, range=OffsetRange(start=10, end=20), state="unarchived")


@pytest.mark.parametrize(
    ("groups", "unarchived", "verdict"),
    [
        (WHOLE, (), "pass"),
        ((*WHOLE, group("replayed", 1, is_row=False)), (), "pass"),
        ((*WHOLE, group("other_stream", 1, is_row=False)), (), "pass"),
        ((), (), "unknown"),
        (WHOLE, (GAP,), "unknown"),
        ((*WHOLE, group("pending", 1, is_row=True, kind="retention")), (), "unknown"),
        ((*WHOLE, group("not_archived", 1, is_row=False, kind="not_archived")), (), "unknown"),
        ((*WHOLE, group("missing", 1, is_row=True)), (GAP,), "findings"),
        ((*WHOLE, group("duplicated", 1, is_row=False)), (), "findings"),
        ((*WHOLE, group("unexpected", 1, is_row=False, kind="changed")), (), "findings"),
        ((group("unexpected", 1, is_row=False, kind="no_coordinates"),), (), "findings"),
        ((group("missing", 3, is_row=True),), (), "findings"),
    ],
)
def test_only_a_completely_read_span_passes(
    groups: tuple[RecordGroup, ...], unarchived: tuple[KnownRange, ...], verdict: str
) -> None:
    tally = Tally(groups=groups, unarchived=unarchived)
    assert tally.verdict == verdict
    assert (verdict == "pass") == (not sentences(tally) and EXIT_CODES[verdict] == 0)


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ((), "pass"),
        ((group("missing", 1, is_row=True),), "findings"),
        ((group("unexpected", 1, is_row=False, kind="changed"),), "findings"),
        ((group("pending", 1, is_row=True, kind="retention"),), "unknown"),
    ],
)
def test_copies_alone_are_a_note_where_delivery_may_repeat_records(
    others: tuple[RecordGroup, ...], verdict: str
) -> None:
    tally = Tally(groups=(*WHOLE, group("duplicated", 3, is_row=False), *others), unarchived=(), repeats=True)
    note = "3 duplicated: expected after a restart, because delivery is at_least_once"
    assert (tally.verdict, note in sentences(tally)) == (verdict, True)
    (day,) = by_day(tally, [date(2013, 1, 14)], NEW_YORK)
    assert (day.verdict, day.total("duplicated"), note in day.sentences) == (verdict, 3, True)
    if verdict == "pass":
        assert day.text == "every record was delivered, with 3 further copies"


def test_as_many_copies_as_records_are_a_finding_in_any_delivery() -> None:
    records = sum(item.count for item in WHOLE if item.outcome == "delivered" and not item.is_row)
    tally = Tally(groups=(*WHOLE, group("duplicated", records, is_row=False)), unarchived=(), repeats=True)
    assert (records > 1, tally.verdict) == (True, "findings")
    few = (*WHOLE, group("duplicated", 1, is_row=False), group("pending", 1, is_row=True, kind="retention"))
    (day,) = by_day(Tally(groups=few, unarchived=(), repeats=True), [date(2013, 1, 14)], NEW_YORK)
    assert (day.verdict, day.text) == ("unknown", "not certain, 1 duplicated")


@pytest.mark.parametrize(
    ("groups", "bounds", "problem"),
    [
        ((group("delivered", 5, is_row=True),), WIDE, "delivered rows and delivered records differ"),
        (WHOLE, {"rows_min": 6, "rows_max": 9, "records_max": 9}, "contradict the manifests"),
        (WHOLE, {"rows_min": 0, "rows_max": 4, "records_max": 9}, "contradict the manifests"),
        (WHOLE, {"rows_min": 5, "rows_max": 5, "records_max": 4}, "more records than offsets"),
        ((*WHOLE, group("forgotten", 1, is_row=False)), WIDE, "a record has no outcome"),
    ],
)
def test_counts_that_contradict_each_other_are_refused(
    groups: tuple[RecordGroup, ...], bounds: dict[str, int], problem: str
) -> None:
    with pytest.raises(IncompleteError, match=problem):
        Tally(groups=groups, unarchived=()).require_balance(**bounds)


def test_the_table_shows_hours_with_findings_and_some_examples_of_each_kind() -> None:
    wrong = [group("missing", 2, is_row=True, hour=hour) for hour in range(EXAMPLES_MAX + 3)]
    tally = Tally(groups=(*WHOLE, *wrong, group("unexpected", 1, is_row=False, kind="changed")), unarchived=())
    zone = ZoneInfo("America/New_York")
    value: dict[str, Any] = {
        "stream": "flights",
        "verdict": tally.verdict,
        "from": "2013-01-14T09:00:00-05:00",
        "to": "2013-01-15T00:00:00-05:00",
        "time_zone": str(zone),
        "hours": tally.hours(zone),
        "counts": tally.counts(),
        "sentences": sentences(tally),
    }
    text = io.StringIO()
    print_audit(Console(file=text, width=200), value)
    lines = text.getvalue().splitlines()
    assert lines[0] == "flights: findings"
    assert sum(line.startswith("missing: source partition 2 offset 7, ") for line in lines) == EXAMPLES_MAX
    nine = datetime(2013, 1, 14, 9, tzinfo=NEW_YORK).isoformat()
    assert f"unexpected changed: source partition 2 offset 7, {nine}, found as live partition 1 offset 70" in lines
    assert value["counts"]["archived"] == 5 + 2 * (EXAMPLES_MAX + 3)
    assert timedelta(hours=1) == datetime.fromisoformat(value["hours"][1]["hour"]) - datetime.fromisoformat(nine)


def at_hour(outcome: str, moment: str, count: int = 1, *, is_row: bool = False, on_live: bool = True) -> RecordGroup:
    """A group of the hour that begins at the moment."""
    hour_us = int(datetime.fromisoformat(moment).timestamp()) * 1_000_000
    return replace(group(outcome, count, is_row=is_row), hour_us=hour_us, on_live=None if is_row else on_live)


def test_counts_are_of_the_day_and_hour_in_the_streams_zone_and_a_repeated_hour_is_one() -> None:
    groups = (
        *(at_hour("delivered", "2013-11-02T23:00-04:00", 4, is_row=is_row) for is_row in (True, False)),
        *(at_hour("delivered", f"2013-11-03T01:00-0{offset}:00", 3, is_row=True) for offset in (4, 5)),
        at_hour("delivered", "2013-11-03T01:00-04:00", 5),
        at_hour("delivered", "2013-11-03T01:00-05:00", 1, on_live=False),
        at_hour("duplicated", "2013-11-03T01:00-05:00", 2),
        at_hour("missing", "2013-11-03T23:00-05:00", 7, is_row=True),
        at_hour("unexpected", "2013-11-03T23:00-05:00", 1),
        replace(group("outside", 9, is_row=False), hour_us=None, partition=None),
    )
    days = (date(2013, 11, 2), date(2013, 11, 3), date(2013, 11, 4))
    first, second, third = by_day(Tally(groups=groups, unarchived=()), days, NEW_YORK)
    assert (first.day, first.verdict, first.text) == (days[0], "pass", "every record was delivered once")
    assert [(item.hour, item.live, item.missing) for item in first.hours] == [(23, 4, 0)]
    assert (second.verdict, second.archived, second.text) == ("findings", 13, "7 missing, 2 duplicated, 1 unexpected")
    one, last = second.hours
    assert (one.hour, one.live, one.dead_letters, one.duplicated) == (1, 5, 1, 2)
    assert (last.hour, last.live, last.missing, last.unexpected) == (23, 0, 7, 1)
    assert (third.verdict, third.hours, third.sentences) == ("pass", (), ("the day has no record",))


def test_offsets_that_are_not_archived_may_be_of_each_day() -> None:
    (day,) = by_day(Tally(groups=WHOLE, unarchived=(GAP,)), [date(2013, 1, 14)], NEW_YORK)
    assert day.verdict == "unknown"
    assert day.sentences == ("offsets [10, 20) of partition 2 may be in the span and are not archived",)


@pytest.mark.parametrize(
    ("first", "start", "end", "deleted"),
    [
        (3, 0, 9, False),  # nothing was deleted
        (None, 5, 9, False),  # what is left is older
        (7, 5, 9, False),  # some of what is left is older
        (5, 5, 9, True),
        (None, 9, 9, True),  # nothing is left
    ],
)
def test_a_log_has_lost_a_day_if_it_starts_after_it(first: int | None, start: int, end: int, *, deleted: bool) -> None:
    assert is_deleted(first, start=start, end=end) == deleted


@pytest.mark.parametrize(
    ("requested", "sealed", "scheduled", "compared"),
    [
        ("14", "14", True, "14"),
        ("14", "12 14", True, "14"),  # the other day was reopened by late data
        ("12 13 14", "12 14", False, "12 14"),
        ("11 12 13 14", "11 12 13 14", False, ""),  # a chunk of a backfill
        ("11 12 13 14", "11 12 13 14", True, "11 12 13 14"),
        ("14", "", True, ""),
    ],
)
def test_requested_days_that_were_sealed_are_compared(
    requested: str, sealed: str, compared: str, *, scheduled: bool
) -> None:
    def days(text: str) -> tuple[date, ...]:
        return tuple(date(2013, 1, int(item)) for item in text.split())

    assert days_to_compare(days(requested), days(sealed), scheduled=scheduled) == days(compared)
