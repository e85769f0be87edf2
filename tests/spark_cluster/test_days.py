"""A day from Kafka to its proof on a Spark cluster that loses a worker in an archive batch, and one in the rebuild."""

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pytest

from tests.conftest import MakeStream, MakeTopic, Produce
from tests.faults import Rule
from tests.spark_cluster.deployment import Deployment
from tests.spark_cluster.nodes import SparkCluster
from tests.speed.live import read_topic
from tests.waiting import wait_until
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectStore
from tidemark.tables.reader import load_table
from tidemark.tables.seals import read_seal

pytestmark = [pytest.mark.services, pytest.mark.conformance(36), pytest.mark.timeout(1200)]
DAY = date(2013, 1, 14)
NOON_MS = int(datetime(2013, 1, 14, 12, tzinfo=UTC).timestamp() * 1000)
PARTITIONS = 2
GOOD, MALFORMED = 400, 3
# What executors get as variables. The token is empty: it replaces another login's.
NOT_SECRET = {"AWS_REGION", "AWS_SESSION_TOKEN"}
# A function of the stream's own module, which no executor can import.
WITH_UDF = """\
import pandas as pd
from pyspark.sql import functions as F

FACTOR = 2


def doubled(numbers):
    return numbers * FACTOR


@F.pandas_udf("bigint")
def twice(numbers: pd.Series) -> pd.Series:
    return doubled(numbers)


def transform(records):
    return records.select("source", "event_time", "event.*", twice("event.n").alias("twice"))
"""


@dataclass(kw_only=True)
class Story:
    """What happened: cores by application while both streams ran, and what the commands printed."""

    stream: Stream
    together: dict[str, int]
    printed: dict[str, str]


def values() -> list[bytes]:
    return [*(json.dumps({"n": n}).encode() for n in range(GOOD)), *[b"no JSON"] * MALFORMED]


def produce_day(produce: Produce, stream: Stream) -> None:
    produce(stream.topic, [(None, value, NOON_MS, n % PARTITIONS, []) for n, value in enumerate(values())])


def kill_at(deployment: Deployment, method: str, pattern: str) -> Rule:
    """Kill -9 of the worker whose task sends that request, which never arrives."""

    def kill(_target: str) -> None:
        deployment.cluster.worker_at(deployment.s3_port).kill()

    return deployment.proxy.add(Rule(method=method, pattern=pattern, action=kill, reset=True))


def archived(deployment: Deployment, stream: Stream) -> int:
    """Rows that the manifests list."""
    store, layout = ObjectStore(deployment.settings), Layout(prefix=deployment.settings.prefix, stream=stream.name)
    bodies = [json.loads(store.get(item.key) or b"{}") for item in store.list(layout.manifest_prefix)]
    return sum(item["rows"] for body in bodies for item in body.get("ranges", ()))


@pytest.fixture(scope="module")
def story(deployment: Deployment, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce) -> Iterator[Story]:
    stream = make_stream(
        partitions=PARTITIONS,
        transform=WITH_UDF,
        batch={"wait_seconds": 0},
        archive={"trigger_seconds": 1},
        spark={"speed": {"instances": 1}},
        speed={"topic": make_topic(PARTITIONS), "dead_letter_topic": make_topic(), "delivery": "exactly_once"},
    )
    produce_day(produce, stream)
    cluster, printed = deployment.cluster, {}
    in_batch = kill_at(deployment, "PUT", f"/data/{stream.name}/")
    with deployment.app("archive_stream.py", stream.name) as archive:
        archive.wait_until(in_batch.fired.is_set)
        archive.wait_until(lambda: archived(deployment, stream) == GOOD + MALFORMED)
        cluster.heal()
        with deployment.app("speed_stream.py", stream.name) as speed:
            speed.wait_until(lambda: bool(speed.events("batch")))
            together = cluster.cores()
            produce_day(produce, stream)
            archive.wait_until(lambda: archived(deployment, stream) == 2 * (GOOD + MALFORMED))
            wait_until(
                lambda: len(read_topic(deployment.settings, stream.speed.topic)) == 2 * GOOD, "both are delivered"
            )
            for app in (archive, speed):
                app.process.send_signal(signal.SIGTERM)
            assert (archive.wait(), speed.wait()) == (0, 0), archive.output + speed.output
    smaller = {"TIDEMARK_SPARK": json.dumps({"executor_python": str(cluster.python), "instances": 1})}
    in_rebuild = kill_at(deployment, "PUT", r"/warehouse/.*\.parquet")
    for command in (
        ("reconcile", stream.name, "--from", str(DAY)),
        ("maintain", stream.name, "--clean-tables", "--compact"),
        ("verify", stream.name, str(DAY)),
    ):
        printed[command[0]] = deployment.run(*command, changes={} if command[0] == "reconcile" else smaller)
    assert in_rebuild.fired.is_set()
    yield Story(stream=stream, together=together, printed=printed)
    cluster.heal()


def test_the_day_is_sealed_and_proven_with_every_record_that_was_produced(story: Story, deployment: Deployment) -> None:
    settings, stream = deployment.settings, story.stream
    assert "version 1: proven" in story.printed["verify"]
    seal = read_seal(ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name), DAY, 1)
    assert seal is not None
    assert seal.rows_published == 2 * GOOD
    table, quarantine = (load_table(settings, name) for name in (stream.table, stream.quarantine_table))
    assert table is not None
    assert quarantine is not None
    rows = table.scan(selected_fields=("n", "twice")).to_arrow().to_pylist()
    assert Counter((row["n"], row["twice"]) for row in rows) == {(n, 2 * n): 2 for n in range(GOOD)}
    assert quarantine.scan().to_arrow().num_rows == 2 * MALFORMED


def test_every_record_was_delivered_exactly_once(story: Story, deployment: Deployment) -> None:
    live = read_topic(deployment.settings, story.stream.speed.topic)
    assert Counter(json.loads(item.value or b"")["twice"] for item in live) == {2 * n: 2 for n in range(GOOD)}
    dead = read_topic(deployment.settings, story.stream.speed.dead_letter_topic)
    assert [item.value for item in dead] == [b"no JSON"] * 2 * MALFORMED


def test_a_stream_leaves_cores_for_the_next_one_and_has_the_size_in_its_definition(story: Story) -> None:
    name = story.stream.name
    assert story.together == {f"tidemark-archive-{name}": 2, f"tidemark-speed-{name}": 1}


@pytest.mark.usefixtures("story")
def test_no_process_file_or_page_of_the_cluster_shows_a_secret(deployment: Deployment) -> None:
    shown = deployment.shown
    shown.read_files()
    shown.read_pages()
    kinds = {"environment", "command line", "file", "page", "application page"}
    assert {kind for kind in kinds if shown.seen[kind] > 10} == kinds
    assert shown.where == set()


@pytest.mark.usefixtures("story")
def test_executors_are_strangers(cluster: SparkCluster, deployment: Deployment) -> None:
    """Another user where root allows it, another folder, no variable of the project, and neither of its packages."""
    if cluster.owner.reason:
        pytest.skip(cluster.owner.reason)
    shown = deployment.shown
    assert shown.users == {cluster.owner.user}
    assert shown.variables & {"TIDEMARK_ENV_FILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} == set()
    assert {name for name in shown.variables if name.startswith(("TIDEMARK", "AWS", "OTEL"))} <= NOT_SECRET
    for package in ("tidemark", "pyspark"):
        question = f"import importlib.util; raise SystemExit(importlib.util.find_spec({package!r}) is not None)"
        command = [*cluster.owner.become, str(cluster.python), "-I", "-c", question]
        assert subprocess.run(command, cwd=cluster.folder, check=False).returncode == 0, package
