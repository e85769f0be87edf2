"""What a summary takes from its seal, and how a month's summaries are kept."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.worlds import log, seal_of, sealed_log, span
from tidemark.core.day_summary import DaySummary, latest_summaries, month_json, parse_month, summarise
from tidemark.core.errors import FormatError
from tidemark.core.plan import Evidence, Hole, Neighbours
from tidemark.core.seal import Deduplicated, Difference, Seal

DAY = date(2013, 1, 15)
FINE = seal_of(DAY, [sealed_log(log(), 0, 10)])


def micros(day: int, hour: int) -> int:
    """Microseconds of an hour of January 2013 in New York."""
    return int(datetime(2013, 1, day, hour, tzinfo=timezone(timedelta(hours=-5))).timestamp()) * 1_000_000


def with_loss(neighbours: Neighbours | None) -> Seal:
    own = sealed_log(log(), 0, 10, [span(2, 5)])
    return replace(
        FINE, logs=(replace(own, gaps=(replace(own.gaps[0], neighbours=neighbours),)), sealed_log(log(1), 0, 4))
    )


def test_a_summary_says_what_the_seal_says() -> None:
    evidence = Evidence(transactional=1, compacted=0, unexplained=2, ranges=(span(3, 5),))
    own = replace(
        sealed_log(log(), 0, 10, [span(0, 2)]),
        holes=(Hole(range=span(2, 10), missing=3, cause="unexplained", evidence=evidence),),
    )
    seal = replace(
        FINE,
        version=2,
        previous="0" * 64,
        run="run-7",
        sealed_at_us=1_358_300_000_500_000,
        rows_read=9,
        rows_published=5,
        rows_quarantined=3,
        deduplicated=Deduplicated(key=("id",), keep="last", removed=1),
        difference=Difference(added=1, removed=2, changed=3),
        refilled_offsets=4,
        quality="warnings",
        snapshot_id=11,
        reason="late",
        logs=(own, sealed_log(log(1), 0, 3, [span(1, 2)])),
    )
    found = summarise(seal)
    assert found == DaySummary(
        day=DAY,
        version=2,
        run="run-7",
        sealed_at_us=1_358_300_000_500_000,
        reason="late",
        quality="warnings",
        rows_read=9,
        published=5,
        quarantined=3,
        removed=1,
        lost=3,
        lost_of_day=0,
        unexplained=2,
        refilled=4,
        difference=Difference(added=1, removed=2, changed=3),
        rolled_back_to=None,
        approved_by=None,
        snapshot_id=11,
    )
    assert found.sealed_at == datetime(2013, 1, 16, 1, 33, 20, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("neighbours", "lost_of_day"),
    [
        (Neighbours(before_us=micros(15, 1), after_us=micros(15, 2)), 3),
        (Neighbours(before_us=micros(14, 1), after_us=micros(16, 2)), 3),
        (Neighbours(before_us=micros(16, 2), after_us=micros(14, 1)), 3),
        (Neighbours(before_us=micros(13, 1), after_us=micros(14, 23)), 0),
        (Neighbours(before_us=micros(14, 23)), 0),
        (Neighbours(after_us=micros(15, 0)), 3),
        (Neighbours(after_us=2**62), 0),
        (Neighbours(), 0),
        (None, 0),
    ],
)
def test_a_loss_is_of_the_days_that_its_neighbours_allow(neighbours: Neighbours | None, lost_of_day: int) -> None:
    found = summarise(with_loss(neighbours))
    assert (found.lost, found.lost_of_day) == (3, lost_of_day)


def test_the_highest_version_of_a_day_is_its_latest() -> None:
    first, second = summarise(FINE), replace(summarise(FINE), version=2)
    other = replace(first, day=date(2013, 1, 1))
    assert latest_summaries([second, first, other]) == {other.day: other, DAY: second}
    assert list(latest_summaries([second, first, other])) == [other.day, DAY]


@given(st.integers(1, 9999), st.integers(0, 2**53), st.sampled_from(["late", None]), st.sampled_from([None, 5]))
def test_a_months_summaries_read_back(version: int, time: int, reason: str | None, snapshot: int | None) -> None:
    found = replace(summarise(FINE), version=version, sealed_at_us=time, reason=reason, snapshot_id=snapshot)  # type: ignore[arg-type]
    body = month_json([found, summarise(with_loss(None))])
    assert parse_month(body, where="here") == (found, summarise(with_loss(None)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "do not parse"),
        (b"[]", "do not parse"),
        (b'{"format":1}', r"Delete the object: the next run writes it again"),
        (b'{"format":2,"days":[]}', "unknown format of a month's summaries: expected 1, found 2"),
        (b'{"format":1,"days":[{}]}', r"fields differ.*here\[0\]"),
    ],
)
def test_a_damaged_month_is_refused_with_its_place(body: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        parse_month(body, where="here")
    assert "here" in str(caught.value)
