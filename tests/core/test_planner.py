"""The planner in named situations; test_planner_properties.py has the generated ones."""

from dataclasses import replace
from datetime import date, timedelta

import pytest

from tests.core.worlds import (
    DAYS,
    Truth,
    World,
    log,
    manifest_of,
    plan_of,
    seal_of,
    sealed_log,
    span,
)
from tests.plans import make_plan
from tidemark.core.errors import ConflictError, FormatError
from tidemark.core.manifest import Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import DayPlan, Gap, Hole, LateDay, Overlap, RowsOfDay, Slice, Target, Used
from tidemark.core.seal import Seal

FIRST, SECOND, THIRD = DAYS


def one_day(size: int, day: date | None = FIRST) -> dict[TopicPartition, Truth]:
    return {log(): (day,) * size}


def target(end: int, *, start: int = 0, log_start: int = 0, high_watermark: int | None = None) -> Target:
    return Target(
        log=log(),
        start=start,
        end=end,
        log_start=log_start,
        high_watermark=end if high_watermark is None else high_watermark,
    )


def world_of(
    *manifests: Manifest,
    end: int,
    seals: tuple[Seal, ...] = (),
    requested: tuple[date, ...] = (FIRST,),
    force: bool = False,
) -> World:
    return World(truths={}, manifests=manifests, targets=(target(end),), seals=seals, requested=requested, force=force)


def batch(number: int, start: int, end: int, truths: dict[TopicPartition, Truth], *, writer: str = "a") -> Manifest:
    return manifest_of(writer, number, {log(): span(start, end)}, truths, "whole")


def test_a_lost_checkpoint_leaves_an_overlap_that_is_trimmed_at_the_seam() -> None:
    truths = one_day(30)
    world = world_of(batch(0, 0, 10, truths), batch(1, 10, 20, truths), batch(0, 15, 30, truths, writer="b"), end=30)
    plan = plan_of(world)
    (found,) = plan.logs
    assert found.used == (
        Used(range=span(0, 10), committed=span(0, 10), writer="a", batch=0),
        Used(range=span(10, 20), committed=span(10, 20), writer="a", batch=1),
        Used(range=span(20, 30), committed=span(15, 30), writer="b", batch=0),
    )
    assert found.overlaps == (Overlap(range=span(15, 20), copies=2),)
    assert [(item.range, item.whole) for item in plan.slices] == [
        (span(0, 10), True),
        (span(10, 20), True),
        (span(20, 30), False),
    ]
    assert plan.days == (DayPlan(day=FIRST, version=1, reason="requested", archived_rows=35),)


def test_a_gap_across_the_log_start_is_lost_below_and_refilled_above() -> None:
    truths = one_day(30)
    world = replace(
        world_of(batch(0, 0, 10, truths), batch(2, 20, 30, truths), end=30), targets=(target(30, log_start=13),)
    )
    assert plan_of(world).logs[0].gaps == (Gap(range=span(10, 13), kind="lost"), Gap(range=span(13, 20), kind="refill"))


def test_offsets_after_the_target_that_are_not_archived_are_pending() -> None:
    world = replace(world_of(batch(0, 0, 10, one_day(10)), end=10), targets=(target(10, high_watermark=14),))
    (found,) = plan_of(world).logs
    assert (found.gaps, found.pending) == ((), span(10, 14))


def test_an_empty_log_needs_nothing() -> None:
    plan = plan_of(world_of(end=0))
    assert (plan.logs[0].used, plan.logs[0].gaps, plan.logs[0].pending, plan.slices) == ((), (), None, ())
    assert plan.days == (DayPlan(day=FIRST, version=1, reason="requested", archived_rows=0),)


def test_a_recreated_topic_is_another_log_and_covers_nothing() -> None:
    old = log(topic_id="id-0")
    manifest = manifest_of("a", 0, {old: span(0, 10)}, {old: (FIRST,) * 10}, "whole")
    plan = plan_of(world_of(manifest, end=10))
    assert plan.logs[0].gaps == (Gap(range=span(0, 10), kind="refill"),)
    assert plan.slices == ()


def test_the_same_objects_committed_by_two_writers_overlap_but_count_their_rows_once() -> None:
    truths = one_day(10)
    plan = plan_of(world_of(batch(0, 0, 10, truths), batch(0, 0, 10, truths, writer="b"), end=10))
    assert plan.logs[0].overlaps == (Overlap(range=span(0, 10), copies=2),)
    assert plan.days[0].archived_rows == 10
    assert len(plan.slices) == 1


@pytest.mark.conformance(76)
def test_a_plan_knows_how_many_times_of_a_day_could_not_be_read() -> None:
    truths = one_day(20)

    def unreadable(manifest: Manifest, number: int) -> Manifest:
        (file,) = manifest.files
        days = tuple(replace(rows, unreadable_times=number) for rows in file.days)
        return replace(manifest, files=(replace(file, days=days),))

    first, second = unreadable(batch(0, 0, 10, truths), 3), unreadable(batch(1, 10, 20, truths), 4)
    whole = plan_of(world_of(first, second, end=20))
    assert (whole.unreadable_times(FIRST), whole.unreadable_times(FIRST + timedelta(days=1))) == (7, 0)
    # Of the copy ten offsets are used: at most as many of its eleven can be unreadable.
    copy = unreadable(batch(0, 5, 20, truths, writer="b"), 11)
    trimmed = plan_of(world_of(first, copy, end=20))
    assert [(item.range, item.whole) for item in trimmed.slices] == [(span(0, 10), True), (span(10, 20), False)]
    assert trimmed.unreadable_times(FIRST) == 3 + 10
    # An object that is used in two parts counts once.
    with_hole = (FIRST,) * 12 + (None,) + (FIRST,) * 17
    outer = unreadable(manifest_of("a", 0, {log(): span(0, 30)}, {log(): with_hole}, "whole"), 5)
    inner = unreadable(manifest_of("b", 0, {log(): span(10, 20)}, {log(): (FIRST,) * 30}, "whole"), 0)
    parts = plan_of(world_of(outer, inner, end=30))
    assert [item.range for item in parts.slices] == [span(0, 10), span(10, 20), span(20, 30)]
    assert parts.unreadable_times(FIRST) == 5
    # What one object's manifest did not count is not known.
    assert plan_of(world_of(first, batch(1, 10, 20, truths), end=20)).unreadable_times(FIRST) is None


def test_a_range_without_rows_is_covered_and_a_hole_of_its_whole_length() -> None:
    plan = plan_of(world_of(batch(0, 0, 10, {log(): (None,) * 10}), end=10))
    assert plan.logs[0].gaps == ()
    assert plan.logs[0].holes == (Hole(range=span(0, 10), missing=10, cause="unexplained", exact=True),)
    assert plan.slices == ()


def test_a_hole_in_a_trimmed_range_has_its_highest_possible_size() -> None:
    truths: dict[TopicPartition, Truth] = {log(): (FIRST,) * 8 + (None,) * 2 + (FIRST,) * 10}
    world = world_of(batch(0, 0, 10, truths), batch(0, 5, 20, truths, writer="b"), end=20)
    assert plan_of(world).logs[0].holes == (
        Hole(range=span(0, 5), missing=2, cause="unexplained", exact=False),
        Hole(range=span(5, 20), missing=2, cause="unexplained", exact=True),
    )


@pytest.mark.conformance(19)
def test_a_sealed_day_with_nothing_new_is_unchanged_and_forced_is_the_next_version() -> None:
    world = world_of(
        batch(0, 0, 10, one_day(10)), end=10, seals=(seal_of(FIRST, [sealed_log(log(), 0, 10)], version=3),)
    )
    assert (plan_of(world).days, plan_of(world).unchanged, plan_of(world).slices) == ((), (FIRST,), ())
    forced = plan_of(replace(world, force=True))
    assert forced.days == (DayPlan(day=FIRST, version=4, reason="requested", archived_rows=10),)
    assert forced.unchanged == ()


@pytest.mark.conformance(20)
def test_a_day_that_was_rolled_back_stays_so_until_rows_come_that_its_last_rebuild_had_not_seen() -> None:
    """Version 1 saw 10 offsets and version 2 saw 20; version 3 is version 1 again, and version 4 is 2 again."""
    truths = one_day(30)
    first, second = (seal_of(FIRST, [sealed_log(log(), 0, 10 * at)], version=at) for at in (1, 2))
    third = replace(first, version=3, previous="0" * 64, rolled_back_to=1)
    fourth = replace(second, version=4, rolled_back_to=2)
    for seals in ((second, third), (third, second), (second, third, fourth)):
        world = world_of(batch(0, 0, 20, truths), end=20, seals=seals)
        assert (plan_of(world).days, plan_of(world).unchanged) == ((), (FIRST,))
        late = world_of(batch(0, 0, 20, truths), batch(1, 20, 30, truths), end=30, seals=seals, requested=())
        version = max(seal.version for seal in seals) + 1
        assert plan_of(late).days == (DayPlan(day=FIRST, version=version, reason="late", archived_rows=30),)


@pytest.mark.conformance(63)
def test_a_run_rebuilds_each_unproven_day_whatever_its_own_days_are() -> None:
    """The first day was never sealed; of the second one, version 1 was sealed, and another one published since."""
    truths: dict[TopicPartition, Truth] = {log(): (FIRST,) * 10 + (SECOND,) * 10 + (THIRD,) * 8}
    seals = (seal_of(SECOND, [sealed_log(log(), 0, 20)]),)
    world = world_of(batch(0, 0, 28, truths), end=28, seals=seals, requested=(THIRD,))
    assert [item.day for item in plan_of(world).days] == [THIRD]

    plan = plan_of(world, unproven=(FIRST, SECOND), scheduled=True)
    assert plan.days == (
        DayPlan(day=FIRST, version=1, reason="unproven", archived_rows=10),
        DayPlan(day=SECOND, version=2, reason="unproven", archived_rows=10),
        DayPlan(day=THIRD, version=1, reason="scheduled", archived_rows=8),
    )
    asked = plan_of(replace(world, requested=(SECOND,)), unproven=(SECOND,))
    assert asked.days == (DayPlan(day=SECOND, version=2, reason="requested", archived_rows=10),)
    assert asked.unchanged == ()


def test_late_rows_reopen_a_sealed_day_and_leave_its_neighbour_as_it_is() -> None:
    truths: dict[TopicPartition, Truth] = {log(): (FIRST,) * 10 + (SECOND,) * 10 + (THIRD,) * 8 + (FIRST,) * 2}
    seals = tuple(seal_of(day, [sealed_log(log(), 0, 20)]) for day in (FIRST, SECOND))
    plan = plan_of(
        world_of(
            batch(0, 0, 10, truths),
            batch(1, 10, 20, truths),
            batch(2, 20, 30, truths),
            end=30,
            seals=seals,
            requested=(THIRD,),
        )
    )
    assert plan.days == (
        DayPlan(day=FIRST, version=2, reason="late", archived_rows=12),
        DayPlan(day=THIRD, version=1, reason="requested", archived_rows=8),
    )
    assert [item.range for item in plan.slices] == [span(0, 10), span(20, 30)]


@pytest.mark.conformance(19)
def test_a_day_further_back_than_the_bound_is_ignored_with_its_late_rows_unless_it_is_requested() -> None:
    truths: dict[TopicPartition, Truth] = {log(): (FIRST,) * 12 + (SECOND,) * 12 + (FIRST,) * 6 + (THIRD,) * 2}
    seals = tuple(seal_of(day, [sealed_log(log(), 0, 24, [span(3, 5)])]) for day in (FIRST, SECOND))
    manifests = (batch(0, 0, 24, truths), batch(1, 24, 32, truths), batch(0, 22, 28, truths, writer="again"))
    found = []
    for requested, reopen_from in (((THIRD,), SECOND), ((FIRST, THIRD), SECOND), ((THIRD,), FIRST)):
        plan = make_plan(
            stream="flights",
            time_zone="America/New_York",
            run="run-1",
            requested=requested,
            targets=(target(32),),
            manifests=manifests,
            seals=seals,
            reopen_from=reopen_from,
        )
        found.append(([item.day for item in plan.days], plan.ignored))
    # Two rows of the loss, six late ones, and four of these in a second copy.
    assert found == [
        ([THIRD], (LateDay(day=FIRST, records_max=12),)),
        ([FIRST, THIRD], ()),
        ([FIRST, THIRD], ()),
    ]


@pytest.mark.conformance(19)
def test_with_a_bound_a_backfill_reopens_no_day_after_its_own_and_names_it() -> None:
    truths: dict[TopicPartition, Truth] = {log(): (FIRST,) * 8 + (THIRD,) * 8 + (SECOND,) * 4 + (THIRD,) * 3}
    seals = tuple(seal_of(day, [sealed_log(log(), 0, 16)]) for day in (FIRST, SECOND, THIRD))
    found = []
    for requested, reopen_from in (((FIRST,), FIRST), ((SECOND,), FIRST), ((FIRST, THIRD), FIRST), ((FIRST,), None)):
        plan = make_plan(
            stream="flights",
            time_zone="America/New_York",
            run="run-1",
            requested=requested,
            targets=(target(23),),
            manifests=(batch(0, 0, 16, truths), batch(1, 16, 23, truths)),
            seals=seals,
            reopen_from=reopen_from,
        )
        found.append(([item.day for item in plan.days], plan.ignored))
    assert found == [
        ([], (LateDay(day=SECOND, records_max=4), LateDay(day=THIRD, records_max=3))),
        ([SECOND], (LateDay(day=THIRD, records_max=3),)),
        ([SECOND, THIRD], ()),
        ([SECOND, THIRD], ()),
    ]


def test_a_refill_of_what_a_seal_counts_as_used_does_not_reopen_its_day() -> None:
    truths = one_day(20)
    seals = (seal_of(FIRST, [sealed_log(log(), 0, 20)]),)
    world = world_of(batch(0, 0, 10, truths), batch(0, 10, 20, truths, writer="refill-x"), end=20, seals=seals)
    assert plan_of(world).unchanged == (FIRST,)


def test_rows_that_turn_up_where_a_seal_counted_a_loss_reopen_its_day() -> None:
    truths = one_day(20)
    seals = (seal_of(FIRST, [sealed_log(log(), 0, 20, [span(10, 15)])]),)
    world = world_of(batch(0, 0, 10, truths), batch(1, 10, 20, truths), end=20, seals=seals, requested=())
    assert [(item.day, item.reason) for item in plan_of(world).days] == [(FIRST, "late")]


def test_a_partition_the_seal_does_not_know_reopens_the_days_it_has_rows_of() -> None:
    new = log(1)
    manifest = manifest_of("a", 0, {new: span(0, 4)}, {new: (FIRST,) * 4}, "whole")
    seals = tuple(seal_of(day, [sealed_log(log(), 0, 0)]) for day in (FIRST, SECOND))
    world = replace(
        world_of(manifest, end=0, seals=seals, requested=()),
        targets=(target(0), Target(log=new, start=0, end=4, log_start=0, high_watermark=4)),
    )
    assert [item.day for item in plan_of(world).days] == [FIRST]


def test_rows_archived_after_the_target_wait_for_the_next_run() -> None:
    truths = one_day(30)
    seals = (seal_of(FIRST, [sealed_log(log(), 0, 20)]),)
    world = world_of(batch(0, 0, 20, truths), batch(1, 20, 30, truths), end=20, seals=seals)
    assert plan_of(world).unchanged == (FIRST,)


def test_the_latest_of_several_versions_of_a_seal_counts() -> None:
    truths = one_day(30)
    seals = (
        seal_of(FIRST, [sealed_log(log(), 0, 30)], version=2),
        seal_of(FIRST, [sealed_log(log(), 0, 20)], version=1),
    )
    assert plan_of(world_of(batch(0, 0, 30, truths), end=30, seals=seals)).unchanged == (FIRST,)


def test_a_manifest_cut_in_another_time_zone_is_refused_by_both_names() -> None:
    manifest = replace(batch(7, 0, 10, one_day(10)), time_zone="Europe/Berlin")
    with pytest.raises(ConflictError, match=r"expected America/New_York, found Europe/Berlin \[manifest a/7\]"):
        plan_of(world_of(manifest, end=10))


def test_a_seal_of_another_stream_is_refused_by_both_names() -> None:
    seal = replace(seal_of(FIRST, []), stream="ferries")
    with pytest.raises(ConflictError, match=r"expected flights, found ferries .*2013-01-14 version 1"):
        plan_of(world_of(end=10, seals=(seal,)))


def test_a_file_outside_its_manifests_ranges_is_refused() -> None:
    manifest = batch(0, 0, 10, one_day(10))
    broken = replace(manifest, ranges=(replace(manifest.ranges[0], range=OffsetRange(start=0, end=11)),))
    with pytest.raises(FormatError, match=r"expected \[0, 11\), found \[0, 10\) \[data/flights/whole/.* a/0\]"):
        plan_of(world_of(broken, end=10))


@pytest.mark.parametrize("number", [20_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_many_thousand_batches_that_overlap_plan(number: int) -> None:
    """A hundred thousand: ``pytest -m soak tests/core/test_planner.py``."""
    model = batch(0, 0, 15, one_day(15))
    (file,) = model.files
    manifests = []
    for at in range(number):
        committed = span(at * 10, at * 10 + 15)
        first, last = committed.start, committed.end - 1
        rows = replace(file.days[0], first_offset=first, last_offset=last)
        own = replace(file, key=f"k{at}", range=committed, days=(rows,), first_offset=first, last_offset=last)
        manifests.append(replace(model, batch=at, ranges=(replace(model.ranges[0], range=committed),), files=(own,)))
    world = world_of(*manifests, end=number * 10 + 5, seals=(seal_of(FIRST, [sealed_log(log(), 0, 5 * number)]),))
    plan = plan_of(world)
    assert len(plan.logs[0].used) == number
    assert plan.days == (DayPlan(day=FIRST, version=2, reason="requested", archived_rows=15 * number),)
    ten = (RowsOfDay(day=FIRST, rows=10),)
    assert plan.slices[1] == Slice(
        key="k1", log=log(), range=span(15, 25), whole=False, bytes=file.bytes, sha256=file.sha256, rows=ten
    )
