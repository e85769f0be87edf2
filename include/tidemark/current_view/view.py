"""The live view, pinned: one snapshot of the published table and one state of the archive. Needs no Spark.

What the table holds of a day is told by the table itself: its files name the snapshot that added them, and that one's
summary the offsets that were read; of a snapshot that expired the seal that names it. Seals alone could not tell: they
are written after the rows are published, and stay when the table goes back to an earlier snapshot.
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
from tidemark.core.seal import Seal
from tidemark.current_view.plan import CurrentPlan, PublishedDay, Ranges, day_spans, find_doubts, plan_current
from tidemark.definitions.stream import Stream, load_stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.reader import load_table
from tidemark.tables.seals import seals_by_day
from tidemark.tables.snapshot_summary import DAYS_PROPERTY, RANGES_PROPERTY, ROWS_PROPERTY, parse_ranges
from tidemark.tables.snapshots import DayFiles, day_files


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A stream at one moment: nothing published, rolled back or archived later changes what is read through it.

    ``snapshot_id`` is None before the first publication. ``foreign_days`` have rows in the table that no publication of
    Tidemark put there; with Spark they come from the archive instead. ``plan.positions`` say per log up to which offset
    the published rows are complete, and how many archived records are behind them; ``plan.cuts`` the same per day.
    """

    stream: Stream
    settings: Settings
    snapshot_id: int | None
    foreign_days: tuple[date, ...]
    plan: CurrentPlan
    table: Table | None = field(repr=False)

    def published(self) -> DataScan:
        """The published rows of the pinned snapshot: pyiceberg's ``filter``, ``select``, ``to_arrow_batch_reader``.

        Raises IncompleteError before the first publication.
        """
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
    """The stream as it is now. The table first: whatever it has by then, the archive has when that is read.

    Raises ConfigError for an unknown stream, and what ``read_archived`` raises for a damaged archive.
    """
    stream = load_stream(stream_name, settings.streams_dir)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    table = load_table(settings, stream.table)
    snapshot = table.current_snapshot() if table else None
    files = day_files(table, snapshot) if table and snapshot else {}
    archived = read_archived(store, layout, stream)
    parts = [*(item.tables for item in archived.segments), *archived.tables]
    history = History(parts)
    doubts = find_doubts(history)
    whole = {day: own for day, own in files.items() if len(own.added_by) == 1 and not own.deletions}
    told = {day: _told(table, day, own) for day, own in whole.items() if table}
    unsure = [day for day, ranges in told.items() if ranges is None or doubts]
    seals = _seals(store, layout, unsure, files)
    published = {day: item for day, ranges in told.items() if (item := _published(ranges, seals.get(day))) is not None}
    return View(
        stream=stream,
        settings=settings,
        snapshot_id=table.metadata.current_snapshot_id if table else None,
        foreign_days=tuple(sorted(files.keys() - published.keys())),
        plan=plan_current(
            stream=stream.name,
            history=history,
            spans=day_spans(parts),
            published=published,
            doubts=doubts,
        ),
        table=table,
    )


def _told(table: Table, day: date, files: DayFiles) -> Ranges | None:
    """The offsets that the summary of the day's snapshot tells; None where it is gone or tells nothing of the day, or
    other rows than there are."""
    (identity,) = files.added_by
    snapshot = table.snapshot_by_id(identity)
    told = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    if RANGES_PROPERTY not in told or day.isoformat() not in json.loads(told.get(DAYS_PROPERTY, "[]")):
        return None
    if ROWS_PROPERTY in told and json.loads(told[ROWS_PROPERTY]).get(day.isoformat(), 0) != files.rows:
        return None
    return parse_ranges(told[RANGES_PROPERTY], where=f"snapshot {identity}")


def _seals(
    store: ObjectStore, layout: Layout, days: Collection[date], files: Mapping[date, DayFiles]
) -> dict[date, Seal]:
    """The seals of the days' rows: those that name the snapshot which added them, and as many as there are."""
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
