"""Checks judge each day by itself, and a day that only late records touch holds up no other one."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.batch.steps import ended, pass_audit
from tests.batch.test_current import archived, pinned, rows
from tests.batch.test_report import page_of
from tests.batch.world import World, january, moment, value
from tidemark.core.errors import ConflictError, QualityError
from tidemark.current_view.frame import frame
from tidemark.reconcile.audit.checks import Expected
from tidemark.reconcile.audit.expectations import evaluate
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.results import AUDIT, REPORT, WAY_OUT, final_plan
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.tables.seals import day_seals, latest_seals

pytestmark = pytest.mark.conformance(47)

NAMES = {"expectation": "expect_column_values_to_be_in_set", "kwargs": {"column": "name", "value_set": ["ROW"]}}


def fails_on(number: int) -> dict[str, Any]:
    """A check that Spark can't evaluate where there is a row of that id: it divides by zero."""
    condition = {"column": "id", "row_condition": f"10 / (id - {number}) > -100"}
    return {"expectation": "expect_column_values_to_not_be_null", "kwargs": condition}


def row_count(**bounds: int) -> dict[str, Any]:
    return {"expectation": "expect_table_row_count_to_be_between", "kwargs": bounds}


def archive(world: World, day: int, *bodies: bytes) -> None:
    """The next records, of one day, produced and archived."""
    start = len(world.records)
    world.produce([(moment(day), body) for body in bodies])
    world.archive(start, len(world.records))


def seals_of(world: World, *days: int) -> list[tuple[date, int]]:
    run = world.run("any")
    return [(seal.day, seal.version) for day in days for seal in day_seals(run.store, run.layout, january(day))]


def planned(world: World, name: str, *days: int, force: bool = False) -> Run:
    """A rebuilt run of the days and of every sealed day that has late rows."""
    run = world.run("any")
    run = world.plan(name, [january(day) for day in days], seals=latest_seals(run.store, run.layout), force=force)
    world.rebuild(run)
    return run


def sealed(world: World, name: str, *days: int) -> None:
    """A run of the days up to its seals, whose checks are not looked at."""
    run = planned(world, name, *days)
    pass_audit(run, world.spark)
    publish_run(run, world.spark)
    seal_run(run)


def finished(world: World, run: Run) -> dict[str, Any]:
    """The rest of a run up to its report, which is returned."""
    publish_run(run, world.spark)
    seal_run(run)
    report_run(run)
    return run.require(REPORT)


def reconciled(world: World, name: str, *days: int) -> dict[str, Any]:
    run = planned(world, name, *days)
    audit_run(run, world.spark)
    return finished(world, run)


def test_a_short_day_beside_a_long_one_does_not_pass(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    world = World.make(spark, settings, tmp_path, checks=[row_count(min_value=3)])
    archive(world, 14, *(value(number) for number in range(5)))
    archive(world, 15, value(6))
    run = planned(world, "first", 14, 15)
    with pytest.raises(QualityError) as caught:
        audit_run(run, spark)
    assert "2013-01-15: expect_table_row_count_to_be_between: failed, observed 1 " in str(caught.value)
    assert "2013-01-14: expect" not in str(caught.value)


def test_two_days_together_may_have_more_rows_than_each(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, checks=[row_count(max_value=6)])
    for day in (14, 15):
        archive(world, day, *(value(number) for number in range(5)))
    run = planned(world, "first", 14, 15)
    audit_run(run, spark)
    checks = [item for item in run.require(AUDIT).checks if not item.expected.built_in]
    assert [(item.day, item.success, item.observed) for item in checks] == [
        (january(14), True, 5),
        (january(15), True, 5),
    ]


def test_late_records_that_fail_checks_leave_their_day_and_are_reported_until_mended(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, checks=[NAMES])
    archive(world, 14, value(0), value(1), b"broken")
    sealed(world, "first", 14)
    monday, aside = world.published(), world.quarantined()

    archive(world, 14, value(2, "late"), b"broken, too")
    archive(world, 15, value(3), b"broken")
    report = reconciled(world, "second", 15)
    assert world.published() == [*monday, *world.expected_rows(january(15))]
    assert world.quarantined() == [*aside, *world.expected_quarantine(january(15))]
    assert seals_of(world, 14, 15) == [(january(14), 1), (january(15), 1)]
    seal = day_seals(world.run("any").store, world.run("any").layout, january(15))[0]
    assert seal.quality == "passed"
    # Both rows are in the current view: the late ones come from the archive.
    assert rows(frame(spark, pinned(world))) == archived(world)
    because = "2013-01-14: expect_column_values_to_be_in_set (name): failed, observed 1 of 3 unexpected"
    assert report["verdict"]["status"] == "days held back"
    assert report["verdict"]["title"].endswith("; 2013-01-14 keeps its version")
    assert report["verdict"]["sentences"][0] == f"2013-01-14 keeps the version that it has: {because}. {WAY_OUT}"
    assert [(item["day"], item["held"], bool(item["seal"])) for item in report["days"]] == [
        ("2013-01-14", because, False),
        ("2013-01-15", None, True),
    ]
    page = page_of(world.run("second"), world.run("second").layout.run_key("second", "report.html"))
    assert f"Held back, so readers keep the version that they have: {because}" in page.text

    # The next run tries them again. The run after the check was mended publishes them.
    archive(world, 16, value(4))
    assert reconciled(world, "third", 16)["verdict"]["status"] == "days held back"
    definition = world.settings.streams_dir / f"{world.name}.yaml"
    definition.write_text(definition.read_text().replace("- ROW", "- ROW\n      - LATE"))
    archive(world, 17, value(5))
    assert reconciled(world, "fourth", 17)["verdict"]["status"] == "complete"
    assert world.published() == world.expected_rows(*(january(day) for day in range(14, 18)))
    assert seals_of(world, 14) == [(january(14), 1), (january(14), 2)]


def test_a_run_of_nothing_but_days_that_do_not_pass_fails(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, checks=[NAMES])
    archive(world, 14, value(0))
    archive(world, 15, value(1))
    sealed(world, "first", 14, 15)
    archive(world, 14, value(2, "late"))
    run = planned(world, "second", 15)  # nothing new was archived of the day itself
    assert [item.day for item in final_plan(run).days] == [january(14)]
    with pytest.raises(QualityError, match=r"2013-01-14: .* failed, observed 1 of 2 unexpected"):
        audit_run(run, spark)


def test_a_late_record_on_which_a_check_fails_to_run_holds_its_day_back(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, checks=[fails_on(2)])
    archive(world, 14, value(0))
    sealed(world, "first", 14)
    archive(world, 14, value(2))
    archive(world, 15, value(3))
    report = reconciled(world, "second", 15)
    reason = "2013-01-14: expect_column_values_to_not_be_null (id): could not be evaluated"
    assert report["verdict"]["sentences"][0].startswith(f"2013-01-14 keeps the version that it has: {reason}")
    assert seals_of(world, 14, 15) == [(january(14), 1), (january(15), 1)]


def test_a_requested_days_broken_check_is_retried_whatever_late_records_fail(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, checks=[NAMES, fails_on(3)])
    archive(world, 14, value(0))
    sealed(world, "first", 14)
    archive(world, 14, value(2, "late"))
    archive(world, 15, value(3))
    run = planned(world, "second", 15)
    with pytest.raises(QualityError, match=r"2013-01-15: expect_column_values_to_not_be_null .*could not be evaluated"):
        audit_run(run, spark)
    _, audit = ended(run, AUDIT)
    assert (audit.passed, audit.held, audit.rows_failed) == (False, (), False)


def test_a_requested_day_that_late_records_reopened_may_wait_unless_forced(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, checks=[NAMES])
    archive(world, 14, value(0))
    archive(world, 15, value(1))
    sealed(world, "first", 14, 15)
    archive(world, 14, value(2))
    archive(world, 15, value(3, "late"))
    forced = planned(world, "forced", 15, force=True)
    with pytest.raises(QualityError, match=r"2013-01-15: .* failed, observed 1 of 2 unexpected"):
        audit_run(forced, spark)
    assert ended(forced, AUDIT)[1].rows_failed
    assert reconciled(world, "second", 15)["verdict"]["title"].endswith("; 2013-01-15 keeps its version")
    assert seals_of(world, 14, 15) == [(january(14), 1), (january(14), 2), (january(15), 1)]


def test_a_day_whose_published_rows_are_not_sealed_has_no_version_to_keep(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, checks=[NAMES])
    archive(world, 14, value(0))
    sealed(world, "first", 14)
    archive(world, 14, value(1))
    archive(world, 15, value(2))
    other = planned(world, "other", 15)
    pass_audit(other, spark)
    publish_run(other, spark)
    archive(world, 14, value(3, "late"))
    archive(world, 16, value(4))
    run = planned(world, "run", 16)
    with pytest.raises(
        QualityError, match="2013-01-14 can't keep its version meanwhile: readers see rows of run other"
    ):
        audit_run(run, spark)
    assert not ended(run, AUDIT)[1].rows_failed
    seal_run(other)
    audit_run(run, spark)
    assert finished(world, run)["verdict"]["status"] == "days held back"
    assert seals_of(world, 14, 15, 16) == [(january(14), 1), (january(14), 2), (january(15), 1), (january(16), 1)]


def test_published_rows_are_not_audited_again_nor_credited_to_another_audit(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, checks=[NAMES])
    archive(world, 14, value(0))
    sealed(world, "first", 14)
    archive(world, 14, value(1, "late"))
    archive(world, 15, value(2))
    run = planned(world, "second", 15)
    audit_run(run, spark)
    publish_run(run, spark)

    before = run.require(AUDIT).held
    with pytest.raises(ConflictError, match=r"the run has published it.* Start a new run"):
        audit_run(run, spark)
    status, audit = ended(run, AUDIT)
    assert (status, audit.held) == ("failed", before)
    # As if it had come to another end: what was published is without the day.
    with run.step(AUDIT) as attempt:
        attempt.result = replace(audit, held=())
    with pytest.raises(ConflictError, match="the audit branch is not the one that the rebuild wrote"):
        publish_run(run, spark)


def critical(expectation: str, kwargs: dict[str, Any]) -> Expected:
    return Expected(expectation=expectation, kwargs=kwargs, severity="critical", built_in=False)


def without_delays(spark: SparkSession) -> DataFrame:
    """Two rows whose ``delay`` is null."""
    return spark.sql("SELECT id, CAST(NULL AS DOUBLE) AS delay FROM VALUES (1), (2) AS numbers(id)")


def test_a_check_that_saw_no_value_is_unknown(spark: SparkSession) -> None:
    above_5 = {"column": "id", "row_condition": "id > 5"}
    checks = [
        critical("expect_column_values_to_be_between", {"column": "delay", "max_value": 3}),
        critical("expect_column_values_to_not_be_null", above_5),
        critical("expect_column_mean_to_be_between", {"column": "delay", "max_value": 3}),
        critical("expect_column_distinct_values_to_be_in_set", {"column": "delay", "value_set": [1.0]}),
    ]
    outcomes = evaluate(without_delays(spark), checks)
    assert [(item.success, item.blocks, item.exception) for item in outcomes] == [(None, True, None)] * 4


def test_that_a_column_is_null_throughout_can_be_seen(spark: SparkSession) -> None:
    checks = [critical(f"expect_column_values_to_{what}", {"column": "delay"}) for what in ("be_null", "not_be_null")]
    assert [item.success for item in evaluate(without_delays(spark), checks)] == [True, False]


def test_of_a_day_without_records_the_table_is_judged_and_no_value(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    checks = [NAMES, row_count(min_value=0), {**row_count(min_value=1), "severity": "warning"}]
    world = World.make(spark, settings, tmp_path, checks=checks)
    archive(world, 14, value(0))
    run = planned(world, "first", 14, 15)
    audit_run(run, spark)
    found = [item for item in run.require(AUDIT).checks if item.day == january(15)]
    assert [(item.success, item.observed) for item in found[1:]] == [
        (True, "no row to check"),
        (True, 0),
        (False, 0),
    ]
