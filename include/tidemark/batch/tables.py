"""The tables as readers without Spark see them, through pyiceberg."""

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import date, timedelta
from typing import Any, Literal, NamedTuple

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy.exc import SQLAlchemyError

from tidemark.core.errors import FormatError, ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.core.seal import Seal
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings

DAYS_PROPERTY, RUN_PROPERTY, INPUTS_PROPERTY = "tidemark.days", "tidemark.run", "tidemark.inputs"
ROWS_PROPERTY = "tidemark.rows"  # of each day with any
# In the quarantine the place of the record that stands for a duplicate by key; null for a rejected one.
KEPT = ("kept_topic_id", "kept_partition", "kept_offset")
_EPOCH = date(1970, 1, 1)
_READERS = 16
_WITHOUT_FILE = (
    "Put it back from a copy of the bucket. Where it is a data file ('tidemark verify' names it), a run of its day with"
    " force gives readers a new version without it; versions that have it stay unreadable"
)
# How pyiceberg's decoder ends on a damaged manifest, beside an EOFError: it takes every length and index as it comes.
_DAMAGED_AVRO = (LookupError, OverflowError, MemoryError, SystemError, struct.error, zlib.error)

Standing = tuple[Literal["published", "quarantined", "removed"], str | None]


def standing(settings: Settings, stream: Stream, seal: Seal, log: TopicPartition, offset: int) -> Standing | None:
    """What became of a record in the snapshots of one seal: published, quarantined with its reason, or removed.

    The latter as a duplicate by key, with the record that was kept. None where neither snapshot has it: it expired, or
    the record's row is in no table.
    """
    record = f"_topic_id = '{log.topic_id}' AND _kafka_partition = {log.partition} AND _offset = {offset}"
    record = f"_day = '{seal.day}' AND {record}"
    table, quarantine = load_table(settings, stream.table), load_table(settings, stream.quarantine_table)
    if _rows(table, published_at(table, seal), record, ("_offset",)):
        return "published", None
    for row in _rows(quarantine, quarantined_at(quarantine, seal), record, ("reason", *KEPT)):
        topic_id, partition, kept = (row.get(name) for name in KEPT)
        if kept is None:
            return "quarantined", str(row["reason"])
        again = "" if topic_id == log.topic_id else f" of topic id {topic_id}"
        return "removed", f"{row['reason']} of partition {partition}, offset {kept}{again}"
    return None


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


@contextmanager
def told_by_pyiceberg(name: str, file: str | None = None) -> Iterator[None]:
    """Explain what pyiceberg passes on as it found it, while a table is read, or a ``file`` of it, which is named.

    Raises ServiceError where S3 refuses or does not answer, FormatError for a file that is gone or damaged.
    """
    try:
        yield
    except (OSError, EOFError, ValueError, *_DAMAGED_AVRO) as error:
        where = f"table {name}" if file is None else f"table {name}, {file}"
        # Arrow tells of all that S3 answered as an OSError in these words, but of an object that is not there.
        if isinstance(error, PermissionError) or "AWS Error" in str(error):
            raise ServiceError("a table can't be read", expected="an answer of S3", found=error, where=where) from error
        found = error if file is None or file in str(error) else f"{error} in {file}"
        raise FormatError("a table's file is gone or damaged", found=found, where=where, hint=_WITHOUT_FILE) from error


def main_snapshots(settings: Settings, stream: Stream) -> dict[str, int | None]:
    """The current snapshots as ``snapshot`` and ``quarantine_snapshot``; None for a table that is not there yet."""
    tables = {"snapshot": stream.table, "quarantine_snapshot": stream.quarantine_table}
    found = {key: load_table(settings, name) for key, name in tables.items()}
    return {key: table.metadata.current_snapshot_id if table else None for key, table in found.items()}


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


def _rows(table: Table | None, snapshot_id: int | None, record: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The record's rows in a snapshot, of the columns those it has; none where there is no such table or snapshot."""
    if table is None or snapshot_id is None or table.snapshot_by_id(snapshot_id) is None:
        return []
    scan = table.scan(row_filter=record, snapshot_id=snapshot_id)
    known = scan.projection().column_names
    with told_by_pyiceberg(table.name()[-1]):
        found: list[dict[str, Any]] = scan.select(*(name for name in columns if name in known)).to_arrow().to_pylist()
    return found


def load_table(settings: Settings, name: str) -> Table | None:
    """A table of the catalog as it is now, by its stream's name for it; None where there is none yet.

    Raises ServiceError where the catalog fails, and what ``told_by_pyiceberg`` does where the metadata can't be read.
    """
    # SQLAlchemy's form of the JDBC URL: a file's path is absolute, so it has a slash of its own.
    uri = settings.catalog_uri.removeprefix("jdbc:").replace("sqlite:", "sqlite:///", 1)
    properties = {
        "uri": uri,
        "warehouse": settings.warehouse,
        "s3.region": settings.s3_region,
        "s3.access-key-id": settings.s3_access_key.get_secret_value(),
        "s3.secret-access-key": settings.s3_secret_key.get_secret_value(),
        **({"s3.endpoint": settings.s3_endpoint} if settings.s3_endpoint else {}),
    }
    try:
        with closing(SqlCatalog(settings.catalog, **properties)) as catalog, told_by_pyiceberg(name):
            return catalog.load_table((settings.namespace, name))
    except NoSuchTableError:
        return None
    except SQLAlchemyError as error:
        raise ServiceError(
            "the catalog can't be read", expected="its tables", found=error, where=f"catalog {settings.catalog}"
        ) from error
