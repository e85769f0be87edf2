"""A table's snapshots: which run published a day, and which files a day has."""

from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import NamedTuple

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tidemark.core.days import EPOCH_DAY
from tidemark.core.plan import MainSnapshots
from tidemark.core.seal import Seal
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings
from tidemark.tables.day_publications import DayPublication, day_publications
from tidemark.tables.main_history import MainHistory, MainSnapshot
from tidemark.tables.reader import load_table, pyiceberg_errors

_READERS = 16


def published_at(table: Table | None, seal: Seal) -> int | None:
    """The snapshot of the published table with a version's rows; None if they have expired.

    It is the one that the seal names. Once that has expired, it is main's oldest, as long as the day's files there are
    those that the version added.
    """
    return _snapshot_with(table, seal.snapshot_id, seal.day, rows=seal.rows_published)


def quarantined_at(table: Table | None, seal: Seal) -> int | None:
    """``published_at`` of the quarantine table."""
    return _snapshot_with(table, seal.quarantine_snapshot_id, seal.day, rows=seal.rows_read - seal.rows_published)


def _snapshot_with(table: Table | None, snapshot_id: int | None, day: date, *, rows: int) -> int | None:
    """For a version without ``rows``, any snapshot without files of the day will do."""
    if table is None or snapshot_id is None or table.snapshot_by_id(snapshot_id) is not None:
        return snapshot_id if table is not None else None
    # Expiry removes the oldest snapshots, so the oldest one left has everything that was published before it.
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
    """A day's data files in a snapshot: the snapshots that added them, their rows, and whether some are deleted."""

    added_by: frozenset[int] = frozenset()
    rows: int = 0
    deletions: bool = False


def day_files(table: Table, snapshot: Snapshot) -> dict[date, DayFiles]:
    """The days with files in a snapshot. Raises what ``pyiceberg_errors`` raises."""

    def read(manifest: ManifestFile) -> list[tuple[int, DayFiles]]:
        data = manifest.content == ManifestContent.DATA
        return [
            (day, DayFiles(frozenset({item.snapshot_id or 0}), item.data_file.record_count) if data else deleted)
            for item in manifest.fetch_manifest_entry(table.io)
            if (day := item.data_file.partition[0]) is not None  # Tidemark writes no file without a day
        ]

    deleted = DayFiles(deletions=True)
    found: dict[date, DayFiles] = {}
    with pyiceberg_errors(table.name()[-1]), ThreadPoolExecutor(_READERS) as pool:
        for entries in pool.map(read, snapshot.manifests(table.io)):
            for number, more in entries:
                day = date.fromordinal(EPOCH_DAY + number)
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


def shown_day(table: Table | None, quarantine: Table | None, day: date) -> DayPublication | None:
    """What readers of both tables see of a day; None if no snapshot left has published it. See ``day_publications``."""
    return day_publications(main_history(table), main_history(quarantine)).get(day)


def shown_days(settings: Settings, stream: Stream) -> dict[date, DayPublication]:
    """``shown_day`` of every day, with the tables as they are now."""
    table, quarantine = (main_history(load_table(settings, name)) for name in (stream.table, stream.quarantine_table))
    return day_publications(table, quarantine)


def main_history(table: Table | None) -> MainHistory:
    """The history of a loaded table's main branch; empty without a table."""
    if table is None:
        return MainHistory()
    snapshots = {item.snapshot_id: item for item in table.metadata.snapshots}
    snapshot, found = table.current_snapshot(), []
    parent: int | None = None
    while snapshot is not None:
        found.append(
            MainSnapshot(snapshot.snapshot_id, snapshot.summary.additional_properties if snapshot.summary else {})
        )
        parent = snapshot.parent_snapshot_id
        snapshot = snapshots.get(parent or 0)
    return MainHistory(snapshots=tuple(found), whole=parent is None)
