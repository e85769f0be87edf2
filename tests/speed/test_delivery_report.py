"""The audit's span, verdict, balance and table, without a server."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from rich.console import Console

from tidemark.cli.delivery import EXAMPLES_MAX, print_audit
from tidemark.core.errors import IncompleteError, RequestError
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.delivery_audit.archived import KnownRange
from tidemark.delivery_audit.report import EXIT_CODES, Example, RecordGroup, Tally, sentences
from tidemark.delivery_audit.span import parse_span

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
