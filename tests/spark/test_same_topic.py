"""A running stream notices that its topic was recreated, also while no batch comes."""

from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.archive.stream import driver
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ConflictError, ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.definitions.sections import Speed
from tidemark.definitions.stream import Stream
from tidemark.spark import same_topic
from tidemark.spark.same_topic import TopicPoll
from tidemark.speed import stream as speed

pytestmark = pytest.mark.conformance(10)

SETTINGS: Any = SimpleNamespace(kafka=KafkaConnection.plain("kafka:9092"), streams_dir=Path())
STREAM = Stream(name="s", topic="t", value_schema="n INT", speed=Speed(topic="t.live", dead_letter_topic="t.dead"))


class Idle:
    """Stands for a query without batches and for what is polled beside it. It ends after five polls."""

    def __init__(self) -> None:
        self.polls = 0

    def awaitTermination(self, _seconds: float) -> bool:  # noqa: N802
        self.polls += 1
        return self.polls > 5

    def beat(self) -> None: ...


@pytest.fixture
def topic_id(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The answers of Kafka, the last one for ever; an empty one is none."""
    answers = ["first"]

    def describe(_bootstrap: str, topic: str) -> tuple[TopicPartition, ...]:
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if not found:
            raise ServiceError("Kafka does not answer")
        return (TopicPartition(topic=topic, topic_id=found, partition=0),)

    monkeypatch.setattr(same_topic, "describe_topic", describe)
    monkeypatch.setattr(same_topic, "CHECK_S", 0.0)
    return answers


def test_an_answer_with_another_id_stops_the_stream_and_a_missing_answer_does_not(topic_id: list[str]) -> None:
    check = TopicPoll(SETTINGS, "t", "first")
    topic_id[:] = ["", "first", "second"]
    check()
    check()
    with pytest.raises(
        ConflictError, match=r"recreated while the stream ran: expected topic id first, found .* second"
    ):
        check()


def test_kafka_is_asked_at_intervals(topic_id: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    topic_id[:] = ["second"]
    monkeypatch.setattr(same_topic, "CHECK_S", 60.0)
    TopicPoll(SETTINGS, "t", "first")()


def archive_without_batches() -> None:
    idle: Any = Idle()
    unused: Any = None
    batches: Any = SimpleNamespace(pause=SimpleNamespace(is_set=lambda: False))
    one = driver._Driver(
        spark=unused,
        stream=STREAM,
        settings=SETTINGS,
        monitor=idle,
        checkpoint=unused,
        url="",
        topic_id="first",
        lease=unused,
        log_check=unused,
        batches=batches,
        partitions=1,
    )
    one._await(idle, None)


def test_an_archive_stream_without_batches_stops(topic_id: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LeasePoll", lambda *_: lambda: None)
    monkeypatch.setattr(driver, "executor_watch", lambda _: SimpleNamespace(check=lambda: None))
    archive_without_batches()
    topic_id[:] = ["second"]
    with pytest.raises(ConflictError, match="recreated while the stream ran"):
        archive_without_batches()


def test_a_speed_stream_without_batches_stops(topic_id: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def polled(_query: Any, _on_batch: Any, on_poll: Any, *_: Any, personal: bool) -> None:
        on_poll()

    monkeypatch.setattr(speed, "await_stop", polled)
    monkeypatch.setattr(speed, "CHECK_S", 0.0)
    monkeypatch.setattr(speed, "watermarks", lambda *_: ())
    idle: Any = Idle()
    batches: Any = SimpleNamespace(busy=Event())
    speed._await(idle, batches, speed.Watch(STREAM, SETTINGS, "first"), idle, lambda: None)
    topic_id[:] = ["second"]
    with pytest.raises(ConflictError, match="recreated while the stream ran"):
        speed._await(idle, batches, speed.Watch(STREAM, SETTINGS, "first"), idle, lambda: None)
