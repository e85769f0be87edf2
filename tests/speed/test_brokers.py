"""Three brokers of which one is killed, the leader is killed, and two are killed, while all kinds of producers deliver.

Conformance 25. Fault by fault, a plain producer, Spark's own sink and transactions deliver what is produced meanwhile.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.cluster import Cluster
from tests.conftest import MakeTopic, Produce, unique
from tests.speed.live import read_topic
from tests.speed.sinks import row_batch, span, spark_query, task
from tests.waiting import wait_until
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ConflictError, ServiceError
from tidemark.settings import Settings
from tidemark.speed.exactly_once.marker import ensure_markers
from tidemark.speed.exactly_once.transactions import deliver

pytestmark = pytest.mark.conformance(25)

LONG_S = 400
PER_FAULT = 300
SPAN = 50


def text(n: int) -> bytes:
    return b"%08d" % n


class Plain:
    """An idempotent producer that keeps what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": 900_000,
                "log_level": 0,
            }
        )

    def send(self, numbers: range) -> None:
        for n in numbers:
            self._producer.produce(self._topic, text(n), text(n), on_delivery=self._note)

    def done(self, total: int) -> bool:
        self._producer.poll(0.1)
        return len(self.acknowledged) == total

    def _note(self, error: Any, message: Any) -> None:
        assert error is None, error
        self.acknowledged.append(message.value())


class Transactions:
    """Exactly-once delivery of numbers 0, 1, … in attempts that may fail at any point."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sink = task(bootstrap, timeout_s=30, records=20)
        self.failures = 0
        self._topic = topic
        self._until = 0
        self._delivered = 0
        self._end = Event()
        ensure_markers(KafkaConnection.plain(bootstrap), self.sink.marker_topic, 1)

    def send(self, until: int) -> None:
        self._until = until

    def done(self, total: int) -> bool:
        return self._delivered == total

    def stop(self) -> None:
        self._end.set()

    def run(self) -> None:
        for batch in itertools.count():
            start = batch * SPAN
            while self._until < start + SPAN:
                if self._end.wait(0.05):
                    return
            rows = row_batch(self._topic, start, [text(n) for n in range(start, start + SPAN)])
            while True:
                try:
                    deliver([rows], span(start, start + SPAN, batch), self.sink)
                    break
                except (ServiceError, ConflictError):  # start the task again, as Spark does
                    self.failures += 1
                    if self._end.wait(0.05):
                        return
            self._delivered = start + SPAN


class Spark:
    """Spark's sink, restarted after a failed batch, as a supervisor would do."""

    def __init__(self, spark: SparkSession, settings: Settings, source: str, bootstrap: str, topic: str) -> None:
        self._source = source
        checkpoint = unique("brokers")
        self._start = partial(
            spark_query, spark, settings, source, bootstrap, topic, checkpoint=checkpoint, available_now=False
        )
        self._query = self._start()

    def done(self, total: int) -> bool:
        if self._query.exception() is not None:
            self._query = self._start()
        progress = self._query.lastProgress
        if progress is None:
            return False
        end = json.loads(progress.json)["sources"][0]["endOffset"]
        return bool(end and end[self._source]["0"] == total)

    def stop(self) -> None:
        self._query.stop()


class Deliveries:
    """All three at once, with the same numbers, each into its own topic."""

    def __init__(self, spark: SparkSession, settings: Settings, brokers: Cluster, source: str) -> None:
        self.topics = tuple(
            brokers.create(unique(name), partitions=3, min_insync_replicas="2") for name in ("plain", "spark", "once")
        )
        self.sent = 0
        self.plain = Plain(brokers.bootstrap, self.topics[0])
        self.spark = Spark(spark, settings, source, brokers.bootstrap, self.topics[1])
        self.transactions = Transactions(brokers.bootstrap, self.topics[2])

    def send(self, source: str, produce: Produce) -> None:
        wanted = range(self.sent, self.sent + PER_FAULT)
        self.sent = wanted.stop
        produce(source, [(text(n), text(n), 1_700_000_000_000, 0, []) for n in wanted])
        self.plain.send(wanted)
        self.transactions.send(self.sent)

    def done(self) -> bool:
        return all(each.done(self.sent) for each in (self.plain, self.spark, self.transactions))

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(self.transactions.run)
            try:
                yield
            finally:
                self.transactions.stop()
                ended.result()
                self.spark.stop()


@pytest.mark.soak  # five minutes: three brokers die in turn
def test_no_acknowledged_record_is_lost_or_duplicated_when_brokers_die(
    brokers: Cluster, spark: SparkSession, settings: Settings, make_topic: MakeTopic, produce: Produce
) -> None:
    source = make_topic()
    deliveries = Deliveries(spark, settings, brokers, source)
    plain, by_spark, once = deliveries.topics

    def follower() -> list[int]:
        return [number for number in brokers.ids if number != brokers.leader(by_spark)][:1]

    def leader() -> list[int]:
        return [number for number in brokers.ids if number == brokers.leader(by_spark)]

    with deliveries.running():
        for victims in (list, follower, leader):
            with brokers.without(*victims()):
                deliveries.send(source, produce)
                wait_until(deliveries.done, "all is delivered by the brokers that are left", LONG_S)
        # With one of three brokers nothing may be acknowledged. Records wait, and arrive when there are two.
        with brokers.without(*brokers.ids[1:]):
            deliveries.send(source, produce)
            wait_until(lambda: len(brokers.in_sync(plain)) < 2, "fewer copies in sync than needed", LONG_S)
            assert not any(each.done(deliveries.sent) for each in (deliveries.plain, deliveries.transactions))
            assert len(deliveries.plain.acknowledged) == deliveries.sent - PER_FAULT
        wait_until(deliveries.done, "what had to wait is delivered", LONG_S)

    expected = {text(n) for n in range(deliveries.sent)}
    there = settings.model_copy(update={"kafka_bootstrap": brokers.bootstrap})

    def found(topic: str) -> Counter[bytes | None]:
        return Counter(item.value for item in read_topic(there, topic))

    def all_there() -> bool:
        return all(found(topic).keys() >= expected for topic in deliveries.topics)

    assert set(deliveries.plain.acknowledged) == expected
    # Readers see a transaction's end, and the records of a new leader, a little later.
    wait_until(all_there, "nothing acknowledged is lost")
    assert found(once) == found(plain) == Counter(expected)  # the plain producer is idempotent, and was never restarted
    assert found(by_spark).keys() == expected
