"""Step refill: exactly the plan's gaps, from Kafka into the archive, with real Spark."""

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY, Log, at, drop_below, recreate
from tests.conftest import MakeStream, MakeTopic, Produce
from tests.core.worlds import span
from tests.faults import FaultProxy, Rule
from tidemark.archive.write.sink import write_range
from tidemark.core.errors import ConflictError, IncompleteError, ServiceError
from tidemark.core.manifest import CommittedRange, Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Evidence, Gap, Hole
from tidemark.kafka.positions import records_at
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.refill import refill_run, rounds
from tidemark.reconcile.results import PLAN, REFILL, RefillRange
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings


def refills(log: Log) -> list[Manifest]:
    return [item for item in log.manifests() if item.writer == "refill-run-1"]


def archived(log: Log, manifests: list[Manifest]) -> list[tuple[int, int, bytes, bytes, int]]:
    """(partition, offset, key, value, timestamp in ms) of every row, sorted."""
    rows = []
    for manifest in manifests:
        for file in manifest.files:
            body = log.store.get(file.key)
            assert body is not None
            for row in pq.read_table(io.BytesIO(body)).to_pylist():
                timestamp = round(row["timestamp"].timestamp() * 1000)
                rows.append((row["partition"], row["offset"], row["key"], row["value"], timestamp))
    return sorted(rows)


def proven(transactional: int) -> Evidence:
    return Evidence(transactional=transactional, compacted=0, unexplained=0, ranges=())


def two_gaps_and_a_whole_partition_missing(log: Log) -> None:
    log.produce(30, at(MONDAY, 9))
    log.produce(6, at(MONDAY, 10), partition=1)
    log.archive(0, 10)
    log.archive(13, 20)
    log.archive(25, 30)


@pytest.mark.conformance(72)
def test_a_timestamp_in_nanoseconds_is_refilled_as_the_latest_that_an_archive_holds(
    settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce, spark: SparkSession
) -> None:
    topic = make_topic(message_timestamp_after_max_ms=str(2**63 - 1))
    log = Log(stream=make_stream(topic=topic, batch={"wait_seconds": 0}), settings=settings, produce_records=produce)
    log.produce(10, at(MONDAY, 9))
    log.produce(3, at(MONDAY, 9) * 1_000_000)
    log.produce(7, at(MONDAY, 10))
    log.archive(0, 10)
    log.archive(13, 20)
    run = log.run()
    plan_run(run, [MONDAY], False)
    refill_run(run, spark)
    (manifest,) = refills(log)
    assert [(item.range, item.rows) for item in manifest.ranges] == [(OffsetRange(start=10, end=13), 3)]
    bodies = [log.store.get(file.key) for file in manifest.files]
    table = pa.concat_tables(pq.read_table(io.BytesIO(body or b"")) for body in bodies)
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [9_223_372_036_854_775_000] * 3
    assert table.column("value").to_pylist() == [b"v0", b"v1", b"v2"]
    (record,) = manifest.last
    assert record.is_same(records_at(settings.kafka, {record.log: 12})[record.log])
    assert finalize_plan_run(run).days[0].archived_rows == 17


@pytest.mark.conformance(44)
def test_a_refill_closes_every_gap_with_the_very_records_and_nothing_else(log: Log, spark: SparkSession) -> None:
    two_gaps_and_a_whole_partition_missing(log)
    run = log.run()
    plan_run(run, [MONDAY], False)
    refill_run(run, spark)
    first, second = refills(log)
    assert {item.log.partition: item.range for item in first.ranges} == {
        0: OffsetRange(start=10, end=13),
        1: OffsetRange(start=0, end=6),
    }
    assert {item.log.partition: item.range for item in second.ranges} == {0: OffsetRange(start=20, end=25)}
    nine, ten = at(MONDAY, 9), at(MONDAY, 10)
    assert archived(log, [first, second]) == [
        *((0, offset, b"k", f"v{offset}".encode(), nine) for offset in (10, 11, 12, 20, 21, 22, 23, 24)),
        *((1, offset, b"k", f"v{offset}".encode(), ten) for offset in range(6)),
    ]
    final = finalize_plan_run(run)
    assert [item.gaps for item in final.logs] == [(), ()]
    assert [item.overlaps for item in final.logs] == [(), ()]
    assert final.days[0].archived_rows == 36
    saved = run.require(REFILL)
    assert saved.rows == 14
    assert saved.files == len(first.files) + len(second.files)
    assert sorted((item.log.partition, item.range.start, item.range.end, item.batch) for item in saved.ranges) == [
        (0, 10, 13, 0),
        (0, 20, 25, 1),
        (1, 0, 6, 0),
    ]
    assert [list(item) for item in rounds(run.require(PLAN).refill, 100)] == [
        [log.owner(0), log.owner(1)],
        [log.owner(0)],
    ]


@pytest.mark.conformance(44)
def test_ranges_are_split_into_chunks_and_a_round_has_at_most_one_of_each_log() -> None:
    first, second = (TopicPartition(topic="t", topic_id="i", partition=n) for n in range(2))
    wanted = ((first, span(0, 7)), (first, span(8, 12)), (second, span(0, 5)))
    cut = rounds([RefillRange(log=log, range=part, in_hole=False) for log, part in wanted], 4)
    assert list(cut) == [
        {first: span(0, 4), second: span(0, 4)},
        {first: span(4, 7), second: span(4, 5)},
        {first: span(8, 12)},
    ]


@pytest.mark.parametrize("refused", [pytest.param("data", marks=pytest.mark.soak), "manifests"])
@pytest.mark.conformance(44)
def test_a_retry_continues_a_gap_whose_refill_stopped_between_two_chunks(
    log: Log, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    monkeypatch.setattr("tidemark.reconcile.refill.CHUNK_OFFSETS", 4)
    log.produce(18, at(MONDAY, 9))
    log.archive(0, 2)
    log.archive(16, 18)
    by_hand = {item.key for item in log.store.list(log.layout.data_prefix)}
    plan_run(log.run(), [MONDAY], False)
    third = {"data": rf"/data/.*\+{10:020}\+{14:020}\+", "manifests": "/manifests/.*/refill-run-1/0*2"}[refused]

    with FaultProxy(str(log.settings.s3_endpoint)) as proxy:
        settings = log.settings.model_copy(update={"s3_endpoint": proxy.url})
        run = replace(log.run(), settings=settings, store=ObjectStore(settings))
        cut = proxy.add(Rule(method="PUT", pattern=third, times=99, answer=(403, "AccessDenied")))
        with pytest.raises(ServiceError, match="AccessDenied"):
            refill_run(run, spark)
        assert cut.fired.is_set()
        done = refills(log)
        assert [[item.range for item in one.ranges] for one in done] == [[span(2, 6)], [span(6, 10)]]
        with pytest.raises(IncompleteError, match="step 'refill' of the run has not succeeded"):
            run.require(REFILL)
        proxy.clear()
        refill_run(run, spark)
        sent = [target for method, target, _ in proxy.sent if method == "PUT" and "/data/" in target]
    assert {target.split("+", 2)[2] for target in sent} == {
        f"{10:020}+{14:020}+0000.parquet",
        f"{14:020}+{16:020}+0000.parquet",
    }

    found = refills(log)
    assert found[:2] == done
    assert [(one.batch, one.ranges) for one in found] == [
        (batch, (CommittedRange(log=log.owner(), range=chunk, rows=len(chunk)),))
        for batch, chunk in enumerate((span(2, 6), span(6, 10), span(10, 14), span(14, 16)))
    ]
    nine = at(MONDAY, 9)
    assert archived(log, found) == [(0, offset, b"k", f"v{offset}".encode(), nine) for offset in range(2, 16)]
    # Nor is there an object that nobody names.
    there = {item.key for item in log.store.list(log.layout.data_prefix)}
    assert there == by_hand | {file.key for one in found for file in one.files}
    refill_run(log.run(), spark)
    assert refills(log) == found
    saved = log.run().require(REFILL)
    assert [(item.range.start, item.range.end, item.batch) for item in saved.ranges] == [
        (2, 6, 0),
        (6, 10, 1),
        (10, 14, 2),
        (14, 16, 3),
    ]
    assert (saved.rows, saved.files, saved.lost) == (14, 4, ())
    final = finalize_plan_run(log.run())
    assert (final.logs[0].gaps, final.logs[0].overlaps, final.days[0].archived_rows) == ((), (), 18)


@pytest.mark.conformance(10)
def test_an_earlier_topic_of_the_stream_is_refilled_beside_the_present_one(
    log: Log, spark: SparkSession, make_topic: MakeTopic
) -> None:
    log.produce(4, at(MONDAY, 9))
    log.archive(0, 1)
    earlier = log.owner()
    log.stream = log.stream.model_copy(update={"topic": make_topic(1)})
    log.produced.clear()
    log.produce(2, at(MONDAY, 10))
    run = log.run()
    plan_run(run, [MONDAY], False)
    refill_run(run, spark)
    found = {item.log: (item.range, item.rows) for manifest in refills(log) for item in manifest.ranges}
    assert found == {earlier: (OffsetRange(start=1, end=4), 3), log.owner(): (OffsetRange(start=0, end=2), 2)}
    assert all(file.log.topic in file.key for manifest in refills(log) for file in manifest.files)
    nine, ten = at(MONDAY, 9), at(MONDAY, 10)
    assert archived(log, refills(log)) == [
        (0, 0, b"k", b"v0", ten),
        (0, 1, b"k", b"v1", nine),
        (0, 1, b"k", b"v1", ten),
        (0, 2, b"k", b"v2", nine),
        (0, 3, b"k", b"v3", nine),
    ]
    assert not any(item.gaps for item in finalize_plan_run(run).logs)


@pytest.mark.conformance(44)
def test_a_retried_refill_finds_its_batches_and_adds_none(log: Log, spark: SparkSession) -> None:
    two_gaps_and_a_whole_partition_missing(log)
    run = log.run()
    plan_run(run, [MONDAY], False)
    refill_run(run, spark)
    before, saved = refills(log), run.require(REFILL)
    # As after a kill between the second round's objects and its manifest.
    log.store.delete(log.layout.manifest_key("refill-run-1", 1))
    refill_run(run, spark)
    repeated = run.require(REFILL)
    assert [(item.batch, item.ranges, item.files) for item in refills(log)] == [
        (item.batch, item.ranges, item.files) for item in before
    ]
    assert (repeated.ranges, repeated.rows, repeated.files) == (saved.ranges, saved.rows, saved.files)


def test_a_repeated_plan_of_a_run_refills_after_what_the_run_refilled(log: Log, spark: SparkSession) -> None:
    two_gaps_and_a_whole_partition_missing(log)
    run = log.run()
    plan_run(run, [MONDAY], False)
    refill_run(run, spark)
    log.produce(2, at(MONDAY, 11))
    log.archive(31, 32)
    plan_run(run, [MONDAY], False)
    refill_run(run, spark)
    assert [(item.batch, [part.range for part in item.ranges]) for item in refills(log)][2:] == [
        (2, [OffsetRange(start=30, end=31)])
    ]
    assert finalize_plan_run(run).logs[0].gaps == ()


def test_a_plan_without_gaps_refills_nothing(log: Log, spark: SparkSession) -> None:
    log.produce(3, at(MONDAY, 9))
    log.archive(0, 3)
    run = log.run()
    plan_run(run, [MONDAY], False)
    refill_run(run, spark)
    saved = run.require(REFILL)
    assert (saved.ranges, saved.rows, saved.files, refills(log)) == ((), 0, 0, [])


def test_a_refill_leaves_out_what_retention_took_and_saves_everything_else(log: Log, spark: SparkSession) -> None:
    two_gaps_and_a_whole_partition_missing(log)
    run = log.run()
    plan_run(run, [MONDAY], False)
    drop_below(log, 12)
    refill_run(run, spark)
    saved = run.require(REFILL)
    assert [(item.log.partition, item.range.start, item.range.end) for item in saved.lost] == [(0, 10, 12)]
    assert sorted((item.log.partition, item.range.start, item.range.end) for item in saved.ranges) == [
        (0, 12, 13),
        (0, 20, 25),
        (1, 0, 6),
    ]
    before = refills(log)
    drop_below(log, 27)  # what is saved is saved
    refill_run(run, spark)
    assert refills(log) == before
    assert run.require(REFILL) == saved
    with pytest.raises(IncompleteError, match=r"\[10, 12\) lost to retention: 2 offsets"):
        finalize_plan_run(run)
    accepted = finalize_plan_run(log.run(accept_loss=True))
    assert [(gap.range, gap.kind) for gap in accepted.logs[0].gaps] == [(OffsetRange(start=10, end=12), "lost")]


def test_a_gap_that_retention_takes_after_the_refill_is_reported_as_lost(log: Log, spark: SparkSession) -> None:
    two_gaps_and_a_whole_partition_missing(log)
    run = log.run()
    plan_run(run, [MONDAY], False)
    refill_run(run, spark)
    log.store.delete(log.layout.manifest_key("refill-run-1", 1))  # of [20, 25)
    drop_below(log, 22)
    with pytest.raises(IncompleteError, match=r"\[20, 22\) lost to retention.*\[22, 25\) not refilled"):
        finalize_plan_run(run)


def test_a_topic_recreated_since_the_plan_is_a_conflict_of_ids(log: Log, spark: SparkSession) -> None:
    two_gaps_and_a_whole_partition_missing(log)
    run = log.run()
    plan_run(run, [MONDAY], False)
    before = log.owner()
    recreate(log)
    with pytest.raises(ConflictError) as caught:
        refill_run(run, spark)
    assert f"expected topic id {before.topic_id}, found topic id {log.owner().topic_id}" in str(caught.value)
    assert refills(log) == []


def test_a_topic_recreated_while_it_is_read_is_a_conflict_and_commits_nothing(
    log: Log, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.produce(5, at(MONDAY, 9))
    run = log.run()
    plan_run(run, [MONDAY], False)

    def and_recreate(*args: Any, **kwargs: Any) -> Any:
        files = write_range(*args, **kwargs)
        recreate(log)
        return files

    monkeypatch.setattr("tidemark.reconcile.refill.write_range", and_recreate)
    with pytest.raises(ConflictError, match="the topic was recreated since the plan"):
        refill_run(run, spark)
    assert refills(log) == []


def test_the_application_refills_in_a_process_of_its_own(log: Log) -> None:
    log.produce(5, at(MONDAY, 9))
    run = log.run()
    plan_run(run, [MONDAY], False)
    script = Path(__file__).parents[2] / "spark_apps" / "refill.py"
    ended = subprocess.run(
        [sys.executable, str(script), "--stream", log.stream.name, "--run", run.name],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert finalize_plan_run(run).logs[0].gaps == ()


@pytest.mark.conformance(11)
def test_aborted_records_and_markers_refill_as_holes_and_leave_no_gap(log: Log, spark: SparkSession) -> None:
    producer = Producer({"bootstrap.servers": log.settings.kafka_bootstrap, "transactional.id": log.stream.name})
    producer.init_transactions(60)
    for number, end in ((3, producer.commit_transaction), (2, producer.abort_transaction)):
        producer.begin_transaction()
        for item in range(number):
            producer.produce(log.stream.topic, f"v{item}".encode(), b"k", 0, timestamp=at(MONDAY, 9))
        assert producer.flush(60) == 0
        end(60)
    # 3 records, a marker, 2 aborted records, a marker. Markers bear the present time, so that by time Monday ends at
    # the first one; what is archived after it moves the target forward.
    log.archive(6, 7)
    run = log.run()
    assert plan_run(run, [MONDAY], False).logs[0].gaps == (Gap(range=OffsetRange(start=0, end=6), kind="refill"),)
    refill_run(run, spark)
    final = finalize_plan_run(run)
    assert final.logs[0].gaps == ()
    assert final.logs[0].holes == (
        Hole(range=OffsetRange(start=0, end=6), missing=3, cause="transactional", evidence=proven(3)),
        Hole(range=OffsetRange(start=6, end=7), missing=1, cause="transactional", evidence=proven(1)),
    )
    nine = at(MONDAY, 9)
    assert archived(log, refills(log)) == [(0, offset, b"k", f"v{offset}".encode(), nine) for offset in range(3)]
