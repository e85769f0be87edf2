"""The local stack and Spark as fixtures, and factories for topics, records and streams with names of their own."""

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Protocol

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # as in its docs
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis
from pyspark.sql import SparkSession

from tests.cluster import Cluster, cluster
from tests.collector import Collector
from tests.shared_classes import spark_options
from tests.waiting import limited
from tidemark.definitions.stream import Stream, load_stream
from tidemark.installation import PROJECT
from tidemark.kafka.topics import ensure_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.session import spark_session
from tidemark.stack.java import BRIEF_JVM
from tidemark.stack.local import LocalStack

pytest_plugins = ["tests.tiers", "tests.progress", "tests.measure", "tests.failures"]

TRANSFORM = """\
def transform(records):
    return records.select("source", "event_time", "event.*")
"""
_NUMBERS = count(1)

# No time limits for examples, in any test: the machines are shared and noisy.
hypothesis.register_profile("noisy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis.load_profile("noisy")

# Key, value, timestamp in ms, partition, headers
Record = tuple[bytes | None, bytes | None, int, int, Sequence[tuple[str, bytes | None]]]
Produce = Callable[[str, Sequence[Record]], list[int]]


class MakeTopic(Protocol):
    def __call__(self, partitions: int = 1, **config: str) -> str: ...


class MakeStream(Protocol):
    def __call__(self, *, partitions: int = 1, transform: str = TRANSFORM, **overrides: Any) -> Stream: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-tables", action="store_true", help="write what tests measure into the documentation")


def unique(prefix: str) -> str:
    """A name no other test uses: ``prefix_<n>``."""
    return f"{prefix}_{next(_NUMBERS)}"


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A running local stack. Its settings' streams folder is its own, with a copy of the project's streams."""
    root = tmp_path_factory.mktemp("stack")
    streams = root / "streams"
    shutil.copytree(PROJECT / "include" / "streams", streams, ignore=shutil.ignore_patterns("__pycache__"))
    temporary = root / "java"
    temporary.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**BRIEF_JVM, **spark_options(temporary)}.items():
            patch.setenv(name, value)
        with LocalStack(f"test-{os.getpid()}", root=root, streams_dir=streams) as running:
            for name, value in running.env.items():  # Spark's Python workers inherit it, and settings() reads it
                patch.setenv(name, value)
            patch.setenv("PYTHONPATH", str(PROJECT), prepend=os.pathsep)  # workers load functions of tests by name
            yield running


def pytest_collection_finish() -> None:
    """Airflow's import makes the root logger write to the output that is captured at that moment, and closed later."""
    _without_streams()


@pytest.fixture(autouse=True)
def _no_log_to_closed_output() -> Iterator[None]:
    """The same for an import during a test."""
    yield
    _without_streams()


def _without_streams() -> None:
    for handler in [item for item in logging.root.handlers if type(item) is logging.StreamHandler]:
        logging.root.removeHandler(handler)


@pytest.fixture(autouse=True)
def _stack_is_alive(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test during which a server died says so, with the server's log; the next test has it back, with its data."""
    yield
    if "stack" in request.fixturenames:
        processes = request.getfixturevalue("stack").processes
        try:
            processes.check()
        finally:
            for process in [item for item in processes if item.died]:
                process.launch()


@pytest.fixture(autouse=True)
def _spark_is_alive(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test during which Spark's JVM died takes its process with it; the process that follows has a Spark."""
    yield
    if "spark" in request.fixturenames:
        gateway: Any = request.getfixturevalue("spark").sparkContext._gateway
        if (code := gateway.proc.poll()) is not None:
            problem = f"Spark's JVM ended with {code} during {request.node.nodeid}"
            if "PYTEST_XDIST_WORKER" in os.environ:
                os.write(2, f"{problem}\n".encode())
                os._exit(1)
            pytest.exit(problem, 1)


@pytest.fixture(scope="module")
def brokers(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A second cluster, of three brokers; see there. It ends with the file: its four JVMs take 1 GiB."""
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def settings(stack: LocalStack) -> Settings:
    return stack.settings


@pytest.fixture(scope="session")
def store(settings: Settings) -> ObjectStore:
    return ObjectStore(settings)


@pytest.fixture(scope="session")
def spark(settings: Settings) -> Iterator[SparkSession]:
    with limited("the start of Spark", 300):
        session = spark_session(settings, "tidemark-tests")
    yield session
    gateway: Any = session.sparkContext._gateway
    if gateway.proc.poll() is not None:
        return
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # ends the JVM, so that no process outlives the tests
    gateway.proc.wait(60)


@pytest.fixture(scope="session")
def make_topic(settings: Settings) -> MakeTopic:
    """Creates a topic with a name of its own; ``config`` keys are Kafka's with ``_`` for ``.``."""

    def make(partitions: int = 1, **config: str) -> str:
        name = unique("topic")
        wanted = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
        assert ensure_topic(settings.kafka, name, partitions=partitions, config=wanted)
        return name

    return make


@pytest.fixture(scope="session")
def produce(settings: Settings) -> Produce:
    """Writes records and waits for their acknowledgement; gives their offsets, in the records' order."""

    def write(topic: str, records: Sequence[Record]) -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": settings.kafka_bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "message.max.bytes": 16_000_000,
            }
        )
        offsets: dict[int, int] = {}
        for number, (key, value, timestamp_ms, partition, headers) in enumerate(records):

            def delivered(error: Any, message: Any, number: int = number) -> None:
                assert error is None, error
                offsets[number] = message.offset()

            while True:
                try:
                    producer.produce(
                        topic,
                        value,
                        key,
                        partition,
                        timestamp=timestamp_ms,
                        headers=list(headers),
                        on_delivery=delivered,
                    )
                    break
                except BufferError:  # the queue is full
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(60) == 0
        return [offsets[number] for number in range(len(records))]

    return write


@pytest.fixture(scope="session")
def make_stream(settings: Settings, make_topic: MakeTopic) -> MakeStream:
    """Writes a stream's YAML and Python file into the stack's streams folder and creates its three topics.

    ``overrides`` are top-level keys of the YAML; topics named there are not created.
    """

    def make(*, partitions: int = 1, transform: str = TRANSFORM, **overrides: Any) -> Stream:
        name = overrides.get("name") or unique("stream")
        wanted: dict[str, Any] = {"name": name, "value_schema": "n BIGINT", **overrides}
        if "topic" not in wanted:
            wanted["topic"] = make_topic(partitions)
        if "speed" not in wanted:
            wanted["speed"] = {"topic": make_topic(partitions), "dead_letter_topic": make_topic(1)}
        (settings.streams_dir / f"{name}.yaml").write_text(yaml.safe_dump(wanted), encoding="utf-8")
        (settings.streams_dir / f"{name}.py").write_text(transform, encoding="utf-8")
        return load_stream(name, settings.streams_dir)

    return make


@pytest.fixture
def _eager_cleaner(settings: Settings) -> Iterator[None]:
    """The broker's cleaner looks for work every 100 ms instead of every 15 s."""
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    (broker,) = admin.list_topics(timeout=60).brokers

    def configure(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)

    configure(AlterConfigOpType.SET, "100")
    yield
    configure(AlterConfigOpType.DELETE, None)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the standard variables name."""
    with Collector().running() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        yield running
