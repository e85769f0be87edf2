"""Exactly-once delivery with a checkpoint from another time, and without the marker of one partition."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.conftest import MakeStream, MakeTopic, Produce, Record, unique
from tests.speed.dead_letters import START_MS, source_id
from tests.speed.live import read_topic
from tidemark.cli.app import app
from tidemark.core.errors import PositionError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.speed.exactly_once.batches import sink_of
from tidemark.speed.stream import speed

pytestmark = pytest.mark.conformance(32)


def rows(count: int, partition: int = 0) -> list[Record]:
    return [(None, b'{"n":%d}' % n, START_MS, partition, []) for n in range(count)]


def offsets(settings: Settings, stream: Stream, partition: int = 0) -> list[int]:
    """The source offsets of the live records of one source partition."""
    found = (item.source for item in read_topic(settings, stream.speed.topic))
    return sorted(offset for number, offset in found if number == partition)


class SavedCheckpoint:
    """Copies of a stream's speed checkpoint."""

    def __init__(self, store: ObjectStore, settings: Settings, stream: Stream) -> None:
        self._store = store
        self._prefix = Layout(prefix=settings.prefix, stream=stream.name).checkpoint_prefix("speed")

    def copy(self) -> dict[str, bytes]:
        return {item.key: self._store.get(item.key) or b"" for item in self._store.list(self._prefix)}

    def restore(self, copy: Mapping[str, bytes]) -> None:
        for item in list(self._store.list(self._prefix)):
            self._store.delete(item.key)
        for key, body in copy.items():
            self._store.put(key, body)


@pytest.fixture
def set_markers(settings: Settings) -> Callable[[Stream, Mapping[int, int]], None]:
    """Leaves the stream these markers only."""

    def write(stream: Stream, markers: Mapping[int, int]) -> None:
        sink = sink_of(stream, settings, source_id(settings, stream))
        admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
        admin.delete_consumer_groups([sink.group])[sink.group].result()
        wanted = [KafkaPartition(sink.marker_topic, number, offset) for number, offset in markers.items()]
        group = ConsumerGroupTopicPartitions(sink.group, wanted)
        admin.alter_consumer_group_offsets([group])[sink.group].result()

    return write


def test_a_checkpoint_restored_from_either_delivery_mode_repeats_no_record(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
) -> None:
    topics: dict[str, Any] = {"topic": make_topic(), "dead_letter_topic": make_topic()}
    name, source = unique("restored"), make_topic()

    def run(delivery: str, count: int) -> Stream:
        stream = make_stream(name=name, topic=source, speed={**topics, "delivery": delivery})
        produce(source, rows(count))
        speed(spark, stream, settings, available_now=True)
        return stream

    stream = run("at_least_once", 10)
    checkpoint = SavedCheckpoint(store, settings, stream)
    at_least_once = checkpoint.copy()
    run("exactly_once", 10)
    exactly_once = checkpoint.copy()
    run("exactly_once", 10)

    checkpoint.restore(at_least_once)
    with pytest.raises(PositionError, match="a marker is after the checkpoint") as caught:
        run("exactly_once", 10)
    for text in ("at 10 of partition 0, found markers at 30 of partition 0", f"checkpoints/{name}/speed/"):
        assert text in str(caught.value)
    assert offsets(settings, stream) == list(range(30))

    checkpoint.restore({})  # as the error recommends
    run("exactly_once", 0)
    assert offsets(settings, stream) == list(range(40))
    checkpoint.restore(exactly_once)
    run("exactly_once", 10)
    assert offsets(settings, stream) == list(range(50))


@pytest.mark.parametrize("checkpoint", ["kept", "removed"])
def test_a_partition_whose_marker_expired_stops_the_start_until_it_is_set_again(
    checkpoint: str,
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    set_markers: Callable[[Stream, Mapping[int, int]], None],
) -> None:
    topics = {"topic": make_topic(), "dead_letter_topic": make_topic(), "delivery": "exactly_once"}
    stream = make_stream(partitions=3, speed=topics)
    produce(stream.topic, [*rows(10), *rows(20, 1)])
    speed(spark, stream, settings, available_now=True)
    set_markers(stream, {0: 10, 2: 0})
    if checkpoint == "removed":
        SavedCheckpoint(store, settings, stream).restore({})
    with pytest.raises(PositionError, match="a log has no marker, but records of it were delivered") as caught:
        speed(spark, stream, settings, available_now=True)
    assert "found markers at none of partition 1 [" in str(caught.value)
    assert str(caught.value).endswith(f": tidemark markers {stream.name} --set PARTITION=OFFSET")
    wrong = CliRunner().invoke(app, ["markers", stream.name, "--set", "1=21"])
    assert wrong.exit_code == 1
    assert "a marker is not in its log: expected partition 0: 0 to 10, partition 1: 0" in wrong.stderr
    done = CliRunner().invoke(app, ["markers", stream.name, "--set", "1=20"])
    assert [line.split()[1:] for line in done.output.splitlines()[-3:]] == [
        ["0", "[0,", "10)", "10"],
        ["1", "[0,", "20)", "20"],
        ["2", "[0,", "0)", "0"],
    ]
    produce(stream.topic, [*rows(5), *rows(5, 1), *rows(5, 2)])
    speed(spark, stream, settings, available_now=True)
    assert [offsets(settings, stream, number) for number in range(3)] == [
        list(range(15)),
        list(range(25)),
        list(range(5)),
    ]
