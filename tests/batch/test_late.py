"""Late records: what a later version changes, how far back days are reopened, and days of 23 and 25 hours."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.batch.logs import MONDAY, TUESDAY, Log, at
from tests.batch.test_current import publish
from tests.batch.test_report import page_of
from tests.batch.test_seal import finish
from tests.batch.world import TRANSFORM, ZONE, World, january, moment, value
from tidemark.cli import day as command
from tidemark.core.plan import DayPlan, LateDay
from tidemark.core.seal import Difference
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.rebuild.version_diff import differences
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.results import REBUILD, REPORT, ChangedRow, ChangedValue, DayDifference
from tidemark.reconcile.rollback import rollback_day
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings
from tidemark.tables.iceberg import IcebergTable
from tidemark.verify.values import _differing

DAY = january(14)
Values = tuple[object, ...]
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.mark.conformance(19)
def test_a_later_version_shows_its_changes_in_seal_report_and_list(
    spark: SparkSession,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World.make(spark, settings, tmp_path)
    world.produce([(moment(14), value(number)) for number in range(8)])
    world.archive(0, 8)
    (first,) = seal_run(publish(world, "first", 14))
    assert first.difference is None

    # One late record; and the transformation was mended: one row has another value, one is refused.
    world.produce([(moment(14, 20), value(100, "late"))])
    world.archive(8, 9)
    name = f"F.when(F.col('event.id') == 3, F.lit('{HOSTILE}')).otherwise(F.upper('event.name'))"
    code = TRANSFORM.replace('F.upper("event.name")', name).replace(
        'F.when(F.col("event.name") == "refused"', 'F.when(F.col("event.id") == 5'
    )
    (world.settings.streams_dir / f"{world.name}.py").write_text(code, encoding="utf-8")
    run = publish(world, "second", 15)
    changed = ChangedValue(column="name", before="ROW", after=HOSTILE)
    example = ChangedRow(topic_id="topic-id-1", partition=0, offset=3, values=(changed,))
    found = DayDifference(day=DAY, rows=Difference(added=1, removed=1, changed=1), examples=(example,))
    assert run.require(REBUILD).differences == (found,)
    seals = {item.day: item for item in seal_run(run)}
    assert seals[DAY].difference == Difference(added=1, removed=1, changed=1)
    page = page_of(run, report_run(run))
    assert "Rows against version 1: 1 added, 1 removed, 1 changed." in page.text
    assert HOSTILE in page.text  # as text
    assert "img" not in page.tags
    assert run.require(REPORT)["days"][0]["difference"] == {
        "added": 1,
        "removed": 1,
        "changed": 1,
        "examples": [
            {
                "topic_id": "topic-id-1",
                "partition": 0,
                "offset": 3,
                "values": [{"column": "name", "before": "ROW", "after": HOSTILE}],
            }
        ],
    }

    # Built once more after it was published, as a cleared task would: still against the version before.
    assert world.rebuild(run).differences == (found,)

    third = rollback_day(world.run("back"), spark, day=DAY, version=1)
    assert third.difference == Difference(added=1, removed=1, changed=1)
    monkeypatch.setattr(command, "connect_s3", lambda _: world.settings)
    command.print_day(None, world.name, str(DAY), as_json=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    against = [line for line in lines if line[:2] == ["against", "version"]]
    changes = ["1", "added,", "1", "removed,", "1", "changed"]
    assert against == [["against", "version", "1", *changes], ["against", "version", "2", *changes]]


@pytest.mark.conformance(19)
def test_rows_are_compared_by_their_place_with_maps_and_nan_and_swapped_values(spark: SparkSession) -> None:
    schema = "_day DATE, _topic_id STRING, _kafka_partition INT, _offset BIGINT, v DOUBLE, m MAP<STRING, INT>"
    far = 1 << 40
    same = [(DAY, "a", 0, far + number, float("nan"), {"k": number}) for number in range(3)]
    before = [*same, (DAY, "a", 0, 0, 1.0, None), (DAY, "a", 0, 1, 2.0, None), (DAY, "a", 1, 0, 5.0, {"k": 1})]
    after = [*same, (DAY, "a", 0, 0, 2.0, None), (DAY, "a", 0, 1, 1.0, None), (DAY, "b", 1, 0, 5.0, {"k": 1})]
    earlier, later = (spark.createDataFrame(list(data), schema) for data in (before, after))
    found = differences(earlier, later, [DAY, january(15)])
    examples = tuple(
        ChangedRow(
            topic_id="a",
            partition=0,
            offset=offset,
            values=(ChangedValue(column="v", before=before, after=after),),
        )
        for offset, before, after in ((0, 1.0, 2.0), (1, 2.0, 1.0))
    )
    assert found == [
        DayDifference(day=DAY, rows=Difference(added=1, removed=1, changed=2), examples=examples),
        DayDifference(day=january(15), rows=Difference(added=0, removed=0, changed=0), examples=()),
    ]
    maps = later.withColumn("m", F.create_map(F.lit("k"), F.lit(7)))
    (changed,) = differences(later.where("_offset > 1"), maps.where("_offset > 1"), [DAY])
    value = ChangedValue(column="m", before={"k": 2}, after={"k": 7})
    assert (changed.rows.changed, changed.examples[2].values) == (3, (value,))


MOVED: list[tuple[Values, Values]] = [
    ((5, None, None, None, None), (None, 5, None, None, None)),
    ((None, None, [], None, None), (None, None, None, None, None)),
    ((None, None, [None], None, None), (None, None, [], None, None)),
    ((None, None, [1, None], None, None), (None, None, [None, 1], None, None)),
    ((None, None, None, {"a": None, "b": None}, None), (None, None, None, None, None)),
    ((None, None, None, {"a": 1, "b": None}, None), (None, None, None, {"a": None, "b": 1}, None)),
    ((None, None, None, None, [moment(14)]), (None, None, None, None, [moment(14) + timedelta(microseconds=1)])),
]


def test_a_null_that_changes_its_place_and_a_microsecond_in_a_list_are_changes(spark: SparkSession) -> None:
    place = "_day DATE, _topic_id STRING, _kafka_partition INT, _offset BIGINT"
    schema = f"{place}, x INT, y INT, many ARRAY<INT>, e STRUCT<a: INT, b: INT>, times ARRAY<TIMESTAMP>"
    days = [DAY, january(15)]
    # Two days, because at most five changed rows of each are shown; each row in a bucket of its own.
    places = [(days[number // 4], "a", 0, number << 20) for number in range(len(MOVED))]
    one, other = (
        spark.createDataFrame([(*place, *pair[side]) for place, pair in zip(places, MOVED, strict=True)], schema)
        for side in (0, 1)
    )
    found = differences(one, other, days)
    assert [(item.rows.added, item.rows.removed, item.rows.changed) for item in found] == [(0, 0, 4), (0, 0, 3)]
    examples = [example for item in found for example in item.examples]
    names = ["x", "y", "many", "e", "times"]
    for example, (*_, offset), (before, after) in zip(examples, places, MOVED, strict=True):
        assert example.offset == offset
        sides = zip(names, before, after, strict=True)
        assert {value.column for value in example.values} == {name for name, left, right in sides if left != right}
    assert [item.rows.changed for item in differences(one, one, days)] == [0, 0]


@pytest.mark.conformance(75)
def test_versions_with_a_time_that_python_cannot_hold_are_compared(spark: SparkSession) -> None:
    place = "_day DATE, _topic_id STRING, _kafka_partition INT, _offset BIGINT"
    years = {"seconds": 1_751_302_800_000, "same": 1_357_000_000}
    rows = spark.createDataFrame(
        [(DAY, "a", 0, 0, years["seconds"], years["same"])], f"{place}, at BIGINT, same BIGINT"
    )
    earlier, later = (
        rows.withColumns(
            {
                "at": F.timestamp_seconds(F.col("at") - moved),
                "many": F.array(F.timestamp_seconds(F.col("at") - moved)),
                "same": F.timestamp_seconds("same"),
            }
        )
        for moved in (0, 1)
    )
    (found,) = differences(earlier, later, [DAY])
    (example,) = found.examples
    assert [(value.column, value.before, value.after) for value in example.values] == [
        ("at", "+57466-07-30 08:00:00", "+57466-07-30 07:59:59"),
        ("many", '["+57466-07-30T08:00:00.000000Z"]', '["+57466-07-30T07:59:59.000000Z"]'),
    ]
    tables = [pa.table({"at": pa.array([number], pa.timestamp("us"))}) for number in (2**62, 2**62 + 1)]
    assert [list(_differing(tables[0], other)) for other in tables] == [[False], [True]]


@pytest.mark.conformance(19)
def test_late_records_reopen_days_within_reopen_days_and_the_rest_are_reported(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 10)
    run = log.run("first")
    plan_run(run, [MONDAY], False)
    finalize_plan_run(run)
    finish(run, {MONDAY: 10})
    seal_run(run)
    log.produce(3, at(MONDAY, 22))
    log.produce(4, at(TUESDAY, 9))
    log.archive(10, 17)

    run = log.run("second", reopen_days=0)
    plan_run(run, [TUESDAY], False)
    plan = finalize_plan_run(run)
    assert [item.day for item in plan.days] == [TUESDAY]
    assert plan.ignored == (LateDay(day=MONDAY, records_max=3),)
    page = page_of(run, report_run(run))
    assert run.require(REPORT)["ignored"] == [{"day": "2013-01-14", "records_max": 3}]
    assert "late records that are not published (upper bound) 2013-01-14 3 after the day was sealed" in page.text
    asked = plan_run(log.run("asked", reopen_days=0), [MONDAY, TUESDAY], False)
    assert [item.day for item in asked.days] == [MONDAY, TUESDAY]
    backfill = plan_run(log.run("backfill", reopen_days=0), [MONDAY - timedelta(days=1)], False)
    assert [item.day for item in backfill.days] == [MONDAY - timedelta(days=1)]
    assert backfill.ignored == (LateDay(day=MONDAY, records_max=3),)
    for days in (1, None):
        wider = plan_run(log.run("wider", reopen_days=days), [TUESDAY], False)
        assert wider.days[0] == DayPlan(day=MONDAY, version=2, reason="late", archived_rows=13)
        assert wider.ignored == ()


@pytest.mark.conformance(19)
def test_days_that_the_clocks_shorten_and_lengthen_are_rebuilt_whole_and_alone(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path)
    hours = {date(2013, 3, 10): 23, date(2013, 11, 3): 25}
    for day in hours:
        start = datetime(day.year, day.month, day.day, tzinfo=ZONE).astimezone(UTC) - timedelta(hours=2)
        world.produce([(start + timedelta(minutes=30 * step), value(step)) for step in range(60)])
    world.archive(0, 31)
    world.archive(20, 120, writer="again")
    rebuilt = world.rebuild(world.plan("first", list(hours)))
    assert {item.day: item.read for item in rebuilt.days} == {day: 2 * number for day, number in hours.items()}
    rows = IcebergTable(spark, world.settings, world.name).read(str(rebuilt.branch))
    found = sorted((row["_day"], row["_offset"]) for row in rows.select("_day", "_offset").collect())
    spans = zip(hours, (range(4, 50), range(64, 114)), strict=True)
    assert found == [(day, offset) for day, span in spans for offset in span]
