"""The days before in the report of a run, which stay those that it saw."""

from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from tests.batch.world import World, january, moment, value
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.results import REPORT, final_plan
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings
from tidemark.tables.seals import latest_seals


def test_a_report_written_later_does_not_see_days_that_were_sealed_since(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path)
    world.produce([(moment(day), value(number)) for day in (7, 14) for number in range(4)])
    world.archive(0, 8)
    for name, days in (("of-7", [january(7)]), ("of-14", [january(14)])):
        seal_run(world.reconcile(name, days, audit=audit_run))
    first = world.run("of-14")
    body = first.store.get(report_run(first))
    seal_run(world.reconcile("of-13", [january(14) - timedelta(days=1)], audit=audit_run))
    assert first.store.get(report_run(first)) == body
    (day,) = first.require(REPORT)["days"]
    assert day["before"] is None
    assert [item["day"] for item in day["weekdays"]] == ["2013-01-07"]


def test_a_day_that_a_run_leaves_as_it_is_has_the_limits_of_its_seal(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    few = {"expectation": "expect_table_row_count_to_be_between", "kwargs": {"max_value": 3}, "severity": "warning"}
    world = World.make(spark, settings, tmp_path, checks=[few])
    world.produce([(moment(day), value(number)) for day in (14, 15) for number in range(4 if day == 14 else 2)])
    world.archive(0, 6)
    days = [january(14), january(15)]
    seal_run(world.reconcile("first", days, audit=audit_run))
    first = world.run("first")
    second = world.plan("second", days, seals=latest_seals(first.store, first.layout))
    assert final_plan(second).unchanged == tuple(days)
    report_run(second)
    covers = "Its seal already covers everything that was archived."
    assert [(item["answer"], item["version"], item["because"]) for item in second.require(REPORT)["use"]] == [
        ("limited", 1, f"{covers} Checks of severity warning did not pass."),
        ("yes", 1, covers),
    ]
