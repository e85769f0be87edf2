"""What the snapshots of a table say: which run published a day, and which files a day has."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import NamedTuple

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tidemark.core.plan import MainSnapshots
from tidemark.core.seal import Seal
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings
from tidemark.tables.reader import load_table, told_by_pyiceberg
from tidemark.tables.snapshot_summary import DAYS_PROPERTY, INPUTS_PROPERTY, RUN_PROPERTY

_EPOCH = date(1970, 1, 1)
_READERS = 16


def published_at(table: Table | None, seal: Seal) -> int | None:
    """The snapshot of the published table to read a version's rows of its day by; None where they are gone.

    It is the one that the seal names. Once that has expired it is main's oldest, for as long as the day's files there
    are those that the version added.
    """
    return _held(table, seal.snapshot_id, seal.day, rows=seal.rows_published)


def quarantined_at(table: Table | None, seal: Seal) -> int | None:
    """``published_at`` of the quarantine table."""
    return _held(table, seal.quarantine_snapshot_id, seal.day, rows=seal.rows_read - seal.rows_published)


def _held(table: Table | None, snapshot_id: int | None, day: date, *, rows: int) -> int | None:
    """``rows`` tells only whether the version has any: of one without, a snapshot without is as good."""
    if table is None or snapshot_id is None or table.snapshot_by_id(snapshot_id) is not None:
        return snapshot_id if table is not None else None
    # Main's history is cut at one place, so what was published before it stands in the first snapshot behind it.
    oldest = table.current_snapshot()
    while oldest is not None and oldest.parent_snapshot_id is not None:
        before = table.snapshot_by_id(oldest.parent_snapshot_id)
        if before is None:
            break
        oldest = before
    if oldest is None:
        return None
    added = day_files(table, oldest).get(day, DayFiles()).added_by
    return oldest.snapshot_id if added == ({snapshot_id} if rows else set()) else None


class DayFiles(NamedTuple):
    """A day's data files in a snapshot: what snapshots added them, their rows, and whether some of them are deleted."""

    added_by: frozenset[int] = frozenset()
    rows: int = 0
    deletions: bool = False


def day_files(table: Table, snapshot: Snapshot) -> dict[date, DayFiles]:
    """The days with files in a snapshot; a file tells for good what added it. Raises as ``told_by_pyiceberg`` does."""

    def read(manifest: ManifestFile) -> list[tuple[int, DayFiles]]:
        data = manifest.content == ManifestContent.DATA
        return [
            (day, DayFiles(frozenset({item.snapshot_id or 0}), item.data_file.record_count) if data else deleted)
            for item in manifest.fetch_manifest_entry(table.io)
            if (day := item.data_file.partition[0]) is not None  # without a day it is nobody's we know
        ]

    deleted = DayFiles(deletions=True)

    found: dict[date, DayFiles] = {}
    with told_by_pyiceberg(table.name()[-1]), ThreadPoolExecutor(_READERS) as pool:
        for entries in pool.map(read, snapshot.manifests(table.io)):
            for number, more in entries:
                day = _EPOCH + timedelta(days=number)
                one = found.get(day, DayFiles())
                found[day] = DayFiles(
                    one.added_by | more.added_by, one.rows + more.rows, one.deletions or more.deletions
                )
    return found


def main_snapshots(settings: Settings, stream: Stream) -> MainSnapshots:
    """The current snapshots of the published and the quarantine table."""
    published, quarantine = (load_table(settings, name) for name in (stream.table, stream.quarantine_table))
    return MainSnapshots(
        published=published.metadata.current_snapshot_id if published else None,
        quarantine=quarantine.metadata.current_snapshot_id if quarantine else None,
    )


class LastPublication(NamedTuple):
    """The run that published a day last, its snapshot, and what that was made of.

    One run may publish a day again: as another version, or as other rows of one that is not sealed.
    """

    run: str
    snapshot_id: int
    inputs: str


def last_publication(table: Table | None, day: date) -> LastPublication | None:
    """What readers see of a day in a table; None where nobody published it, as far as the table's history goes back."""
    snapshot = table.current_snapshot() if table else None
    while table is not None and snapshot is not None:
        told = snapshot.summary.additional_properties if snapshot.summary else {}
        if day.isoformat() in json.loads(told.get(DAYS_PROPERTY, "[]")):
            return LastPublication(told[RUN_PROPERTY], snapshot.snapshot_id, told[INPUTS_PROPERTY])
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
    return None
