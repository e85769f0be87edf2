"""Conformance 9 and 11: logs with holes and records of every kind, from Kafka through the stream to a plan's rows.

What must be there is what a read-committed consumer of its own sees, never what the platform says it read."""

from collections import Counter
from datetime import UTC, date, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from pyspark.sql import SparkSession

from tests.archive.oracle import Oracle
from tests.conftest import MakeStream, MakeTopic, Produce, Record
from tests.plans import make_plan
from tests.waiting import wait_until
from tidemark.archive.manifests import read_manifests
from tidemark.archive.read import read_slices
from tidemark.archive.stream.driver import archive
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import Hole, LogPlan, Plan, Target
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

DAY = date(2013, 1, 14)
NOON_MS = int(datetime(2013, 1, 14, 12, tzinfo=UTC).timestamp() * 1000)


def consumed(settings: Settings, topic: str) -> dict[int, bytes | None]:
    """Offset and value of every record of partition 0 that a read-committed consumer gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka_bootstrap,
            "group.id": f"oracle-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    found: dict[int, bytes | None] = {}
    try:
        consumer.assign([KafkaPartition(topic, 0, 0)])
        while (message := consumer.poll(60)) is not None:
            error = message.error()
            if error is not None:
                assert error.code() == -191, error  # the end of the partition
                return found
            offset = message.offset()
            assert offset is not None
            found[offset] = message.value()
    finally:
        consumer.close()
    raise AssertionError("the broker gave no answer for 60 s")


def planned(settings: Settings, store: ObjectStore, stream: Stream, end: int) -> Plan:
    (log,) = describe_topic(settings.kafka, stream.topic)
    return make_plan(
        stream=stream.name,
        time_zone=stream.time_zone,
        run="test",
        requested=[DAY],
        targets=[Target(log=log, start=0, end=end, log_start=0, high_watermark=end)],
        manifests=read_manifests(store, Layout(prefix=settings.prefix, stream=stream.name)),
        seals=[],
    )


def rows_of(oracle: Oracle, plan: Plan) -> Counter[tuple[int, bytes | None]]:
    """Offset and value of every row of the plan's slices."""
    return Counter(
        (row["offset"], row["value"])
        for part in plan.slices
        for row in oracle.table(part.key).to_pylist()
        if row["offset"] in part.range
    )


def holes_of(plan: LogPlan, seen: dict[int, bytes | None]) -> tuple[Hole, ...]:
    """The expected holes of each used range: the offsets that the consumer did not get."""
    missing = {
        used.range: sum(offset not in seen for offset in range(used.range.start, used.range.end)) for used in plan.used
    }
    return tuple(
        Hole(range=item, missing=number, cause="unexplained", exact=True) for item, number in missing.items() if number
    )


@pytest.fixture(scope="module")
def transactional(settings: Settings, make_topic: MakeTopic) -> str:
    """A log of 28 offsets with aborted records first, in the middle, last, and next to each other.

    0-2 aborted, 3 marker | 4-7 kept, 8 marker | 9-10 aborted, 11 marker | 12-14 kept, 15 marker | 16-20 aborted,
    21 marker | 22-23 kept, 24 marker | 25-26 aborted, 27 marker
    """
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": settings.kafka_bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for number, (count, kept) in enumerate(
        ((3, False), (4, True), (2, False), (3, True), (5, False), (2, True), (2, False))
    ):
        producer.begin_transaction()
        for item in range(count):
            producer.produce(topic, b"%d-%d" % (number, item), partition=0, timestamp=NOON_MS)
        assert producer.flush(60) == 0
        producer.commit_transaction(60) if kept else producer.abort_transaction(60)
    return topic


@pytest.mark.parametrize(
    ("offsets_per_batch", "ranges"),
    [
        # Batches of aborted records only, whole ones, one whose last is a marker, one whose first are aborted.
        (4, [(0, 4, 0), (4, 8, 4), (8, 12, 0), (12, 16, 3), (16, 20, 0), (20, 24, 2), (24, 28, 0)]),
        # Aborted records first, in the middle, last.
        (13, [(0, 13, 5), (13, 26, 4), (26, 28, 0)]),
        (100, [(0, 28, 9)]),
    ],
)
@pytest.mark.conformance(11)
def test_aborted_records_anywhere_in_a_batch_are_holes_of_the_right_size(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    transactional: str,
    offsets_per_batch: int,
    ranges: list[tuple[int, int, int]],
) -> None:
    stream = make_stream(topic=transactional, archive={"max_offsets_per_trigger": offsets_per_batch})
    archive(spark, stream, settings, available_now=True)
    oracle, seen = Oracle(settings, stream.name), consumed(settings, transactional)
    assert len(seen) == 9
    found = oracle.archive()
    assert [(item["start"], item["end"], item["rows"]) for one in found.manifests for item in one["ranges"]] == ranges
    assert Counter((row["offset"], row["value"]) for row in found.rows) == Counter(seen.items())
    plan = planned(settings, store, stream, 28)
    (log_plan,) = plan.logs
    assert (log_plan.gaps, log_plan.overlaps) == ((), ())
    assert log_plan.holes == holes_of(log_plan, seen)
    assert rows_of(oracle, plan) == Counter(seen.items())


def test_after_a_lost_checkpoint_a_transactional_topic_has_each_record_once(
    spark: SparkSession, settings: Settings, store: ObjectStore, make_stream: MakeStream, transactional: str
) -> None:
    stream = make_stream(topic=transactional, archive={"max_offsets_per_trigger": 13})
    archive(spark, stream, settings, available_now=True)
    oracle = Oracle(settings, stream.name)
    assert oracle.delete("checkpoints") > 0
    wider = stream.model_copy(update={"archive": stream.archive.model_copy(update={"max_offsets_per_trigger": 22})})
    archive(spark, wider, settings, available_now=True)
    assert sorted(oracle.archive().ranges) == [(0, 0, 13), (0, 0, 22), (0, 13, 26), (0, 22, 28), (0, 26, 28)]
    plan = planned(settings, store, stream, 28)
    assert plan.logs[0].gaps == ()
    assert rows_of(oracle, plan) == Counter(consumed(settings, transactional).items())


@pytest.mark.usefixtures("_eager_cleaner")
@pytest.mark.conformance(11)
def test_after_a_lost_checkpoint_a_compacted_topics_archived_records_stay(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
) -> None:
    topic = make_topic(
        1, cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.001", delete_retention_ms="0"
    )
    stream = make_stream(topic=topic, archive={"max_offsets_per_trigger": 10})
    # By record time a segment lasts a second, so each of the three calls starts one; the newest is never compacted.
    sent = [b"%d" % n for n in range(35)]
    records: list[Record] = [(b"k%d" % (n % 3), value, NOON_MS + n * 10_000, 0, []) for n, value in enumerate(sent)]
    produce(topic, records[:20])
    archive(spark, stream, settings, available_now=True)
    oracle = Oracle(settings, stream.name)
    first = {row["offset"]: row["value"] for row in oracle.archive().rows}
    assert first == dict(enumerate(sent[:20]))
    produce(topic, records[20:30])
    wait_until(
        lambda: [offset for offset in consumed(settings, topic) if offset < 20] == [17, 18, 19],
        "the broker compacts the first segment to the last record of each key",
        240,
    )

    assert oracle.delete("checkpoints") > 0
    produce(topic, records[30:])
    before = consumed(settings, topic)
    wider = stream.model_copy(update={"archive": stream.archive.model_copy(update={"max_offsets_per_trigger": 17})})
    archive(spark, wider, settings, available_now=True)
    after = consumed(settings, topic)

    found = oracle.archive()
    assert sorted(found.ranges) == [(0, 0, 10), (0, 0, 17), (0, 10, 20), (0, 17, 34), (0, 34, 35)]
    (writer,) = {item["writer"] for item in found.manifests if item["ranges"][0]["end"] == 35}
    second = [file["key"] for item in found.manifests if item["writer"] == writer for file in item["files"]]
    second_read = {row["offset"]: row["value"] for key in second for row in oracle.table(key).to_pylist()}
    # The broker compacts while the stream reads: the result lies between two reads of the log.
    assert after.items() <= second_read.items() <= before.items()

    plan = planned(settings, store, stream, 35)
    (log_plan,) = plan.logs
    assert log_plan.gaps == ()
    rows = rows_of(oracle, plan)
    assert set(rows.values()) == {1}
    assert dict(rows).keys() >= first.items()
    assert dict(rows).keys() >= {(offset, value) for offset, value in second_read.items() if offset >= 20}
    assert dict(rows).keys() <= set(enumerate(sent))
    counted = {
        used.range: sum(offset in used.range for offset, _ in rows) for used in log_plan.used
    }  # the rows of each used range
    for hole in log_plan.holes:
        absent = len(hole.range) - counted[hole.range]
        assert hole.missing == absent if hole.exact else hole.missing >= absent


@pytest.mark.conformance(9)
def test_records_of_every_kind_pass_unchanged_from_kafka_to_a_rebuilds_rows(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
) -> None:
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"k", b"plain", []),
        (None, b"no key", [("h", b"1"), ("h", b"2"), ("h", b"1"), ("null", None), ("empty", b"")]),
        (b"", b"", [("", b"no name")]),
        (b"deleted", None, [("why", "gelöscht".encode())]),
        (None, None, []),
        (b"\x00\xff", b"\xff\xfe\x00 not UTF-8", [("bin", b"\xc3\x28")]),
        (b"large", bytes(range(256)) * 20_480, []),  # 5 MB
    ]
    stream = make_stream(topic=make_topic(1, max_message_bytes="8000000"))
    produce(
        stream.topic,
        [(key, value, NOON_MS + number, 0, headers) for number, (key, value, headers) in enumerate(sent)],
    )
    archive(spark, stream, settings, available_now=True)
    plan = planned(settings, store, stream, len(sent))
    rows: list[Any] = read_slices(spark, settings, plan.slices).orderBy("offset").collect()
    assert [
        (
            row.offset,
            row.key if row.key is None else bytes(row.key),
            row.value if row.value is None else bytes(row.value),
            [(item.key, item.value if item.value is None else bytes(item.value)) for item in row.headers],
        )
        for row in rows
    ] == [(offset, key, value, headers) for offset, (key, value, headers) in enumerate(sent)]
    assert plan.logs[0].used[0].range == OffsetRange(start=0, end=len(sent))
