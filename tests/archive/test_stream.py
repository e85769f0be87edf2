"""The archive stream in a shared Spark session; each run archives all current records."""

import json
from collections import Counter
from datetime import UTC, date, datetime

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.archive.conftest import grow, through
from tests.archive.oracle import Oracle
from tests.archive.running import DEADLINE_S, running
from tests.conftest import MakeStream, MakeTopic, Produce, Record
from tests.faults import FaultProxy, Rule
from tests.plans import make_plan
from tests.waiting import wait_until
from tidemark.archive.manifests import read_manifests
from tidemark.archive.stream import driver
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import ConflictError, IncompleteError, ServiceError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import Target
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

MIDNIGHT_MS = int(datetime(2013, 1, 15, tzinfo=UTC).timestamp() * 1000)
TIME_PATHS = {"type": "time", "path_format": "'day='yyyy-MM-dd"}


def make_records(count: int, *, partitions: int = 1, start: int = 0) -> list[Record]:
    return [(b"k%d" % n, b'{"n": %d}' % n, MIDNIGHT_MS + n, n % partitions, []) for n in range(start, start + count)]


def whole(stream: Stream, **ends: int) -> Counter[tuple[int, int]]:
    """Every offset below the ends once; ends by ``p<partition>``."""
    return Counter((int(name[1:]), offset) for name, end in ends.items() for offset in range(end))


@pytest.mark.conformance(1)
def test_a_clean_run_with_two_paths_interleaved_in_one_partition(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream = make_stream(
        partitions=2, archive={"partitioner": TIME_PATHS, "max_offsets_per_trigger": 40, "flush_size": 4}
    )
    # partition 0: the days before and after midnight, alternating; partition 1: one day only
    sent: list[Record] = [
        (None, b"%d" % n, MIDNIGHT_MS + (-1000 if n % 4 == 0 else 1000) + n, n % 2, [("n", b"%d" % n)])
        for n in range(60)
    ]
    offsets = produce(stream.topic, sent)
    archive(spark, stream, settings, available_now=True)
    oracle = Oracle(settings, stream.name)
    found = oracle.archive()

    content = {(record[3], offset): record for record, offset in zip(sent, offsets, strict=True)}
    assert found.positions == Counter(content.keys())
    for row in found.rows:
        key, value, timestamp_ms, _, headers = content[row["partition"], row["offset"]]
        assert (row["key"], row["value"]) == (key, value)
        assert row["timestamp"] == row["event_time"] == datetime.fromtimestamp(timestamp_ms / 1000, UTC)
        assert [(item["key"], item["value"]) for item in row["headers"]] == list(headers)
    assert found.objects.keys() == found.listed
    assert oracle.open_uploads() == []

    assert found.ranges == [(0, 0, 20), (1, 0, 20), (0, 20, 30), (1, 20, 30)]
    folder, ends = f"data/{stream.name}/day=2013-01-", [(0, 20), (20, 30)]
    expected = set()
    for start, end in ends:
        suffix = f"{start:020}+{end:020}"
        halves = -(-(end - start) // 2 // 4)  # files of four rows, half of the partition's rows on each day
        for day in ("14", "15"):
            expected |= {f"{folder}{day}/{stream.topic}+0+{suffix}+{seq:04}.parquet" for seq in range(halves)}
        quarters = -(-(end - start) // 4)
        expected |= {f"{folder}15/{stream.topic}+1+{suffix}+{seq:04}.parquet" for seq in range(quarters)}
    assert found.listed == expected

    (topic_id,) = {log.topic_id for log in describe_topic(settings.kafka, stream.topic)}
    for manifest in found.manifests:
        assert {item["topic_id"] for item in manifest["files"]} == {topic_id}
        for file in manifest["files"]:
            days = Counter(row["event_time"].date().isoformat() for row in oracle.table(file["key"]).to_pylist())
            assert {day: item["rows"] for day, item in file["days"].items()} == days
            assert file["bytes"] == found.objects[file["key"]]

    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith('{"time"')]
    assert [
        {name: line[name] for name in ("batch", "records", "files", "offsets", "lag", "repeated")}
        for line in lines
        if line["event"] == "batch"
    ] == [
        {"batch": 0, "records": 40, "files": 11, "offsets": {"0": [0, 20], "1": [0, 20]}, "lag": 20, "repeated": False},
        {"batch": 1, "records": 20, "files": 7, "offsets": {"0": [20, 30], "1": [20, 30]}, "lag": 0, "repeated": False},
    ]


@pytest.mark.conformance(59)
def test_a_first_start_reads_a_bounded_number_of_offsets_per_partition_at_a_time(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "ARCHIVE_OFFSETS", 10)
    stream = make_stream(partitions=2)
    produce(stream.topic, make_records(50, partitions=2))
    archive(spark, stream, settings, available_now=True)
    found = Oracle(settings, stream.name).archive()
    assert sorted(found.ranges) == [(p, start, min(start + 10, 25)) for p in (0, 1) for start in (0, 10, 20)]


@pytest.mark.conformance(5)
def test_after_a_deleted_checkpoint_the_overlap_loses_and_doubles_nothing(
    spark: SparkSession, settings: Settings, store: ObjectStore, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(archive={"max_offsets_per_trigger": 40})
    produce(stream.topic, make_records(80))
    archive(spark, stream, settings, available_now=True)
    oracle = Oracle(settings, stream.name)
    assert oracle.delete("checkpoints") > 0
    produce(stream.topic, make_records(20, start=80))
    # Other file boundaries.
    wider = stream.model_copy(update={"archive": stream.archive.model_copy(update={"max_offsets_per_trigger": 70})})
    archive(spark, wider, settings, available_now=True)

    found = oracle.archive()
    assert sorted(found.ranges) == [(0, 0, 40), (0, 0, 70), (0, 40, 80), (0, 70, 100)]
    assert len({manifest["writer"] for manifest in found.manifests}) == 2
    assert set(found.positions) == set(whole(stream, p0=100))
    assert found.objects.keys() == found.listed

    (log,) = describe_topic(settings.kafka, stream.topic)
    plan = make_plan(
        stream=stream.name,
        time_zone=stream.time_zone,
        run="test",
        requested=[date(2013, 1, 15)],
        targets=[Target(log=log, start=0, end=100, log_start=0, high_watermark=100)],
        manifests=read_manifests(store, Layout(prefix=settings.prefix, stream=stream.name)),
        seals=[],
    )
    (log_plan,) = plan.logs
    assert (log_plan.gaps, log_plan.holes) == ((), ())
    rows = [
        row["offset"]
        for part in plan.slices
        for row in oracle.table(part.key).to_pylist()
        if row["offset"] in part.range
    ]
    assert Counter(rows) == Counter(range(100))
    assert [item.range for item in log_plan.overlaps] == [
        OffsetRange(start=0, end=40),
        OffsetRange(start=40, end=70),
        OffsetRange(start=70, end=80),
    ]


@pytest.mark.conformance(10)
def test_a_recreated_topic_stops_the_stream_and_both_ids_are_named(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream()
    produce(stream.topic, make_records(10))
    archive(spark, stream, settings, available_now=True)
    oracle = Oracle(settings, stream.name)
    old = describe_topic(settings.kafka, stream.topic)[0].topic_id
    recreate_topic(settings, stream.topic)
    new = describe_topic(settings.kafka, stream.topic)[0].topic_id
    produce(stream.topic, make_records(30, start=500))  # grown past the old position, so Spark would not notice
    with pytest.raises(ConflictError, match="the topic was recreated") as caught:
        archive(spark, stream, settings, available_now=True)
    assert f"expected topic {stream.topic}, id {old}, found topic {stream.topic}, id {new}" in str(caught.value)
    assert len(oracle.archive().rows) == 10

    # As the hint recommends: with a new checkpoint the new log is archived beside the old one's objects.
    oracle.delete("checkpoints")
    archive(spark, stream, settings, available_now=True)
    found = oracle.archive()
    assert Counter((item["topic_id"], item["end"]) for one in found.manifests for item in one["ranges"]) == Counter(
        [(old, 10), (new, 30)]
    )
    assert len(found.rows) == 40


@pytest.mark.conformance(5)
def test_a_checkpoint_of_another_topic_is_refused(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
) -> None:
    stream = make_stream()
    produce(stream.topic, make_records(5))
    archive(spark, stream, settings, available_now=True)
    other = stream.model_copy(update={"topic": make_topic(1)})
    produce(other.topic, make_records(9))
    with pytest.raises(ConflictError, match=f"expected topic {stream.topic}, id .* found topic {other.topic}, id "):
        archive(spark, other, settings, available_now=True)
    # A copied checkpoint without source.json is detected by the topic in its offsets.
    store.delete(f"{Layout(prefix=settings.prefix, stream=stream.name).checkpoint_prefix('archive')}source.json")
    for manifest in Oracle(settings, stream.name).keys("manifests"):
        store.delete(manifest)
    with pytest.raises(ConflictError, match="a checkpoint belongs to another topic") as caught:
        archive(spark, other, settings, available_now=True)
    assert f"expected {other.topic}, found {stream.topic}" in str(caught.value)


@pytest.mark.conformance(10)
def test_new_partitions_are_read_from_their_start_and_quiet_ones_are_left_out(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(partitions=2)
    produce(stream.topic, [(None, b"{}", MIDNIGHT_MS, 1, [])] * 5)
    archive(spark, stream, settings, available_now=True)
    grow(settings, stream.topic, 3)
    produce(stream.topic, [(None, b"{}", MIDNIGHT_MS, 2, [])] * 4)
    archive(spark, stream, settings, available_now=True)
    found = Oracle(settings, stream.name).archive()
    assert found.ranges == [(1, 0, 5), (2, 0, 4)]
    assert found.positions == whole(stream, p1=5, p2=4)


@pytest.mark.conformance(10)
def test_new_partitions_and_a_log_that_starts_above_0_are_archived(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(archive={"trigger_seconds": 0})
    produce(stream.topic, make_records(12))
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    for expired in admin.delete_records([KafkaPartition(stream.topic, 0, 7)]).values():
        expired.result(20)
    oracle = Oracle(settings, stream.name)
    with running(spark, stream, settings):
        wait_until(lambda: len(oracle.archive().rows) == 5, "what the log holds", DEADLINE_S)
        grow(settings, stream.topic, 3)
        produce(stream.topic, [(None, b"{}", MIDNIGHT_MS, 2, [])] * 4)
        wait_until(lambda: len(oracle.archive().rows) == 9, "the new partition's records", DEADLINE_S)
    found = oracle.archive()
    assert found.positions == Counter([(0, n) for n in range(7, 12)] + [(2, n) for n in range(4)])
    assert found.ranges[0] == (0, 7, 12)


def test_a_topic_that_grows_while_a_batch_is_read_does_not_stop_the_stream(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce, proxy: FaultProxy
) -> None:
    stream = make_stream()
    produce(stream.topic, make_records(10))
    proxy.add(Rule(method="PUT", pattern="/data/", action=lambda _: grow(settings, stream.topic, 2)))
    archive(spark, stream, through(settings, proxy), available_now=True)
    assert Oracle(settings, stream.name).archive().ranges == [(0, 0, 10)]


def test_a_planned_batch_is_finished_first_although_the_topic_grew(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce, proxy: FaultProxy
) -> None:
    stream = make_stream()
    produce(stream.topic, make_records(10))
    proxy.add(Rule(method="PUT", pattern="/manifests/", times=99, answer=(403, "AccessDenied")))
    with pytest.raises(ServiceError, match="AccessDenied"):
        archive(spark, stream, through(settings, proxy), available_now=True)
    grow(settings, stream.topic, 2)
    produce(stream.topic, [(None, b"{}", MIDNIGHT_MS, n % 2, []) for n in range(6)])
    archive(spark, stream, settings, available_now=True)
    found = Oracle(settings, stream.name).archive()
    assert found.ranges == [(0, 0, 10), (0, 10, 13), (1, 0, 3)]
    assert found.positions == whole(stream, p0=13, p1=3)


@pytest.mark.conformance(5)
def test_a_restored_checkpoint_repeats_equal_batches_and_refuses_others(
    spark: SparkSession, settings: Settings, store: ObjectStore, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream()
    oracle = Oracle(settings, stream.name)
    produce(stream.topic, make_records(10))
    archive(spark, stream, settings, available_now=True)
    old = {key: oracle.body(key) for key in oracle.keys("checkpoints")}

    def put_back() -> None:
        oracle.delete("checkpoints")
        for key, body in old.items():
            store.put(key, body)

    produce(stream.topic, make_records(10, start=10))
    archive(spark, stream, settings, available_now=True)
    once = oracle.archive()
    assert once.ranges == [(0, 0, 10), (0, 10, 20)]
    put_back()
    archive(spark, stream, settings, available_now=True)  # Spark plans the same batch again
    assert oracle.archive() == once

    put_back()
    produce(stream.topic, make_records(10, start=20))
    for _ in range(2):  # and not only the first time
        with pytest.raises(ConflictError, match="a batch is committed with other ranges") as caught:
            archive(spark, stream, settings, available_now=True)
        assert f"expected {stream.topic}-0 [10, 30), found {stream.topic}-0 [10, 20)" in str(caught.value)
    assert oracle.archive() == once
    oracle.delete("checkpoints")  # as the hint recommends
    archive(spark, stream, settings, available_now=True)
    assert set(oracle.archive().positions) == set(whole(stream, p0=30))


def test_offsets_without_rows_are_committed_as_a_range_of_fewer_rows(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(archive={"max_offsets_per_trigger": 4})
    producer = Producer({"bootstrap.servers": settings.kafka_bootstrap, "transactional.id": stream.topic})
    producer.init_transactions(20)
    for kept in (False, True):  # offsets 0-3 aborted and 4 the marker, 5-6 committed and 7 the marker
        producer.begin_transaction()
        for n in range(2 if kept else 4):
            producer.produce(stream.topic, b"kept" if kept else b"aborted %d" % n)
        assert producer.flush(20) == 0
        producer.commit_transaction(20) if kept else producer.abort_transaction(20)
    archive(spark, stream, settings, available_now=True)
    found = Oracle(settings, stream.name).archive()
    assert [
        (item["start"], item["end"], item["rows"], len(one["files"]))
        for one in found.manifests
        for item in one["ranges"]
    ] == [(0, 4, 0, 0), (4, 8, 2, 1)]
    assert found.positions == Counter([(0, 5), (0, 6)])


@pytest.mark.conformance(12)
def test_records_that_retention_deleted_before_they_were_archived_are_named(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream()
    produce(stream.topic, make_records(10))
    archive(spark, stream, settings, available_now=True)
    produce(stream.topic, make_records(20, start=10))
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    for future in admin.delete_records([KafkaPartition(stream.topic, 0, 15)]).values():
        future.result(20)
    with pytest.raises(IncompleteError) as caught:
        archive(spark, stream, settings, available_now=True)
    assert "expected offset 10 inside the log, found [15, 30), so [10, 15) is lost" in str(caught.value)
    assert len(Oracle(settings, stream.name).archive().rows) == 10


def recreate_topic(settings: Settings, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    for future in admin.delete_topics([topic], operation_timeout=20).values():
        future.result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, f"the deletion of {topic}")
    assert ensure_topic(settings.kafka, topic, partitions=1, config={"retention.ms": "-1"})
    wait_until(lambda: topic in admin.list_topics(timeout=10).topics, f"{topic} is there again")
