"""The current view, pinned: one snapshot of the published table and one state of the archive. Needs no Spark.

The table itself says which offsets it has of a day: its files name the snapshot that added them, and the snapshot's
summary lists the offsets that were read. If that snapshot expired, its seal lists them. Seals alone are not enough:
they are written after publication, and they stay when the table is set back to an earlier snapshot.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date

from pyiceberg.table import DataScan, Table

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import read_archived
from tidemark.core.errors import IncompleteError
from tidemark.core.layout import Layout
from tidemark.core.offsets import normalise
from tidemark.core.planner import NO_PREFERENCE, Preference
from tidemark.core.seal import Seal
from tidemark.current_view.plan import CurrentPlan, PublishedDay, Ranges, day_spans, find_conflicts, plan_current
from tidemark.definitions.stream import Stream, load_stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.reader import load_table
from tidemark.tables.seals import last_sealed, read_seal, seals_by_day
from tidemark.tables.snapshot_summary import DAYS_PROPERTY, RANGES_PROPERTY, ROWS_PROPERTY, parse_ranges
from tidemark.tables.snapshots import DayFiles, day_files


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A stream at one moment. Nothing that is published, rolled back or archived later changes what it reads.

    ``snapshot_id`` is None before the first publication. ``days_not_ours`` have rows in the table that Tidemark did not
    publish; with Spark, these days come from the archive. ``plan.positions`` give for each log the offset up to which
    the published rows are complete, and the number of archived records after it; ``plan.archive_parts`` give the same
    by day.
    """

    stream: Stream
    settings: Settings
    snapshot_id: int | None
    days_not_ours: tuple[date, ...]
    plan: CurrentPlan
    table: Table | None = field(repr=False)

    def published(self) -> DataScan:
        """A pyiceberg scan of the pinned snapshot's published rows. Before the first one, raises IncompleteError."""
        if self.table is None:
            raise IncompleteError(
                "nothing of the stream is published yet",
                expected=f"a table {self.stream.table}",
                found="no table",
                where=f"namespace {self.settings.namespace}",
                hint="Reconcile a day first, or read the archive with Spark: tidemark.current_view.frame",
            )
        return self.table.scan(snapshot_id=self.snapshot_id)


def pin(settings: Settings, stream_name: str) -> View:
    """Pin the stream's current state. The table is read before the archive, which therefore has all of its records."""
    stream = load_stream(stream_name, settings.streams_dir)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    table = load_table(settings, stream.table)
    snapshot = table.current_snapshot() if table else None
    files = day_files(table, snapshot) if table and snapshot else {}
    archived = read_archived(store, layout, stream)
    parts = [*(item.tables for item in archived.segments), *archived.tables]
    history = History(parts)
    conflicts = find_conflicts(history)
    whole = {day: own for day, own in files.items() if len(own.added_by) == 1 and not own.deletions}
    found = {day: _ranges(table, day, own) for day, own in whole.items() if table}
    needs_seal = [day for day, ranges in found.items() if ranges is None or conflicts]
    seals = _seals(store, layout, needs_seal, files)
    published = {day: item for day, ranges in found.items() if (item := _published(ranges, seals.get(day))) is not None}
    return View(
        stream=stream,
        settings=settings,
        snapshot_id=table.metadata.current_snapshot_id if table else None,
        days_not_ours=tuple(sorted(files.keys() - published.keys())),
        plan=plan_current(
            stream=stream.name,
            history=history,
            spans=day_spans(parts),
            published=published,
            conflicts=conflicts,
            prefer=as_sealed(store, layout, history, stream.day_settings),
        ),
        table=table,
    )


def as_sealed(store: ObjectStore, layout: Layout, history: History, day_settings: str) -> Preference:
    """The copies that the last sealed day has used. It is asked for only if copies may have other day settings."""
    last = last_sealed(store, layout, recent=date.min) if history.has_other_settings(day_settings) else None
    seal = read_seal(store, layout, *last) if last is not None else None
    return Preference(used={item.log: item.used for item in seal.logs}) if seal is not None else NO_PREFERENCE


def _ranges(table: Table, day: date, files: DayFiles) -> Ranges | None:
    """The offsets in the summary of the day's snapshot.

    None if the snapshot expired, or its summary does not name the day or gives another number of rows.
    """
    (identity,) = files.added_by
    snapshot = table.snapshot_by_id(identity)
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    if RANGES_PROPERTY not in summary or day.isoformat() not in json.loads(summary.get(DAYS_PROPERTY, "[]")):
        return None
    if ROWS_PROPERTY in summary and json.loads(summary[ROWS_PROPERTY]).get(day.isoformat(), 0) != files.rows:
        return None
    return parse_ranges(summary[RANGES_PROPERTY], where=f"snapshot {identity}")


def _seals(
    store: ObjectStore, layout: Layout, days: Collection[date], files: Mapping[date, DayFiles]
) -> dict[date, Seal]:
    """The seals of the days' rows: each names the snapshot that added them, and their number."""
    found = seals_by_day(store, layout, days)
    return {
        day: seal
        for day, seals in found.items()
        for seal in seals
        if seal.snapshot_id in files[day].added_by and seal.rows_published == files[day].rows
    }


def _published(ranges: Ranges | None, seal: Seal | None) -> PublishedDay | None:
    if ranges is None and seal is not None:
        ranges = {item.log: normalise(used.range for used in item.used) for item in seal.logs}
    if ranges is None:
        return None
    return PublishedDay(ranges=ranges, sealed={item.log: item.seen() for item in seal.logs} if seal else None)
