"""Hypothesis strategies: ranges, and whole made-up worlds (a log's truth, its archive, its seals) for the planner."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from itertools import groupby

from hypothesis import strategies as st

from tests.plans import make_plan
from tidemark.core.layout import DataName, Layout
from tidemark.core.manifest import CommittedRange, DataFile, DayRows, Manifest
from tidemark.core.object_list import ObjectList
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Gap, Plan, Target, Used
from tidemark.core.seal import Seal, SealedLog

DAYS = (date(2013, 1, 14), date(2013, 1, 15), date(2013, 1, 16))
LAYOUT = Layout(prefix="", stream="flights")
ZONE = "America/New_York"
# What every offset of a log came out as: a row of that day, or nothing (a marker, an aborted record).
Truth = tuple[date | None, ...]


def log(partition: int = 0, topic_id: str = "id-1") -> TopicPartition:
    return TopicPartition(topic="flights", topic_id=topic_id, partition=partition)


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(start=start, end=end)


@st.composite
def ranges(draw: st.DrawFn, limit: int = 24) -> OffsetRange:
    start = draw(st.integers(0, limit - 1))
    return span(start, draw(st.integers(start + 1, limit)))


def offsets(items: Sequence[OffsetRange]) -> set[int]:
    return {offset for item in items for offset in range(item.start, item.end)}


def files_of(owner: TopicPartition, committed: OffsetRange, truth: Truth, cut: str) -> tuple[DataFile, ...]:
    """The objects a batch writes for a range: one (``whole``), one per day (``days``) or per 3 rows (``rows``)."""
    rows = [(offset, truth[offset]) for offset in range(committed.start, committed.end) if truth[offset] is not None]
    if cut == "days":
        by_day = sorted(rows, key=lambda row: str(row[1]))
        groups = [(str(day), sorted(group)) for day, group in groupby(by_day, key=lambda row: row[1])]
    elif cut == "rows":
        groups = [("rows", rows[at : at + 3]) for at in range(0, len(rows), 3)]
    else:
        groups = [("whole", rows)] if rows else []
    return tuple(
        _file(owner, committed, path, seq, [(o, d) for o, d in group if d]) for seq, (path, group) in enumerate(groups)
    )


def _file(owner: TopicPartition, committed: OffsetRange, path: str, seq: int, rows: list[tuple[int, date]]) -> DataFile:
    name = DataName(path=path, topic=owner.topic, partition=owner.partition, range=committed, seq=seq)
    days = []
    for day in sorted({day for _, day in rows}):
        own = [offset for offset, its_day in rows if its_day == day]
        days.append(DayRows(day=day, rows=len(own), first_offset=min(own), last_offset=max(own)))
    return DataFile(
        key=LAYOUT.data_key(name),
        log=owner,
        range=committed,
        rows=len(rows),
        bytes=100 * len(rows),
        first_offset=min(offset for offset, _ in rows),
        last_offset=max(offset for offset, _ in rows),
        min_timestamp_us=0,
        max_timestamp_us=1,
        days=tuple(days),
        checksum="0" * 64,
        sha256=sha256(LAYOUT.data_key(name).encode()).hexdigest(),
    )


def manifest_of(
    writer: str, batch: int, committed: dict[TopicPartition, OffsetRange], truths: dict[TopicPartition, Truth], cut: str
) -> Manifest:
    files = {owner: files_of(owner, item, truths[owner], cut) for owner, item in committed.items()}
    return Manifest(
        stream="flights",
        writer=writer,
        batch=batch,
        committed_at_us=0,
        time_zone=ZONE,
        settings="0123456789abcdef",
        previous=None,
        ranges=tuple(
            CommittedRange(log=owner, range=item, rows=sum(file.rows for file in files[owner]))
            for owner, item in committed.items()
        ),
        files=tuple(file for own in files.values() for file in own),
    )


def seal_of(day: date, logs: Sequence[SealedLog], *, version: int = 1, run: str = "earlier") -> Seal:
    return Seal(
        stream="flights",
        day=day,
        version=version,
        run=run,
        time_zone=ZONE,
        sealed_at_us=0,
        previous=None if version == 1 else "0" * 64,
        rows_read=0,
        rows_published=0,
        rows_quarantined=0,
        duplicates_trimmed=0,
        refilled_offsets=0,
        quality="passed",
        snapshot_id=1,
        quarantine_snapshot_id=None,
        logs=tuple(logs),
        reason="requested",
        planned_at_us=0,
        objects=ObjectList(count=0, bytes=0, sha256=sha256().hexdigest()),
    )


def sealed_log(owner: TopicPartition, start: int, end: int, lost: Sequence[OffsetRange] = ()) -> SealedLog:
    used, at = [], start
    for item in [*sorted(lost), None]:
        stop = end if item is None else item.start
        if at < stop:
            used.append(Used(range=span(at, stop), committed=span(at, stop), writer="old", batch=at))
        at = end if item is None else item.end
    gaps = tuple(Gap(range=item, kind="lost") for item in sorted(lost))
    return SealedLog(log=owner, start=start, end=end, used=tuple(used), gaps=gaps, holes=())


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    truths: dict[TopicPartition, Truth]
    manifests: tuple[Manifest, ...]
    targets: tuple[Target, ...]
    seals: tuple[Seal, ...]
    requested: tuple[date, ...]
    force: bool


@st.composite
def worlds(draw: st.DrawFn) -> World:
    size = draw(st.integers(1, 24))
    owners = [log(0), log(1)][: draw(st.integers(1, 2))]
    day_or_hole = st.sampled_from((*DAYS, DAYS[0], None))
    truths: dict[TopicPartition, Truth] = {
        owner: tuple(draw(st.lists(day_or_hole, min_size=size, max_size=size))) for owner in owners
    }
    manifests = []
    for batch in range(draw(st.integers(0, 6))):
        committed = {owner: draw(ranges(size)) for owner in owners if draw(st.booleans()) or owner is owners[0]}
        writer = draw(st.sampled_from(("query-a", "query-b")))
        cut = draw(st.sampled_from(("whole", "days", "rows")))
        manifests.append(manifest_of(writer, batch, committed, truths, cut))
    targets = []
    for owner in owners:
        start, end = sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size))))
        log_start = draw(st.integers(start, size))
        targets.append(
            Target(
                log=owner, start=start, end=end, log_start=log_start, high_watermark=draw(st.integers(end, size + 3))
            )
        )
    seals = []
    for day in draw(st.sets(st.sampled_from(DAYS))):
        logs = []
        for owner in owners:
            if draw(st.integers(0, 4)) == 0:
                continue  # a partition the seal does not know
            end = draw(st.integers(0, size))
            lost = [span(1, 3)] if end > 4 and draw(st.booleans()) else []
            logs.append(sealed_log(owner, 0, end, lost))
        seals.append(seal_of(day, logs))
    return World(
        truths=truths,
        manifests=tuple(manifests),
        targets=tuple(targets),
        seals=tuple(seals),
        requested=tuple(draw(st.lists(st.sampled_from(DAYS), max_size=3))),
        force=draw(st.booleans()),
    )


def plan_of(world: World, *, unproven: Collection[date] = (), scheduled: bool = False) -> Plan:
    """The product's plan of a world."""
    return make_plan(
        stream="flights",
        time_zone=ZONE,
        run="run-1",
        requested=world.requested,
        targets=world.targets,
        manifests=world.manifests,
        seals=world.seals,
        force=world.force,
        scheduled=scheduled,
        unproven=unproven,
    )
