"""The planner on generated worlds, against an oracle that works offset by offset (conformance 14 and 15)."""

from collections import Counter
from dataclasses import replace
from datetime import date
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.worlds import (
    World,
    offsets,
    plan_of,
    worlds,
)
from tidemark.core.manifest import DataFile, DayRows
from tidemark.core.offsets import TopicPartition
from tidemark.core.plan import Target
from tidemark.core.seal import Seal

pytestmark = pytest.mark.conformance(15)


def asked(target: Target) -> set[int]:
    return set(range(target.start, target.end))


def held(world: World, owner: TopicPartition) -> Counter[int]:
    """How many committed ranges hold each offset."""
    return Counter(
        offset
        for manifest in world.manifests
        for item in manifest.ranges
        if item.log == owner
        for offset in range(item.range.start, item.range.end)
    )


def archive_files(world: World) -> dict[str, DataFile]:
    return {file.key: file for manifest in world.manifests for file in manifest.files}


@settings(max_examples=300)
@given(worlds())
def test_used_ranges_and_gaps_tile_the_target_and_gaps_split_at_the_log_start(world: World) -> None:
    for found in plan_of(world).logs:
        wanted, copies = asked(found.target), held(world, found.target.log)
        used = [item.range for item in found.used]
        gaps = [item.range for item in found.gaps]
        assert offsets(used) == wanted & copies.keys()
        assert offsets(gaps) == wanted - copies.keys()
        assert sum(len(item) for item in used + gaps) == len(wanted)
        for gap in found.gaps:
            lost = {offset < found.target.log_start for offset in range(gap.range.start, gap.range.end)}
            assert lost == {gap.kind == "lost"}
        # Merged: two gaps of one kind never touch.
        touching = [(a.kind, b.kind) for a in found.gaps for b in found.gaps if a.range.end == b.range.start]
        assert all(a != b for a, b in touching)
        committed = {
            (manifest.writer, manifest.batch, item.range)
            for manifest in world.manifests
            for item in manifest.ranges
            if item.log == found.target.log
        }
        assert all((item.writer, item.batch, item.committed) in committed for item in found.used)
        pending = offsets([found.pending] if found.pending else [])
        assert pending == set(range(found.target.end, found.target.high_watermark))


@settings(max_examples=300)
@given(worlds())
def test_overlaps_and_holes_are_what_the_offsets_say_and_findings_of_a_kind_share_none(world: World) -> None:
    for found in plan_of(world).logs:
        copies = held(world, found.target.log)
        assert {o: item.copies for item in found.overlaps for o in range(item.range.start, item.range.end)} == {
            offset: copies[offset] for offset in asked(found.target) if copies[offset] > 1
        }
        truth = world.truths[found.target.log]
        used = {item.range: item for item in found.used}
        for hole in found.holes:
            absent = sum(truth[offset] is None for offset in range(hole.range.start, hole.range.end))
            assert absent == hole.missing if hole.exact else absent <= hole.missing <= len(hole.range)
            assert hole.exact or used[hole.range].committed != hole.range
            assert hole.cause == "unexplained"
        with_holes = {hole.range for hole in found.holes}
        assert not [
            item
            for item in used
            if item not in with_holes and any(truth[o] is None for o in range(item.start, item.end))
        ]
        gaps = [item.range for item in found.gaps]
        for kind in (gaps, [item.range for item in found.overlaps], list(with_holes)):
            assert sum(len(item) for item in kind) == len(offsets(kind))
        assert not offsets(gaps) & offsets([*with_holes, *(item.range for item in found.overlaps)])


@settings(max_examples=400)
@given(worlds())
def test_slices_read_every_archived_row_of_the_affected_days_once(world: World) -> None:
    plan = plan_of(world)
    days = {item.day for item in plan.days}
    files = archive_files(world)
    read: Counter[tuple[TopicPartition, int]] = Counter()
    for item in plan.slices:
        own = [offset for offset in _rows(world, files[item.key]) if offset in item.range]
        assert item.whole == (len(own) == files[item.key].rows)
        of_days = Counter(world.truths[item.log][offset] for offset in own)
        counts = {found.day: found.rows for found in item.rows}
        assert of_days.keys() <= counts.keys()
        # Unknown only if the used part ends inside a day with offsets that are not its rows.
        scattered = {found.day for found in _scattered(files[item.key]) if of_days[found.day] < found.rows}
        assert {day for day, rows in counts.items() if rows is None} <= scattered
        assert all(rows == of_days[day] for day, rows in counts.items() if rows is not None)
        assert item.counted == (None not in counts.values())
        read.update((item.log, offset) for offset in own if world.truths[item.log][offset] in days)
    expected = Counter(
        (target.log, offset)
        for target in world.targets
        for offset in asked(target) & held(world, target.log).keys()
        if world.truths[target.log][offset] in days
    )
    assert read == expected


def _scattered(file: DataFile) -> list[DayRows]:
    return [item for item in file.days if item.rows <= item.last_offset - item.first_offset]


def _rows(world: World, file: DataFile) -> list[int]:
    """The offsets of a file's rows, from the truth and the days, first and last offset the file states."""
    truth, days = world.truths[file.log], {item.day for item in file.days}
    return [offset for offset in range(file.first_offset, file.last_offset + 1) if truth[offset] in days]


@settings(max_examples=400)
@given(worlds())
def test_affected_days_are_the_requested_ones_and_the_sealed_ones_with_late_rows(world: World) -> None:
    plan = plan_of(world)
    seals = {seal.day: seal for seal in world.seals}
    spans_new = {day for day, seal in seals.items() if _has_unseen_span(world, seal)}
    rows_new = {day for day, seal in seals.items() if _has_unseen_row(world, seal)}
    days = {item.day for item in plan.days}
    wanted = {day for day in world.requested if world.force or day not in seals}
    assert days == wanted | spans_new
    # Soundness: a row that no copy of was there at sealing time always reopens its day.
    assert rows_new <= days
    assert set(plan.unchanged) == set(world.requested) - days
    for item in plan.days:
        assert item.version == (seals[item.day].version + 1 if item.day in seals else 1)
        assert item.reason == ("requested" if item.day in world.requested else "late")


def _sealed_offsets(seal: Seal, owner: TopicPartition) -> set[int]:
    found = seal.log(owner)
    return offsets([item.range for item in found.used]) if found else set()


def _has_unseen_span(world: World, seal: Seal) -> bool:
    """By manifests alone: the first-to-last span of a file's rows of the day holds an offset the seal did not use."""
    targets = {target.log: asked(target) for target in world.targets}
    return any(
        set(range(rows.first_offset, rows.last_offset + 1)) & targets[file.log] - _sealed_offsets(seal, file.log)
        for file in archive_files(world).values()
        for rows in file.days
        if rows.day == seal.day
    )


def _has_unseen_row(world: World, seal: Seal) -> bool:
    return any(
        world.truths[target.log][offset] == seal.day
        for target in world.targets
        for offset in asked(target) & held(world, target.log).keys() - _sealed_offsets(seal, target.log)
    )


@settings(max_examples=300)
@given(worlds())
def test_archived_rows_count_every_object_once_and_are_exact_where_the_target_is_all(world: World) -> None:
    everything = tuple(
        replace(target, start=0, end=len(world.truths[target.log]), log_start=0, high_watermark=99)
        for target in world.targets
    )
    for targets in (everything, world.targets):
        plan = plan_of(replace(world, targets=targets, force=True))
        wanted = {target.log: asked(target) for target in targets}
        for item in plan.days:
            rows = [(file.log, o) for file in archive_files(world).values() for o in _rows_of(world, file, item.day)]
            inside = [row for row in rows if row[1] in wanted[row[0]]]
            assert len(inside) <= item.archived_rows <= len(rows)
            # Trimmed duplicates are never negative.
            assert item.archived_rows >= len(set(inside))
            if targets is everything:
                assert item.archived_rows == len(rows)


def _rows_of(world: World, file: DataFile, day: date) -> list[int]:
    return [offset for offset in _rows(world, file) if world.truths[file.log][offset] == day]


@settings(max_examples=300)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_manifests_seals_and_targets_does_not_matter(world: World, random: Random) -> None:
    other = replace(
        world,
        manifests=tuple(random.sample(world.manifests, len(world.manifests))),
        targets=tuple(random.sample(world.targets, len(world.targets))),
        seals=tuple(random.sample(world.seals, len(world.seals))),
    )
    assert plan_of(other) == plan_of(world)
