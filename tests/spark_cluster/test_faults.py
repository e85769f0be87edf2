"""What is rarer on a Spark cluster: a killed driver, too little memory, a packed Python, a Python without packages."""

import json
import signal
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from tests.conftest import MakeStream, MakeTopic, Produce
from tests.faults import Rule
from tests.spark_cluster.conftest import block, config, run_commands
from tests.spark_cluster.deployment import Deployment
from tests.spark_cluster.nodes import SparkCluster
from tests.spark_cluster.test_days import DAY, GOOD, MALFORMED, NOON_MS, PARTITIONS, archived, produce_day
from tests.speed.live import SpeedApp, read_topic
from tests.waiting import wait_until
from tidemark.definitions.stream import Stream
from tidemark.stack.files import write_private
from tidemark.tables.reader import load_table

pytestmark = [pytest.mark.services, pytest.mark.soak, pytest.mark.conformance(36), pytest.mark.timeout(1800)]
# 450 MB for each record of 450 million: too much for the heap of a small executor.
HUNGRY = """\
from pyspark.sql import functions as F


def transform(records):
    size = F.length(F.repeat(F.lit("x"), F.col("event.n").cast("int")))
    return records.select("source", "event_time", "event.*", size.alias("size"))
"""
LARGE = 450_000_000


class MakeDay(Protocol):
    def __call__(self, delivery: str) -> Stream: ...


@pytest.fixture
def make_day(make_stream: MakeStream, make_topic: MakeTopic, produce: Produce) -> MakeDay:
    """Makes a stream with a day's records in its topic."""

    def make(delivery: str) -> Stream:
        outputs = {"topic": make_topic(PARTITIONS), "dead_letter_topic": make_topic()}
        made = make_stream(partitions=PARTITIONS, batch={"wait_seconds": 0}, speed={**outputs, "delivery": delivery})
        produce_day(produce, made)
        return made

    return make


def has_a_batch(app: SpeedApp) -> bool:
    return bool(app.events("batch"))


def live(deployment: Deployment, stream: Stream) -> Counter[int]:
    """How often each number is in the live topic."""
    found = read_topic(deployment.settings, stream.speed.topic)
    return Counter(json.loads(item.value or b"")["n"] for item in found)


def kill_driver_at(deployment: Deployment, app: SpeedApp, method: str, pattern: str) -> Rule:
    return deployment.proxy.add(Rule(method=method, pattern=pattern, action=lambda _: app.kill(), reset=True))


def test_an_executor_without_memory_fails_the_run_and_more_memory_mends_it(
    deployment: Deployment, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(transform=HUNGRY, batch={"wait_seconds": 0})
    produce(stream.topic, [(None, b'{"n": %d}' % size, NOON_MS, 0, []) for size in (1, LARGE, 2)])
    deployment.run("archive_stream.py", stream.name, "--available-now")
    printed = deployment.run("reconcile", stream.name, "--from", str(DAY), code=1)
    assert "an executor ran out of memory" in printed
    assert "executor_memory" in printed
    larger = json.dumps({"executor_memory": "2g", "executor_python": str(deployment.cluster.python)})
    deployment.run("reconcile", stream.name, "--from", str(DAY), changes={"TIDEMARK_SPARK": larger})
    assert "proven" in deployment.run("verify", stream.name, str(DAY))
    table = load_table(deployment.settings, stream.table)
    assert table is not None
    assert sorted(table.scan().to_arrow()["size"].to_pylist()) == [1, 2, LARGE]


def test_a_python_that_lacks_something_is_named(deployment: Deployment, make_day: MakeDay) -> None:
    stream = make_day("at_least_once")
    for python, problem in (
        ("/no/such/python", "no such Python on the executors: expected"),
        (str(deployment.cluster.owner.python), "the executors' Python lacks a package: expected pyarrow"),
    ):
        own = {"TIDEMARK_SPARK": json.dumps({"executor_memory": "512m", "executor_python": python})}
        assert problem in deployment.run("archive_stream.py", stream.name, "--available-now", changes=own, code=1)
    assert archived(deployment, stream) == 0


def test_a_killed_driver_continues_after_a_start_and_nothing_is_lost_or_doubled(
    deployment: Deployment, make_day: MakeDay
) -> None:
    stream = make_day("exactly_once")
    for program, place in (
        ("archive_stream.py", f"/manifests/{stream.name}/"),
        ("speed_stream.py", f"/checkpoints/{stream.name}/speed/commits/"),
    ):
        with deployment.app(program, stream.name, "--available-now") as app:
            rule = kill_driver_at(deployment, app, "PUT", place)
            assert app.wait() == -signal.SIGKILL, app.output
            assert rule.fired.is_set()
        deployment.run(program, stream.name, "--available-now")
    assert archived(deployment, stream) == GOOD + MALFORMED
    assert live(deployment, stream) == dict.fromkeys(range(GOOD), 1)
    # The same run again, as Airflow would repeat it: another one would wait for the dead run's lease.
    attempt = ("tests.soak.attempt", stream.name, "killed", str(deployment.folder), "reconcile up to report", str(DAY))
    with deployment.app(*attempt) as app:
        rule = kill_driver_at(deployment, app, "PUT", r"/warehouse/.*\.parquet")
        assert app.process.wait(600) == -signal.SIGKILL, app.output
        assert rule.fired.is_set()
    deployment.run(*attempt)
    assert "proven" in deployment.run("verify", stream.name, str(DAY))


def test_a_packed_python_is_sent_with_the_application(
    deployment: Deployment, make_day: MakeDay, cluster: SparkCluster, tmp_path: Path
) -> None:
    """With the settings of the page. The speed stream delivers at least once."""
    stream = make_day("at_least_once")
    packed = tmp_path / "environment.tar.gz"
    place = {"/opt/tidemark/environment.tar.gz": str(packed), "/opt/tidemark/python": str(cluster.folder / "python")}
    commands, settings = block("tar -czf"), config(cluster, "tidemark.toml, packed")
    for old, new in place.items():
        commands, settings = commands.replace(old, new), settings.replace(old, new)
    run_commands(commands)
    write_private(tmp_path / "tidemark.toml", settings)
    changes = {"TIDEMARK_CONFIG": str(tmp_path / "tidemark.toml")}
    for program in ("archive_stream.py", "speed_stream.py"):
        deployment.run(program, stream.name, "--available-now", changes=changes)
    assert archived(deployment, stream) == GOOD + MALFORMED
    assert live(deployment, stream) == dict.fromkeys(range(GOOD), 1)


def test_streams_outlive_a_restart_of_the_master(
    deployment: Deployment, make_day: MakeDay, produce: Produce, cluster: SparkCluster
) -> None:
    """Spark's master may give an application no new executors afterwards: then its stream ends, and is restarted."""
    stream = make_day("exactly_once")
    programs = ("archive_stream.py", "speed_stream.py")
    with ExitStack() as running:
        apps = {program: running.enter_context(deployment.app(program, stream.name)) for program in programs}
        for app in apps.values():
            app.wait_until(partial(has_a_batch, app))
        cluster.master.kill()
        cluster.heal()
        produce_day(produce, stream)

        def complete() -> bool:
            for program, app in apps.items():
                if app.process.poll() is not None:
                    assert "gives the stream no executor" in app.output
                    apps[program] = running.enter_context(deployment.app(program, stream.name))
            every = 2 * (GOOD + MALFORMED)
            return archived(deployment, stream) == every and live(deployment, stream).total() == 2 * GOOD

        wait_until(complete, "both streams processed what was produced after the restart", 1200, every_s=2)
        for app in apps.values():
            app.process.send_signal(signal.SIGTERM)
            assert app.process.wait(300) == 0, app.output
    assert live(deployment, stream) == dict.fromkeys(range(GOOD), 2)
