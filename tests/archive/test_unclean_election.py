"""An unclean election truncates logs of a real cluster, and they grow again: shorter, equal and longer than before."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.cluster import Cluster
from tests.conftest import MakeStream, unique
from tests.core.worlds import span
from tests.waiting import wait_until
from tidemark.archive.manifests import read_manifests
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import IncompleteError, PositionError
from tidemark.core.layout import Layout
from tidemark.core.logged_record import record_digest
from tidemark.core.offsets import OffsetRange
from tidemark.kafka.topics import describe_topic
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

DAY = date(2013, 1, 14)
NOON_MS = int(datetime(2013, 1, 14, 12, tzinfo=UTC).timestamp() * 1000)
LEADER, FOLLOWER = 1, 2
SHORTER, EQUAL, LONGER, INTACT = range(4)


@dataclass(kw_only=True)
class Source:
    """A topic of four partitions on two brokers. Of those, the first leads and the second follows."""

    brokers: Cluster
    topic: str

    @classmethod
    def create(cls, brokers: Cluster) -> "Source":
        name = brokers.create(
            unique("unclean"),
            on=[*([LEADER, FOLLOWER] for _ in range(3)), [3, FOLLOWER]],
            unclean_leader_election_enable="true",
            min_insync_replicas="1",
        )
        source = cls(brokers=brokers, topic=name)
        source.until_led_by(LEADER)
        return source

    def until_led_by(self, leader: int | None) -> None:
        topics = range(3)
        wait_until(lambda: all(self.brokers.leader(self.topic, at) == leader for at in topics), f"leader {leader}")

    def produce(self, numbers: dict[int, int], *, name: str) -> None:
        """So many records per partition, with values that are numbered in each."""
        producer = Producer({"bootstrap.servers": self.brokers.bootstrap, "acks": "all", "linger.ms": 5})
        for partition, number in numbers.items():
            for at in range(number):
                producer.produce(self.topic, value(name, partition, at), b"k", partition, timestamp=NOON_MS)
        assert producer.flush(60) == 0


def value(name: str, partition: int, number: int) -> bytes:
    return f"{name} {partition} {number}".encode()


def record(topic: str, partition: int, name: str, epoch: int) -> str:
    """The tenth record of that name, at offset 99, as errors name it."""
    digest = record_digest(b"k", value(name, partition, 9))
    return f"{topic}-{partition} offset 99 of 2013-01-14T12:00:00.000+00:00, digest {digest}, leader epoch {epoch}"


@pytest.mark.conformance(30)
def test_logs_that_an_unclean_election_truncated_stop_stream_and_run(
    brokers: Cluster, spark: SparkSession, settings: Settings, make_stream: MakeStream
) -> None:
    source = Source.create(brokers)
    there = settings.model_copy(update={"kafka_bootstrap": brokers.bootstrap})
    stream = make_stream(topic=source.topic)
    layout = Layout(prefix=there.prefix, stream=stream.name)
    run = Run(stream=stream, settings=there, store=ObjectStore(there), layout=layout, name="run-1")
    try:
        source.produce(dict.fromkeys(range(4), 90), name="kept")
        brokers.kill(FOLLOWER)
        wait_until(lambda: brokers.in_sync(source.topic) == (LEADER,), "the follower is out of sync")
        source.produce(dict.fromkeys(range(4), 10), name="lost")
        archive(spark, stream, there, available_now=True)

        brokers.kill(LEADER)
        source.until_led_by(None)
        brokers.start(FOLLOWER)
        source.until_led_by(FOLLOWER)
        source.produce({SHORTER: 5, EQUAL: 10, LONGER: 40, INTACT: 10}, name="new")
        for start in (lambda: archive(spark, stream, there, available_now=True), lambda: plan_run(run, [DAY], False)):
            with pytest.raises(PositionError) as stopped:
                start()
            error = str(stopped.value)
            topic_id = describe_topic(brokers.kafka, source.topic)[0].topic_id
            named = ", ".join(f"{source.topic}-{at} [90, 100), topic id {topic_id}" for at in (SHORTER, EQUAL, LONGER))
            assert f"rewritten: {named}]" in error
            for partition in (SHORTER, EQUAL, LONGER):
                assert record(source.topic, partition, "lost", 0) in error
            assert f"found {source.topic}-{SHORTER} ends at offset 95" in error
            for partition in (EQUAL, LONGER):
                assert re.search(re.escape(record(source.topic, partition, "new", 0)[:-1]) + "[1-9]", error)
    finally:
        brokers.heal()

    # The way out: the earlier records stay, and the archive continues after them.
    source.produce({SHORTER: 10, EQUAL: 3}, name="newer")
    accepting = stream.model_copy(update={"archive": stream.archive.model_copy(update={"on_rewrite": "continue"})})
    archive(spark, accepting, there, available_now=True)
    plan_run(run, [DAY], False)
    assert {
        (item.log.partition, item.range.start, item.range.end)
        for manifest in read_manifests(run.store, layout)
        for item in manifest.ranges
    } == {
        *((at, 0, 100) for at in range(4)),
        (SHORTER, 100, 105),
        (EQUAL, 100, 103),
        (LONGER, 100, 130),
        (INTACT, 100, 110),
    }


@pytest.mark.conformance(71)
def test_records_that_nobody_archived_and_an_unclean_election_took_are_a_loss_that_is_never_forgotten(
    brokers: Cluster, settings: Settings, make_stream: MakeStream
) -> None:
    source = Source.create(brokers)
    there = settings.model_copy(update={"kafka_bootstrap": brokers.bootstrap})
    stream = make_stream(topic=source.topic)
    layout = Layout(prefix=there.prefix, stream=stream.name)
    run = Run(stream=stream, settings=there, store=ObjectStore(there), layout=layout, name="run-1")

    def lost() -> dict[int, tuple[OffsetRange, ...]]:
        plan = plan_run(run, [DAY], False)
        return {item.target.log.partition: tuple(one.range for one in item.target.truncated) for item in plan.logs}

    try:
        source.produce(dict.fromkeys(range(4), 90), name="kept")
        brokers.kill(FOLLOWER)
        wait_until(lambda: brokers.in_sync(source.topic) == (LEADER,), "the follower is out of sync")
        source.produce(dict.fromkeys(range(4), 10), name="lost")
        assert lost() == dict.fromkeys(range(4), ())  # it sees offset 100
        brokers.kill(LEADER)
        source.until_led_by(None)
        brokers.start(FOLLOWER)
        source.until_led_by(FOLLOWER)
        source.produce({SHORTER: 5}, name="new")
        found = lost()
        assert found == {SHORTER: (span(95, 100),), EQUAL: (span(90, 100),), LONGER: (span(90, 100),), INTACT: ()}
        source.produce(dict.fromkeys((SHORTER, EQUAL, LONGER), 40), name="newer")
        assert lost() == found
    finally:
        brokers.heal()
    assert lost() == found  # also with another leader
    with pytest.raises(IncompleteError) as stopped:
        finalize_plan_run(run)
    sentence = f"{source.topic}-{SHORTER} [95, 100) lost from the end of the log: at most 5 offsets"
    assert f"{sentence}; {source.topic}-{SHORTER} [0, 95) may have had other records before" in str(stopped.value)
