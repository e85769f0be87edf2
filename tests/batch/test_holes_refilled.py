"""Committed records that a faulty writer left out, from Kafka into a proven day: every step, with real Spark."""

from collections.abc import Collection, Mapping

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.batch.logs import MONDAY, Log, at
from tests.batch.steps import pass_audit
from tests.batch.test_holes import found, holes, lacked, search, transact
from tests.batch.verifying import differences, verify
from tests.conftest import MakeStream, Produce, Record
from tests.core.worlds import span
from tidemark.archive.manifests import commit_batch
from tidemark.archive.write.sink import write_range
from tidemark.core.plan import Hole
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.reconcile.report.outcomes import read_outcomes
from tidemark.reconcile.report.report import make_report
from tidemark.reconcile.results import FINALIZE_PLAN, PLAN, final_plan
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.spark.kafka_source import read_ranges
from tidemark.spark.records import records
from tidemark.tables.reader import load_table

pytestmark = pytest.mark.conformance(44)

NINE = at(MONDAY, 9)
VALUE = b'{"n": 1}'


def archive_without(log: Log, spark: SparkSession, end: int, dropped: Mapping[int, Collection[int]]) -> None:
    """Commit ``[0, end)`` of each partition as a faulty writer does, which drops some of the records."""
    ranges = {log.owner(partition): span(0, end) for partition in dropped}
    rows = records(read_ranges(spark, log.settings, ranges), log.stream)
    for partition, offsets in dropped.items():
        rows = rows.where(~((F.col("partition") == partition) & F.col("offset").isin(*offsets)))
    files = write_range(rows, ranges, log.stream, log.settings, clock_us=0).files
    commit_batch(
        log.store, log.layout, log.stream, writer="faulty", batch=0, ranges=ranges, files=files, now_us=NINE * 1000
    )


def reconcile(log: Log, spark: SparkSession, name: str, *, force: bool = False) -> Run:
    """Every step up to the publication; its seal is the caller's."""
    run = log.run(name)
    plan_run(run, [MONDAY], force)
    refill_run(run, spark)
    finalize_plan_run(run)
    for step in (rebuild_run, pass_audit, publish_run):
        step(run, spark)
    return run


def published(log: Log) -> list[tuple[int, int]]:
    """(partition, offset) of every row that readers see, sorted."""
    table = load_table(log.settings, log.stream.table)
    assert table is not None
    rows = table.scan(selected_fields=("_kafka_partition", "_offset")).to_arrow().to_pylist()
    return sorted((row["_kafka_partition"], row["_offset"]) for row in rows)


def test_records_that_a_writer_left_out_are_refilled_exactly_and_the_day_is_proven(
    log: Log, spark: SparkSession
) -> None:
    # 0-4 kept, 5 marker | 6-8 aborted, 9 marker | 10-14 kept, 15 marker
    transact(log, (5, True), (3, False), (5, True), value=VALUE)
    archive_without(log, spark, 16, {0: {2, 3, 11}})
    others: list[Record] = [(b"k", VALUE, NINE, 1, [])] * 3
    log.produce_records(log.stream.topic, others)  # never archived: a gap, beside the holes

    run = reconcile(log, spark, "run-1")
    refill = run.require(PLAN).refill
    assert [(item.log.partition, item.range.start, item.range.end, item.in_hole) for item in refill] == [
        (0, 2, 4, True),
        (0, 11, 12, True),
        (1, 0, 3, False),
    ]
    assert run.require(PLAN).plan.logs[0].holes == (
        Hole(range=span(0, 16), missing=9, cause="unexplained", evidence=found(6, 0, 3, span(2, 4), span(11, 12))),
    )
    assert [(item.range, item.writer) for item in final_plan(run).logs[0].used] == [
        (span(0, 2), "faulty"),
        (span(2, 4), "refill-run-1"),
        (span(4, 11), "faulty"),
        (span(11, 12), "refill-run-1"),
        (span(12, 16), "faulty"),
    ]
    # What the parts lack at most is the manifest's figure; the evidence is exact: 5 to 9, and 15.
    assert [(hole.range, hole.exact, hole.evidence) for hole in holes(run)] == [
        (span(0, 2), False, found()),
        (span(4, 11), False, found(5)),
        (span(12, 16), False, found(1)),
    ]
    assert search(run).notes == ()
    kept = [*((0, offset) for offset in (0, 1, 2, 3, 4, 10, 11, 12, 13, 14)), *((1, offset) for offset in range(3))]
    assert published(log) == kept

    (seal,) = seal_run(run)
    assert (seal.rows_read, seal.rows_published, seal.rows_quarantined) == (13, 13, 0)
    assert (seal.duplicates_trimmed, seal.refilled_offsets) == (0, 6)
    assert (verify(log).verdict, differences(verify(log))) == ("proven", "")
    verdict = make_report(run, read_outcomes(run))["verdict"]
    assert verdict["status"] == "complete"
    assert (
        "6 offsets were missing from the archive and refilled from Kafka, 3 of them inside ranges that were archived"
        " without these records." in verdict["sentences"]
    )

    # The next version has the same copies. No step asks again about offsets that the seal has evidence on.
    repeated = reconcile(log, spark, "run-2", force=True)
    assert lacked(repeated) == []
    assert [search(repeated, step).offsets_read for step in (PLAN, FINALIZE_PLAN)] == [0, 0]
    assert final_plan(repeated).logs[0].used == final_plan(run).logs[0].used
    (second,) = seal_run(repeated)
    assert (second.rows_read, second.duplicates_trimmed, second.refilled_offsets) == (13, 0, 0)
    assert published(log) == kept
    assert (verify(log).verdict, differences(verify(log))) == ("proven", "")


def test_a_day_sealed_without_records_that_kafka_gives_is_reopened_with_them(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession
) -> None:
    """Of four partitions records of the middle, the first, the last, and all of them were left out."""
    dropped = dict(enumerate([{1, 4}, {0}, {4}, {0, 1, 2, 3, 4}]))
    stream = make_stream(partitions=4, time_zone="America/New_York", batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    for partition in dropped:
        transact(log, (5, True), value=VALUE, partition=partition)
    archive_without(log, spark, 6, dropped)
    run = log.run("run-1")
    plan_run(run, [MONDAY], False)
    finalize_plan_run(run)  # as a run did that refilled gaps alone
    for step in (rebuild_run, pass_audit, publish_run):
        step(run, spark)
    (seal,) = seal_run(run)
    assert (seal.rows_read, verify(log).verdict) == (11, "disproven")
    kept = [(partition, at) for partition, left_out in dropped.items() for at in range(5) if at not in left_out]
    assert published(log) == kept

    repeated = reconcile(log, spark, "run-2", force=True)
    (second,) = seal_run(repeated)
    refilled = (second.version, second.rows_read, second.refilled_offsets, second.duplicates_trimmed)
    assert refilled == (2, 20, 9, 0)
    assert second.difference is not None
    changes = (second.difference.added, second.difference.removed, second.difference.changed)
    assert changes == (9, 0, 0)
    assert published(log) == [(partition, offset) for partition in range(4) for offset in range(5)]
    assert (verify(log).verdict, differences(verify(log))) == ("proven", "")
