"""A table's snapshots on main, and who published which day. Read without pyiceberg where that is possible.

Importing pyiceberg takes longer than a quick command may, and a SQLite catalog is one row to read. Other catalogs are
asked through pyiceberg; the metadata file is then read in the same way.
"""

import gzip
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from tidemark.core.errors import FormatError, ServiceError
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.snapshot_summary import DAYS_PROPERTY, INPUTS_PROPERTY, RUN_PROPERTY

# A snapshot without any of them changed no file: each table begins with one.
_CHANGES = {"added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files"}
_SQLITE = "jdbc:sqlite:"
_CHECK_URI = "Check TIDEMARK_CATALOG_URI"
_NO_FILE = "The first reconcile run creates the file. If one has run, check TIDEMARK_CATALOG_URI"
_LOCATION = (
    "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)


class MainSnapshot(NamedTuple):
    """One snapshot, with the properties of its summary."""

    snapshot_id: int
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MainHistory:
    """The snapshots that led to the current one, the newest first. ``whole``: none of them has expired."""

    snapshots: tuple[MainSnapshot, ...] = ()
    whole: bool = True

    @property
    def ours(self) -> bool:
        """Whether the summaries show everything that readers see: only runs changed files, and nothing has expired."""
        return self.whole and all(
            RUN_PROPERTY in item.summary or _CHANGES.isdisjoint(item.summary) for item in self.snapshots
        )


class LastPublication(NamedTuple):
    """The run that published a day last, its snapshot and its inputs.

    One run may publish a day again: as another version, or with other rows if it is not sealed.
    """

    run: str
    snapshot_id: int
    inputs: str


def publications(history: MainHistory) -> Iterator[tuple[tuple[date, ...], LastPublication]]:
    """The publications on main, each with its days, the newest first."""
    for item in history.snapshots:
        if days := json.loads(item.summary.get(DAYS_PROPERTY, "[]")):
            found = LastPublication(item.summary[RUN_PROPERTY], item.snapshot_id, item.summary[INPUTS_PROPERTY])
            yield tuple(map(date.fromisoformat, days)), found


def last_of_days(history: MainHistory) -> dict[date, LastPublication]:
    """The publication of each day that readers see, of days that a snapshot left has published."""
    found: dict[date, LastPublication] = {}
    for days, item in publications(history):
        found = {**dict.fromkeys(days, item), **found}
    return found


def require_catalog(settings: Settings) -> None:
    """Raise ServiceError, within 10 s, if the catalog's server does not answer. A SQLite catalog has none.

    Glue and Hive are not checked here. Their outage shows in the calls that need them.
    """
    if settings.catalog_uri.startswith(_SQLITE):
        return
    from tidemark.tables.catalogs import QUESTION
    from tidemark.tables.reader import open_catalog

    with open_catalog(settings, QUESTION):
        pass


def read_main_history(settings: Settings, store: ObjectStore, name: str, *, somebody_waits: bool) -> MainHistory:
    """The history of a table's main branch; empty if there is no table.

    If ``somebody_waits``, a catalog that does not answer is waited for as long as a page may; otherwise as a step may.

    Raises ServiceError if the catalog or S3 does not answer, FormatError if the metadata is missing or damaged.
    """
    location = _location(settings, name, somebody_waits=somebody_waits)
    return MainHistory() if location is None else _parse(_metadata(settings, store, location), location)


def _location(settings: Settings, name: str, *, somebody_waits: bool) -> str | None:
    if not settings.catalog_uri.startswith(_SQLITE):
        from tidemark.tables.catalogs import QUESTION, WORK
        from tidemark.tables.reader import load_table

        table = load_table(settings, name, QUESTION if somebody_waits else WORK)
        return None if table is None else table.metadata_location
    path = settings.catalog_uri.removeprefix(_SQLITE)
    if not Path(path).exists() and Path(path).parent.is_dir():  # the first table creates the file
        return None
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as catalog:
            row = catalog.execute(_LOCATION, (settings.catalog, settings.namespace, name)).fetchone()
    except sqlite3.Error as error:
        if "no such table" in str(error):  # nobody has created one in this catalog yet
            return None
        raise ServiceError(
            "the catalog can't be read",
            expected="its tables",
            found=error,
            where=path,
            hint=_CHECK_URI if Path(path).exists() else _NO_FILE,
        ) from error
    return None if row is None else str(row[0])


def _metadata(settings: Settings, store: ObjectStore, location: str) -> bytes:
    parts = urlsplit(location)
    if parts.netloc != store.bucket:
        store = ObjectStore(settings.model_copy(update={"bucket": parts.netloc}))
    body = store.get(parts.path.lstrip("/"))
    if body is None:
        raise FormatError(
            "a table's file is missing or damaged",
            found="no object",
            where=location,
            hint="Restore it from a copy of the bucket",
        )
    return gzip.decompress(body) if location.endswith(".gz.metadata.json") else body


def _parse(body: bytes, where: str) -> MainHistory:
    try:
        metadata = json.loads(body)
        snapshots: dict[int, Any] = {item["snapshot-id"]: item for item in metadata.get("snapshots", ())}
        current = metadata.get("current-snapshot-id")
        found = []
        while current in snapshots:
            item = snapshots[current]
            properties = {name: text for name, text in item.get("summary", {}).items() if name != "operation"}
            found.append(MainSnapshot(current, properties))
            current = item.get("parent-snapshot-id")
        return MainHistory(snapshots=tuple(found), whole=current in {None, -1})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError("a table's file is missing or damaged", found=repr(error), where=where) from error
