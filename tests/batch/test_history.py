"""Checks against earlier days: the figures that each audit saves, and how they judge a later day."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.batch.steps import ended
from tests.batch.world import TRANSFORM, World, january, moment
from tidemark.core.errors import QualityError
from tidemark.definitions.own_checks import DISTINCT_VALUES, HOURLY_ROW_COUNTS, MEAN, NULL_SHARE, ROW_COUNT
from tidemark.definitions.stream import Stream
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.audit.figures import ColumnFigures, DayFigures
from tidemark.reconcile.audit.measure import day_figures
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.day_profile import DayProfile, HourRows
from tidemark.reconcile.results import AUDIT, REBUILD, DayCounts, DeduplicatedBy, RebuildResult
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.tables.column_statistics import DayStatistics, added_days
from tidemark.tables.reader import load_table

MONDAYS = [january(7), january(14), january(21), january(28)]


def check(expectation: str, severity: str = "critical", **kwargs: Any) -> dict[str, Any]:
    return {"expectation": expectation, "kwargs": kwargs, "severity": severity}


def add_day(world: World, day: int, *, rows: int = 40, delay: float | None = 10.0) -> None:
    """Produce and archive a day's rows: as many in each of ten hours, with delays around ``delay``."""
    start = len(world.records)
    bodies = [
        json.dumps({"id": number, "name": "row", "delay": None if delay is None else delay + number % 3}).encode()
        for number in range(rows)
    ]
    world.produce([(moment(day, 8 + number % 10, number // 10), body) for number, body in enumerate(bodies)])
    world.archive(start, start + rows)


def seal(world: World, name: str, day: date) -> Run:
    run = world.reconcile(name, [day], audit=audit_run)
    seal_run(run)
    return run


def outcomes(run: Run) -> dict[str, CheckOutcome]:
    return {item.expected.expectation: item for item in ended(run, AUDIT)[1].checks if not item.expected.built_in}


FIRST, EMPTY = date(2013, 3, 10), january(1)
STREAM = Stream.model_validate(
    {
        "name": "rows",
        "topic": "rows",
        "value_schema": "n DOUBLE",
        "speed": {"topic": "rows.live", "dead_letter_topic": "rows.dead"},
    }
)


def rebuilt(published: int) -> RebuildResult:
    """A day with rows at 1 and 3 o'clock, and an empty one."""
    counts = DayCounts(
        day=FIRST, read=9, published=published, quarantined=0, duplicates_removed=0, duplicates_trimmed=0
    )
    hours = tuple(HourRows(hour=hour, published=rows, quarantined=5) for hour, rows in ((1, 1), (3, published - 1)))
    return RebuildResult(
        plan="",
        inputs="",
        deduplicated_by=DeduplicatedBy(key=(), keep="first"),
        days=(counts, replace(counts, day=EMPTY, read=0, published=0)),
        profiles=(DayProfile(day=FIRST, hours=hours, newest_us=7), DayProfile(day=EMPTY, hours=())),
    )


def asked(*checks: tuple[str, str]) -> list[Expected]:
    return [
        Expected(expectation=name, kwargs={"column": column}, severity="warning", built_in=False)
        for name, column in checks
    ]


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql("""SELECT DATE'2013-03-10' AS _day, 1L AS _offset, name, n, tags
        FROM VALUES ('a', 1.0D, array(1)), ('a', 3.0D, NULL), (NULL, NULL, NULL) AS rows(name, n, tags)""")


ALL = [(name, column) for name in (NULL_SHARE, DISTINCT_VALUES, MEAN) for column in ("name", "n", "tags", "none")]


def test_columns_are_measured_for_the_checks_that_name_them(rows: DataFrame) -> None:
    found, empty = day_figures(rows, rebuilt(3), {}, asked(*ALL), STREAM)
    hours = [0] * 24
    hours[1], hours[3] = 1, 2
    assert found == DayFigures(
        day=FIRST,
        rows=3,
        hours=tuple(hours),
        newest_us=7,
        columns=(
            ColumnFigures(column="name", nulls=1, distinct=1, mean=None, deviation=None),
            ColumnFigures(column="n", nulls=1, distinct=2, mean=2.0, deviation=1.0),
            ColumnFigures(column="tags", nulls=2, distinct=None, mean=None, deviation=None),
        ),
    )
    assert (empty.rows, empty.newest_us, empty.hours) == (0, None, (0,) * 24)


def test_the_mean_of_a_personal_column_or_of_nan_is_not_kept(rows: DataFrame) -> None:
    of_people = STREAM.model_copy(update={"personal": ("n",)})
    (found, _) = day_figures(rows, rebuilt(3), {}, asked(*ALL), of_people)
    assert found.columns[1] == ColumnFigures(column="n", nulls=1, distinct=2, mean=None, deviation=None)
    with_nan = rows.selectExpr("_day", "name", "double('NaN') AS n", "tags")
    (found, _) = day_figures(with_nan, rebuilt(3), {}, asked((MEAN, "n")), STREAM)
    assert (found.columns[1].mean, found.columns[1].deviation) == (None, None)


def test_statistics_of_the_files_give_the_nulls_if_they_are_of_all_rows(rows: DataFrame) -> None:
    nulls = {"name": 11, "n": 12}
    counted = {FIRST: DayStatistics(rows=3, nulls=nulls)}
    unscannable = rows.where("raise_error('a scan') IS NULL")
    for checks in ([], asked((NULL_SHARE, "name"), (NULL_SHARE, "n"))):
        found, _ = day_figures(unscannable, rebuilt(3), counted, checks, STREAM)
        assert [item.nulls for item in found.columns] == [11, 12, None]
    found, _ = day_figures(rows, rebuilt(3), counted, asked((NULL_SHARE, "tags")), STREAM)
    assert [item.nulls for item in found.columns] == [11, 12, 2]
    found, _ = day_figures(rows, rebuilt(2), counted, asked((NULL_SHARE, "name")), STREAM)
    assert [item.nulls for item in found.columns] == [1, None, None]


def own_columns(found: Mapping[str, Any]) -> dict[str, Any]:
    """Without the platform's columns."""
    return {name: value for name, value in found.items() if name[0] != "_"}


def test_metadata_counts_the_nulls_of_a_snapshots_days(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    odd = 'F.when(F.col("event.id") == 2, F.lit(float("nan"))).otherwise(1.0).alias("odd")'
    more = f'"event.delay", F.struct("event.id").alias("inner"), {odd}'
    transform = TRANSFORM.replace('"event.delay"', more)
    world = World.make(spark, settings, tmp_path, transform=transform)
    add_day(world, 7, rows=4, delay=None)
    add_day(world, 14, rows=6)
    run = world.plan("first", [january(7), january(14)])
    world.rebuild(run)
    staged = run.require(REBUILD).staged
    table = load_table(settings, world.name)
    assert staged is not None
    assert table is not None
    found = added_days(table, staged.snapshot)
    assert {day: item.rows for day, item in found.items()} == {january(7): 4, january(14): 6}
    first, second = found[january(7)], found[january(14)]
    assert own_columns(first.nulls) == {"id": 0, "name": 0, "delay": 4, "odd": 0}
    assert own_columns(second.nulls) == {"id": 0, "name": 0, "delay": 0, "odd": 0}
    assert own_columns(first.bounds) == {"id": (0, 3)}
    assert own_columns(second.bounds) == {"id": (0, 5), "delay": (10.0, 12.0)}  # odd has a NaN
    assert added_days(table, 1) == {}


def test_a_day_is_compared_with_the_sealed_weekdays_before_it(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    checks = [
        check(ROW_COUNT, weekdays=8, deviation=0.5),
        check(HOURLY_ROW_COUNTS, "warning"),
        check(NULL_SHARE, "warning", column="delay"),
        check(MEAN, "warning", column="delay", standard_deviations=1),
    ]
    world = World.make(spark, settings, tmp_path, checks=checks)
    for number, day in enumerate(MONDAYS[:3]):
        add_day(world, day.day, rows=40 + number)
        run = seal(world, f"run-{day}", day)
        found = outcomes(run)
        (figures,) = ended(run, AUDIT)[1].figures
        hours = Counter(8 + row % 10 for row in range(40 + number))
        assert (figures.rows, figures.hours) == (40 + number, tuple(hours[hour] for hour in range(24)))
        assert {item.column: item.nulls for item in figures.columns} == {"id": 0, "name": 0, "delay": 0}
        assert [item.success for item in found.values()] == [None] * 4
        assert all(item.without_history for item in found.values())
        text = f"{number} of the last 8 Mondays have figures to compare with; the check needs at least 3"
        assert found[ROW_COUNT].observed == text

    add_day(world, 28, rows=10, delay=None)
    run = world.plan("bad", [january(28)])
    world.rebuild(run)
    with pytest.raises(QualityError, match=f"{ROW_COUNT}: failed, observed rows: 10, expected at least 20.5"):
        audit_run(run, spark)
    found = outcomes(run)
    assert found[ROW_COUNT].observed == (
        "rows: 10, expected at least 20.5 and at most 61.5: the median of 3 Mondays is 41"
    )
    assert (found[ROW_COUNT].success, found[NULL_SHARE].success) == (False, False)
    assert found[NULL_SHARE].observed == (
        "nulls: 100.0 %, expected at least 0.0 % and at most 10.0 %: the median of 3 Mondays is 0.0 %"
    )
    assert (found[MEAN].success, found[MEAN].observed) == (None, "no such figure of column delay")

    add_day(world, 28, rows=30)
    run = seal(world, "good", january(28))
    assert [item.success for item in outcomes(run).values()] == [True, True, False, True]


def test_missing_figures_are_unknown_with_the_reason(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    world = World.make(spark, settings, tmp_path, checks=[check(ROW_COUNT, weekdays=1)])
    add_day(world, 7)
    first = seal(world, "first", january(7))
    first.store.delete(first.key(AUDIT.name))
    add_day(world, 14)
    found = outcomes(seal(world, "second", january(14)))[ROW_COUNT]
    assert (found.success, found.without_history, found.blocks) == (None, True, False)
    assert found.observed == (
        "0 of the last 1 Monday have figures to compare with; the check needs at least 1"
        " (2013-01-07: the audit of run first has no figures)"
    )


def test_an_empty_day_fails_the_row_count(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    checks = [check(ROW_COUNT, weekdays=1), check(NULL_SHARE, weekdays=1, column="delay")]
    world = World.make(spark, settings, tmp_path, checks=checks)
    add_day(world, 7)
    seal(world, "first", january(7))
    run = world.plan("empty", [january(14)])
    world.rebuild(run)
    with pytest.raises(QualityError, match="rows: 0, expected at least 20 and at most 60"):
        audit_run(run, spark)
    assert outcomes(run)[NULL_SHARE].observed == "no row to check"


def test_the_profile_judges_a_new_stream_without_a_check_of_its_own(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    off = {"expectation": MEAN, "kwargs": {"column": "id"}, "severity": "none"}
    world = World.make(spark, settings, tmp_path, checks=[off], profile="default")
    for day in MONDAYS[:3]:
        add_day(world, day.day)
        run = seal(world, f"run-{day}", day)
        assert {item.success for item in outcomes(run).values()} == {None}
    add_day(world, 28, delay=500.0)
    run = seal(world, "drifted", january(28))
    failed = [item for item in ended(run, AUDIT)[1].checks if item.success is False]
    assert [(item.expected.expectation, item.expected.kwargs) for item in failed] == [(MEAN, {"column": "delay"})]
