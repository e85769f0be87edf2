"""Maintenance of the tables removes what is not needed, without effect on readers, proofs, rollbacks and runs."""

import os
import sqlite3
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.batch.logs import MONDAY, TUESDAY, Log, at
from tests.batch.steps import pass_audit
from tests.conftest import MakeStream, Produce
from tidemark.cli.app import app
from tidemark.core.errors import ConflictError
from tidemark.core.layout import Layout
from tidemark.current_view.view import pin
from tidemark.maintenance import tables as maintenance
from tidemark.maintenance.archive import Unfinished, unfinished_uploads
from tidemark.maintenance.run import MAINTAIN, maintain_run
from tidemark.maintenance.tables import maintain_history, maintain_tables
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.reconcile.rollback import rollback_day
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.s3 import ObjectStore, s3_client
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack
from tidemark.tables import iceberg
from tidemark.tables.columns import QUARANTINE_SCHEMA
from tidemark.tables.history_columns import RECONCILIATION, RUNS
from tidemark.tables.iceberg import IcebergTable, _is_concurrent_commit
from tidemark.tables.reader import load_table
from tidemark.tables.versions import day_versions
from tidemark.verify.day import verify_day


@pytest.fixture
def raw(settings: Settings, make_stream: MakeStream, produce: Produce) -> Log:
    """A log without records."""
    stream = make_stream(time_zone="America/New_York", value_format="raw", value_schema=None, batch={"wait_seconds": 0})
    return Log(stream=stream, settings=settings, produce_records=produce)


@pytest.fixture
def log(spark: SparkSession, raw: Log) -> Log:
    """Monday in two versions, Tuesday in one, and a run that was given up on its audit branch."""
    log = raw
    log.produce(4, at(MONDAY, 9))
    log.produce(3, at(TUESDAY, 9))
    reconcile(log, spark, "first", MONDAY, TUESDAY)
    log.produce(2, at(MONDAY, 20))
    reconcile(log, spark, "second", TUESDAY)
    staged(log, spark, "given-up", TUESDAY, force=True)
    return log


def staged(log: Log, spark: SparkSession, name: str, *days: date, force: bool = False) -> Run:
    run = log.run(name)
    plan_run(run, list(days), force)
    refill_run(run, spark)
    finalize_plan_run(run)
    rebuild_run(run, spark)
    return run


def reconcile(log: Log, spark: SparkSession, name: str, *days: date) -> None:
    run = staged(log, spark, name, *days)
    pass_audit(run, spark)
    publish_run(run, spark)
    seal_run(run)


def table_of(log: Log, name: str) -> Table:
    table = load_table(log.settings, name)
    assert table is not None
    return table


def offsets(log: Log) -> dict[date, list[int]]:
    """The published offsets of each day, as a reader without Spark sees them now."""
    table = table_of(log, log.stream.table)
    found: dict[date, list[int]] = {}
    for row in table.scan(selected_fields=("_day", "_offset")).to_arrow().sort_by("_offset").to_pylist():
        found.setdefault(row["_day"], []).append(row["_offset"])
    return found


def objects(log: Log, table: str) -> dict[str, int]:
    return {item.key: item.size for item in log.store.list(f"warehouse/{log.settings.namespace}/{table}/")}


def age(stack: LocalStack, log: Log) -> None:
    """Make all objects of both tables eight days old."""
    then = time.time() - timedelta(days=8).total_seconds()
    folder = stack.folder / "s3" / "data" / log.settings.bucket  # where the S3 server keeps objects
    for table in (log.stream.table, log.stream.quarantine_table):
        for key in objects(log, table):
            os.utime(folder / key, (then, then))


def verdict(log: Log, day: date, version: int | None = None) -> str:
    found = verify_day(log.settings, log.stream.name, day, version)
    return f"{found.verdict} {[str(one) for item in found.checks for one in item.differences]}"


@pytest.mark.conformance(13)
def test_uploads_of_killed_rebuilds_are_aborted_in_both_tables_folders(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, client = make_stream(), s3_client(settings)
    tables = (stream.quarantine_table, stream.table)
    for table in tables:
        IcebergTable(spark, settings, table).ensure(QUARANTINE_SCHEMA, {})
    keys = [
        f"warehouse/{settings.namespace}/{name}/data/_day=2013-01-14/{age}"
        for name in (*tables, f"{stream.table}_of_another")  # of which the table's name is a part
        for age in ("old", "young")
    ]
    for key in keys:
        upload = client.create_multipart_upload(Bucket=settings.bucket, Key=key)["UploadId"]
        client.upload_part(Bucket=settings.bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"part")

    def aged(store: ObjectStore, prefix: str) -> list[Unfinished]:
        """The S3 server reports the current time as every upload's start."""
        week = timedelta(days=7, minutes=1)
        return [
            replace(item, started=item.started - week) if item.key.endswith("old") else item
            for item in unfinished_uploads(store, prefix)
        ]

    monkeypatch.setattr(maintenance, "unfinished_uploads", aged)

    def unfinished() -> set[str]:
        there = client.list_multipart_uploads(Bucket=settings.bucket, Prefix="warehouse/").get("Uploads", ())
        return {item["Key"] for item in there}.intersection(keys)

    shown = maintain_tables(spark, settings, stream, now=datetime.now(UTC), delete=False)
    assert [[upload.key for upload in item.uploads] for item in shown] == [[keys[0]], [keys[2]]]
    assert unfinished() == set(keys)

    layout = Layout(prefix=settings.prefix, stream=stream.name)
    run = Run(stream=stream, settings=settings, store=ObjectStore(settings), layout=layout, name="maintain")
    maintain_run(run, spark)

    saved: dict[str, Any] = run.require(MAINTAIN)["tables"]
    assert [saved[table]["uploads_aborted"] for table in tables] == [[keys[0]], [keys[2]]]
    assert unfinished() == {keys[1], *keys[3:]}


@pytest.mark.conformance(52)
def test_maintenance_removes_only_what_no_reader_or_run_needs(
    stack: LocalStack, spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, settings = log.stream, log.settings
    tables = (stream.quarantine_table, stream.table)
    published = {MONDAY: [0, 1, 2, 3, 7, 8], TUESDAY: [4, 5, 6]}
    orphans = [f"warehouse/{settings.namespace}/{table}/data/_day=2013-01-14/orphan.parquet" for table in tables]
    for orphan in orphans:
        log.store.put(orphan, b"left by a killed task")
    age(stack, log)
    young = [orphan.replace("orphan", "young") for orphan in orphans]
    for key in young:  # of a rebuild that is running
        log.store.put(key, b"not committed yet")
    before = {table: objects(log, table) for table in tables}
    branches = [table_of(log, table).metadata.refs.keys() for table in tables]
    assert branches == [{"main", "audit_given-up"}] * 2

    monkeypatch.setattr(
        SparkSession, "stop", lambda _self: None
    )  # the command ends its Spark, which is all tests' here
    shown = CliRunner().invoke(app, ["maintain", stream.name])

    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    for table, orphan in zip(tables, orphans, strict=True):
        place = lines.index(f"Table {table}")
        kept = len(table_of(log, table).metadata.snapshots)
        assert lines[place + 1 : place + 6] == [
            "Audit branches that would be dropped: 0",
            f"Snapshots that would be expired: 0, kept: {kept}",
            "Files in no snapshot that would be deleted: 1",
            f"  s3://{settings.bucket}/{orphan}",
            "Unfinished uploads of files that would be aborted: 0",
        ]
    assert {table: objects(log, table) for table in tables} == before

    run = log.run("maintain")
    maintain_run(run, spark)  # every file looks old, but only orphans may be deleted

    saved: dict[str, Any] = run.require(MAINTAIN)["tables"]
    for table, orphan in zip(tables, orphans, strict=True):
        assert (saved[table]["branches_dropped"], saved[table]["snapshots_expired"]) == ([], 0)
        assert saved[table]["orphans_deleted"] == [f"s3://{settings.bucket}/{orphan}"]
        assert objects(log, table) == {key: size for key, size in before[table].items() if key != orphan}
    assert (verdict(log, MONDAY), verdict(log, MONDAY, 1), verdict(log, TUESDAY)) == ("proven []",) * 3

    done = maintain_tables(spark, settings, stream, now=datetime.now(UTC) + timedelta(days=100), delete=True)

    assert [(set(item.expiry.branches), item.expiry.kept, item.orphans) for item in done] == [
        ({"audit_given-up"}, 1, ())
    ] * 2
    for table, orphan, item in zip(tables, orphans, done, strict=True):
        assert item.deleted > 0
        assert table_of(log, table).metadata.refs.keys() == {"main"}
        assert before[table].keys() - objects(log, table).keys() > {orphan}
    assert set(young) <= {key for table in tables for key in objects(log, table)}
    assert offsets(log) == published
    # What readers see stays proven, although Tuesday's own snapshot and Monday's first version have expired.
    assert (verdict(log, MONDAY), verdict(log, TUESDAY)) == ("proven []",) * 2
    assert verdict(log, MONDAY, 1) == "unknown []"
    view = pin(settings, stream.name)
    assert (view.days_not_ours, [item.unpublished_max for item in view.plan.positions]) == ((), [0])
    assert [item.expired for item in day_versions(settings, stream, MONDAY).versions] == [True, False]
    with pytest.raises(ConflictError, match="the snapshot has expired"):
        rollback_day(log.run("too-late"), spark, day=MONDAY, version=1)

    # Tuesday's rows are those that its expired snapshot added, so they can still be brought back.
    log.produce(1, at(TUESDAY, 20))
    reconcile(log, spark, "third", TUESDAY)
    assert offsets(log) == {**published, TUESDAY: [4, 5, 6, 9]}
    rollback_day(log.run("back"), spark, day=TUESDAY, version=1)
    assert offsets(log) == published
    assert verdict(log, TUESDAY) == "proven []"


@pytest.mark.conformance(52)
def test_a_procedure_is_repeated_while_another_writer_locks_the_catalog(
    stack: LocalStack, spark: SparkSession, raw: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = raw
    log.produce(1, at(MONDAY, 9))
    staged(log, spark, "given-up", MONDAY)
    table = maintenance._MaintainedTable(spark, log.settings, log.stream.table)
    (tip,) = (ref.snapshot_id for name, ref in table_of(log, log.stream.table).metadata.refs.items() if name != "main")
    assert table.drop("audit_given-up", tip)
    asked: list[BaseException] = []
    neighbour = sqlite3.connect(stack.folder / "catalog.db", isolation_level=None)
    neighbour.execute("BEGIN IMMEDIATE")

    def goes(error: BaseException) -> bool:
        """Whether another writer caused the error; then it ends."""
        asked.append(error)
        neighbour.close()
        return _is_concurrent_commit(error)

    monkeypatch.setattr(iceberg, "_is_concurrent_commit", goes)
    assert table.expire((tip,)) > 0
    assert "SQLITE_BUSY" in str(asked[0])


def test_old_snapshots_and_orphans_of_the_history_are_removed_once_and_its_rows_stay(
    stack: LocalStack, spark: SparkSession, log: Log
) -> None:
    settings, later = log.settings, datetime.now(UTC) + maintenance.HISTORY_RETENTION + timedelta(minutes=1)
    tables = {RUNS.name, RECONCILIATION.name}
    before = {name: table_of(log, name).scan().to_arrow().to_pylist() for name in tables}
    folder = table_of(log, RUNS.name).location().removeprefix(f"s3://{settings.bucket}/")
    orphan = f"{folder}/data/orphan.parquet"
    log.store.put(orphan, b"left by a commit that failed")
    then = time.time() - timedelta(days=8).total_seconds()
    os.utime(stack.folder / "s3" / "data" / settings.bucket / orphan, (then, then))

    assert maintain_history(spark, settings, now=datetime.now(UTC), delete=True) == ()
    shown = {item.name: item for item in maintain_history(spark, settings, now=later, delete=False)}
    assert tables <= shown.keys()
    assert shown[RUNS.name].orphans == (f"s3://{settings.bucket}/{orphan}",)
    done = {item.name: item for item in maintain_history(spark, settings, now=later, delete=True)}

    assert done.keys() == shown.keys()
    assert {len(table_of(log, name).metadata.snapshots) for name in done} == {1}
    assert all(done[name].deleted > 0 for name in tables)
    assert log.store.get(orphan) is None
    assert {name: table_of(log, name).scan().to_arrow().to_pylist() for name in tables} == before
    assert maintain_history(spark, settings, now=later, delete=True) == ()
