"""Retention passes the archive's position: the loss is reported exactly, and no lost offset is committed."""

import json
from collections import Counter
from datetime import date
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.archive.conftest import grow, through
from tests.archive.oracle import Oracle
from tests.conftest import MakeStream, Produce, Record
from tests.faults import FaultProxy, Rule
from tests.plans import make_plan
from tidemark.archive.loss import log_starts, split_at
from tidemark.archive.manifests import read_manifests
from tidemark.archive.stream import micro_batches as batches
from tidemark.archive.stream.driver import archive
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import IncompleteError, ServiceError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Gap, Target
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(12)

TIME_MS = 1_358_164_800_000  # 2013-01-14T12:00Z
CONTINUE = {"on_loss": "continue"}


def make_records(count: int, *, partitions: int = 1, size: int = 2) -> list[Record]:
    return [(b"k", b"%d" % n + b" " * size, TIME_MS, n % partitions, []) for n in range(count)]


def expire(settings: Settings, topic: str, before: int, partition: int = 0) -> None:
    """Move the log's start, as retention does."""
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    for future in admin.delete_records([KafkaPartition(topic, partition, before)]).values():
        future.result(20)


def lost(capfd: pytest.CaptureFixture[str]) -> list[tuple[int, int, int, int]]:
    """Batch, partition, start and end of every reported loss."""
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith('{"time"')]
    losses = [line for line in lines if line["event"] == "lost"]
    assert {line["level"] for line in losses} <= {"error"}
    return [(line["batch"], line["partition"], line["start"], line["end"]) for line in losses]


def gaps(settings: Settings, store: ObjectStore, stream: Stream, *, end: int, log_start: int) -> tuple[Gap, ...]:
    """The plan of partition 0."""
    log = describe_topic(settings.kafka, stream.topic)[0]
    plan = make_plan(
        stream=stream.name,
        time_zone=stream.time_zone,
        run="test",
        requested=[date(2013, 1, 14)],
        targets=[Target(log=log, start=0, end=end, log_start=log_start, high_watermark=end)],
        manifests=read_manifests(store, Layout(prefix=settings.prefix, stream=stream.name)),
        seals=[],
    )
    assert plan.logs[0].holes == ()
    return plan.logs[0].gaps


def test_ranges_are_split_at_the_logs_start() -> None:
    first, second, third = (TopicPartition(topic="t", topic_id="i", partition=n) for n in range(3))
    ten = OffsetRange(start=10, end=20)
    assert split_at({first: 10, second: 13, third: 25}, dict.fromkeys((first, second, third), ten)) == (
        {first: ten, second: OffsetRange(start=13, end=20)},
        {second: OffsetRange(start=10, end=13), third: ten},
    )


def test_with_on_loss_continue_offsets_lost_before_the_start_are_reported(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream = make_stream(partitions=2, archive=CONTINUE)
    produce(stream.topic, make_records(20, partitions=2))
    archive(spark, stream, settings, available_now=True)
    produce(stream.topic, make_records(40, partitions=2))
    expire(settings, stream.topic, 17)
    expire(settings, stream.topic, 30, partition=1)  # all of it
    assert lost(capfd) == []
    archive(spark, stream, settings, available_now=True)
    assert lost(capfd) == [(1, 0, 10, 17), (1, 1, 10, 30)]
    found = Oracle(settings, stream.name).archive()
    assert found.ranges == [(0, 0, 10), (1, 0, 10), (0, 17, 30)]
    assert found.positions == Counter([(0, n) for n in (*range(10), *range(17, 30))] + [(1, n) for n in range(10)])
    assert gaps(settings, store, stream, end=30, log_start=17) == (
        Gap(range=OffsetRange(start=10, end=17), kind="lost"),
    )
    # Nothing is reported twice, and records after the loss are archived as usual.
    produce(stream.topic, make_records(2, partitions=2))
    archive(spark, stream, settings, available_now=True)
    assert lost(capfd) == []
    assert Oracle(settings, stream.name).archive().ranges[3:] == [(0, 30, 31), (1, 30, 31)]


def test_retention_before_a_batchs_read_loses_only_what_it_deleted(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = make_stream(archive=CONTINUE)
    produce(stream.topic, make_records(30))
    asked: list[dict[TopicPartition, int]] = []

    def log_starts_then_retention(kafka: KafkaConnection, logs: Any) -> dict[TopicPartition, int]:
        starts = log_starts(kafka, logs)
        if not asked:
            expire(settings, stream.topic, 12)
        asked.append(starts)
        return starts

    monkeypatch.setattr(batches, "log_starts", log_starts_then_retention)
    archive(spark, stream, settings, available_now=True)
    assert [sorted(starts.values()) for starts in asked[:2]] == [[0], [12]]
    assert lost(capfd) == [(0, 0, 0, 12)]
    found = Oracle(settings, stream.name).archive()
    assert found.ranges == [(0, 12, 30)]
    assert found.positions == Counter((0, n) for n in range(12, 30))
    assert gaps(settings, store, stream, end=30, log_start=12) == (
        Gap(range=OffsetRange(start=0, end=12), kind="lost"),
    )


def test_a_batch_committed_before_retention_deleted_its_records_is_not_lost(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    proxy: FaultProxy,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The manifest was written, its writer got no answer, and the log's start moved before the retry."""
    stream = make_stream(archive=CONTINUE)
    produce(stream.topic, make_records(30))
    expire(settings, stream.topic, 5)
    archive(spark, stream, settings, available_now=True)  # its range starts at the log's start: [5, 30)
    produce(stream.topic, make_records(10))
    expire(settings, stream.topic, 33)
    wrote = Rule(method="PUT", pattern="/manifests/", when="after", answer=(403, "AccessDenied"))
    proxy.add(wrote)
    with pytest.raises(ServiceError, match="AccessDenied"):
        archive(spark, stream, through(settings, proxy), available_now=True)
    assert wrote.fired.is_set()
    assert lost(capfd) == [(1, 0, 30, 33)]
    expire(settings, stream.topic, 38)
    archive(spark, stream, settings, available_now=True)
    assert lost(capfd) == []
    found = Oracle(settings, stream.name).archive()
    assert found.ranges == [(0, 5, 30), (0, 33, 40)]
    assert found.positions == Counter((0, n) for n in (*range(5, 30), *range(33, 40)))


def test_with_on_loss_stop_the_error_names_what_retention_deleted(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce, proxy: FaultProxy
) -> None:
    stream = make_stream(archive={"max_offsets_per_trigger": 5})
    produce(stream.topic, make_records(20, size=900_000))  # more than a consumer reads ahead
    proxy.add(Rule(method="PUT", pattern="/manifests/", action=lambda _: expire(settings, stream.topic, 18)))
    with pytest.raises(IncompleteError) as caught:
        archive(spark, stream, through(settings, proxy), available_now=True)
    found = Oracle(settings, stream.name).archive()
    position = max(end for _, _, end in found.ranges)
    assert found.positions == Counter((0, n) for n in range(position))
    assert f"expected offset {position} inside the log, found [18, 20), so [{position}, 18) is lost" in str(
        caught.value
    )
    assert position < 18


@pytest.mark.parametrize("on_loss", ["stop", "continue"])
def test_a_new_partition_whose_first_records_were_deleted(
    on_loss: str,
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream = make_stream(archive={"on_loss": on_loss})
    produce(stream.topic, make_records(5))
    archive(spark, stream, settings, available_now=True)
    grow(settings, stream.topic, 2)
    produce(stream.topic, [(None, b"{}", TIME_MS, 1, [])] * 9)
    expire(settings, stream.topic, 4, partition=1)
    capfd.readouterr()
    if on_loss == "stop":
        with pytest.raises(IncompleteError, match=r"found \[4, 9\), so \[0, 4\) is lost"):
            archive(spark, stream, settings, available_now=True)
        assert Oracle(settings, stream.name).archive().ranges == [(0, 0, 5)]
    else:
        archive(spark, stream, settings, available_now=True)
        assert lost(capfd) == [(1, 1, 0, 4)]
        assert Oracle(settings, stream.name).archive().ranges == [(0, 0, 5), (1, 4, 9)]
