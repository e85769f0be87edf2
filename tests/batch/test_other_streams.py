"""Checks of a day against the sealed day of another stream."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.batch.steps import ended
from tests.batch.world import World, january, moment, value
from tidemark.core.errors import QualityError
from tidemark.definitions.own_checks import ROW_COUNT_OF_STREAM, VALUES_IN_STREAM
from tidemark.reconcile.audit.checks import CheckOutcome
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.results import AUDIT
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings


def other(spark: SparkSession, settings: Settings, folder: Path, names: list[str], *, sealed: bool = True) -> World:
    """A stream with rows of 14 January, which have the names in upper case."""
    world = World.make(spark, settings, folder)
    world.produce([(moment(14), value(number, name)) for number, name in enumerate(names)])
    world.produce([(moment(15), value(99, "tomorrow"))])
    world.archive(0, len(names) + 1)
    if sealed:
        seal_run(world.reconcile("other", [january(14)], audit=audit_run))
    return world


def own(spark: SparkSession, settings: Settings, folder: Path, *checks: dict[str, Any]) -> World:
    """A stream with three rows of 14 January: AMY, BEN and AMY."""
    world = World.make(spark, settings, folder, checks=checks)
    world.produce([(moment(14), value(number, name)) for number, name in enumerate(("amy", "ben", "amy"))])
    world.archive(0, 3)
    return world


def audited(world: World, name: str = "run") -> Run:
    run = world.plan(name, [january(14)])
    world.rebuild(run)
    audit_run(run, world.spark)
    return run


def outcomes(run: Run) -> list[CheckOutcome]:
    return [item for item in ended(run, AUDIT)[1].checks if not item.expected.built_in]


def references(stream: str, **kwargs: Any) -> dict[str, Any]:
    return {"expectation": VALUES_IN_STREAM, "kwargs": {"column": "name", "stream": stream, **kwargs}}


def counts(stream: str, **kwargs: Any) -> dict[str, Any]:
    return {"expectation": ROW_COUNT_OF_STREAM, "kwargs": {"stream": stream, **kwargs}}


def test_references_and_counts_are_judged_by_the_sealed_day(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    people = other(spark, settings, tmp_path, ["amy", "ben", "tomorrow-not"])
    by_name = references(people.name, stream_column="name")
    found = outcomes(audited(own(spark, settings, tmp_path, by_name, counts(people.name))))
    assert [(item.success, item.day) for item in found] == [(True, january(14))] * 2
    assert found[0].expected.kwargs == by_name["kwargs"]
    assert found[1].observed == f"rows: 3, expected 3, as version 1 of {people.name} has"


def test_a_value_that_the_other_stream_lacks_and_another_number_of_rows_fail(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    people = other(spark, settings, tmp_path, ["amy", "tomorrow"])
    checks = [
        references(people.name, stream_column="name"),
        references(people.name, stream_column="name", mostly=0.6),
        counts(people.name),
        counts(people.name, deviation=0.5),
    ]
    world = own(spark, settings, tmp_path, *checks)
    with pytest.raises(QualityError, match=r"\(name\): failed, observed 1 of 3 unexpected; .*rows: 3, expected 2, as"):
        audited(world)
    found = outcomes(world.run("run"))
    assert [item.success for item in found] == [False, True, False, True]
    assert found[0].examples == ({"value": "BEN", "rows": 1},)
    assert spark.catalog.listTables(pattern="tidemark_*") == []


def test_a_check_is_made_once_the_other_stream_has_sealed_the_day(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    people = other(spark, settings, tmp_path, ["amy", "ben", "cleo"], sealed=False)
    world = own(spark, settings, tmp_path, references(people.name, stream_column="name"), counts(people.name))
    with pytest.raises(QualityError, match=f"could not be evaluated: stream {people.name} has not sealed 2013-01-14"):
        audited(world)
    run = world.run("run")
    assert [(item.success, item.blocks) for item in outcomes(run)] == [(None, True)] * 2
    assert not ended(run, AUDIT)[1].rows_failed
    seal_run(people.reconcile("other", [january(14)], audit=audit_run))
    audit_run(run, spark)
    assert [item.success for item in outcomes(run)] == [True, True]


def test_days_of_another_time_zone_are_not_compared(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    people = other(spark, settings, tmp_path, ["amy"])
    world = own(spark, settings, tmp_path, counts(people.name))
    run = world.plan("run", [january(14)])
    world.rebuild(run)
    elsewhere = replace(run, stream=run.stream.model_copy(update={"time_zone": "America/Chicago"}))
    with pytest.raises(QualityError, match="has days of America/New_York, not of America/Chicago"):
        audit_run(elsewhere, spark)


def test_a_column_that_the_other_stream_does_not_have_is_an_error(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    people = other(spark, settings, tmp_path, ["amy"])
    world = own(spark, settings, tmp_path, references(people.name, stream_column="nom"))
    with pytest.raises(QualityError, match=r"could not be evaluated: .*nom"):
        audited(world)
