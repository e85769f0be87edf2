"""Rollback: a day's rows become those of an earlier version again, as a new version that says so.

Nothing is deleted: the day gets one more version with the rows of the earlier one, published as any other and sealed
after the latest. Planning continues from what the last rebuilt version saw of the archive. So a run with nothing new
leaves the day alone, and late records rebuild it from the whole archive.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.core.days import date_ranges, micros
from tidemark.core.errors import ConflictError, IncompleteError, RequestError
from tidemark.core.plan import MainSnapshots
from tidemark.core.seal import Difference, Seal
from tidemark.definitions.stream import Stream
from tidemark.reconcile.history_rows import rollback_history
from tidemark.reconcile.lease import check_lease, holding
from tidemark.reconcile.lineage import step_with_lineage
from tidemark.reconcile.plan.day_copies import NAMED_MAX, rollback_conflicts, to_rebuild
from tidemark.reconcile.rebuild.version_diff import version_differences
from tidemark.reconcile.results import ROLLBACK, RollbackResult, SealedVersion
from tidemark.run import Run
from tidemark.spark.failures import task_error
from tidemark.tables.certificates import add_certificates
from tidemark.tables.columns import DAY, branch_name
from tidemark.tables.day_publications import DayPublication
from tidemark.tables.day_summaries import add_day_summaries
from tidemark.tables.history import write_history
from tidemark.tables.iceberg import IcebergTable, Publication, Staged
from tidemark.tables.reader import load_table
from tidemark.tables.seals import day_seals, previous_digest, write_seal
from tidemark.tables.snapshot_summary import snapshot_summary
from tidemark.tables.snapshots import main_snapshots, published_at, quarantined_at, shown_day


@dataclass(frozen=True, slots=True, kw_only=True)
class _New:
    """The version to make: the name it is published under, and main's snapshots at the decision."""

    run: str
    version: int
    main: MainSnapshots


def rollback_day(run: Run, spark: SparkSession, *, day: date, version: int) -> Seal:
    """Publish the rows of a day's earlier version, and its quarantine, as the next version; save rollback.json.

    The result is the seal of the day's latest version: of this rollback, or the one that has these rows already. A
    repeat finishes what was cut off, whatever the name of the repeat's run. Half a publication of another run, which
    died between the two tables, is replaced as well.

    It holds the stream's lease meanwhile. Raises RequestError for a version that was never sealed, ConflictError where
    another run holds the lease, where the version's snapshots have expired, where records have moved to or from other
    sealed days since, or where the day's rows are not the latest version's or moved meanwhile, IncompleteError where
    the earlier rows are not as many as its seal says, and FormatError or ServiceError where they can't be read. Readers
    then keep what they see.
    """
    with step_with_lineage(run, ROLLBACK) as attempt, holding(run, then_release=True):
        # Before anything is decided: publication is refused where the day moves from here on.
        main = main_snapshots(run.settings, run.stream)
        seals = day_seals(run.store, run.layout, day)
        wanted = _version(run, seals, day, version)
        latest = seals[-1]
        new = _New(run=f"rollback-{day}-{latest.version + 1}-to-{version}", version=latest.version + 1, main=main)
        tables = load_table(run.settings, run.stream.table), load_table(run.settings, run.stream.quarantine_table)
        intact = is_intact(shown_day(*tables, day), latest, new.run)
        already = intact and _rows_of(seals, latest) == _rows_of(seals, wanted)
        if not already:
            _require_own_records(run, wanted)
        sealed = latest if already else _seal(run, wanted, new, _publish(run, spark, wanted, new))
        add_certificates(run.settings, run.store, run.layout)
        add_day_summaries(run.store, run.layout, [day])
        if sealed.rolled_back_to is not None:  # by this rollback, or by one that was cut off before it wrote this
            write_history(run.settings, run.stream.name, [rollback_history(sealed)])
        attempt.result = RollbackResult(
            rolled_back_to=version,
            already=already,
            sealed=SealedVersion(
                day=day,
                version=sealed.version,
                key=run.layout.seal_key(day, sealed.version),
                sha256=sealed.digest(),
            ),
            rows_published=sealed.rows_published,
            rows_quarantined=sealed.rows_quarantined,
            snapshot_id=sealed.snapshot_id,
            quarantine_snapshot_id=sealed.quarantine_snapshot_id,
        )
        return sealed


def _version(run: Run, seals: Sequence[Seal], day: date, version: int) -> Seal:
    found = next((seal for seal in seals if seal.version == version), None)
    if found is None:
        raise RequestError(
            "the day has no such version",
            expected=", ".join(str(seal.version) for seal in seals) or "a day that was sealed",
            found=version,
            where=f"{run.stream.name}, {day}",
        )
    return found


def _require_own_records(run: Run, wanted: Seal) -> None:
    """Refuse a version whose records are in other sealed days now, or that leaves some in no day."""
    conflicts = rollback_conflicts(run, wanted)
    if conflicts:
        raise ConflictError(
            "records of the version are in other sealed days now, or would be in no day",
            expected="each record in one sealed day",
            found="; ".join(map(str, conflicts[:NAMED_MAX])),
            where=f"{run.stream.name}, {wanted.day} version {wanted.version}",
            hint="A key that decides days has changed since that version. To go back, restore the key, and rebuild"
            f" {date_ranges(to_rebuild(conflicts))} together: tidemark reconcile {run.stream.name} --from {wanted.day}"
            " --reassign-days, or the DAG with 'Reassign days'",
        )


def is_intact(shown: DayPublication | None, latest: Seal, name: str) -> bool:
    """Whether both tables show the latest version of the day, as far as history is left.

    They may also show what rollback ``name`` published before it was cut off, or half a publication beside the latest
    rows: its run is dead, as this one holds the lease. Publishing both tables ends either.

    Raises ConflictError where readers see rows of another run that are not sealed.
    """
    rows, aside = (shown.published, shown.quarantine) if shown is not None else (None, None)
    if rows is not None and rows.run != name and rows.snapshot_id != latest.snapshot_id:
        raise ConflictError(
            "the day's rows are not those of its latest version",
            expected=f"version {latest.version} of run {latest.run}",
            found=f"rows of run {rows.run} in snapshot {rows.snapshot_id}, not sealed",
            where=f"{latest.stream}, {latest.day}",
            hint="Let that run finish, or repeat it; reconciling the day with force makes a new version, too",
        )
    return (rows is None or rows.snapshot_id == latest.snapshot_id) and (
        aside is None or aside.snapshot_id == latest.quarantine_snapshot_id
    )


def _rows_of(seals: Sequence[Seal], seal: Seal) -> int:
    """The version that was rebuilt and whose rows this one has."""
    by_version = {item.version: item for item in seals}
    while seal.rolled_back_to is not None and seal.rolled_back_to in by_version:
        seal = by_version[seal.rolled_back_to]
    return seal.version


@contextmanager
def _unreadable(stream: Stream, wanted: Seal, where: str) -> Iterator[None]:
    """Spark's failure to copy rows of a table as an error of ours. Spark may not say which file it was."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        cause = task_error(error, where=where, personal=stream.has_personal)
        verify = f"tidemark verify {stream.name} {wanted.day} --version {wanted.version}"
        raise type(cause)(
            "the earlier version's rows can't be copied",
            found=cause.found or cause.problem,
            where=cause.where,
            hint="Readers keep what they see. Where a file is damaged or missing, put it back from a copy of the bucket"
            f" ('{verify}' names a data file), or roll back to another version; else repeat the rollback",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copied:
    """The new snapshots, and what they change against the latest version."""

    published: int
    quarantine: int
    difference: Difference | None


def _publish(run: Run, spark: SparkSession, wanted: Seal, new: _New) -> _Copied:
    """Stage the earlier rows in both tables, then publish them; the quarantine first, as in every publication."""
    aside = IcebergTable(spark, run.settings, run.stream.quarantine_table)
    table = IcebergTable(spark, run.settings, run.stream.table)
    at = quarantined_at(load_table(run.settings, run.stream.quarantine_table), wanted) or wanted.quarantine_snapshot_id
    staged_aside = _stage(run, aside, wanted, new, at=at, rows=wanted.rows_quarantined + wanted.rows_removed)
    at = published_at(load_table(run.settings, run.stream.table), wanted) or wanted.snapshot_id
    staged = _stage(run, table, wanted, new, at=at, rows=wanted.rows_published)
    changes = version_differences(run, table, branch_name(new.run), {wanted.day: new.version})
    summary = snapshot_summary(wanted.stream, {wanted.day: new.version}, {item.log: item.used for item in wanted.logs})

    def publish(target: IcebergTable, since: int | None, rows: Staged) -> int:
        publication = Publication(
            run=new.run,
            inputs=wanted.digest(),
            branch=branch_name(new.run),
            since=since,
            base=rows.base,
            staged=rows.snapshot,
            days=(wanted.day,),
            summary=summary,
            hint=f"'tidemark status {wanted.stream} {wanted.day}' shows its versions; roll back again if needed",
        )
        return target.publish(publication).snapshot

    check_lease(run)
    return _Copied(
        quarantine=publish(aside, new.main.quarantine, staged_aside),
        published=publish(table, new.main.published, staged),
        difference=changes[0].rows if changes else None,
    )


def _stage(run: Run, table: IcebergTable, wanted: Seal, new: _New, *, at: int | None, rows: int) -> Staged:
    where = f"{table.identifier} as of snapshot {at}"
    with _unreadable(run.stream, wanted, where):
        earlier = table.read_at(at).where(F.col(DAY) == F.lit(wanted.day))
        staged = table.stage(branch_name(new.run), earlier, [wanted.day], distribution="none")
    if dict(staged.rows) != ({wanted.day: rows} if rows else {}):
        raise IncompleteError(
            "the earlier version's rows are not as many as its seal says",
            expected=rows,
            found=sum(staged.rows.values()),
            where=where,
            hint="Nothing was published. 'tidemark verify' with --version shows what is missing; a run of the day"
            " with force rebuilds it from the archive",
        )
    return staged


def _seal(run: Run, wanted: Seal, new: _New, copied: _Copied) -> Seal:
    return write_seal(
        run,
        replace(
            wanted,
            version=new.version,
            run=new.run,
            sealed_at_us=micros(datetime.now(UTC)),
            previous=previous_digest(run, wanted.day, new.version),
            refilled_offsets=0,
            snapshot_id=copied.published,
            quarantine_snapshot_id=copied.quarantine,
            reason=None,
            rolled_back_to=wanted.version,
            difference=copied.difference,
            approval=None,  # the version that it repeats names who approved it
        ),
    )
