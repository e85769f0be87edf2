"""Planning from columns, in any number of ledger segments, against the planner on the manifests themselves (pure)."""

from collections.abc import Collection
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.worlds import DAYS, ZONE, World, log, manifest_of, offsets, plan_of, seal_of, sealed_log, span, worlds
from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import merge_tables
from tidemark.archive.ledger.segment import Position, Segment, Tables, parse_segment
from tidemark.core.manifest import Manifest
from tidemark.core.plan import Plan, Target, Used
from tidemark.core.planner import plan_committed
from tidemark.core.seal import seen_days
from tidemark.core.transaction_holes import spans

pytestmark = pytest.mark.conformance(46)

DAY = date(2013, 1, 14)


def stored(tables: Tables) -> Tables:
    """The tables after a round trip through a segment's bytes."""
    body = segment_of(tables).to_bytes()
    found = parse_segment(body, stream="flights", time_zone=ZONE, where="test")
    assert found.to_bytes() == body
    return found.tables


def segment_of(tables: Tables) -> Segment:
    return Segment(
        stream="flights",
        time_zone=ZONE,
        number=1,
        previous=None,
        manifests=1,
        positions={"a": Position.following(None, 3, "0" * 64)},
        broken_links=(),
        tables=tables,
    )


def planned(world: World, parts: list[Tables], unproven: Collection[date] = ()) -> Plan:
    seen = seen_days(world.seals, stream="flights", time_zone=ZONE)
    committed = History(parts).committed(
        world.targets,
        world.requested,
        seen,
        transactional=spans(world.seals),
        force=world.force,
        unproven=unproven,
    )
    return plan_committed(
        stream="flights",
        run="run-1",
        requested=world.requested,
        targets=world.targets,
        committed=committed,
        seen=seen,
        force=world.force,
        unproven=unproven,
    )


def joined(plan: Plan, manifests: tuple[Manifest, ...]) -> Plan:
    """The plan with adjacent complete ranges of one writer joined."""
    complete = {
        (item.log, manifest.writer, manifest.batch, item.range)
        for manifest in manifests
        for item in manifest.ranges
        if item.rows == len(item.range)
    }
    logs = []
    for found in plan.logs:
        used: list[Used] = []
        whole = False  # whether the last of them is complete
        for item in found.used:
            now = item.last_batch is not None
            now = now or (found.target.log, item.writer, item.batch, item.committed) in complete
            last = used[-1] if used else None
            in_a_row = last is not None and last.range.end == item.range.start and last.writer == item.writer
            if last is not None and in_a_row and whole and now and (last.last_batch or last.batch) < item.batch:
                used[-1] = Used(
                    range=span(last.range.start, item.range.end),
                    committed=span(last.committed.start, item.committed.end),
                    writer=item.writer,
                    batch=last.batch,
                    last_batch=item.batch if item.last_batch is None else item.last_batch,
                )
            else:
                used.append(item)
            whole = now
        logs.append(replace(found, used=tuple(used)))
    return replace(plan, logs=tuple(logs))


def with_unreadable_times(manifest: Manifest) -> Manifest:
    """The manifest with half of each day's rows, rounded down, as unreadable times; not counted for odd batches."""
    if manifest.batch % 2:
        return manifest
    files = tuple(
        replace(file, days=tuple(replace(rows, unreadable_times=rows.rows // 2) for rows in file.days))
        for file in manifest.files
    )
    return replace(manifest, files=files)


@pytest.mark.conformance(76)
def test_in_a_segment_of_an_earlier_format_unreadable_times_are_not_counted() -> None:
    manifest = manifest_of("a", 0, {log(): span(0, 4)}, {log(): (DAY,) * 4}, "whole")
    now = Tables.build([with_unreadable_times(manifest)])
    before = replace(now, days=now.days.drop_columns(["unreadable_times"]))
    body = segment_of(before).to_bytes()
    assert body.startswith(b"tidemark-ledger 3 ")
    read = parse_segment(
        body.replace(b"tidemark-ledger 3 ", b"tidemark-ledger 2 ", 1), stream="flights", time_zone=ZONE, where="test"
    ).tables
    (file,) = History([read]).files_of(DAY)
    assert file == manifest.files[0]
    assert [rows.unreadable_times for rows in file.days] == [None]
    (counted,) = History([now]).files_of(DAY)
    assert counted.unreadable_times == 2


@settings(max_examples=400)
@given(worlds(), st.data())
def test_a_plan_from_segments_is_the_plan_from_manifests(world: World, data: st.DataObject) -> None:
    world = replace(world, manifests=tuple(map(with_unreadable_times, world.manifests)))
    bounds = sorted(data.draw(st.lists(st.integers(0, len(world.manifests)), max_size=3)))
    parts = [
        Tables.build(world.manifests[start:end])
        for start, end in zip([0, *bounds], [*bounds, len(world.manifests)], strict=True)
    ]
    kept = [stored(part) for part in parts[:-1]] + parts[-1:]
    unproven = data.draw(st.sets(st.sampled_from(DAYS)))
    expected = joined(plan_of(world, unproven=unproven), world.manifests)
    assert joined(planned(world, kept, unproven), world.manifests) == expected
    assert joined(planned(world, [stored(merge_tables(kept))], unproven), world.manifests) == expected


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.booleans()), min_size=1, max_size=12), st.data())
def test_long_sequences_of_batches_become_one_range_each(
    batches: list[tuple[str, int, bool]], data: st.DataObject
) -> None:
    """Realistic histories: each batch starts where the last one ended, sometimes with another writer or a hole."""
    truth: list[date | None] = []
    manifests = []
    spans = []
    for _, size, has_holes in batches:
        spans.append(span(len(truth), len(truth) + size))
        truth += [None if has_holes else DAY] + [DAY] * (size - 1)
    for number, ((writer, _, _), item) in enumerate(zip(batches, spans, strict=True)):
        manifests.append(manifest_of(writer, number, {log(): item}, {log(): tuple(truth)}, "whole"))
    end = data.draw(st.integers(0, len(truth)))
    sealed = data.draw(st.integers(0, end))
    seals = (seal_of(DAY, [sealed_log(log(), 0, sealed)]),) if data.draw(st.booleans()) else ()
    world = World(
        truths={log(): tuple(truth)},
        manifests=tuple(manifests),
        targets=(Target(log=log(), start=0, end=end, log_start=0, high_watermark=end),),
        seals=seals,
        requested=(DAY,),
        force=False,
    )
    cut = data.draw(st.integers(0, len(manifests)))
    plan = planned(world, [stored(Tables.build(manifests[:cut])), Tables.build(manifests[cut:])])
    assert joined(plan, world.manifests) == joined(plan_of(world), world.manifests)
    # Inside the target no further ranges could be joined.
    inside = [item for item in plan.logs[0].used if item.committed.end <= end]
    alone = replace(plan, logs=(replace(plan.logs[0], used=tuple(inside)),))
    assert joined(alone, world.manifests) == alone


@settings(max_examples=50)
@given(worlds(), st.integers(-1, 2), st.integers(0, 3), st.integers(0, 9))
def test_files_of_ranges_with_holes_are_found_by_timestamp(world: World, start: int, size: int, cut: int) -> None:
    """Every object of these worlds has the timestamps 0 and 1."""
    expected = {
        (manifest.writer, manifest.batch, item.log, item.range): own
        for manifest in world.manifests
        for item in manifest.ranges
        if item.rows < len(item.range)
        if (own := tuple(file for file in manifest.files if (file.log, file.range) == (item.log, item.range)))
    }
    history = History([stored(Tables.build(world.manifests[:cut])), Tables.build(world.manifests[cut:])])
    assert history.files_with_holes(start, start + size) == (expected if start <= 1 and start + size > 0 else {})


@settings(max_examples=200)
@given(worlds(), st.integers(0, 26))
def test_the_first_missing_offset_is_the_first_that_no_range_holds(world: World, start: int) -> None:
    history = History([Tables.build([manifest]) for manifest in world.manifests])
    for partition in (0, 1):
        held = offsets([item.range for one in world.manifests for item in one.ranges if item.log == log(partition)])
        expected = next(offset for offset in range(start, start + 60) if offset not in held)
        assert history.first_missing(log(partition), start) == expected
