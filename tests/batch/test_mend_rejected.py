"""The page "Mend rejected records", step by step: what is rejected, what a mended transformation brings back."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.batch.steps import pass_audit
from tests.batch.world import World, january, moment
from tests.pages import blocks
from tidemark.core.errors import ConflictError, RequestError
from tidemark.inspect.locate_key import RECORDS_MAX
from tidemark.inspect.locate_rejected import ReasonCount, RejectedPlace, find_rejected
from tidemark.installation import PROJECT
from tidemark.reconcile.day_profile import RecoveredReason, RecoveredRows
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.results import REBUILD, REPORT
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.tables.seals import latest_seals

DAY = january(14)
PAGE = PROJECT / "docs" / "how-to" / "mend-rejected-records.md"
MALFORMED = "the value is not one JSON object"


def ride(number: int, fare: float, distance_m: int | None) -> bytes:
    return json.dumps({"ride": f"r-{number}", "fare": fare, "distance_m": distance_m}).encode()


def block(page: Path, title: str) -> str:
    (found,) = (item.text for item in blocks(page) if item.title == title)
    return found


def rebuild(world: World, name: str) -> Run:
    """A run that rebuilds the day, sealed and reported."""
    run = world.run(name)
    run = world.plan(name, [DAY], seals=latest_seals(run.store, run.layout), force=True)
    rebuild_run(run, world.spark)
    pass_audit(run, world.spark)
    publish_run(run, world.spark)
    seal_run(run)
    report_run(run)
    return run


def report(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = run.require(REPORT)
    return found


def test_the_page_leads_from_rejected_records_to_published_ones(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    readme = PROJECT / "README.md"
    schema = yaml.safe_load(block(readme, "include/streams/rides.yaml"))["value_schema"]
    before = block(readme, "include/streams/rides.py")
    world = World.make(spark, settings, tmp_path, value_schema=schema, transform=before)
    values = [ride(0, 9.5, 900), ride(1, 0, None), ride(2, 4.5, None), b"no ride at all", ride(4, 0, None)]
    world.produce((moment(14), body) for body in values)
    world.archive(0, len(values))
    first = rebuild(world, "first")
    assert first.require(REBUILD).recovered == ()

    found = find_rejected(world.settings, world.name, DAY)
    assert (found.version, found.rejected, found.rows, found.reasons_found) == (1, 4, 4, 2)
    assert found.reasons == (ReasonCount(reason="no distance", rows=3), ReasonCount(reason=MALFORMED, rows=1))
    assert [item.offset for item in found.records] == [1, 2, 3, 4]
    found = find_rejected(world.settings, world.name, DAY, "DISTANCE")
    assert (found.rejected, found.rows, found.reasons_found) == (4, 3, 1)
    assert found.records[0] == RejectedPlace(
        topic_id=world.topic_id,
        partition=0,
        offset=1,
        event_time=datetime(2013, 1, 14, 17, 0, 0, 1000, tzinfo=UTC),
        reason="no distance",
    )
    assert [item.offset for item in found.records] == [1, 2, 4]
    assert find_rejected(world.settings, world.name, DAY, "no such").records == ()
    (query,) = (item.text for item in blocks(PAGE) if item.language == "sql")
    query = query.replace("tidemark.published.rides", world.table).replace("2025-06-01", str(DAY))
    rows = [(row["_offset"], row["value"]) for row in spark.sql(query).collect()]
    assert rows == [(offset, values[offset].decode()) for offset in (1, 2, 4)]

    (tmp_path / f"{world.name}.py").write_text(block(PAGE, "include/streams/rides.py"))
    second = rebuild(world, "second")

    back = RecoveredRows(
        day=DAY,
        version=1,
        rejected=4,
        rows=2,
        reasons=(RecoveredReason(reason="no distance", rows=2),),
        reasons_found=1,
    )
    assert second.require(REBUILD).recovered == (back,)
    (day,) = report(second)["days"]
    assert (day["recovered"]["rows"], day["quarantined"], day["published"]) == (2, 2, 3)
    html = second.store.get(report(second)["html_key"])
    assert html is not None
    assert "2 of the 4 records that version 1 rejected are published now." in html.decode()
    found = find_rejected(world.settings, world.name, DAY)
    assert (found.version, found.rejected) == (2, 2)
    assert [(item.offset, item.reason) for item in found.records] == [(2, "no distance"), (3, MALFORMED)]

    third = rebuild(world, "third")
    assert third.require(REBUILD).recovered == (RecoveredRows(day=DAY, version=2, rejected=2, rows=0),)


def test_of_many_rejected_records_the_first_are_listed_and_all_are_counted(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path)
    with pytest.raises(RequestError, match="the day is not sealed"):
        find_rejected(world.settings, world.name, DAY)
    number = RECORDS_MAX + 20
    for partition in (1, 0):
        world.produce([(moment(14), b"no object")] * number, partition=partition)
        world.archive(0, number, partition=partition)
    rebuild(world, "first")
    found = find_rejected(world.settings, world.name, DAY)
    assert (found.rejected, found.rows, found.reasons) == (
        2 * number,
        2 * number,
        (ReasonCount(reason=MALFORMED, rows=2 * number),),
    )
    assert [(item.partition, item.offset) for item in found.records] == [(0, offset) for offset in range(RECORDS_MAX)]
    spark.sql(f"DROP TABLE {world.table}_quarantine")
    with pytest.raises(ConflictError, match="quarantined rows of the version have expired"):
        find_rejected(world.settings, world.name, DAY)
