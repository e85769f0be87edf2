"""A process dies between the commits of quarantine and table, and its run is never repeated (conformance 69)."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.batch.logs import MONDAY, TUESDAY, ZONE, Log, at
from tests.batch.steps import pass_audit
from tests.batch.test_table_maintenance import offsets, reconcile, staged, table_of
from tests.batch.verifying import check, differences, verify
from tests.conftest import MakeStream, Produce, Record
from tests.tables import read_tables
from tidemark.cli import day as day_command
from tidemark.cli import days as days_command
from tidemark.cli.app import app
from tidemark.cli.output import open_console
from tidemark.core.errors import ConflictError
from tidemark.current_view.frame import current
from tidemark.inspect.status import read_status
from tidemark.installation import PROJECT
from tidemark.reconcile.lease import release
from tidemark.reconcile.plan.step import plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.results import PLAN, PUBLISH
from tidemark.reconcile.rollback import rollback_day
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack
from tidemark.tables.iceberg import IcebergTable, Publication, Published
from tidemark.tables.seals import day_seals

pytestmark = pytest.mark.conformance(69)

GOOD, BROKEN = b'{"n": 1}', b"broken"


class Killed(BaseException):
    """No step catches it."""


@pytest.fixture
def log(settings: Settings, make_stream: MakeStream, produce: Produce) -> Log:
    """Three good records and a broken one of Monday, at offsets 0 to 3. Nothing is archived."""
    stream = make_stream(time_zone="America/New_York", batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    add(log, MONDAY, GOOD, GOOD, GOOD, BROKEN)
    return log


def add(log: Log, day: date, *values: bytes) -> None:
    records: list[Record] = [(b"k", value, at(day, 9), 0, []) for value in values]
    log.produce_records(log.stream.topic, records)


@contextmanager
def dying_before(monkeypatch: pytest.MonkeyPatch, table: str) -> Iterator[None]:
    """The process dies when it is about to publish the table; the quarantine is published before it."""
    publish = IcebergTable.publish

    def die(self: IcebergTable, publication: Publication) -> Published:
        if self.identifier.endswith(f".{table}"):
            raise Killed
        return publish(self, publication)

    with monkeypatch.context() as patched:
        patched.setattr(IcebergTable, "publish", die)
        with pytest.raises(Killed):
            yield


def audited(log: Log, spark: SparkSession, name: str, *days: date, force: bool = False) -> Run:
    run = staged(log, spark, name, *days, force=force)
    pass_audit(run, spark)
    return run


def cut(log: Log, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, *days: date) -> Run:
    """A run of the days that dies between the two commits."""
    run = audited(log, spark, name, *days, force=True)
    with dying_before(monkeypatch, log.stream.table):
        publish_run(run, spark)
    return run


def aside(log: Log) -> dict[date, list[int]]:
    """The quarantined offsets of each day, as readers see them now."""
    found: dict[date, list[int]] = {}
    rows = table_of(log, log.stream.quarantine_table).scan(selected_fields=("_day", "_offset")).to_arrow()
    for row in rows.sort_by("_offset").to_pylist():
        found.setdefault(row["_day"], []).append(row["_offset"])
    return found


def live(spark: SparkSession, log: Log) -> list[int]:
    rows = current(spark, log.settings, log.stream.name).select("_offset").collect()
    return sorted(row["_offset"] for row in rows)


def unproven(log: Log) -> list[date]:
    """The days that a plan of Tuesday alone would rebuild because no seal proves them."""
    run = log.run("asks only")
    plan_run(run, [TUESDAY], False)
    return list(run.require(PLAN).unproven)


def days_shown(log: Log, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], dict[str, str]]:
    """The sentences of ``tidemark status`` about unproven days, and each day's state with its notes."""
    now = datetime(2013, 1, 16, 3, tzinfo=ZONE)
    (found,) = read_status(log.settings, [log.stream.name], now=now)
    capsys.readouterr()
    days_command.print_states(open_console(), log.stream, found.days)
    rows = read_tables(capsys.readouterr().out, "Day")
    texts = [item.text for item in found.problems if item.kind == "day_unproven"]
    return texts, {row["Day"]: ", ".join(filter(None, [row["State"], row["Notes"]])) for row in rows}


def test_half_of_a_days_next_version_is_no_proof_and_the_next_run_rebuilds_it(
    spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    reconcile(log, spark, "first", MONDAY)
    (seal,) = day_seals(log.store, log.layout, MONDAY)
    add(log, MONDAY, GOOD, BROKEN)
    cut(log, spark, monkeypatch, "dead", MONDAY)

    assert (offsets(log)[MONDAY], aside(log)[MONDAY]) == ([0, 1, 2], [3, 5])  # record 4 is in neither
    found = verify(log)
    half = table_of(log, log.stream.quarantine_table).metadata.current_snapshot_id
    assert (found.verdict, check(found, "readers").status) == ("disproven", "differs")
    assert differences(found) == (
        "readers: half a publication: the tables show different publications of the day: expected the same one in both,"
        f" found the quarantine of run dead in snapshot {half}, the table of run first in snapshot {seal.snapshot_id}"
        f" [{log.stream.table} and {log.stream.quarantine_table}, {MONDAY}]"
    )
    texts, days = days_shown(log, capsys)
    (text,) = texts
    assert text.endswith(
        f"{MONDAY}. Readers see rows that no seal proves. Of {MONDAY} only the quarantine is published"
    )
    assert days[str(MONDAY)].startswith("published, not proven, only the quarantine of run dead, v1 was sealed before")
    assert unproven(log) == [MONDAY]


def test_half_of_a_publication_of_two_days_is_ended_by_a_run_of_another_day(
    spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the days is new, so it has no row yet; readers of the view see every record all the time."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(day_command, "connect_s3", lambda _: log.settings)
    reconcile(log, spark, "first", MONDAY)
    add(log, MONDAY, GOOD, BROKEN)
    add(log, TUESDAY, GOOD, BROKEN)
    dead = cut(log, spark, monkeypatch, "dead", MONDAY, TUESDAY)

    assert (offsets(log), aside(log)) == ({MONDAY: [0, 1, 2]}, {MONDAY: [3, 5], TUESDAY: [7]})
    assert live(spark, log) == [0, 1, 2, 4, 6]
    for day in (MONDAY, TUESDAY):
        assert day_command.print_day(None, log.stream.name, str(day), as_json=False) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert f"No, published and not proven: {MONDAY} of {log.stream.name}." in printed
    assert "Readers see half a publication, the quarantine of run dead and the rows of run first. The" in printed
    assert "Readers see half a publication, the quarantine of run dead and no rows. The stream's next run" in printed
    _, days = days_shown(log, capsys)
    assert set(days) == {str(MONDAY), str(TUESDAY)}
    assert all(text.startswith("published, not proven, only the quarantine of run dead") for text in days.values())

    wednesday = date(2013, 1, 16)
    add(log, wednesday, GOOD)
    reconcile(log, spark, "next", wednesday)
    assert offsets(log) == {MONDAY: [0, 1, 2, 4], TUESDAY: [6], wednesday: [8]}
    assert aside(log) == {MONDAY: [3, 5], TUESDAY: [7]}
    sealed = {
        day: [(s.version, s.run, s.reason) for s in day_seals(log.store, log.layout, day)] for day in offsets(log)
    }
    assert sealed[MONDAY] == [(1, "first", "requested"), (2, "next", "unproven")]
    assert sealed[TUESDAY] == [(1, "next", "unproven")]
    assert (verify(log).verdict, unproven(log)) == ("proven", [])
    assert live(spark, log) == [0, 1, 2, 4, 6, 8]
    with pytest.raises(ConflictError, match="a day was sealed while this run was rebuilding it"):
        publish_run(dead, spark)


def test_a_repeat_of_a_run_that_died_between_the_tables_finishes_its_publication(
    spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cut(log, spark, monkeypatch, "dead", MONDAY)
    half = table_of(log, log.stream.quarantine_table).metadata.current_snapshot_id
    publish_run(run, spark)
    done = run.require(PUBLISH)
    assert (done.already, done.quarantine_snapshot_id) == (False, half)
    seal_run(run)
    assert verify(log).verdict == "proven"
    publish_run(run, spark)
    assert run.require(PUBLISH).already is True


def test_of_two_runs_that_died_between_the_tables_a_repeat_of_the_first_seals_nothing(
    spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cut(log, spark, monkeypatch, "one", MONDAY)
    add(log, MONDAY, GOOD, BROKEN)
    second = cut(log, spark, monkeypatch, "two", MONDAY)
    with pytest.raises(ConflictError, match=r"another run has moved a day since this run was planned.*run two"):
        publish_run(first, spark)
    publish_run(second, spark)
    seal_run(second)
    assert (offsets(log)[MONDAY], aside(log)[MONDAY]) == ([0, 1, 2, 4], [3, 5])
    assert verify(log).verdict == "proven"


def test_no_run_seals_rows_beside_the_quarantine_of_another_run(
    spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = audited(log, spark, "one", MONDAY)
    publish_run(run, spark)
    add(log, MONDAY, BROKEN)
    cut(log, spark, monkeypatch, "two", MONDAY)
    where = f"{log.stream.quarantine_table}, {MONDAY}"
    with pytest.raises(ConflictError, match=rf"found snapshot \d+ of run two .*{where}"):
        seal_run(run)
    assert day_seals(log.store, log.layout, MONDAY) == ()


@pytest.fixture
def two_versions(spark: SparkSession, log: Log) -> Log:
    """Monday in two versions."""
    reconcile(log, spark, "first", MONDAY)
    add(log, MONDAY, GOOD, BROKEN)
    reconcile(log, spark, "second", MONDAY)
    return log


def cut_rollback(log: Log, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with dying_before(monkeypatch, log.stream.table):
        rollback_day(log.run("undo"), spark, day=MONDAY, version=1)
    assert (offsets(log)[MONDAY], aside(log)[MONDAY]) == ([0, 1, 2, 4], [3])  # record 5 is in neither


def test_half_a_rollback_disproves_the_day_and_a_run_of_another_day_ends_it(
    spark: SparkSession, two_versions: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = two_versions
    cut_rollback(log, spark, monkeypatch)
    found = verify(log)
    assert found.verdict == "disproven"
    assert "found the quarantine of run rollback-2013-01-14-3-to-1 in snapshot" in differences(found)
    add(log, TUESDAY, GOOD)
    reconcile(log, spark, "next", TUESDAY)
    assert (offsets(log), aside(log)) == ({MONDAY: [0, 1, 2, 4], TUESDAY: [6]}, {MONDAY: [3, 5]})
    assert [seal.run for seal in day_seals(log.store, log.layout, MONDAY)] == ["first", "second", "next"]
    assert verify(log).verdict == "proven"


@pytest.mark.parametrize(("version", "rows", "rejected"), [(1, [0, 1, 2], [3]), (2, [0, 1, 2, 4], [3, 5])])
def test_half_a_rollback_is_ended_by_its_repeat_or_by_another_rollback(
    spark: SparkSession,
    two_versions: Log,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    rows: list[int],
    rejected: list[int],
) -> None:
    log = two_versions
    cut_rollback(log, spark, monkeypatch)
    sealed = rollback_day(log.run("again"), spark, day=MONDAY, version=version)
    assert (sealed.version, sealed.rolled_back_to) == (3, version)
    assert (offsets(log)[MONDAY], aside(log)[MONDAY]) == (rows, rejected)
    assert (verify(log).verdict, unproven(log)) == ("proven", [])


def test_a_day_published_whole_and_not_sealed_is_not_called_proven(
    spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconcile(log, spark, "first", MONDAY)
    add(log, MONDAY, GOOD)
    publish_run(audited(log, spark, "dead", MONDAY), spark)
    shown = CliRunner().invoke(app, ["verify", log.stream.name, str(MONDAY)])
    assert (shown.exit_code, ": proven" in shown.output) == (2, False)
    assert "run dead published the day since and has not sealed it" in " ".join(shown.output.split())


DIE = """
import os, runpy, signal
from tidemark.tables.iceberg import IcebergTable
publish = IcebergTable.publish
def die(self, publication):
    if not self.identifier.endswith("_quarantine"):
        os.kill(os.getpid(), signal.SIGKILL)
    return publish(self, publication)
IcebergTable.publish = die
runpy.run_module("tests.soak.attempt", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("what", ["force", "roll back"])
def test_a_process_killed_between_the_tables_leaves_days_that_the_next_run_proves(
    spark: SparkSession, two_versions: Log, stack: LocalStack, tmp_path: Path, what: str
) -> None:
    log = two_versions
    add(log, MONDAY, BROKEN)
    command = [sys.executable, "-c", DIE, log.stream.name, "dead", str(tmp_path), what, str(MONDAY)]
    done = subprocess.run(
        command, env={**os.environ, **stack.env}, cwd=PROJECT, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert verify(log).verdict == "disproven"
    assert "half a publication" in differences(verify(log))
    release(log.run("dead"))  # as after half an hour
    reconcile(log, spark, "next", TUESDAY)
    assert (offsets(log)[MONDAY], aside(log)[MONDAY]) == ([0, 1, 2, 4], [3, 5, 6])
    assert verify(log).verdict == "proven"
