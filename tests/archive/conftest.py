"""A proxy before the S3 server, for faults, and a topic that gets more partitions."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # as in its docs
from pyspark.sql import SparkSession

from tests.archive.connect import ConnectSink
from tests.archive.connect_world import ZONE, MakeWorld, World
from tests.conftest import MakeStream, Produce, unique
from tests.faults import FaultProxy
from tests.waiting import wait_until
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic
from tidemark.settings import Settings
from tidemark.spark import monitor


@pytest.fixture(scope="session")
def make_stream(make_stream: MakeStream) -> MakeStream:
    """The common factory, but it only names the speed layer's topics and creates none."""

    def make(**overrides: Any) -> Stream:
        live = unique("live")
        return make_stream(**{"speed": {"topic": live, "dead_letter_topic": f"{live}.dead"}, **overrides})

    return make


@pytest.fixture
def proxy(settings: Settings) -> Iterator[FaultProxy]:
    assert settings.s3_endpoint is not None
    with FaultProxy(settings.s3_endpoint) as running:
        yield running


def through(settings: Settings, proxy: FaultProxy) -> Settings:
    """The settings with the proxy as the store, for Python's requests but not for Spark's."""
    return settings.model_copy(update={"s3_endpoint": proxy.url})


def grow(settings: Settings, topic: str, partitions: int) -> None:
    """Give the topic so many partitions, and wait until every client sees them."""
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    for grown in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        grown.result(60)
    wait_until(lambda: len(describe_topic(settings.kafka, topic)) == partitions, f"{topic} has {partitions}")


@pytest.fixture(autouse=True)
def _kafka_may_be_slow_to_tell_the_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long enough for a lag on a busy machine, too."""
    monkeypatch.setattr(monitor, "LAG_TIMEOUT_S", 120.0)


@pytest.fixture
def make_world(spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce) -> MakeWorld:
    def make(partitions: int = 1, **overrides: Any) -> World:
        stream = make_stream(
            partitions=partitions,
            **{
                "time_zone": str(ZONE),
                "value_schema": "n BIGINT, at TIMESTAMP",
                "event_time": {"extractor": "record_field", "field": "$.at"},
                "batch": {"wait_seconds": 0},
                **overrides,
            },
        )
        sink = ConnectSink(settings=settings, topic=stream.topic, topics_dir=unique("connect/topics"))
        return World(spark=spark, settings=settings, stream=stream, sink=sink, produce_records=produce)

    return make
