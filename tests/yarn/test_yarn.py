"""Steps in cluster mode on a real YARN: the same errors, no secret in the clear, and one application per attempt."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeStream, Produce
from tests.dags.state_file import StateFile
from tests.speed.dead_letters import letter, source_id
from tests.speed.live import read_topic
from tests.waiting import wait_until
from tests.yarn.cluster import Yarn, yarn
from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT
from tidemark.run import Run, run_name
from tidemark.settings import Settings
from tidemark.spark.conf import spark_home
from tidemark.speed.replay.replay import REPLAY
from tidemark.stack.local import LocalStack

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]
ATTEMPT = Path(__file__).with_name("attempt.py")
RUN = "by hand"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with yarn(tmp_path_factory.mktemp("yarn")) as running:
        yield running


@pytest.fixture(scope="module")
def stream(settings: Settings, make_stream: MakeStream, produce: Produce) -> Stream:
    """A stream with two dead letters that its transformation takes now."""
    stream = make_stream()
    topic_id, values = source_id(settings, stream), (b'{"n":1}', b'{"n":3}')
    dead_letters = [letter(stream, topic_id, (0, offset), value) for offset, value in enumerate(values)]
    produce(stream.speed.dead_letter_topic, dead_letters)
    return stream


@pytest.fixture(scope="module")
def worker(stack: LocalStack, cluster: Yarn, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of Airflow's worker."""
    sizes = {"driver_memory": "600m", "executor_memory": "600m", "executor_cores": 1, "instances": 1}
    conf = {
        "spark.yarn.jars": f"local:{spark_home()}/jars/*",
        "spark.yarn.stagingDir": f"file://{cluster.data}/staging",
    }
    extra = {"yarn_resourcemanager_webapp_address": cluster.url}
    return {
        **os.environ,
        **stack.env,
        "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}),
        "HADOOP_CONF_DIR": str(cluster.conf),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "include")]),
        "TIDEMARK_SPARK": json.dumps({**sizes, "conf": conf}),
        "TIDEMARK_SPARK_SUBMIT": "cluster",
    }


def attempt(worker: dict[str, str], stream: Stream, step: str, state: Path) -> "subprocess.Popen[str]":
    argv = [sys.executable, str(ATTEMPT), stream.name, RUN, step, str(state)]
    with state.with_suffix(".log").open("a") as log:
        return subprocess.Popen(argv, env=worker, stdout=subprocess.PIPE, stderr=log, text=True)


def ended(process: "subprocess.Popen[str]") -> tuple[str, str]:
    kind, text = json.loads(process.communicate(timeout=600)[0].splitlines()[-1])
    return kind, text


def test_a_step_that_fails_on_yarn_reports_what_the_application_saved(
    worker: dict[str, str], cluster: Yarn, stream: Stream, settings: Settings, tmp_path: Path
) -> None:
    kind, text = ended(attempt(worker, stream, "rebuild", tmp_path / "state.json"))
    run = Run.open(stream.name, run_name(RUN), settings)
    assert kind == "IncompleteError", text
    assert text.startswith(
        "rebuild: step 'finalize_plan' of the run has not succeeded: expected status ok, found no outcome"
    )
    assert run.key("finalize_plan") in text
    (application,) = cluster.applications(f"tidemark-rebuild-{stream.name}")
    assert application["finalStatus"] == "FAILED"


def test_a_worker_that_died_reconnects_and_no_secret_is_in_the_clear(
    worker: dict[str, str], cluster: Yarn, stream: Stream, settings: Settings, tmp_path: Path
) -> None:
    state = StateFile(tmp_path / "state.json")
    first = attempt(worker, stream, "replay", state.path)
    wait_until(lambda: state.get("spark_job_id") is not None or first.poll() is not None, "submitted", 400)
    assert first.poll() is None, state.path.with_suffix(".log").read_text()
    first.kill()
    first.communicate()
    assert ended(attempt(worker, stream, "replay", state.path)) == ("success", "")
    assert state.values == {}
    (application,) = cluster.applications(f"tidemark-replay-{stream.name}")
    assert application["finalStatus"] == "SUCCEEDED"
    result = Run.open(stream.name, run_name(RUN), settings).require(REPLAY)
    assert len(read_topic(settings, stream.speed.topic)) == 2, result
    secret = settings.s3_secret_key.get_secret_value().encode()
    holders = [path for path in cluster.data.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert {path.name for path in holders} == {"tidemark.toml"}
    assert {path.stat().st_mode & 0o077 for path in holders} == {0}
    assert secret not in state.path.with_suffix(".log").read_bytes()
