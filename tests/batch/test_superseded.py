"""A run whose day another run moved meanwhile is refused, and a new run of the day succeeds and loses no row."""

from datetime import datetime

import pytest
from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY, TUESDAY, ZONE, Log, Produce, at
from tests.batch.steps import pass_audit
from tests.batch.test_table_maintenance import offsets, staged, verdict
from tests.conftest import MakeStream
from tests.tables import read_tables
from tidemark.cli import day, days
from tidemark.cli.output import open_console
from tidemark.core.errors import ConflictError
from tidemark.inspect.status import read_status
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.results import final_plan
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.tables.seals import day_seals

pytestmark = pytest.mark.conformance(18)


@pytest.fixture
def log(settings: Settings, make_stream: MakeStream, produce: Produce) -> Log:
    """Four records of a Monday, not archived."""
    stream = make_stream(time_zone="America/New_York", value_format="raw", value_schema=None, batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    log.produce(4, at(MONDAY, 9))
    return log


def audited(log: Log, spark: SparkSession, name: str) -> Run:
    run = staged(log, spark, name, MONDAY)
    pass_audit(run, spark)
    return run


def sealed(log: Log) -> list[tuple[str, int, int]]:
    """Run, version and rows of each seal of the day."""
    found = day_seals(log.store, log.layout, MONDAY)
    return [(seal.run, seal.version, seal.rows_published) for seal in found]


def refused(run: Run, spark: SparkSession, because: str) -> None:
    hint = f"trigger the DAG reconcile_{run.stream.name} with from_day {MONDAY} and to_day {MONDAY}"
    with pytest.raises(ConflictError, match=f"expected .*found .*{because}.*{hint}"):
        publish_run(run, spark)


def test_a_run_is_refused_a_day_that_another_run_published_after_its_plan(spark: SparkSession, log: Log) -> None:
    """Also where it finalizes its plan after that publication, which it knows nothing of: it would take rows away."""
    run = log.run("run")
    plan_run(run, [MONDAY], True)
    log.produce(2, at(MONDAY, 20))
    other = audited(log, spark, "other")
    publish_run(other, spark)
    seal_run(other)

    finalize_plan_run(run)
    rebuild_run(run, spark)
    pass_audit(run, spark)
    refused(run, spark, f"run other published {MONDAY} since")

    log.produce(1, at(MONDAY, 21))
    new = audited(log, spark, "new")
    publish_run(new, spark)
    seal_run(new)
    assert sealed(log) == [("other", 1, 6), ("new", 2, 7)]
    assert offsets(log) == {MONDAY: [*range(7)]}


def test_a_run_whose_version_another_run_sealed_is_refused(spark: SparkSession, log: Log) -> None:
    """The other published before this run was planned, so only its seal shows it."""
    other = audited(log, spark, "other")
    publish_run(other, spark)
    run = audited(log, spark, "run")
    seal_run(other)

    refused(run, spark, "that of run other")
    assert sealed(log) == [("other", 1, 4)]


def shown_days(log: Log, capsys: pytest.CaptureFixture[str]) -> tuple[bool, dict[str, str]]:
    """Whether ``tidemark status`` finds every day well, and the state of each, with the notes of those that are not."""
    now = datetime(2013, 1, 16, 3, tzinfo=ZONE)
    (found,) = read_status(log.settings, [log.stream.name], now=now)
    days.print_states(open_console(), log.stream, found.days)
    rows = read_tables(capsys.readouterr().out, "Day")
    well = not {"day_overdue", "day_unproven", "day_not_ours"} & {item.kind for item in found.problems}
    return well, {row["Day"]: ", ".join(filter(None, [row["State"], row["Notes"]])) for row in rows}


@pytest.mark.conformance(55, 63)
def test_the_next_run_seals_a_day_that_a_dead_run_published_whatever_its_own_days_are(
    spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(day, "connect_s3", lambda _: log.settings)
    log.produce(1, at(TUESDAY, 9))
    dead = audited(log, spark, "dead")
    publish_run(dead, spark)
    unproven = {str(MONDAY): "published, not proven, rows of run dead"}
    assert shown_days(log, capsys) == (False, {**unproven, str(TUESDAY): "not sealed yet"})
    assert day.print_day(None, log.stream.name, str(MONDAY), as_json=False) == 1
    assert "Readers see rows of run dead, which has not sealed them" in capsys.readouterr().out

    log.produce(2, at(MONDAY, 20))
    new = staged(log, spark, "new", TUESDAY)
    assert [(item.day, item.reason) for item in final_plan(new).days] == [(MONDAY, "unproven"), (TUESDAY, "requested")]
    pass_audit(new, spark)
    publish_run(new, spark)
    seal_run(new)

    assert sealed(log) == [("new", 1, 6)]
    assert offsets(log) == {MONDAY: [0, 1, 2, 3, 5, 6], TUESDAY: [4]}
    assert verdict(log, MONDAY) == "proven []"
    assert shown_days(log, capsys) == (True, {str(MONDAY): "sealed, v1", str(TUESDAY): "sealed, v1"})
    with pytest.raises(ConflictError, match=r"another run has published the day since: expected .* found .* run new"):
        seal_run(dead)
