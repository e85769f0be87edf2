"""At-least-once delivery by batches: none is committed without its records, and none waits for its counts."""

import json
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from pyspark.sql import Observation, SparkSession

from tests.conftest import MakeStream, MakeTopic, Produce
from tests.speed.live import printed_events, read_topic
from tidemark.core.errors import ConflictError
from tidemark.core.offsets import TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings
from tidemark.spark.same_topic import same_logs
from tidemark.spark.session import temporary_conf
from tidemark.speed import at_least_once
from tidemark.speed.stream import speed

pytestmark = [pytest.mark.conformance(72), pytest.mark.services]
NOON_MS, NANOSECONDS = 1_358_164_800_000, 1_358_164_800_000_000_000


@pytest.fixture
def make_delivered(
    settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce
) -> Callable[[int], Stream]:
    """A stream of two partitions, each with two records of which the second one has the given time."""

    def make(second_ms: int) -> Stream:
        topic = make_topic(2, message_timestamp_after_max_ms=str(2**63 - 1))
        rows = [
            (n, partition, time)
            for n, (partition, time) in enumerate((p, t) for p in (0, 1) for t in (NOON_MS, second_ms))
        ]
        produce(topic, [(b"k", b'{"n":%d}' % n, time, partition, []) for n, partition, time in rows])
        return make_stream(topic=topic)

    return make


def delivered(settings: Settings, stream: Stream) -> set[int]:
    return {json.loads(item.value or b"")["n"] for item in read_topic(settings, stream.speed.topic)}


def test_a_partition_that_the_broker_does_not_know_yet_commits_no_batch(
    spark: SparkSession,
    settings: Settings,
    make_delivered: Callable[[int], Stream],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = make_delivered(NANOSECONDS)

    def first_log(*arguments: Any) -> tuple[TopicPartition, ...]:
        return same_logs(*arguments)[:1]

    with monkeypatch.context() as patch:
        patch.setattr(at_least_once, "same_logs", first_log)
        with pytest.raises(ConflictError, match="a batch has partitions that the topic does not have"):
            speed(spark, stream, settings, available_now=True)
    speed(spark, stream, settings, available_now=True)
    assert delivered(settings, stream) == {0, 1, 2, 3}


def test_counts_that_spark_does_not_report_delay_no_batch(
    spark: SparkSession,
    settings: Settings,
    make_delivered: Callable[[int], Stream],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class LostObservation(Observation):
        @property
        def get(self) -> dict[str, Any]:
            Event().wait()
            return {}

    stream = make_delivered(NANOSECONDS)
    monkeypatch.setattr(at_least_once, "Observation", LostObservation)
    monkeypatch.setattr(at_least_once, "REPORT_S", 0.1)
    speed(spark, stream, settings, available_now=True)
    assert delivered(settings, stream) == {0, 1, 2, 3}
    assert [item["batch"] for item in printed_events(capsys) if item["event"] == "uncounted"] == [0]


@pytest.mark.parametrize("second_ms", [NOON_MS, NANOSECONDS])
def test_batches_are_counted_whatever_sources_the_session_reads_in_the_older_way(
    spark: SparkSession,
    settings: Settings,
    make_delivered: Callable[[int], Stream],
    second_ms: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = make_delivered(second_ms)
    with temporary_conf(spark, {"spark.sql.sources.useV1SourceList": "avro, Kafka"}):
        speed(spark, stream, settings, available_now=True)
    events = printed_events(capsys)
    assert [(item["rows"], item["published"]) for item in events if item["event"] == "batch"] == [(4, 4)]
    assert "uncounted" not in {item["event"] for item in events}
