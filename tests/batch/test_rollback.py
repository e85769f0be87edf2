"""Rollback: an earlier version's rows as a new version, atomically, once, and left alone until late records come."""

import hashlib
import runpy
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.batch.steps import pass_audit
from tests.batch.world import World, january, moment, value
from tests.command_json import valid_result
from tidemark.cli import day as command
from tidemark.cli.app import app
from tidemark.core.errors import ConflictError, FormatError, RequestError, ServiceError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.core.plan import Plan
from tidemark.core.seal import Seal
from tidemark.reconcile import app as step_app_module
from tidemark.reconcile import publish as publish_module
from tidemark.reconcile import rollback as rollback_module
from tidemark.reconcile import seal as seal_module
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.results import ROLLBACK, final_plan
from tidemark.reconcile.rollback import rollback_day
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.tables.certificates import day_certificates
from tidemark.tables.history_columns import REASONS, RUNS, HistoryTable
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.reader import load_table
from tidemark.tables.seals import day_seals, latest_seals
from tidemark.tables.versions import day_versions

DAY, NEIGHBOUR = january(14), january(15)


@pytest.fixture
def world(spark: SparkSession, settings: Settings, tmp_path: Path) -> World:
    world = World.make(spark, settings, tmp_path)
    two_days(world)
    return world


def two_days(world: World) -> None:
    """Two sealed days; ten good records and a broken one of the first."""
    world.produce([*((moment(14), value(number)) for number in range(10)), (moment(14), b"broken")])
    world.produce([(moment(15), value(number)) for number in range(5)])
    world.archive(0, 16)
    rebuilt(world, "first", DAY, NEIGHBOUR)


def planned(world: World, name: str, *days: date) -> tuple[Run, Plan]:
    """A run of the days, planned on top of what is sealed."""
    run = world.run(name)
    run = world.plan(name, days, seals=latest_seals(run.store, run.layout))
    return run, final_plan(run)


def rebuilt(world: World, name: str, *days: date) -> tuple[Seal, ...]:
    run, _ = planned(world, name, *days)
    for step in (rebuild_run, pass_audit, publish_run):
        step(run, world.spark)
    return seal_run(run)


def late(world: World, number: int) -> None:
    """A good record and a broken one of the first day, archived."""
    start = len(world.records)
    world.produce([(moment(14, 20), value(number, "late")), (moment(14, 20), b"late and broken")])
    world.archive(start, start + 2)


def back(world: World, name: str, version: int) -> Seal:
    return rollback_day(world.run(name), world.spark, day=DAY, version=version)


def rows(world: World) -> tuple[list[Any], list[Any]]:
    """What readers see: published and quarantined."""
    return world.published(), world.quarantined()


def truth(world: World) -> tuple[list[Any], list[Any]]:
    """What they see once everything produced so far is rebuilt."""
    return world.expected_rows(DAY, NEIGHBOUR), world.expected_quarantine(DAY, NEIGHBOUR)


def snapshots(world: World) -> list[int]:
    history = [
        IcebergTable(world.spark, world.settings, name).history() for name in (world.name, f"{world.name}_quarantine")
    ]
    return [item["id"] for table in history for item in table]


@pytest.fixture(scope="module")
def two_versions(spark: SparkSession, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The first day in two versions. Tests leave all of it as it is; the last one lets the first version expire."""
    world = World.make(spark, settings, tmp_path_factory.mktemp("two_versions"))
    two_days(world)
    late(world, 100)
    rebuilt(world, "second", NEIGHBOUR)
    return world


def test_an_earlier_version_with_a_missing_or_damaged_file_is_refused_and_named(two_versions: World) -> None:
    world = two_versions
    (first, _) = day_seals(world.run("x").store, world.run("x").layout, DAY)
    table = load_table(world.settings, world.name)
    assert table is not None
    scan = table.scan(row_filter=f"_day = '{DAY}'", snapshot_id=first.snapshot_id)
    (file,) = {task.file.file_path for task in scan.plan_files()}
    second = rows(world)
    store, key = world.run("undo").store, file.removeprefix(f"s3://{world.settings.bucket}/")
    body = store.get(key)
    assert body is not None
    for harm in (None, b"PAR1 and nothing of it"):
        store.delete(key)
        if harm is not None:
            store.put(key, harm)

        with pytest.raises(TidemarkError, match=r"^the earlier version's rows can't be copied: found ") as no:
            back(world, "undo", 1)

        assert isinstance(no.value, FormatError | ServiceError)
        assert f"'tidemark verify {world.name} {DAY} --version 1'" in str(no.value)
    assert rows(world) == second
    store.put(key, body)


@pytest.mark.conformance(20)
def test_a_version_that_never_was_or_has_expired_is_refused_and_changes_nothing(two_versions: World) -> None:
    world = two_versions
    now = rows(world)
    with pytest.raises(RequestError, match=r"no such version: expected 1, 2, found 3"):
        back(world, "unknown", 3)
    with pytest.raises(RequestError, match=r"expected a day that was sealed, found 1"):
        rollback_day(world.run("unsealed"), world.spark, day=january(20), version=1)
    (first, _) = day_seals(world.run("x").store, world.run("x").layout, DAY)
    table = IcebergTable(world.spark, world.settings, world.name)
    table._load().expireSnapshots().expireSnapshotId(first.snapshot_id).commit()
    with pytest.raises(ConflictError, match=f"the snapshot has expired: expected snapshot {first.snapshot_id}"):
        back(world, "expired", 1)
    assert rows(world) == now
    found = day_versions(world.settings, world.run("x").stream, DAY)
    assert [item.expired for item in found.versions] == [True, False]


@pytest.mark.conformance(20)
def test_any_version_comes_back_as_a_new_one_which_only_late_records_change(world: World) -> None:
    first = truth(world)
    late(world, 100)
    rebuilt(world, "second", NEIGHBOUR)
    second = truth(world)
    assert rows(world) == second != first

    third = back(world, "undo", 1)

    assert rows(world) == first
    run = world.run("undo")
    body = run.store.get(run.layout.seal_key(DAY, 2))
    assert body is not None
    assert (third.version, third.rolled_back_to, third.previous) == (3, 1, hashlib.sha256(body).hexdigest())
    assert (third.rows_read, third.rows_published, third.rows_quarantined) == (11, 10, 1)
    newest = IcebergTable(world.spark, world.settings, world.name).history()[0]
    assert (newest["id"], newest["summary"]["tidemark.versions"]) == (third.snapshot_id, '{"2013-01-14": 3}')
    assert newest["summary"]["tidemark.run"] == third.run

    before = snapshots(world)
    assert (back(world, "undo again", 1), back(world, "and again", 3)) == (third, third)
    assert (snapshots(world), rows(world)) == (before, first)
    assert world.run("and again").require(ROLLBACK).already is True

    assert planned(world, "idle", DAY)[1].unchanged == (DAY,)
    assert back(world, "redo", 2).version == 4
    assert rows(world) == second
    back(world, "undo for good", 3)
    late(world, 101)
    (sixth,) = rebuilt(world, "with late records", NEIGHBOUR)
    assert (sixth.version, sixth.reason, sixth.rolled_back_to) == (6, "late", None)
    assert rows(world) == truth(world)
    assert [item.rolled_back_to for item in day_seals(run.store, run.layout, DAY)] == [None, None, 1, 2, 3, None]
    certificates = day_certificates(run.store, run.layout, DAY)
    lists = [certificates[version].seal["objects"]["sha256"] for version in range(1, 7)]
    assert lists[2:5] == [lists[0], lists[1], lists[0]]
    assert len(set(lists)) == 3
    quarantined = {1: 1, 2: 2, 3: 1, 4: 2, 5: 1, 6: 3}
    history = {version: (version - 2 if 3 <= version <= 5 else None, rows) for version, rows in quarantined.items()}
    assert (_history(world, RUNS, "rolled_back_to", "rows_quarantined"), _reasons(world)) == (history, quarantined)


def _history(world: World, table: HistoryTable, *columns: str) -> dict[int, tuple[Any, ...]]:
    """Some columns of the day's rows in a history table, by version."""
    loaded = load_table(world.settings, table.name)
    assert loaded is not None
    found = loaded.scan(row_filter=f"stream = '{world.name}' AND day = '{DAY}'").to_arrow().to_pylist()
    return {row["version"]: tuple(row[name] for name in columns) for row in found}


def _reasons(world: World) -> dict[int, int]:
    """Rejected rows by version, of which the day has one reason."""
    return {version: rows for version, (rows,) in _history(world, REASONS, "row_count").items()}


@pytest.mark.conformance(20)
def test_the_command_and_the_application_of_the_dag_bring_a_version_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = truth(world)
    late(world, 100)
    rebuilt(world, "second", NEIGHBOUR)
    second = truth(world)
    monkeypatch.setattr("tidemark.cli.rollback.connect_s3", lambda _: world.settings)
    monkeypatch.setattr(step_app_module, "settings", lambda: world.settings)
    monkeypatch.setattr(SparkSession, "stop", lambda _self: None)  # both end their Spark, which is all tests' here
    done = CliRunner().invoke(app, ["rollback", world.name, str(DAY), "--to", "1"])
    assert done.exit_code == 0, done.output
    printed = f"{DAY} of stream {world.name} is rolled back to version 1\nversion 3: 10 rows in snapshot "
    assert printed in done.stdout
    assert rows(world) == first != second
    repeated = CliRunner().invoke(app, ["rollback", world.name, str(DAY), "--to", "1", "--json"])
    found = valid_result("rollback", repeated.stdout)
    assert (found["already"], found["version"], found["rolled_back_to"]) == (True, 3, 1)

    script, run = Path(__file__).parents[2] / "spark_apps" / "rollback.py", world.run("forth")
    arguments = ["--stream", world.name, "--run", run.name, f"--day={DAY}", "--version=2"]
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    runpy.run_path(str(script), run_name="__main__")
    assert (run.require(ROLLBACK).sealed.version, rows(world)) == (4, second)


@pytest.mark.conformance(20)
def test_every_version_is_listed_and_can_be_read_as_the_page_says(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = {1: world.expected_rows(DAY)}
    late(world, 100)
    rebuilt(world, "second", NEIGHBOUR)
    expected |= {2: world.expected_rows(DAY), 3: expected[1]}
    back(world, "undo", 1)

    settings, stream = world.settings, world.run("undo").stream
    found = day_versions(settings, stream, DAY)
    assert [(item.seal.version, item.published, item.expired) for item in found.versions] == [
        (1, False, False),
        (2, False, False),
        (3, True, False),
    ]
    with world.table_of_another_reader() as table:
        for item in found.versions:
            wanted = [(row[3], row[6], row[7]) for row in expected[item.seal.version]]
            snapshot = item.seal.snapshot_id
            day = f"_day = DATE '{DAY}'"
            by_spark = world.spark.sql(f"SELECT * FROM {world.table} VERSION AS OF {snapshot} WHERE {day}").collect()
            by_pyiceberg = table.scan(row_filter=f"_day = '{DAY}'", snapshot_id=snapshot).to_arrow().to_pylist()
            for read in (by_spark, by_pyiceberg):
                assert sorted((row["_offset"], row["id"], row["name"]) for row in read) == wanted

    monkeypatch.setattr(command, "connect_s3", lambda _: settings)
    monkeypatch.setenv("COLUMNS", "40")
    command.print_day(None, world.name, str(DAY), as_json=False)
    titles = [
        "Version 1: rebuilt on request",
        "Version 2: rebuilt for late records",
        "Version 3: rolled back to version 1, current",
    ]
    layout = Layout(prefix=settings.prefix, stream=world.name)
    lines = [f"Yes, proven: {DAY} of {world.name}."]
    changes = [None, "1 added, 0 removed, 0 changed", "0 added, 1 removed, 0 changed"]
    for item, title, change in zip(found.versions, titles, changes, strict=True):
        seal, good = item.seal, len(expected[item.seal.version])
        sealed = datetime.fromtimestamp(seal.sealed_at_us // 1_000_000, UTC).isoformat()
        before = {f"against version {seal.version - 1}": change} if change else {}
        snapshots = seal.snapshot_id, seal.quarantine_snapshot_id
        report = f"s3://{settings.bucket}/{layout.run_key(seal.run, 'report.html')}"
        key = layout.seal_key(DAY, seal.version)
        values = (good, good - 9, *before.values(), *snapshots, "unchecked", sealed, seal.run, key, report)
        labels = (
            *("rows", "quarantined", *before, "snapshot", "quarantine snapshot", "checks", "sealed", "run"),
            *("seal", "report"),
        )
        lines += [title, *(f"  {label:<21}{value}" for label, value in zip(labels, values, strict=True))]
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.conformance(20)
def test_a_day_that_moves_meanwhile_is_left_to_who_moved_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    late(world, 100)
    rebuilt(world, "second", NEIGHBOUR)
    late(world, 101)
    stage = IcebergTable.stage

    def superseded(self: IcebergTable, branch: str, *arguments: Any, **options: Any) -> Any:
        staged = stage(self, branch, *arguments, **options)
        if branch.startswith("audit_rollback") and self.identifier == world.table:
            # As a run that lost the lease between its last check and its writes.
            with monkeypatch.context() as patch:
                for module in (publish_module, seal_module):
                    patch.setattr(module, "check_lease", lambda _: None)
                rebuilt(world, "overtaking", NEIGHBOUR)
        return staged

    monkeypatch.setattr(IcebergTable, "stage", superseded)
    with pytest.raises(ConflictError, match=r"another run has moved a day since .*run overtaking published"):
        back(world, "undo", 1)
    assert rows(world) == truth(world)
    found = day_versions(world.settings, world.run("x").stream, DAY)
    assert [(item.seal.run, item.published) for item in found.versions][2:] == [("overtaking", True)]


@pytest.mark.conformance(20)
def test_a_rollback_that_was_cut_off_before_its_seal_is_finished_by_a_repeat(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = truth(world)
    late(world, 100)
    rebuilt(world, "second", NEIGHBOUR)

    def unavailable(*_: object) -> Seal:
        raise ServiceError("S3 is unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(rollback_module, "write_seal", unavailable)
        with pytest.raises(ServiceError):
            back(world, "cut off", 1)
    before = snapshots(world)
    found = day_versions(world.settings, world.run("x").stream, DAY)
    assert found.unsealed is not None
    assert (found.unsealed.run, found.unsealed.is_half) == ("rollback-2013-01-14-3-to-1", False)
    assert [item.published for item in found.versions] == [False, False]
    with pytest.raises(ConflictError, match=r"found rows of run rollback-2013-01-14-3-to-1 in snapshot .*, not sealed"):
        back(world, "another", 2)
    with monkeypatch.context() as patch:
        patch.setattr(rollback_module, "write_history", unavailable)
        with pytest.raises(ServiceError):
            back(world, "cut off again", 1)
    assert back(world, "repeat", 1).version == 3
    assert (snapshots(world), rows(world)) == (before, first)
    assert _history(world, RUNS, "rolled_back_to")[3] == (1,)


@pytest.mark.conformance(17)
def test_rows_that_a_run_published_again_unsealed_are_not_its_sealed_versions(world: World) -> None:
    late(world, 100)
    run, _ = planned(world, "first", DAY)  # the whole run cleared in the scheduler: the same name, a second version
    for step in (rebuild_run, pass_audit, publish_run):
        step(run, world.spark)
    found = day_versions(world.settings, run.stream, DAY)
    assert found.unsealed is not None
    assert ([item.published for item in found.versions], found.unsealed.run) == ([False], "first")
    with pytest.raises(ConflictError, match=r"found rows of run first in snapshot \d+.*, not sealed"):
        back(world, "undo", 1)
    assert rows(world) == truth(world)
    seal_run(run)
    assert back(world, "undo", 1).version == 3
