"""Maintenance of a stream's two tables and of the history: drop old audit branches, expire snapshots, delete files of
no snapshot.

What to remove is decided from the tables' metadata, without Spark; Iceberg's procedures remove it. Each step commits
metadata first, then deletes the files that became unused. A kill in between leaves orphan files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from json import loads
from operator import attrgetter
from typing import Any

from py4j.protocol import Py4JJavaError
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.core.errors import ServiceError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.maintenance.archive import Unfinished, abort_upload, unfinished_uploads
from tidemark.maintenance.expiry import ABANDONED_AFTER, Expiry, Snapshot, TableState, plan_expiry
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.history_columns import HISTORY_TABLES
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.reader import load_table
from tidemark.tables.seals import seals_by_day
from tidemark.tables.snapshot_summary import DAYS_PROPERTY, RUN_PROPERTY

# Long enough for readers of such small tables. Their rows are the history, and need no earlier snapshots.
HISTORY_RETENTION = timedelta(hours=1)
_MAIN = "main"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMaintenance:
    """The maintenance of one table, ``done`` or only shown.

    ``orphans`` are URLs of old files that no snapshot has. ``uploads`` are old unfinished uploads below its folder.
    ``deleted`` counts the files that were deleted with the expired snapshots.
    """

    name: str
    expiry: Expiry
    orphans: tuple[str, ...]
    uploads: tuple[Unfinished, ...]
    deleted: int
    done: bool


def has_tables(settings: Settings, stream: Stream) -> bool:
    """Whether any of the stream's tables exists; needs no Spark."""
    return any(load_table(settings, name) is not None for name in _names(stream))


def maintain_tables(
    spark: SparkSession, settings: Settings, stream: Stream, *, now: datetime, delete: bool
) -> tuple[TableMaintenance, ...]:
    """Maintain both tables, or without ``delete`` show what would be done.

    Safe beside readers and runs. It keeps what was current within the stream's retention, what an audit branch younger
    than ``ABANDONED_AFTER`` needs, and what other branches or tags refer to. Orphans and uploads are removed once they
    are older than ``ABANDONED_AFTER``. Raises ServiceError if the catalog or S3 refuses; what was done until then
    stays done.
    """
    return tuple(
        _maintain(spark, settings, name, partial(_plan, settings, stream, name, now), delete=delete)
        for name in _names(stream)
        if load_table(settings, name) is not None
    )


def maintain_history(
    spark: SparkSession, settings: Settings, *, now: datetime, delete: bool
) -> tuple[TableMaintenance, ...]:
    """``maintain_tables`` of the history tables, which all streams share: the first stream's maintenance does it.

    Only tables with snapshots older than ``HISTORY_RETENTION`` are maintained. After that they have none, so that the
    next stream's maintenance does not search them again.
    """

    def plan(name: str) -> Expiry:
        table = load_table(settings, name)
        assert table is not None
        return plan_expiry(_state(name, table), {}, now=now, retention=HISTORY_RETENTION)

    there = (item.name for item in HISTORY_TABLES if load_table(settings, item.name) is not None)
    wanted = [name for name in there if plan(name).snapshots]
    return tuple(_maintain(spark, settings, name, partial(plan, name), delete=delete) for name in wanted)


def _maintain(
    spark: SparkSession, settings: Settings, name: str, plan: Callable[[], Expiry], *, delete: bool
) -> TableMaintenance:
    table = _MaintainedTable(spark, settings, name)
    expiry = plan()
    dropped = expiry.branches
    deleted = 0
    if delete:
        dropped = {branch: tip for branch, tip in expiry.branches.items() if table.drop(branch, tip)}
        expiry = plan()  # a branch that moved since the first plan needs its snapshots
        deleted = table.expire(expiry.snapshots)
    before = datetime.now(UTC) - ABANDONED_AFTER
    orphans = table.orphans(before, delete=delete)
    uploads = _uploads(settings, name, before, abort=delete)
    done = Expiry(branches=dropped, snapshots=expiry.snapshots, kept=expiry.kept, unsealed=expiry.unsealed)
    return TableMaintenance(name=name, expiry=done, orphans=orphans, uploads=uploads, deleted=deleted, done=delete)


def _names(stream: Stream) -> tuple[str, str]:
    return stream.quarantine_table, stream.table


def _uploads(settings: Settings, name: str, before: datetime, *, abort: bool) -> tuple[Unfinished, ...]:
    """Unfinished uploads below the table's folder, started before a moment: a killed rebuild leaves some."""
    table = load_table(settings, name)
    assert table is not None
    # The catalog may put tables into another bucket than the archive's.
    bucket, _, path = table.location().removeprefix("s3://").partition("/")
    store = ObjectStore(settings.model_copy(update={"bucket": bucket}))
    # With a slash at the end: one table's name is a prefix of the other's.
    folder = path.rstrip("/") + "/"
    stale = (item for item in unfinished_uploads(store, folder) if item.started < before)
    return tuple(item for item in stale if not abort or abort_upload(store, item))


def _plan(settings: Settings, stream: Stream, name: str, now: datetime) -> Expiry:
    table = load_table(settings, name)
    assert table is not None
    state = _state(name, table)
    days = {day for item in state.snapshots.values() for day in item.days}
    seals = seals_by_day(ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name), days)
    which = attrgetter("snapshot_id" if name == stream.table else "quarantine_snapshot_id")
    sealed = {day: which(found[-1]) for day, found in seals.items() if found}
    return plan_expiry(state, sealed, now=now, retention=timedelta(days=stream.batch.snapshot_retention_days))


def _state(name: str, table: Table) -> TableState:
    refs = table.metadata.refs
    snapshots = {}
    for item in table.metadata.snapshots:
        summary = item.summary.additional_properties if item.summary else {}
        snapshots[item.snapshot_id] = Snapshot(
            id=item.snapshot_id,
            parent=item.parent_snapshot_id,
            at=_EPOCH + timedelta(milliseconds=item.timestamp_ms),
            run=summary.get(RUN_PROPERTY),
            days=frozenset(map(date.fromisoformat, loads(summary.get(DAYS_PROPERTY, "[]")))),
        )
    return TableState(
        name=name,
        snapshots=snapshots,
        main=table.metadata.current_snapshot_id or 0,
        branches={
            key: ref.snapshot_id
            for key, ref in refs.items()
            if ref.snapshot_ref_type == SnapshotRefType.BRANCH and key != _MAIN
        },
        tags={key: ref.snapshot_id for key, ref in refs.items() if ref.snapshot_ref_type == SnapshotRefType.TAG},
    )


class _MaintainedTable(IcebergTable):
    """A table with the operations that only maintenance needs."""

    def drop(self, branch: str, tip: int) -> bool:
        """Remove a branch that is still at ``tip``; False if it has moved or is missing."""

        def act() -> bool:
            table = self._load()
            found = table.refs().get(branch)
            if found is None or found.snapshotId() != tip:
                return False
            # Iceberg commits against the metadata that it read: a move of the branch in between wins.
            table.manageSnapshots().removeBranch(branch).commit()
            return True

        return self._retry(act)

    def expire(self, snapshots: tuple[int, ...]) -> int:
        """Expire exactly these snapshots, and return the number of files deleted with them.

        With explicit ids Iceberg compares the reachable files before and after. Its faster way, by age alone, deletes
        what each snapshot removed, and so a file that a later snapshot has added again.
        """
        if not snapshots:
            return 0
        # Without older_than Iceberg would also expire by its default age.
        (row,) = self._call(
            "expire_snapshots",
            older_than="TIMESTAMP '1970-01-01 00:00:00'",
            snapshot_ids=f"array({', '.join(map(str, snapshots))})",
            stream_results="true",
        )
        return int(sum(row[name] for name in row.__fields__ if name.startswith("deleted_")))

    def orphans(self, before: datetime, *, delete: bool) -> tuple[str, ...]:
        """URLs of files below the table's folder that no snapshot has and that were written before a moment."""
        moment = before.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
        rows = self._call(
            "remove_orphan_files",
            older_than=f"TIMESTAMP '{moment}'",
            dry_run=str(not delete).lower(),
            prefix_listing="true",  # by the catalog's client: Hadoop has no file system for s3://
        )
        return tuple(sorted(row.orphan_file_location for row in rows))

    def _call(self, procedure: str, **arguments: str) -> list[Any]:
        """Call a repeatable procedure of the catalog; ``arguments`` are SQL. The session's time zone is UTC."""
        catalog = self.identifier.partition(".")[0]
        given = ", ".join(f"{name} => {value}" for name, value in arguments.items())
        call = f"CALL {catalog}.system.{procedure}(table => '{self.identifier}', {given})"
        try:
            return self._repeat(lambda: self._spark.sql(call).collect())
        except (PySparkException, Py4JJavaError) as error:
            raise ServiceError(
                f"Iceberg's {procedure} failed",
                found=str(error).splitlines()[0],
                where=self.identifier,
                hint="What it had done stays done. Run the maintenance again",
            ) from error
