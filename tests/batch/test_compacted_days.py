"""Sealed days after a compaction and the deletion of replaced objects: a real stream, real runs."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY, TUESDAY, Log, at
from tests.batch.steps import pass_audit
from tests.batch.test_table_maintenance import offsets, staged, table_of, verdict
from tests.conftest import MakeStream, Produce
from tidemark.archive.stream.driver import archive
from tidemark.current_view.view import pin
from tidemark.inspect.locate import CompactedBatch, locate
from tidemark.maintenance.compaction import Compaction
from tidemark.maintenance.replaced import delete_replaced
from tidemark.reconcile.plan.step import plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.results import PLAN
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(53)


def test_days_stay_proven_and_are_rebuilt_to_the_same_rows(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(
        time_zone="America/New_York",
        value_format="raw",
        value_schema=None,
        archive={"max_offsets_per_trigger": 2},
        batch={"wait_seconds": 0},
    )
    log = Log(stream=stream, settings=settings, produce_records=produce)

    def reconcile(name: str, *, force: bool = False) -> None:
        run = staged(log, spark, name, *([MONDAY, TUESDAY] if force else [MONDAY]), force=force)
        pass_audit(run, spark)
        publish_run(run, spark)
        seal_run(run)

    def compacted(now: datetime) -> int:
        return Compaction(store=log.store, layout=log.layout, stream=stream, now=now).run().ranges

    log.produce(8, at(MONDAY, 9))
    archive(spark, stream, settings, available_now=True)
    reconcile("first")
    published = table_of(log, stream.table).scan().to_arrow().sort_by("_offset")
    (writer,) = {item.writer for item in log.manifests()}
    assert published.num_rows == 8

    now = datetime.now(UTC)
    assert compacted(now + timedelta(days=2)) == 4
    made = next(item for item in log.manifests() if item.writer == "compact")
    assert verdict(log, MONDAY) == "proven []"
    assert pin(settings, stream.name).plan.archive_parts == ()  # the table has everything
    found = locate(settings, stream.name, stream.topic, 0, 5)
    assert [(item.object, item.compacted_from) for item in found.copies] == [
        (made.files[0].key, (CompactedBatch(writer=writer, batch=2),))
    ]
    assert [(item.writer, item.batch) for item in found.seals] == [(writer, 2)]
    deleted = delete_replaced(log.store, log.layout, stream, now=now + timedelta(days=9), delete=True)
    assert (deleted.objects, deleted.kept) == (4, [])
    assert verdict(log, MONDAY) == "proven []"

    check = log.run("check")
    plan_run(check, [TUESDAY], False)
    assert [item.day for item in check.require(PLAN).plan.days] == [TUESDAY]  # a compacted day has nothing late
    log.produce(3, at(TUESDAY, 9))
    log.produce(1, at(MONDAY, 20))
    archive(spark, stream, settings, available_now=True)
    assert compacted(now + timedelta(days=20)) == 2  # beside the large one
    assert verdict(log, MONDAY) == "proven []"  # the version does not have the late record

    reconcile("second", force=True)

    assert offsets(log) == {MONDAY: [*range(8), 11], TUESDAY: [8, 9, 10]}
    rebuilt = table_of(log, stream.table).scan().to_arrow().sort_by("_offset")
    assert rebuilt.slice(0, 8).equals(published)
    assert (verdict(log, MONDAY), verdict(log, MONDAY, 1), verdict(log, TUESDAY)) == ("proven []",) * 3
