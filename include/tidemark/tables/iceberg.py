"""The published and quarantine tables: creation, the audit branch, and atomic publication.

Spark writes the rows. Branches and publication use Iceberg's Java ``Table``, because neither SQL nor PyIceberg offers a
transaction with these preconditions. A publication replaces whole days. It succeeds if only other days changed since
the branch was created, and is refused if one of its own days did. tests/spark/test_private_apis.py fails when Iceberg's
version changes, and names what to check.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from tidemark.core.days import EPOCH_DAY
from tidemark.core.errors import ConflictError, ServiceError
from tidemark.core.renames import Renamed
from tidemark.settings import Settings
from tidemark.spark.java import java_session, jvm
from tidemark.spark.records import no_rows
from tidemark.tables.columns import DAY
from tidemark.tables.day_publications import earlier_attempt
from tidemark.tables.main_history import MainSnapshot
from tidemark.tables.schema_evolution import Change, Moved, Widened, evolution, stored
from tidemark.tables.snapshot_summary import DAYS_PROPERTY, INPUTS_PROPERTY, ROWS_PROPERTY, RUN_PROPERTY

T = TypeVar("T")

PROVEN_WITH = "1.11.0"  # the version of Iceberg
_ATTEMPTS = 12
_CAUSES_MAX = 10
_PROPERTIES = {
    "format-version": "2",
    # The rebuild decides how many tasks write; a shuffle would only copy every row again.
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    "write.parquet.compression-codec": "zstd",
    "write.target-file-size-bytes": str(256 * 1024 * 1024),
    "commit.retry.num-retries": "20",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A rebuild's commit on an audit branch, based on main's snapshot ``base``. ``rows`` per day are from metadata."""

    base: int
    snapshot: int
    files: int
    rows: Mapping[date | None, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A staged branch to publish, and the summary of its snapshot.

    ``inputs`` is a fingerprint of what was read: the same run with the same inputs publishes once. ``since`` is main's
    snapshot when the run was planned. ``held`` are days on the branch that must not be published. ``hint`` says what to
    do if another run published a day since then. ``sealed``: the run has sealed the days: a repeat does nothing.
    """

    run: str
    inputs: str
    branch: str
    since: int | None
    base: int
    staged: int
    days: tuple[date, ...]
    summary: Mapping[str, str]
    hint: str
    held: tuple[date, ...] = ()
    sealed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The snapshot on main; ``already`` if an earlier attempt of the same run made it."""

    snapshot: int
    already: bool


class IcebergTable:
    """One table, partitioned by ``_day``, in a Spark session. Java's errors are raised as ours."""

    def __init__(self, spark: SparkSession, settings: Settings, name: str) -> None:
        self._spark = spark
        self.namespace = f"{settings.catalog}.{settings.namespace}"
        self.identifier = f"{self.namespace}.{name}"
        self._properties = {**_PROPERTIES, **settings.table_properties}
        if folder := settings.table_folder(name):
            self._properties["location"] = folder

    def ensure(self, schema: StructType, renamed: Renamed) -> tuple[Change, ...]:
        """Create the table with an empty snapshot, which a branch needs; or change its columns to the schema's.

        ``renamed`` maps a column to its earlier names. Returns the changes, which are one commit. Raises ConfigError
        with every difference, and changes nothing, if one of them is not allowed.
        """
        if not self._retry(lambda: self._spark.catalog.tableExists(self.identifier)):
            evolution(StructType(), schema, renamed).require_allowed(self.identifier)
            self._retry(lambda: self._create(schema))
        return self._retry(lambda: self._evolve(schema, renamed))

    def read(self, branch: str) -> DataFrame:
        return self._spark.read.option("branch", branch).table(self.identifier)

    def read_at(self, snapshot: int | None) -> DataFrame:
        """The rows as of a snapshot in the table's current columns, matched by id; a newer column is null.

        Raises ConflictError if the table no longer has the snapshot.
        """
        table = self._load()
        if snapshot is None or table.snapshot(snapshot) is None:
            raise ConflictError(
                "the snapshot has expired",
                expected=f"snapshot {snapshot}",
                found="no such snapshot",
                where=self.identifier,
                hint="Its rows can't be read any more. A run with force rebuilds the day from the archive",
            )
        rows = self._spark.sql(f"SELECT * FROM {self.identifier} VERSION AS OF {snapshot}")  # noqa: S608 - our names
        then, now = table.schemas().get(table.snapshot(snapshot).schemaId()), table.schema()
        if then is None or then.sameSchema(now):
            return rows
        earlier = [(then.findColumnName(field.fieldId()), field.name()) for field in now.columns()]
        return rows.select(*(F.col(f"`{was}`").alias(name) for was, name in earlier if was)).to(self._columns(now))

    def stage(self, branch: str, rows: DataFrame | None, days: Sequence[date], *, distribution: str) -> Staged:
        """Create the branch from main, or reset it to main, and replace ``days`` on it by ``rows`` in one commit.

        ``distribution`` is Iceberg's write distribution mode. A day without rows becomes empty; None means no rows.
        """
        base = self._retry(lambda: self._branch(branch))
        if rows is None:  # no query needed
            days_only = self._filter(days)
            self._retry(lambda: self._load().newOverwrite().overwriteByRowFilter(days_only).toBranch(branch).commit())
        else:
            target = f"{self.identifier}.`branch_{branch}`"
            rows.writeTo(target).option("distribution-mode", distribution).overwrite(F.col(DAY).isin(list(days)))
        table = self._load()
        snapshot = table.snapshot(branch)
        added = list(snapshot.addedDataFiles(table.io()))
        counts: dict[date | None, int] = {}
        for file in added:
            day = self._day(file)
            counts[day] = counts.get(day, 0) + file.recordCount()
        return Staged(base=base, snapshot=snapshot.snapshotId(), files=len(added), rows=counts)

    def publish(self, publication: Publication) -> Published:
        """Replace the days on main by the branch's files and drop the branch, in one transaction.

        Raises ConflictError if one of the days changed since the branch was created, or if the branch is not the
        audited one: the run must rebuild.
        """
        return self._retry(lambda: self._publish(publication))

    def history(self) -> list[dict[str, Any]]:
        """Main's snapshots, newest first: ``id`` and the ``summary`` of each."""
        table = self._load()
        return [{"id": item.snapshotId(), "summary": _mapping(item.summary())} for item in self._ancestors(table)]

    def branches(self) -> set[str]:
        return {str(name) for name in self._load().refs()}

    @property
    def _iceberg(self) -> Any:
        return jvm(self._spark).org.apache.iceberg

    def _load(self) -> Any:
        return self._iceberg.spark.Spark3Util.loadIcebergTable(java_session(self._spark), self.identifier)

    def _create(self, schema: StructType) -> None:
        """Create namespace and table. If another writer is first, each catalog type raises another error."""
        catalog = self._spark.catalog
        try:
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.namespace}")
        except Py4JJavaError:
            if not catalog.databaseExists(self.namespace):
                raise
        writer = no_rows(self._spark, schema).writeTo(self.identifier).using("iceberg")
        for key, value in self._properties.items():
            writer = writer.tableProperty(key, value)
        try:
            writer.partitionedBy(F.col(DAY)).create()
        except (AnalysisException, Py4JJavaError):
            if not catalog.tableExists(self.identifier):
                raise

    def _columns(self, schema: Any) -> StructType:
        return StructType.fromJson(json.loads(self._convert(schema).json()))

    @property
    def _convert(self) -> Any:
        """Iceberg's conversion between its schemas and Spark's, both ways."""
        return self._iceberg.spark.SparkSchemaUtil.convert

    def _evolve(self, schema: StructType, renamed: Renamed) -> tuple[Change, ...]:
        """Change the columns. They are compared with the metadata that the commit replaces, so no change is missed."""
        table = self._load()
        wanted = evolution(self._columns(table.schema()), schema, renamed)
        wanted.require_allowed(self.identifier)
        if wanted.changes:
            kinds = self._convert(java_session(self._spark).parseDataType(stored(schema).json()))
            update = table.updateSchema()
            # Inside one change Iceberg uses the names from before it.
            before = {item.name: item.earlier for item in wanted.changes if isinstance(item, Moved)}
            for item in wanted.changes:
                if isinstance(item, Moved):
                    update = update.renameColumn(item.earlier, item.name)
                    continue
                path = (before.get(item.path[0], item.path[0]), *item.path[1:])
                kind = kinds.findType(".".join(item.path))
                if isinstance(item, Widened):
                    update = update.updateColumn(".".join(path), kind)
                else:
                    update = update.addColumn(".".join(path[:-1]) or None, path[-1], kind)
            update.commit()
        return wanted.changes

    def _ancestors(self, table: Any) -> Any:
        for identity in self._iceberg.util.SnapshotUtil.currentAncestorIds(table):
            yield table.snapshot(identity)

    def _branch(self, branch: str) -> int:
        table = self._load()
        base: int = table.currentSnapshot().snapshotId()
        change = table.manageSnapshots()
        known = table.refs().get(branch) is not None
        (change.replaceBranch(branch, base) if known else change.createBranch(branch, base)).commit()
        return base

    def _publish(self, wanted: Publication) -> Published:
        table = self._load()
        main = (MainSnapshot(item.snapshotId(), _mapping(item.summary())) for item in self._ancestors(table))
        before = earlier_attempt(main, run=wanted.run, inputs=wanted.inputs, days=wanted.days, sealed=wanted.sealed)
        if before is not None:
            if table.refs().get(wanted.branch) is not None:  # a repeated rebuild may have left it
                table.manageSnapshots().removeBranch(wanted.branch).commit()
            return Published(snapshot=before, already=True)
        self._require_unchanged(table, wanted)
        self._require_branch(table, wanted)
        transaction = table.newTransaction()
        self._overwrite(transaction.newOverwrite(), table, wanted).commit()
        transaction.manageSnapshots().removeBranch(wanted.branch).commit()
        transaction.commitTransaction()
        table.refresh()
        # Another writer may have committed since: ours is the run's newest snapshot, not always the current one.
        ours = next(item for item in self._ancestors(table) if item.summary().get(RUN_PROPERTY) == wanted.run)
        return Published(snapshot=ours.snapshotId(), already=False)

    def _overwrite(self, change: Any, table: Any, wanted: Publication) -> Any:
        which = self._filter(wanted.days)
        change = change.overwriteByRowFilter(which).validateFromSnapshot(wanted.base).conflictDetectionFilter(which)
        change = change.validateNoConflictingData().validateNoConflictingDeletes()
        files = table.snapshot(wanted.staged).addedDataFiles(table.io())
        added = [file for file in files if self._day(file) not in wanted.held]
        if added:  # Iceberg refuses this check if there is no file.
            change = change.validateAddedFilesMatchOverwriteFilter()
        rows: Counter[str] = Counter()
        for file in added:
            change = change.addFile(file)
            rows[str(self._day(file))] += file.recordCount()
        summary = {
            **wanted.summary,
            ROWS_PROPERTY: json.dumps(rows, sort_keys=True),
            RUN_PROPERTY: wanted.run,
            INPUTS_PROPERTY: wanted.inputs,
            DAYS_PROPERTY: _days_json(wanted.days),
        }
        for key, value in summary.items():
            change = change.set(key, value)
        return change

    def _day(self, file: Any) -> date | None:
        number = file.partition().get(0, jvm(self._spark).java.lang.Class.forName("java.lang.Integer"))
        return None if number is None else date.fromordinal(EPOCH_DAY + number)

    def _filter(self, days: Sequence[date]) -> Any:
        values = jvm(self._spark).java.util.ArrayList()
        for day in days:
            values.add(day.isoformat())
        return getattr(self._iceberg.expressions.Expressions, "in")(DAY, values)  # "in" is a keyword of Python

    def _require_branch(self, table: Any, wanted: Publication) -> None:
        tip = table.snapshot(wanted.branch) if table.refs().get(wanted.branch) is not None else None
        if tip is None or tip.snapshotId() != wanted.staged:
            raise ConflictError(
                "the audit branch is not the one that the rebuild wrote",
                expected=f"snapshot {wanted.staged}",
                found="no branch" if tip is None else f"snapshot {tip.snapshotId()}",
                where=f"{self.identifier} branch {wanted.branch}",
                hint="Run the rebuild step again",
            )

    def _require_unchanged(self, table: Any, wanted: Publication) -> None:
        """Raise ConflictError if another run published one of the days since this run was planned.

        Iceberg's own validation covers the time from this check to the commit, and writers that are not ours. But it
        compares files, so it misses a publication that replaced an empty day by an empty day.
        """
        for snapshot in self._ancestors(table):
            if snapshot.snapshotId() == wanted.since:
                return
            summary = snapshot.summary()
            if summary.get(RUN_PROPERTY) == wanted.run:
                continue
            moved = sorted(set(json.loads(summary.get(DAYS_PROPERTY) or "[]")) & {d.isoformat() for d in wanted.days})
            if moved:
                raise self._moved(wanted, f"run {summary.get(RUN_PROPERTY)} published {', '.join(moved)} since")
        if wanted.since is not None:
            raise self._moved(wanted, f"snapshot {wanted.since} is no longer in main's history")

    def _moved(self, wanted: Publication, found: str) -> ConflictError:
        return ConflictError(
            "another run has moved a day since this run was planned",
            expected=f"{', '.join(day.isoformat() for day in wanted.days)} as of snapshot {wanted.since}",
            found=found,
            where=self.identifier,
            hint=wanted.hint,
        )

    def _repeat(self, action: Callable[[], T]) -> T:
        """Repeat ``action``, which must load the table each time, while only another writer's commit prevents it.

        Iceberg can't replay a transaction that changes a branch, and SQLite answers "busy" to a second writer.
        """
        attempts = Retrying(
            retry=retry_if_exception(_is_concurrent_commit),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.1, max=3),
            reraise=True,
        )
        return attempts(action)

    def _retry(self, action: Callable[[], T]) -> T:
        """``_repeat`` a commit, and explain its failure."""
        try:
            return self._repeat(action)
        except Py4JJavaError as error:
            names = _java_classes(error)
            detail = str(error.java_exception.getMessage()).splitlines()[0]
            if "org.apache.iceberg.exceptions.ValidationException" in names:
                raise ConflictError(
                    "Iceberg refused the commit",
                    expected="no change to the same days since the branch was created",
                    found=detail,
                    where=self.identifier,
                    hint="Start a new run of the days",
                ) from error
            raise ServiceError(
                "Iceberg could not commit",
                found=f"{names[0]}: {detail}",
                where=self.identifier,
                hint="Check the catalog and S3, then run the step again",
            ) from error


def _days_json(days: Sequence[date]) -> str:
    return json.dumps([day.isoformat() for day in days])


def _java_classes(error: Py4JJavaError) -> list[str]:
    names: list[str] = []
    cause = error.java_exception
    while cause is not None and len(names) < _CAUSES_MAX:
        names.append(str(cause.getClass().getName()))
        cause = cause.getCause()
    return names


def _is_concurrent_commit(error: BaseException) -> bool:
    if not isinstance(error, Py4JJavaError):
        return False
    names = _java_classes(error)
    return "org.apache.iceberg.exceptions.CommitFailedException" in names or "SQLITE_BUSY" in str(error)


def _mapping(java: Any) -> dict[str, str]:
    return {str(key): str(java.get(key)) for key in java}
