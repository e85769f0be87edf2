"""The errors and retries of Kafka's edge for missing topics and restarting leaders."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Event

import pytest
from confluent_kafka import Producer

from tests.cluster import Cluster
from tests.conftest import unique
from tidemark.core.errors import ServiceError
from tidemark.kafka import positions
from tidemark.kafka.positions import positions_at, watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.settings import Settings


def test_a_missing_topic_is_named_with_what_to_do(settings: Settings) -> None:
    with pytest.raises(ServiceError) as caught:
        describe_topic(settings.kafka, "never_made")
    error = caught.value
    assert (error.problem, error.found, error.where) == (
        "Kafka has no such topic",
        "never_made",
        settings.kafka_bootstrap,
    )
    assert error.hint is not None
    assert error.hint.startswith("Create it, or correct the name")


def test_positions_are_found_while_leaders_stop_and_restart(brokers: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "TIMEOUT_S", 200)  # of Kafka's nine seconds, a busy machine makes many more
    topic = brokers.create(unique("asked"))
    producer = Producer({"bootstrap.servers": brokers.bootstrap})
    for n in range(7):
        producer.produce(topic, b"%d" % n, timestamp=1_000 * (n + 1))
    assert producer.flush(60) == 0
    logs = describe_topic(brokers.kafka, topic)
    stopped = Event()

    def ask() -> list[tuple[int, int, int | None]]:
        answers = []
        while not stopped.is_set():
            (mark,) = watermarks(brokers.kafka, logs)
            (at,) = positions_at(brokers.kafka, logs, datetime.fromtimestamp(4, UTC)).values()
            answers.append((mark.log_start, mark.high_watermark, at))
        return answers

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask) for _ in range(2)]
        try:
            for end in (brokers.stop, brokers.kill):
                leader = brokers.leader(topic)
                assert leader is not None
                end(leader)
                brokers.heal()
        finally:
            stopped.set()
        answers = [answer for future in asked for answer in future.result()]
    assert len(answers) > 20
    assert set(answers) == {(0, 7, 3)}
