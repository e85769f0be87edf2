"""The delivery audit of real streams, compared with a plain consumer of the same topics."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.cluster import Cluster
from tests.conftest import MakeStream, MakeTopic, Produce, Record, unique
from tests.speed.delivered import Delivery, counted, ms_of, saved
from tests.speed.live import read_topic
from tests.waiting import wait_until
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import ServiceError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.delivery_audit.audit import audit_delivery
from tidemark.delivery_audit.output_topics import output_ends
from tidemark.delivery_audit.readable import speed_positions
from tidemark.delivery_audit.span import parse_span
from tidemark.kafka import committed_ends
from tidemark.kafka.committed_ends import CommittedEnd
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark import streaming
from tidemark.speed.stream import speed

pytestmark = pytest.mark.conformance(54)

DAY = "2013-01-14"
NINE_MS = ms_of(f"{DAY}T09:00")
DEADLINE_S = 600
WRONG = ("missing", "duplicated", "unexpected", "mismatched")


def audit(spark: SparkSession, stream: Stream, settings: Settings) -> dict[str, Any]:
    """The audit's JSON object for the day."""
    run = Run.open(stream.name, unique("delivery"), settings)
    audit_delivery(run, spark, parse_span(DAY, None, stream.zone, datetime.now(UTC)))
    return saved(run)


def nonzero(value: dict[str, Any]) -> dict[str, int]:
    """Its counts that are not 0."""
    return {name: count for name, count in value["counts"].items() if count}


def rows(numbers: range, partitions: int = 1) -> list[Record]:
    """A record every quarter of an hour, again and again; every tenth is not JSON."""
    return [
        (b"k%d" % n, b'{"n":%d}' % n if n % 10 else b"{", NINE_MS + n % 40 * 900_000, n % partitions, [])
        for n in numbers
    ]


def test_duplicates_on_another_cluster_are_counted_as_a_plain_consumer_does(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    brokers: Cluster,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
) -> None:
    elsewhere = settings.model_copy(update={"speed_kafka_bootstrap": brokers.bootstrap})
    live = unique("elsewhere")
    wanted = {"topic": live, "dead_letter_topic": f"{live}.dead", "max_offsets_per_trigger": 50}
    stream = make_stream(topic=make_topic(2), speed=wanted, time_zone="America/New_York")
    produce(stream.topic, rows(range(120), 2))
    speed(spark, stream, elsewhere, available_now=True)
    checkpoint = Layout(prefix=settings.prefix, stream=stream.name).checkpoint_prefix("speed")
    store.delete(f"{checkpoint}commits/2")  # the last of three batches is repeated
    speed(spark, stream, elsewhere, available_now=True)
    archive(spark, stream, elsewhere, available_now=True)

    value = audit(spark, stream, elsewhere)

    copies: Counter[tuple[int, int, int]] = Counter()
    for item in read_topic(elsewhere, live) + read_topic(elsewhere, f"{live}.dead"):
        hour_ms = int(item.header("timestamp")) // 3_600_000 * 3_600_000
        copies[hour_ms, *item.source] += 1
    repeats: Counter[tuple[int, int]] = Counter()
    for (hour_ms, partition, _), count in copies.items():
        repeats[hour_ms, partition] += count - 1
    assert (len(copies), 0 < repeats.total() < 120) == (120, True)
    assert nonzero(value) == {"archived": 120, "delivered": 120, "duplicated": repeats.total()}
    assert {
        (int(datetime.fromisoformat(item["hour"]).timestamp() * 1000), item["partition"]): item["duplicated"]
        for item in value["hours"]
    } == dict(repeats)
    examples = [(item["partition"], example) for item in value["hours"] for example in item["examples"]]
    assert {(example["outcome"], example["topic"]) for _, example in examples} == {
        ("duplicated", live),
        ("duplicated", f"{live}.dead"),
    }


def test_records_of_a_recreated_topic_differ_from_those_of_the_first(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    first = Delivery.make(make_stream, settings, produce)
    bodies = [b'{"n":%d0}' % n if n % 5 else b"{" for n in range(20)]
    first.write_sources([(0, NINE_MS + n, body) for n, body in enumerate(bodies)])
    first.archive("a", 0, 0, 18)  # the last two no longer exist anywhere
    recreate(settings, first.stream.topic, first.topic_id)
    second = replace(
        first,
        topic_id=describe_topic(settings.kafka, first.stream.topic)[0].topic_id,
        sources={},
        archived={},
        outs=[],
        topic_deleted=False,
    )
    first.topic_deleted = True
    second.write_sources([(0, NINE_MS + n, b'{"n":%d1}' % n) for n in range(12)])
    second.archive("b", 0, 0, 8)
    old, new = (list(item.sources.values()) for item in (first, second))
    # Of the first log, one record occurs twice, one has the second log's value, three are missing.
    first.deliver([first.right(item) for item in (*old[:12], old[3], *old[15:])])
    first.deliver([replace(second.right(new[2]), topic_id=first.topic_id)])
    second.deliver([second.right(item) for item in (*new[:5], new[9])])
    second.stand_at({0: 6})

    run = Run.open(first.stream.name, unique("delivery"), settings)
    span = parse_span(DAY, None, first.stream.zone, datetime.now(UTC))
    tally = audit_delivery(run, spark, span)

    assert counted(tally) == sum((item.expected(span.start, span.end) for item in (first, second)), Counter())
    counts = saved(run)["counts"]
    assert (counts["archived"], counts["missing"], counts["pending"]) == (26, 4, 2)
    assert (counts["duplicated"], counts["unexpected"], counts["not_archived"]) == (1, 1, 3)


def recreate(settings: Settings, topic: str, before: str) -> None:
    """Delete the topic and create it again; returns when it has another id."""
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    admin.delete_topics([topic])[topic].result(60)

    def new() -> bool:
        try:
            return describe_topic(settings.kafka, topic)[0].topic_id != before
        except ServiceError:
            return False

    created = {"retention.ms": "-1"}
    wait_until(lambda: ensure_topic(settings.kafka, topic, partitions=1, config=created), "the old topic is deleted")
    wait_until(new, "the new topic is known")


def test_an_audit_of_running_streams_finds_nothing_missing(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce
) -> None:
    wanted = {"topic": make_topic(2), "dead_letter_topic": make_topic(), "delivery": "exactly_once"}
    stream = make_stream(
        partitions=2,
        time_zone="America/New_York",
        archive={"trigger_seconds": 0},
        speed={**wanted, "trigger_seconds": 0, "transaction_records": 10},
    )
    layout, store = Layout(prefix=settings.prefix, stream=stream.name), ObjectStore(settings)
    with running(spark, stream, settings, produce) as produced:
        wait_until(lambda: sum(speed_positions(store, layout).values()) > 0, "a batch is delivered", DEADLINE_S)
        wait_until(lambda: any(store.list(layout.manifest_prefix)), "a batch is archived", DEADLINE_S)
        before = produced[0]
        value = audit(spark, stream, settings)
    assert [value["counts"][name] for name in WRONG] == [0] * len(WRONG)
    assert value["counts"]["delivered"] > 0
    if value["verdict"] == "pass":
        assert value["counts"]["delivered"] >= before
    else:
        assert (value["verdict"], value["sentences"] != []) == ("unknown", True)


@contextmanager
def running(spark: SparkSession, stream: Stream, settings: Settings, produce: Produce) -> Iterator[list[int]]:
    """Running streams with incoming records; yields the number of acknowledged records so far."""
    produced, enough = [0], Event()

    def feed() -> None:
        while not enough.wait(0.1):  # the pace, no more
            produce(stream.topic, rows(range(produced[0], produced[0] + 20), 2))
            produced[0] += 20

    streaming._stop.clear()
    with ThreadPoolExecutor(3) as pool:
        jobs: list[Future[None]] = [pool.submit(job, spark, stream, settings) for job in (archive, speed)]
        jobs.append(pool.submit(feed))
        try:
            yield produced
        finally:
            enough.set()
            streaming._stop.set()
            try:
                for job in jobs:
                    job.result(DEADLINE_S)
            finally:
                streaming._stop.clear()


def test_the_end_of_an_output_topic_is_read_after_open_transactions_end(
    settings: Settings, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, waited = make_topic(), Event()
    producer = Producer({"bootstrap.servers": settings.kafka_bootstrap, "transactional.id": unique("under-way")})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    assert producer.flush(60) == 0

    def commit(_seconds: float) -> None:
        if not waited.is_set():
            waited.set()
            producer.commit_transaction(60)

    monkeypatch.setattr(committed_ends, "sleep", commit)
    (found,) = output_ends(settings.kafka, topic).values()
    assert found == CommittedEnd(log_start=0, end=2, hides_records=False)  # the record and its marker
    assert waited.is_set()


def topic_id(settings: Settings, stream: Stream) -> bytes:
    return describe_topic(settings.kafka, stream.topic)[0].topic_id.encode()
