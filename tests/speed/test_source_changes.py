"""Changes of an exactly-once stream's source topic: recreated, with new partitions, emptied by retention."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import MakeStream, MakeTopic, Produce, Record
from tests.speed.dead_letters import START_MS, source_id
from tests.speed.delivering import marker
from tests.speed.live import printed_events, read_topic
from tests.waiting import wait_until
from tidemark.core.errors import ConfigError, ConflictError
from tidemark.core.layout import Layout
from tidemark.core.offsets import TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.checkpoint import Checkpoint
from tidemark.spark.process import load_transform
from tidemark.spark.streaming import kafka_source
from tidemark.speed.exactly_once.batches import TransactionBatches, sink_of
from tidemark.speed.stream import LAYER, prepare_topics, speed

pytestmark = pytest.mark.conformance(23)


def rows(numbers: range, partition: int = 0) -> list[Record]:
    return [(None, b'{"n":%d}' % n, START_MS + n, partition, []) for n in numbers]


def exactly_once(make_topic: MakeTopic, **more: Any) -> dict[str, Any]:
    return {"topic": make_topic(), "dead_letter_topic": make_topic(), "delivery": "exactly_once", **more}


def live(settings: Settings, stream: Stream) -> list[tuple[tuple[int, int], int]]:
    """Source coordinates and n of every live record."""
    found = read_topic(settings, stream.speed.topic)
    return sorted((item.source, json.loads(item.value or b"")["n"]) for item in found)


def markers(settings: Settings, stream: Stream, topic_id: str) -> list[int | None]:
    """By partition, of the topic with this id."""
    sink = sink_of(stream, settings, topic_id, prepare_topics(stream, settings, partitions=1))
    numbers = range(len(describe_topic(settings.kafka, sink.marker_topic)))
    logs = [TopicPartition(topic=stream.topic, topic_id=topic_id, partition=number) for number in numbers]
    return [None if (found := marker(sink, log)) is None else found.position for log in logs]


def add_partitions(settings: Settings, topic: str, count: int) -> None:
    client = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    client.create_partitions([NewPartitions(topic, count)])[topic].result(60)
    wait_until(lambda: len(describe_topic(settings.kafka, topic)) == count, "the partitions are known")


def expire(settings: Settings, topic: str, partition: int, before: int) -> None:
    client = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    (deleted,) = client.delete_records([KafkaPartition(topic, partition, before)]).values()
    assert deleted.result(60).low_watermark == before


def recreate(settings: Settings, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    client.delete_topics([topic])[topic].result(60)
    wait_until(lambda: ensure_topic(settings.kafka, topic, partitions=1), "the old topic is away")


def run_on(
    spark: SparkSession,
    settings: Settings,
    stream: Stream,
    topic_id: str,
    deliver: Callable[[TransactionBatches, DataFrame, int], None] = TransactionBatches.deliver,
) -> TransactionBatches:
    """The stream's query without the checks at its start, as in a stream that has been running for long."""
    layout, store = Layout(prefix=settings.prefix, stream=stream.name), ObjectStore(settings)
    checkpoint = Checkpoint(store=store, prefix=layout.checkpoint_prefix(LAYER), topic=stream.topic)
    limits = prepare_topics(stream, settings, partitions=1)
    batches = TransactionBatches(
        stream=stream,
        settings=settings,
        transform=load_transform(stream, settings.streams_dir),
        checkpoint=checkpoint,
        topic_id=topic_id,
        limits=limits,
        sink=sink_of(stream, settings, topic_id, limits),
        partitions=1,
    )
    query = (
        kafka_source(spark, stream, settings, fail_on_data_loss=False)
        .writeStream.foreachBatch(lambda frame, batch: deliver(batches, frame, batch))
        .option("checkpointLocation", f"s3a://{store.bucket}/{checkpoint.prefix.rstrip('/')}")
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(300)
    return batches


def test_a_recreated_topic_stops_the_stream_before_it_delivers_new_records(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce
) -> None:
    stream = make_stream(speed=exactly_once(make_topic))
    produce(stream.topic, rows(range(10)))
    speed(spark, stream, settings, available_now=True)
    old, before = source_id(settings, stream), live(settings, stream)
    recreate(settings, stream.topic)
    new = source_id(settings, stream)
    produce(stream.topic, rows(range(100, 115)))

    batches = run_on(spark, settings, stream, old)
    assert isinstance(batches.failure, ConflictError)
    fields = (batches.failure.expected, batches.failure.found, batches.failure.where)
    assert fields == (f"topic id {old}", f"topic id {new}", stream.topic)
    assert live(settings, stream) == before == [((0, n), n) for n in range(10)]
    assert markers(settings, stream, old) == [10]
    with pytest.raises(ConflictError, match=rf"belongs to another log.*{old}.*checkpoints/{stream.name}/speed/"):
        speed(spark, stream, settings, available_now=True)


def test_new_source_partitions_are_delivered_once_with_their_own_markers(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce
) -> None:
    stream = make_stream(speed=exactly_once(make_topic, trigger_seconds=0))
    topic_id = source_id(settings, stream)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(speed, spark, stream, settings)
        try:
            produce(stream.topic, rows(range(10)))
            wait_until(lambda: running.done() or len(live(settings, stream)) == 10, "the first are delivered", 300)
            add_partitions(settings, stream.topic, 3)
            produce(stream.topic, [*rows(range(10, 20), 1), *rows(range(20, 30), 2), *rows(range(30, 35))])
            wait_until(lambda: running.done() or len(live(settings, stream)) >= 35, "the others are delivered", 300)
        finally:
            for query in spark.streams.active:
                query.stop()
        running.result(300)
    produce(stream.topic, rows(range(35, 40), 2))
    speed(spark, stream, settings, available_now=True)
    expected = {
        **{(0, n): n for n in range(10)},
        **{(1, n): 10 + n for n in range(10)},
        **{(2, n): 20 + n for n in range(10)},
        **{(0, 10 + n): 30 + n for n in range(5)},
        **{(2, 10 + n): 35 + n for n in range(5)},
    }
    assert live(settings, stream) == sorted(expected.items())
    assert markers(settings, stream, topic_id) == [15, 10, 15]


def test_a_range_that_retention_deleted_moves_the_marker_and_is_reported(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = make_stream(speed=exactly_once(make_topic))
    topic_id = source_id(settings, stream)
    produce(stream.topic, rows(range(10)))
    speed(spark, stream, settings, available_now=True)
    # A new partition does not even have a task.
    add_partitions(settings, stream.topic, 2)
    produce(stream.topic, [*rows(range(10, 20)), *rows(range(20, 30), 1)])
    expire(settings, stream.topic, 0, 20)
    expire(settings, stream.topic, 1, 10)
    capsys.readouterr()
    speed(spark, stream, settings, available_now=True)
    assert markers(settings, stream, topic_id) == [20, 10]
    lines = printed_events(capsys)
    lost = [(line["partition"], line["start"], line["end"]) for line in lines if line["event"] == "lost"]
    assert lost == [(0, 10, 20), (1, 0, 10)]

    produce(stream.topic, [*rows(range(30, 33)), *rows(range(33, 36), 1)])
    speed(spark, stream, settings, available_now=True)
    assert live(settings, stream)[10:] == [((0, 20 + n), 30 + n) for n in range(3)] + [
        ((1, 10 + n), 33 + n) for n in range(3)
    ]


def test_a_batch_that_does_not_read_its_planned_range_is_refused(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
) -> None:
    stream = make_stream(partitions=2, speed=exactly_once(make_topic))
    topic_id = source_id(settings, stream)
    produce(stream.topic, rows(range(10)))

    def replanned(batches: TransactionBatches, frame: DataFrame, batch: int) -> None:
        """Another driver, which saw more records, overwrites this one's plan."""
        key = f"{batches.checkpoint.prefix}offsets/{batch}"
        body = store.get(key) or b""
        assert b'"1":0' in body
        store.put(key, body.replace(b'"1":0', b'"1":4'))
        produce(stream.topic, rows(range(10, 14), 1))
        batches.deliver(frame, batch)

    batches = run_on(spark, settings, stream, topic_id, replanned)
    assert isinstance(batches.failure, ConflictError)
    assert "expected [0, 4), found no offsets, in a log that starts at 0" in str(batches.failure)


def test_a_live_topic_with_too_few_partitions_is_refused_at_start_and_later(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce
) -> None:
    growing = make_stream(speed=exactly_once(make_topic, partitioning="source"))
    topic_id = source_id(settings, growing)
    add_partitions(settings, growing.topic, 2)
    produce(growing.topic, [*rows(range(5)), *rows(range(5, 10), 1)])
    batches = run_on(spark, settings, growing, topic_id)
    assert f"expected at least 2 of {growing.speed.topic}, found 1 [stream {growing.name}]" in str(batches.failure)
    assert live(settings, growing) == []

    stream = make_stream(
        topic=make_topic(3), speed=exactly_once(make_topic, topic=make_topic(2), partitioning="source")
    )
    with pytest.raises(ConfigError) as caught:
        prepare_topics(stream, settings, partitions=3)
    fields = (caught.value.expected, caught.value.found, caught.value.where)
    assert fields == (f"at least 3 of {stream.speed.topic}", 2, f"stream {stream.name}")
    assert f"Give {stream.speed.topic} as many partitions as {stream.topic}" in str(caught.value)
