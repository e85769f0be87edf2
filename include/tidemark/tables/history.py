"""Write the history of sealed versions: four tables for all streams, which anyone queries.

A stream's month is one file of a table. Each write replaces it as a whole, so that files need no compaction and a
repeated write changes nothing. Streams commit to the same table at the same time: each repeats its commit until it is
the next one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.table import Table
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from tidemark.core.errors import FormatError, ServiceError, TidemarkError
from tidemark.settings import Settings
from tidemark.tables.history_columns import HISTORY_TABLES, RUNS, HistoryTable
from tidemark.tables.reader import open_catalog, pyiceberg_errors

Row = Mapping[str, Any]
SNAPSHOTS_MAX, _SNAPSHOTS_KEPT = 60, 20
_ATTEMPTS = 40  # many streams seal at the same time of day
_DAMAGED = "Restore the file from a copy of the bucket, or drop this table with its earlier days. Then clear the task"
_CONFLICTS = (CommitFailedException, ValidationException)
_PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    # The bounds of a file must show that it has only rows of one stream, or a commit reads and writes it once more.
    "write.metadata.metrics.column.stream": "full",
    "commit.manifest-merge.enabled": "true",
    # Each seal commits to the tables, so old metadata must not stay for ever.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_NEEDED = {
    "format-version": "2",
    # pyiceberg would repeat an append after another commit, without reading its rows. We read them first.
    "commit.retry.num-retries": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionHistory:
    """The rows of one sealed version by table. ``repeats``: the earlier version whose rows a rollback has, with all but
    its row of the runs."""

    day: date
    version: int
    run: str
    rows: Mapping[HistoryTable, Sequence[Row]]
    repeats: int | None = None


def write_history(settings: Settings, stream: str, versions: Sequence[VersionHistory]) -> None:
    """Write the rows of versions in place of those that the tables have of them.

    Raises as ``open_catalog`` and ``pyiceberg_errors`` do, and ServiceError where others' commits leave no chance. The
    versions are sealed all the same, and the error says so.
    """
    attempts = Retrying(
        retry=retry_if_exception_type(_CONFLICTS),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.1, max=3),
        reraise=True,
    )
    try:
        with open_catalog(settings) as catalog:
            for table in HISTORY_TABLES:
                try:
                    with pyiceberg_errors(table.name):
                        attempts(
                            lambda table=table: _replace(_loaded(catalog, settings, table), table, stream, versions)
                        )
                except _CONFLICTS as error:
                    raise ServiceError(
                        "other commits came first",
                        expected="a commit",
                        found=error,
                        where=f"table {table.name}",
                        hint="In Airflow, clear the task: it writes what is missing",
                    ) from error
    except TidemarkError as error:
        raise type(error)(
            f"the days are sealed, but their history is not written: {error.problem}",
            expected=error.expected,
            found=error.found,
            where=error.where,
            hint=_DAMAGED if isinstance(error, FormatError) else error.hint,
        ) from error


def _loaded(catalog: Catalog, settings: Settings, table: HistoryTable) -> Table:
    """The table, which is created if it does not exist."""
    namespace, identifier = settings.namespace, (settings.namespace, table.name)
    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        pass
    with _unless(lambda: catalog.namespace_exists(namespace)):
        catalog.create_namespace_if_not_exists(namespace)
    with _unless(lambda: catalog.table_exists(identifier)):
        catalog.create_table(
            identifier,
            table.schema(),
            location=settings.table_folder(table.name),
            partition_spec=table.partitions(),
            properties={**_PROPERTIES, **settings.table_properties, **_NEEDED},
        )
    return catalog.load_table(identifier)


@contextmanager
def _unless(exists: Callable[[], bool]) -> Iterator[None]:
    """Ignore the failure to create what another writer has created first: each catalog type raises another error."""
    try:
        yield
    except Exception:
        if not exists():
            raise


def _replace(loaded: Table, table: HistoryTable, stream: str, versions: Sequence[VersionHistory]) -> None:
    """Replace the months of the versions, in one commit; none if that changes nothing.

    The stream's lease keeps other writers away from its months. A writer that has committed since ``loaded`` was read
    makes this commit fail.
    """
    where = _months(stream, {item.day for item in versions})
    there = loaded.scan(row_filter=where).to_arrow().to_pylist()
    rows = pa.Table.from_pylist(merged(there, table, versions), schema=loaded.schema().as_arrow())
    if rows.to_pylist() == sorted(there, key=_order):
        return
    if there:
        loaded.overwrite(rows, overwrite_filter=where)
    else:
        loaded.append(rows)
    _leave_out_snapshots(loaded)


def _leave_out_snapshots(table: Table) -> None:
    """Of many snapshots keep the newest in the metadata, which each commit copies. Maintenance deletes their files."""
    times = sorted(item.timestamp_ms for item in table.metadata.snapshots)
    if len(times) > SNAPSHOTS_MAX:
        oldest = datetime.fromtimestamp(times[-_SNAPSHOTS_KEPT] / 1000, UTC)
        with suppress(*_CONFLICTS, ValueError):  # another writer does it at the same moment
            table.maintenance.expire_snapshots().older_than(oldest).commit()


def _months(stream: str, days: set[date]) -> str:
    """The rows of a stream in the months of the days, as a filter."""
    firsts = sorted({day.replace(day=1) for day in days})
    ends = ((first + timedelta(days=31)).replace(day=1) for first in firsts)
    months = (f"(day >= '{first}' AND day < '{end}')" for first, end in zip(firsts, ends, strict=True))
    return f"stream = '{stream}' AND ({' OR '.join(months)})"


def merged(there: Sequence[Row], table: HistoryTable, versions: Sequence[VersionHistory]) -> list[Row]:
    """The rows that are there, with those of the versions in the place of theirs."""
    replaced = {(item.day, item.version) for item in versions}
    rows = [row for row in there if (row["day"], row["version"]) not in replaced]
    for item in versions:
        if item.repeats is None or table == RUNS:
            rows += item.rows[table]
            continue
        repeated = [row for row in rows if (row["day"], row["version"]) == (item.day, item.repeats)]
        rows += [{**row, "version": item.version, "run": item.run} for row in repeated]
    return sorted(rows, key=_order)


def _order(row: Row) -> tuple[date, int]:
    return row["day"], row["version"]
