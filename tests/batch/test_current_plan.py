"""The current view's plan on generated archives, compared with an oracle that works record by record (pure)."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.worlds import DAYS, ZONE, Truth, log, manifest_of, ranges, span
from tests.plans import make_plan
from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.segment import Tables
from tidemark.core.manifest import Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition, normalise
from tidemark.core.plan import Plan, Target
from tidemark.core.seal import SealedLog
from tidemark.current_view.plan import (
    ArchivePart,
    CurrentPlan,
    PublishedDay,
    StalePart,
    day_spans,
    find_conflicts,
    plan_current,
)
from tidemark.tables.snapshot_summary import format_ranges, parse_ranges

pytestmark = pytest.mark.conformance(26)

Row = tuple[date, TopicPartition, int]


@dataclass(slots=True, kw_only=True)
class Archive:
    """Manifests, and the rows of every object that Spark would read."""

    manifests: list[Manifest]
    objects: dict[str, list[Row]]

    def add(
        self, writer: str, committed: dict[TopicPartition, OffsetRange], truths: dict[TopicPartition, Truth], part: str
    ) -> None:
        """Commit the ranges with the rows of ``truths``, in new objects."""
        number = len(self.manifests)
        made = manifest_of(writer, number, committed, truths, part)
        files = tuple(replace(file, key=f"{number}/{file.key}") for file in made.files)
        for file in files:
            days = {item.day for item in file.days}
            offsets = range(file.first_offset, file.last_offset + 1)
            rows = [(truths[file.log][at], file.log, at) for at in offsets]
            self.objects[file.key] = [(day, owner, at) for day, owner, at in rows if day is not None and day in days]
        self.manifests.append(replace(made, files=files))

    def read(self, plan: Plan | CurrentPlan) -> list[Row]:
        return [row for item in plan.slices for row in self.objects[item.key] if row[2] in item.range]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """An archive, and a table whose days were published when the archive was smaller, some of them without a seal."""

    archive: Archive
    table: list[Row]
    published: dict[date, PublishedDay]


@st.composite
def stories(draw: st.DrawFn, *, lossy: bool) -> Story:
    """``lossy``: a copy may lack records that the log has."""
    size = draw(st.integers(1, 24))
    owners = [log(0), log(1)][: draw(st.integers(1, 2))]
    day_or_hole = st.sampled_from((*DAYS, DAYS[0], None))
    truths: dict[TopicPartition, Truth] = {
        owner: tuple(draw(st.lists(day_or_hole, min_size=size, max_size=size))) for owner in owners
    }
    archive = Archive(manifests=[], objects={})
    table: list[Row] = []
    published: dict[date, PublishedDay] = {}
    for _ in range(draw(st.integers(0, 7))):
        if archive.manifests and draw(st.integers(0, 2)) == 0:
            days = draw(st.sets(st.sampled_from(DAYS), min_size=1))
            table, published = publish(archive, table, published, sorted(days), sealed=draw(st.booleans()))
            continue
        copies = truths
        if lossy and draw(st.booleans()):
            lost = draw(st.sets(st.integers(0, size - 1)))
            copies = {
                owner: tuple(None if at in lost else day for at, day in enumerate(truth))
                for owner, truth in truths.items()
            }
        committed = {owner: draw(ranges(size)) for owner in owners if draw(st.booleans()) or owner is owners[0]}
        archive.add(draw(st.sampled_from("ab")), committed, copies, draw(st.sampled_from(("whole", "days", "rows"))))
    return Story(archive=archive, table=table, published=published)


def publish(
    archive: Archive, table: list[Row], published: dict[date, PublishedDay], days: Sequence[date], *, sealed: bool
) -> tuple[list[Row], dict[date, PublishedDay]]:
    """The table after a reconcile run over everything archived."""
    ends: dict[TopicPartition, int] = defaultdict(int)
    for manifest in archive.manifests:
        for item in manifest.ranges:
            ends[item.log] = max(ends[item.log], item.range.end)
    targets = [Target(log=owner, start=0, end=end, log_start=end, high_watermark=end) for owner, end in ends.items()]
    plan = make_plan(
        stream="flights",
        time_zone=ZONE,
        run="run",
        requested=days,
        targets=targets,
        manifests=archive.manifests,
        seals=[],
    )
    rows = [row for row in archive.read(plan) if row[0] in days]
    used = {item.target.log: normalise(part.range for part in item.used) for item in plan.logs}
    logs = [
        SealedLog(log=i.target.log, start=i.target.start, end=i.target.end, used=i.used, gaps=i.gaps, holes=i.holes)
        for i in plan.logs
    ]
    found = {
        day: PublishedDay(ranges=used, sealed={item.log: item.seen() for item in logs} if sealed else None)
        for day in days
    }
    return [row for row in table if row[0] not in days] + rows, {**published, **found}


def viewed(story: Story) -> tuple[Counter[Row], CurrentPlan]:
    """The view's rows: the table's without the stale parts, and the slices' inside the archive parts."""
    parts = [Tables.build(story.archive.manifests)]
    history = History(parts)
    plan = plan_current(
        stream="flights",
        history=history,
        spans=day_spans(parts),
        published=story.published,
        conflicts=find_conflicts(history),
    )

    def inside(row: Row, found: Sequence[ArchivePart] | Sequence[StalePart]) -> bool:
        day, owner, offset = row
        return any(offset in part for item in found if (item.day, item.log) == (day, owner) for part in item.ranges)

    kept = [row for row in story.table if not inside(row, plan.stale_parts)]
    return Counter(kept) + Counter(row for row in story.archive.read(plan) if inside(row, plan.archive_parts)), plan


def archived(story: Story) -> dict[Row, list[bool]]:
    """For each record that any copy has: of every copy of its offset, whether it has the record."""
    rows = {row for objects in story.archive.objects.values() for row in objects}
    found: dict[Row, list[bool]] = {row: [] for row in rows}
    for manifest in story.archive.manifests:
        held = {row for file in manifest.files for row in story.archive.objects[file.key]}
        for item in manifest.ranges:
            for row in rows:
                if row[1] == item.log and row[2] in item.range:
                    found[row].append(row in held)
    return found


@settings(max_examples=200)
@given(stories(lossy=False))
def test_every_archived_record_is_in_the_view_once(story: Story) -> None:
    found, _ = viewed(story)
    assert found == Counter(archived(story).keys())


@settings(max_examples=300)
@given(stories(lossy=True))
def test_a_record_missing_from_some_copies_is_in_the_view_if_a_dense_copy_has_it(story: Story) -> None:
    found, _ = viewed(story)
    everything = archived(story)
    assert set(found.values()) <= {1}
    assert found.keys() <= everything.keys()
    assert found.keys() >= {row for row, copies in everything.items() if all(copies)}
    # The log's own holes count as absent too, so only a copy without any is surely whole.
    for manifest in story.archive.manifests:
        for item in manifest.ranges:
            if item.rows == len(item.range):
                assert found.keys() >= {row for row in everything if row[1] == item.log and row[2] in item.range}


@settings(max_examples=100)
@given(stories(lossy=False))
def test_positions_give_the_tables_complete_end_and_an_upper_bound_of_the_rest(story: Story) -> None:
    _, plan = viewed(story)
    everything = archived(story).keys()
    for position in plan.positions:
        of_log = {row for row in everything if row[1] == position.log}
        unpublished = of_log - set(story.table)
        assert len(unpublished) <= position.unpublished_max
        assert all(row[2] >= position.published_to for row in unpublished)
        ends = [i.range for m in story.archive.manifests for i in m.ranges if i.log == position.log]
        assert position.archived_to == max(item.end for item in ends)
        held = {at for item in ends for at in range(item.start, item.end)}
        missing = {at for gap in position.gaps for at in range(gap.start, gap.end)}
        assert missing == set(range(min(held), max(held))) - held


def test_a_record_of_a_better_copy_archived_after_the_seal_is_in_the_view_once() -> None:
    archive = Archive(manifests=[], objects={})
    lacking: dict[TopicPartition, Truth] = {log(): (DAYS[0],) * 3 + (None,) + (DAYS[0],) * 6}
    whole: dict[TopicPartition, Truth] = {log(): (DAYS[0],) * 10}
    archive.add("a", {log(): span(0, 10)}, lacking, "days")
    table, published = publish(archive, [], {}, DAYS[:1], sealed=True)
    archive.add("b", {log(): span(0, 10)}, whole, "days")
    found, _ = viewed(Story(archive=archive, table=table, published=published))
    assert len(table) == 9
    assert found == Counter((DAYS[0], log(), at) for at in range(10))


def test_a_completely_published_day_is_not_read_from_the_archive() -> None:
    archive = Archive(manifests=[], objects={})
    truths: dict[TopicPartition, Truth] = {log(): (DAYS[0],) * 10 + (DAYS[1],) * 10}
    archive.add("a", {log(): span(0, 12)}, truths, "whole")
    archive.add("b", {log(): span(8, 20)}, truths, "days")
    table, published = publish(archive, [], {}, DAYS[:1], sealed=False)
    found, plan = viewed(Story(archive=archive, table=table, published=published))
    assert len(found) == 20
    assert plan.stale_parts == ()
    assert [(part.day, part.ranges, part.first_offset, part.records_max) for part in plan.archive_parts] == [
        (DAYS[1], (span(10, 20),), 10, 10)
    ]
    table, published = publish(archive, table, published, DAYS, sealed=False)
    _, plan = viewed(Story(archive=archive, table=table, published=published))
    assert (plan.archive_parts, plan.slices) == ((), ())
    (position,) = plan.positions
    assert (position.published_to, position.archived_to, position.unpublished_max) == (20, 20, 0)


def test_a_sealed_day_is_read_again_only_where_a_better_copy_was_archived_later() -> None:
    archive = Archive(manifests=[], objects={})
    whole: Truth = (DAYS[0],) * 10
    poor: Truth = (None, DAYS[0]) * 5
    archive.add("a", {log(): span(0, 10)}, {log(): poor}, "whole")
    archive.add("b", {log(): span(4, 8)}, {log(): poor}, "whole")
    table, published = publish(archive, [], {}, DAYS[:1], sealed=False)
    _, plan = viewed(Story(archive=archive, table=table, published=published))
    assert [(item.day, item.ranges) for item in plan.stale_parts] == [
        (DAYS[0], (span(4, 8),))
    ]  # nobody knows which it was
    table, published = publish(archive, [], {}, DAYS[:1], sealed=True)
    found, plan = viewed(Story(archive=archive, table=table, published=published))
    assert (plan.stale_parts, plan.archive_parts, len(found)) == ((), (), 5)
    archive.add("c", {log(): span(2, 6)}, {log(): whole}, "whole")
    found, plan = viewed(Story(archive=archive, table=table, published=published))
    assert [(item.day, item.ranges) for item in plan.stale_parts] == [(DAYS[0], (span(2, 6),))]
    assert sorted(row[2] for row in found) == [1, 2, 3, 4, 5, 7, 9]


@given(st.dictionaries(st.builds(log, st.integers(0, 12), st.sampled_from(("id-1", "a_B-9"))), st.lists(ranges())))
def test_ranges_survive_a_round_trip_through_the_snapshot_summary(
    found: dict[TopicPartition, list[OffsetRange]],
) -> None:
    parsed = parse_ranges(format_ranges(found), where="test")
    assert parsed == {owner: normalise(items) for owner, items in found.items()}
