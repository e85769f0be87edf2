"""The planner where copies of one log differ: a compacted topic read twice, an archive with damage refilled."""

from dataclasses import dataclass, replace
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.worlds import DAYS, Truth, World, log, manifest_of, offsets, plan_of, ranges, seal_of, span
from tidemark.core.manifest import Manifest
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import Hole, LogPlan, Plan, Target, Used
from tidemark.core.seal import Seal, SealedLog

pytestmark = pytest.mark.conformance(14)

FIRST, SECOND, _ = DAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A manifest and the offsets it has rows of."""

    manifest: Manifest
    rows: frozenset[int]
    truth: Truth


@st.composite
def archives(draw: st.DrawFn) -> tuple[Truth, list[Written]]:
    """A log whose every offset is a record, and copies that lack some of them."""
    size = draw(st.integers(1, 16))
    truth: Truth = tuple(draw(st.lists(st.sampled_from(DAYS), min_size=size, max_size=size)))
    found = []
    for batch in range(draw(st.integers(1, 7))):
        kept = (
            set(range(size))
            if draw(st.booleans())
            else {offset for offset in range(size) if draw(st.integers(0, 3)) != 0}
        )
        found.append(written(batch, draw(ranges(size)), kept, truth, draw(st.sampled_from(("whole", "days", "rows")))))
    return truth, found


def written(number: int, committed: OffsetRange, kept: set[int], truth: Truth, cut: str = "whole") -> Written:
    own: Truth = tuple(day if offset in kept else None for offset, day in enumerate(truth))
    manifest = manifest_of("a", number, {log(): committed}, {log(): own}, cut)
    inside = offsets([manifest.ranges[0].range])
    return Written(manifest=manifest, rows=frozenset(kept & inside), truth=own)


def plan(copies: list[Written], seals: tuple[Seal, ...], requested: tuple[date, ...] = DAYS) -> Plan:
    end = max(copy.manifest.ranges[0].range.end for copy in copies)
    start = min(copy.manifest.ranges[0].range.start for copy in copies)
    target = Target(log=log(), start=start, end=end, log_start=start, high_watermark=end)
    return plan_of(
        World(
            truths={},
            manifests=tuple(copy.manifest for copy in copies),
            targets=(target,),
            seals=seals,
            requested=requested,
            force=False,
        )
    )


def rows_read(found: LogPlan, copies: list[Written]) -> set[int]:
    """The offsets whose rows the used ranges bring."""
    by_batch = {copy.manifest.batch: copy.rows for copy in copies}
    return {offset for used in found.used for offset in by_batch[used.batch] if offset in used.range}


def sealed(found: Plan, copies: list[Written]) -> tuple[Seal, ...]:
    """Every day sealed as planned, gaps taken as losses."""
    (one,) = found.logs
    part = SealedLog(
        log=log(),
        start=one.target.start,
        end=one.target.end,
        used=one.used,
        gaps=tuple(replace(gap, kind="lost") for gap in one.gaps),
        holes=one.holes,
    )
    return tuple(seal_of(day, [part]) for day in DAYS)


@settings(max_examples=200)
@given(archives())
def test_no_row_of_a_complete_copy_is_ever_passed_over(made: tuple[Truth, list[Written]]) -> None:
    _, copies = made
    (found,) = plan(copies, ()).logs
    read = rows_read(found, copies)
    for copy in copies:
        committed = copy.manifest.ranges[0]
        if committed.rows == len(committed.range):
            assert copy.rows <= read
    for hole in found.holes:
        absent = len(hole.range) - len(read & offsets([hole.range]))
        assert absent == hole.missing if hole.exact else absent <= hole.missing <= len(hole.range)
    without = offsets([item.range for item in found.used]) - offsets([hole.range for hole in found.holes])
    assert without <= read


@settings(max_examples=200)
@given(archives(), st.data())
def test_a_day_is_reopened_by_a_late_complete_copy_of_a_hole_and_then_left_alone(
    made: tuple[Truth, list[Written]], data: st.DataObject
) -> None:
    truth, copies = made
    early = copies[: data.draw(st.integers(1, len(copies)))]
    first = plan(early, ())
    seals = sealed(first, early)
    # Planning again with nothing new changes nothing, whatever copies with holes lie about.
    assert plan(early, seals).days == ()

    second = plan(copies, seals)
    known = rows_read(first.logs[0], early)
    late = copies[len(early) :]
    brought = {
        truth[offset]
        for copy in late
        if copy.manifest.ranges[0].rows == len(copy.manifest.ranges[0].range)
        for offset in copy.rows - known
    }
    assert brought <= {item.day for item in second.days}
    if not late:
        assert second.days == ()
    # The next version has them, and is stable.
    assert rows_read(second.logs[0], copies) >= {o for c in late for o in c.rows if complete(c)}
    assert plan(copies, sealed(second, copies)).days == ()


def complete(copy: Written) -> bool:
    return copy.manifest.ranges[0].rows == len(copy.manifest.ranges[0].range)


def test_after_a_lost_checkpoint_a_compacted_copy_does_not_replace_the_complete_one() -> None:
    truth: Truth = (FIRST,) * 20
    before = [
        written(0, span(0, 10), set(range(20)), truth),
        written(1, span(10, 20), set(range(20)), truth),
    ]
    compacted = written(7, span(0, 20), {3, 9, 18, 19}, truth)
    (found,) = plan([*before, compacted], ()).logs
    assert [(item.range, item.batch) for item in found.used] == [(span(0, 10), 0), (span(10, 20), 1)]
    assert found.holes == ()
    assert [item.copies for item in found.overlaps] == [2, 2]  # the other copies are in the plan


def test_a_complete_copy_that_turns_up_later_reopens_the_days_of_its_rows_only() -> None:
    truth: Truth = (FIRST,) * 10 + (SECOND,) * 10
    early = [written(0, span(0, 20), {*range(7), *range(13, 20)}, truth)]
    first = plan(early, ())
    assert first.logs[0].holes == (Hole(range=span(0, 20), missing=6, cause="unexplained", exact=True),)
    late = written(1, span(5, 10), set(range(20)), truth)
    second = plan([*early, late], sealed(first, early), requested=())
    assert [(item.day, item.reason) for item in second.days] == [(FIRST, "late")]
    assert [(item.range, item.batch) for item in second.logs[0].used] == [
        (span(0, 5), 0),
        (span(5, 10), 1),
        (span(10, 20), 0),
    ]


def test_a_seal_finds_the_used_range_of_an_offset() -> None:
    used = tuple(
        Used(range=span(start, end), committed=span(start, end), writer="a", batch=start)
        for start, end in ((2, 5), (5, 9))
    )
    part = SealedLog(log=log(), start=2, end=9, used=used, gaps=(), holes=())
    assert [part.use_of(offset) for offset in (1, 2, 4, 5, 8, 9)] == [None, used[0], used[0], used[1], used[1], None]
