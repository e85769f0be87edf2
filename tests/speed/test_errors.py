"""Each way in which real brokers refuse records: the stream's error, and whether it recovers."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # in its docs
from pyspark.sql import SparkSession

from tests.cluster import Cluster
from tests.conftest import MakeTopic, Produce, unique
from tests.speed.live import read_topic
from tests.speed.sinks import row_batch, span, spark_query, task
from tests.waiting import wait_until
from tidemark.core.errors import ConfigError, ConflictError, PositionError, ServiceError, TidemarkError
from tidemark.settings import Settings
from tidemark.spark.failures import task_error
from tidemark.spark.streaming import await_stop
from tidemark.speed.exactly_once.marker import ensure_markers
from tidemark.speed.exactly_once.transactions import deliver
from tidemark.speed.topics import diagnosed

VALUES = [b"%08d" % n for n in range(20)]
MODES = ("at_least_once", "exactly_once")
# The producer's limits, so that what cannot succeed fails soon.
SOON = {
    "kafka.delivery.timeout.ms": "20000",
    "kafka.request.timeout.ms": "10000",
    "kafka.max.block.ms": "20000",
}
Deliver = Callable[[str], object]


@pytest.fixture(scope="module")
def source(make_topic: MakeTopic, produce: Produce) -> str:
    topic = make_topic()
    produce(topic, [(value, value, 1_700_000_000_000, 0, []) for value in VALUES])
    return topic


@pytest.fixture(scope="module")
def deliveries(
    brokers: Cluster, spark: SparkSession, settings: Settings, source: str
) -> Callable[[str, bool], Deliver]:
    """Delivers ``VALUES`` to a topic of the three brokers in a mode, with short or long time-outs."""

    def of(mode: str, patient: bool) -> Deliver:
        def at_least_once(topic: str) -> None:
            patience = {} if patient else SOON
            await_stop(
                spark_query(spark, settings, source, brokers.bootstrap, topic, patience=patience), personal=False
            )

        def exactly_once(topic: str) -> None:
            sink = task(brokers.bootstrap, timeout_s=300 if patient else 20)
            ensure_markers(brokers.kafka, sink.marker_topic, 1)
            deliver([row_batch(topic, 0, VALUES)], span(0, len(VALUES)), sink)

        return at_least_once if mode == "at_least_once" else exactly_once

    return of


@pytest.fixture(params=MODES)
def sent(request: pytest.FixtureRequest, deliveries: Callable[[str, bool], Deliver]) -> Deliver:
    """Delivers ``VALUES`` to a topic of the three brokers in one mode, with short time-outs."""
    return deliveries(request.param, False)


def refused(deliver_to: Deliver, topic: str) -> TidemarkError:
    """The error, after a check of what every error must have."""
    with pytest.raises(TidemarkError) as caught:
        deliver_to(topic)
    error = caught.value
    assert error.found, error
    assert error.where, error
    assert error.hint, error
    assert "\n" not in str(error), error
    return error


def values(brokers: Cluster, settings: Settings, topic: str) -> list[bytes | None]:
    there = settings.model_copy(update={"kafka_bootstrap": brokers.bootstrap})
    return [item.value for item in read_topic(there, topic)]


def test_a_denied_topic_is_named_with_the_right_to_grant(brokers: Cluster, settings: Settings, sent: Deliver) -> None:
    topic = brokers.create(unique("denied"))
    brokers.deny(topic, AclOperation.WRITE)
    error = refused(sent, topic)
    assert isinstance(error, ServiceError)
    assert topic in str(error) or "Topic authorization failed" in str(error)
    assert values(brokers, settings, topic) == []


def test_a_deleted_topic_is_named(brokers: Cluster, sent: Deliver) -> None:
    missing = unique("never_made")
    error = refused(sent, missing)
    assert isinstance(error, ServiceError)
    assert f"{missing} does not exist" in str(diagnosed(error, brokers.kafka, [missing]))


@pytest.mark.conformance(25)
def test_too_few_in_sync_replicas_stop_the_stream_after_its_time_out(
    brokers: Cluster, settings: Settings, deliveries: Callable[[str, bool], Deliver]
) -> None:
    short, waiting = ({mode: brokers.create(unique(mode), min_insync_replicas="3") for mode in MODES} for _ in range(2))
    topics = (*short.values(), *waiting.values())
    leaders = Counter(brokers.leader(topic) for topic in topics)
    victim = min(brokers.ids, key=lambda number: leaders[number])
    with ThreadPoolExecutor() as pool:
        with brokers.without(victim):
            wait_until(
                lambda: all(victim not in brokers.in_sync(topic) for topic in topics), "the victim is out of sync"
            )
            patient = [pool.submit(deliveries(mode, True), topic) for mode, topic in waiting.items()]
            given_up = {mode: pool.submit(refused, deliveries(mode, False), topic) for mode, topic in short.items()}
            for mode, topic in short.items():
                error = given_up[mode].result()
                assert isinstance(error, ServiceError)
                explained = diagnosed(error, brokers.kafka, [topic])
                assert f"{topic}-0 has 2 replicas in sync, min.insync.replicas is 3" in str(explained)
                assert (explained.problem, explained.found, explained.where) == (
                    error.problem,
                    error.found,
                    error.where,
                )
            assert not any(item.done() for item in patient)
        for item in patient:
            item.result()
    # The next start delivers the rest.
    for mode, topic in short.items():
        deliveries(mode, True)(topic)
        assert set(values(brokers, settings, topic)) == set(VALUES)
    for topic in waiting.values():
        assert values(brokers, settings, topic) == VALUES


def test_a_too_large_record_is_a_config_error(
    brokers: Cluster, settings: Settings, spark: SparkSession, make_topic: MakeTopic, produce: Produce
) -> None:
    """The speed stream checks sizes first; this happens if a limit is lowered afterwards."""
    topic = brokers.create(unique("small"), max_message_bytes="20000")
    large = make_topic()
    produce(large, [(None, bytes(30_000), 1_700_000_000_000, 0, [])])

    def at_least_once(to: str) -> None:
        await_stop(spark_query(spark, settings, large, brokers.bootstrap, to, patience=SOON), personal=False)

    def exactly_once(to: str) -> None:
        sink = task(brokers.bootstrap)
        ensure_markers(brokers.kafka, sink.marker_topic, 1)
        deliver([row_batch(to, 0, [bytes(30_000)])], span(0, 1), sink)

    for mode in (at_least_once, exactly_once):
        error = refused(mode, topic)
        assert isinstance(error, ConfigError)
        assert error.problem == "a record is too large for Kafka"
        assert "Raise max.message.bytes" in str(error)
    assert values(brokers, settings, topic) == []


def test_a_fenced_producers_error_says_who_continues(brokers: Cluster, settings: Settings) -> None:
    topic, sink = brokers.create(unique("fenced")), task(brokers.bootstrap, records=5)
    ensure_markers(brokers.kafka, sink.marker_topic, 1)

    def rows(*, superseded: bool) -> Iterator[pa.RecordBatch]:
        yield row_batch(topic, 0, VALUES[:5])
        if superseded:  # by a later attempt at the same task, which delivers everything
            deliver(rows(superseded=False), span(0, len(VALUES)), sink)
        yield row_batch(topic, 5, VALUES[5:])

    error = refused(lambda _topic: deliver(rows(superseded=True), span(0, len(VALUES)), sink), topic)
    assert isinstance(error, ConflictError)
    assert "The latest attempt continues" in str(error)
    assert values(brokers, settings, topic) == VALUES


OURS = "tidemark.core.errors.PositionError: rows are not in offset order: found 7"
JAVA = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 \
in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (localhost executor driver): {}

Driver stacktrace: SQLSTATE: XXKST
=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("cause", "kind", "found"),
    [
        (
            "org.apache.kafka.common.errors.ProducerFencedException: There is a newer producer",
            ConflictError,
            "ProducerFenced (There is a newer producer)",
        ),
        (
            "org.apache.kafka.common.errors.InvalidRecordException: One or more records have been rejected",
            ConfigError,
            "InvalidRecord (One or more records have been rejected)",
        ),
        (
            "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed",
            ServiceError,
            "SaslAuthentication (Authentication failed)",
        ),
        ("java.lang.IllegalStateException: odd", ServiceError, "java.lang.IllegalStateException: odd"),
        (
            "org.apache.spark.api.python.PythonException: Traceback\n" + OURS,
            PositionError,
            "rows are not in offset order: found 7",
        ),
    ],
)
def test_the_cause_is_found_in_sparks_message(cause: str, kind: type[TidemarkError], found: str) -> None:
    """Causes that these brokers cannot be made to report, in Spark's format."""
    error = task_error(RuntimeError(JAVA.format(cause)), where="stream s", personal=False)
    assert type(error) is kind
    assert (error.found or error.problem) == found
