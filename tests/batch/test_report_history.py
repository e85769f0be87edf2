"""The days before in the report of a run, which stay those that it saw."""

from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from tests.batch.world import World, january, moment, value
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.results import REPORT
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings


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
