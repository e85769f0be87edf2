"""A session that can't start, and what one starts for its tasks."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from tidemark.connections.spark import SparkSizes
from tidemark.core.errors import ServiceError
from tidemark.installation import PROJECT
from tidemark.settings import Settings
from tidemark.spark.conf import jars, submit_environment
from tidemark.spark.session import DAEMON, shuffles_for, spark_session
from tidemark.spark.streaming import start_query
from tidemark.stack.local import LocalStack

PROGRAM = """\
from tidemark.core.errors import ServiceError
from tidemark.settings import settings
from tidemark.spark.session import shuffles_for, spark_session
try:
    spark_session(settings(), "too small")
except ServiceError as error:
    print(error)
"""


def test_a_jvm_that_ends_during_its_start_is_an_explained_error(stack: LocalStack) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=PROJECT,
        env={**os.environ, **stack.env, "TIDEMARK_SPARK": '{"driver_memory": "1k"}'},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "Spark's JVM did not start: found [JAVA_GATEWAY_EXITED]" in found.stdout, found
    assert "the memory in spark.driver.memory" in found.stdout


KILLED = """\
import psutil
from tidemark.core.errors import ServiceError
from tidemark.definitions.stream import load_stream
from tidemark.settings import settings
from tidemark.spark.streaming import stream_session
try:
    stream = load_stream("flights", settings().streams_dir)
    with stream_session(settings(), "short-lived", "speed", stream) as session:
        (java,) = [process for process in psutil.Process().children(recursive=True) if process.name() == "java"]
        java.kill()
        psutil.wait_procs([java])
        session.range(3).count()
except ServiceError as error:
    print(error)
"""


def test_a_jvm_that_dies_in_a_streams_session_is_an_explained_error(stack: LocalStack) -> None:
    found = subprocess.run(
        [sys.executable, "-c", KILLED],
        cwd=PROJECT,
        env={**os.environ, **stack.env},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "Spark's JVM died: found " in found.stdout, found
    assert "[short-lived]" in found.stdout


@pytest.mark.parametrize(
    "cause", [Py4JNetworkError("Error while sending or receiving"), ConnectionRefusedError(111, "refused")]
)
def test_a_jvm_that_is_killed_during_its_start_is_an_explained_error(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, cause: Exception
) -> None:
    """Raised here by hand: a kill can't be timed so that Spark's context is being made."""

    def killed(_: object) -> SparkSession:
        raise cause

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", killed)
    with pytest.raises(ServiceError, match=r"Spark's JVM did not start: found .*re"):
        spark_session(settings, "killed")


LISTENING = """\
import json, os, psutil
from tidemark.settings import settings
from tidemark.spark.java import jvm
from tidemark.spark.session import shuffles_for, spark_session
session = spark_session(settings(), "where it listens")
java = jvm(session)
chain = java.software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider.builder().build()
environment = java.software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider.create()
keys = [item.resolveCredentials() for item in (chain, environment)]
own = psutil.Process()
processes = [own, *own.children(recursive=True), *(item for item in own.parents() if item.name() == "java")]
print(json.dumps({
    "addresses": sorted({
        connection.laddr.ip.removeprefix("::ffff:") for process in processes
        for connection in process.net_connections(kind="tcp") if connection.status == psutil.CONN_LISTEN
    }),
    "host": session.conf.get("spark.driver.host"),
    "daemon": session.conf.get("spark.python.daemon.module"),
    "java": any(item.name() == "java" for item in processes),
    "keys": [[key.getClass().getSimpleName(), key.accessKeyId() == os.environ["AWS_ACCESS_KEY_ID"]] for key in keys],
}))
session.stop()
"""


@pytest.mark.conformance(61)
@pytest.mark.parametrize("submitted", [False, True], ids=["python", "spark-submit"])
def test_a_local_session_listens_on_this_machine_only_and_uses_the_settings_keys(
    stack: LocalStack, settings: Settings, tmp_path: Path, *, submitted: bool
) -> None:
    outside = {key: value for key, value in {**os.environ, **stack.env}.items() if key != "SPARK_LOCAL_IP"}
    program = tmp_path / "listening.py"
    program.write_text(LISTENING)
    outside |= {"AWS_SESSION_TOKEN": "of-another-login", "AWS_ACCESS_KEY_ID": "of-another-login"}
    start = [sys.executable]
    if submitted:  # its master is spark-submit's, whatever the settings name
        outside |= {**submit_environment(settings), "TIDEMARK_SPARK_MASTER": "spark://elsewhere:7077"}
        start = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[1]", "--jars", jars(settings)]
    found = subprocess.run(
        [*start, str(program)],
        cwd=PROJECT,
        env=outside,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert json.loads(found.stdout.splitlines()[-1]) == {
        "addresses": ["127.0.0.1"],
        "host": "localhost",
        "daemon": DAEMON,
        "java": True,
        "keys": [["AwsBasicCredentials", True]] * 2,
    }
    assert "in the clear" not in found.stderr


def parents(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The command line of the worker's parent, instead of every row."""
    for _ in batches:
        command = Path(f"/proc/{os.getppid()}/cmdline").read_text().replace("\0", " ")
        yield pa.record_batch({"parent": pa.array([command])})


def test_the_workers_of_a_local_session_are_forked_from_a_daemon_with_imports_done(spark: SparkSession) -> None:
    (row,) = spark.range(1, numPartitions=1).mapInArrow(parents, "parent string").collect()
    assert f"-m {DAEMON} pyspark.worker" in row.parent


@pytest.mark.parametrize("fails", [False, True])
def test_a_query_has_atomic_checkpoints_and_the_sessions_setting_stays(spark: SparkSession, fails: bool) -> None:
    name = "spark.sql.streaming.checkpointFileManagerClass"
    seen: list[str | None] = []

    class Query:
        def start(self) -> None:
            seen.append(spark.conf.get(name))
            if fails:
                raise ValueError("does not start")

    query: Any = Query()
    if fails:
        with pytest.raises(ValueError, match="does not start"):
            start_query(spark, query)
    else:
        start_query(spark, query)
    assert seen == ["org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"]
    assert spark.conf.get(name, None) is None


def test_shuffles_have_a_part_per_half_a_million_rows_unless_the_deployment_says_a_number(spark: SparkSession) -> None:
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    for rows, parts in ((0, 4), (2_000_000, 4), (2_000_001, 5), (50_000_000, 100)):
        with shuffles_for(spark, rows, SparkSizes()):
            assert spark.conf.get(name) == str(parts)
    with shuffles_for(spark, 50_000_000, SparkSizes(conf={name: "7"})):
        assert spark.conf.get(name) == before
    assert spark.conf.get(name) == before
