"""A plan with compactions equals the plan without, from other objects (pure)."""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.archive.test_history import joined, planned, stored
from tests.core.worlds import DAYS, Truth, World, log, manifest_of, plan_of, seal_of, sealed_log, span
from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import merge_tables
from tidemark.archive.ledger.segment import Tables
from tidemark.core.errors import PositionError
from tidemark.core.manifest import COMPACTION, Manifest, Replaced, digest, parse_manifest
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import Plan, Target

pytestmark = pytest.mark.conformance(53)

BOUNDARIES = st.sampled_from(("whole", "days", "rows"))


def replacing(batch: int, inputs: list[Manifest], truth: Truth, cut: str) -> Manifest:
    """A compaction of the inputs, each of one range; the ranges are adjacent."""
    ranges = [item.ranges[0].range for item in inputs]
    whole = span(ranges[0].start, ranges[-1].end)
    made = manifest_of(COMPACTION, batch, {log(): whole}, {log(): truth}, cut)
    replaces = tuple(
        Replaced(
            writer=item.writer,
            batch=item.batch,
            log=log(),
            range=item.ranges[0].range,
            files=tuple((file.key, file.checksum, "") for file in item.files),
            digest=digest(item.to_json()),
        )
        for item in inputs
    )
    return replace(made, replaces=replaces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """An archive of adjacent ranges, and the manifests of compactions, which may replace earlier ones."""

    world: World
    compactions: tuple[Manifest, ...]

    @property
    def compacted(self) -> World:
        return replace(self.world, manifests=(*self.world.manifests, *self.compactions))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    sizes = draw(st.lists(st.integers(1, 4), min_size=4, max_size=10))
    at = sum(sizes)
    truth: Truth = tuple(draw(st.lists(st.sampled_from(DAYS), min_size=at, max_size=at)))
    if draw(st.booleans()):
        hole = draw(st.integers(0, at - 1))
        truth = (*truth[:hole], None, *truth[hole + 1 :])
    manifests, start = [], 0
    for batch, size in enumerate(sizes):
        writer = draw(st.sampled_from(("query-a", "query-b")))
        manifests.append(
            manifest_of(writer, batch, {log(): span(start, start + size)}, {log(): truth}, draw(BOUNDARIES))
        )
        start += size
    live, fit = list(manifests), [item.ranges[0].rows == len(item.ranges[0].range) for item in manifests]
    if draw(st.booleans()):  # a range that another writer has archived, too
        chosen = draw(st.integers(0, len(sizes) - 1))
        manifests.append(manifest_of("refill", 0, {log(): live[chosen].ranges[0].range}, {log(): truth}, "whole"))
        fit[chosen] = False
    compactions: list[Manifest] = []
    for batch in range(draw(st.integers(1, 4))):
        pairs = [at for at in range(len(live) - 1) if fit[at] and fit[at + 1]]
        if not pairs:
            break
        first = draw(st.sampled_from(pairs))
        whole = next((at for at in range(first, len(live)) if not fit[at]), len(live))
        last = draw(st.integers(first + 2, whole))
        compactions.append(replacing(batch, live[first:last], truth, draw(BOUNDARIES)))
        live[first:last], fit[first:last] = [compactions[-1]], [True]
    # An object's rows of a day are known by first and last offset: if a target ends inside, no plan knows their number.
    seams = [0, *(item.ranges[0].range.end for item in live)]
    start, end = sorted((draw(st.sampled_from([0, *seams])), draw(st.sampled_from([*seams, at, at]))))
    seals = [
        seal_of(day, [sealed_log(log(), 0, draw(st.integers(0, at)))]) for day in draw(st.sets(st.sampled_from(DAYS)))
    ]
    world = World(
        truths={log(): truth},
        manifests=tuple(manifests),
        targets=(Target(log=log(), start=start, end=end, log_start=0, high_watermark=at),),
        seals=tuple(seals),
        requested=tuple(draw(st.lists(st.sampled_from(DAYS), min_size=1, max_size=3))),
        force=draw(st.booleans()),
    )
    return Story(world=world, compactions=tuple(compactions))


def rows_read(plan: Plan, world: World) -> Counter[tuple[date, int]]:
    """Day and offset of each row that the slices hold of the plan's days."""
    days = {item.day for item in plan.days}
    truth = world.truths[log()]
    files = {file.key: file for manifest in world.manifests for file in manifest.files}
    found: Counter[tuple[date, int]] = Counter()
    for item in plan.slices:
        file = files[item.key]
        path = item.key.split("/")[2]  # the day, if a batch's files are split by day
        for offset in range(max(file.first_offset, item.range.start), min(file.last_offset + 1, item.range.end)):
            day = truth[offset]
            if day in days and (path not in map(str, DAYS) or path == str(day)):
                assert day is not None
                found[day, offset] += 1
    return found


@settings(max_examples=150)
@given(stories(), st.data())
def test_a_compacted_archive_gives_the_same_days_and_every_row_once(story: Story, data: st.DataObject) -> None:
    plain, plan = plan_of(story.world), plan_of(story.compacted)
    assert (plan.days, plan.unchanged, plan.ignored) == (plain.days, plain.unchanged, plain.ignored)
    (before,), (after,) = plain.logs, plan.logs
    assert (after.gaps, after.overlaps, after.holes, after.pending) == (
        before.gaps,
        before.overlaps,
        before.holes,
        before.pending,
    )
    assert [offset for item in after.used for offset in range(item.range.start, item.range.end)] == [
        offset for item in before.used for offset in range(item.range.start, item.range.end)
    ]
    assert rows_read(plan, story.compacted) == rows_read(plain, story.world)
    assert set(rows_read(plan, story.compacted).values()) <= {1}
    replaced_files = {file for manifest in story.compactions for item in manifest.replaces for file, *_ in item.files}
    kept = {file.key for manifest in story.world.manifests if manifest.writer == "refill" for file in manifest.files}
    assert not {item.key for item in plan.slices} & (replaced_files - kept)

    # The same from the ledger, with any segment boundaries.
    manifests = data.draw(st.permutations(story.compacted.manifests))
    cut = data.draw(st.integers(0, len(manifests)))
    parts = [stored(Tables.build(manifests[:cut])), Tables.build(manifests[cut:])]
    expected = joined(plan, story.compacted.manifests)
    assert joined(planned(story.compacted, parts), story.compacted.manifests) == expected
    assert joined(planned(story.compacted, [stored(merge_tables(parts))]), story.compacted.manifests) == expected


@settings(max_examples=60)
@given(stories())
def test_small_neighbours_are_adjacent_complete_ranges_in_use_without_overlap(story: Story) -> None:
    replaced = {(item.writer, item.batch) for manifest in story.compactions for item in manifest.replaces}
    live = [item for item in story.compacted.manifests if (item.writer, item.batch) not in replaced]
    held = Counter(o for item in live for o in range(item.ranges[0].range.start, item.ranges[0].range.end))
    fit: list[tuple[str, int, OffsetRange]] = []
    small: list[tuple[OffsetRange, bool]] = []
    for item in sorted(live, key=lambda item: item.ranges[0].range):
        own = item.ranges[0].range
        alone = all(held[offset] == 1 for offset in range(own.start, own.end))
        if alone and all(file.rows <= 3 for file in item.files):
            small.append((own, item.ranges[0].rows < len(own)))
            if not small[-1][1]:
                fit.append((item.writer, item.batch, own))
    runs: list[list[tuple[str, int, OffsetRange]]] = []
    for one in fit:
        if runs and runs[-1][-1][2].end == one[2].start:
            runs[-1].append(one)
        else:
            runs.append([one])
    history = History([Tables.build([manifest]) for manifest in story.compacted.manifests])
    found = [
        [(item.writer, item.batch, item.range) for item in ranges] for _, ranges in history.small_neighbours(300, 3)
    ]
    assert found == [run for run in runs if len(run) > 1]
    edges = Counter(offset for own, _ in small for offset in (own.start, own.end))
    assert history.neighbours_with_holes(300, 3) == sum(
        has_holes and max(edges[own.start], edges[own.end]) > 1 for own, has_holes in small
    )


TRUTH = (DAYS[0],) * 9
INPUTS = [manifest_of("query-a", n, {log(): span(3 * n, 3 * n + 3)}, {log(): TRUTH}, "whole") for n in range(3)]


def test_a_compactions_manifest_reads_back() -> None:
    manifest = replacing(4, INPUTS, TRUTH, "whole")
    body = manifest.to_json()
    assert parse_manifest(body, where="here") == manifest
    assert body.startswith(b'{"batch":4,')
    assert b'"format":1' in body
    assert b'"replaces":[]' in INPUTS[0].to_json()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([1, 2], r"do not tile .*: expected one that starts at 0, found \[3, 6\) of query-a/1 \[manifest compact/0"),
        ([0, 2], r"do not tile .*: expected one that starts at 3, found \[6, 9\) of query-a/2"),
        ([0, 1], r"does not match .* replaces: expected \[0, 9\), complete.* up to 6"),
        ([0, 0, 1, 2], r"do not tile .*: expected one that starts at 3, found \[0, 3\)"),
    ],
)
def test_a_manifest_that_replaces_only_part_of_its_range_is_refused(chosen: list[int], message: str) -> None:
    whole = replacing(0, INPUTS, TRUTH, "whole")
    with pytest.raises(PositionError, match=message):
        replace(whole, replaces=tuple(whole.replaces[number] for number in chosen))


def test_a_manifest_with_holes_or_that_replaces_itself_is_refused() -> None:
    whole = replacing(0, INPUTS, TRUTH, "whole")
    with pytest.raises(PositionError, match=r"replaces a later batch: expected batches of compact below 0, found 0"):
        replace(whole, replaces=(replace(whole.replaces[0], writer=COMPACTION), *whole.replaces[1:]))
    with pytest.raises(PositionError, match=r"do not tile a complete range .* expected none of this log"):
        replace(whole, ranges=(replace(whole.ranges[0], rows=8),))
