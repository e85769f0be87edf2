"""Every way of submitting a step reports the application's own error; and what a deployment's choice may be."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeStream
from tests.dags.providers import providers
from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT
from tidemark.run import Run, run_name
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack

pytestmark = pytest.mark.services
YARN = {"conn_type": "spark", "host": "yarn", "extra": {"yarn_resourcemanager_webapp_address": "http://rm.example:1"}}
LOCAL = {"conn_type": "spark", "host": "local[1]"}
WAYS = {"client": LOCAL, "cluster": YARN, "kubernetes": LOCAL, "tests.dags.deferred_step:DeferredStep": LOCAL}
RUN = "by hand"
MANIFEST = f"""\
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
spec:
  image: tidemark:1
  mainApplicationFile: local://{PROJECT}/spark_apps/any.py
"""


@pytest.fixture(scope="module")
def streams(make_stream: MakeStream) -> dict[str, Stream]:
    """A stream for each way: runs of one stream would wait for each other."""
    return {way: make_stream() for way in WAYS}


@pytest.fixture(scope="module")
def worker(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of Airflow's worker."""
    home = tmp_path_factory.mktemp("airflow")
    manifest = home / "spark-application.yaml"
    manifest.write_text(MANIFEST, encoding="utf-8")
    bin_folder = str(Path(sys.executable).parent)
    return {
        **os.environ,
        **stack.env,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "PATH": os.pathsep.join([bin_folder, os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(map(str, [PROJECT, PROJECT / "include", providers()])),
        "TIDEMARK_SPARK_MASTER": "local[1]",
        "TIDEMARK_SPARK_APPLICATION": str(manifest),
    }


@pytest.fixture(scope="module")
def ended(
    worker: dict[str, str], streams: dict[str, Stream], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """How the tasks of a step that fails ended, by way. All at once: each waits for a JVM."""
    started = {}
    for way, connection in WAYS.items():
        folder = tmp_path_factory.mktemp("way")
        own = {"TIDEMARK_SPARK_SUBMIT": way, "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection)}
        argv = [sys.executable, "-m", "tests.dags.ways", streams[way].name, RUN, str(folder)]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                argv, env={**worker, **own}, cwd=PROJECT, stdout=subprocess.PIPE, stderr=log, text=True
            )
        started[way] = (process, folder / "log")
    found = {}
    for way, (process, file) in started.items():
        text = process.communicate(timeout=500)[0]
        assert process.returncode == 0, file.read_text(encoding="utf-8")
        found[way] = json.loads(text.splitlines()[-1])
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_step_that_fails_reports_the_applications_own_error(
    way: str, ended: dict[str, Any], streams: dict[str, Stream], settings: Settings
) -> None:
    run = Run.open(streams[way].name, run_name(RUN), settings)
    error = json.loads(run.store.get(run.key("rebuild")) or b"{}")["error"]
    assert error.startswith("step 'finalize_plan' of the run has not succeeded")
    assert [tuple(item) for item in ended[way]] == [("IncompleteError", f"rebuild: {error}")] * len(ended[way])


def test_an_attempt_that_reconnects_reports_an_outcome_that_was_saved_before_it_began(ended: dict[str, Any]) -> None:
    first, reconnected = ended["cluster"]
    assert reconnected == first


CHOICES = {
    "clinet": "expected client, cluster, kubernetes, or a class as package.module:Class; found 'clinet'",
    "nowhere.steps:Step": "expected class Step in module nowhere.steps, found No module named 'nowhere'",
    "pathlib:Path": "expected a subclass of tidemark_airflow.spark_step.SparkStep with its own prepare, found",
    "pathlib:Absent": "found no Absent in module pathlib",
    "kubernetes": "Install the package apache-airflow-providers-cncf-kubernetes",
    "cluster": "ClusterStep",
}
PROGRAM = """
import os
from tidemark.core.errors import ConfigError
from tidemark_airflow.spark_step import spark_step
for way in os.environ["WAYS"].split():
    os.environ["TIDEMARK_SPARK_SUBMIT"] = way
    try:
        print(spark_step().__name__)
    except ConfigError as error:
        print(error)
"""


def test_a_wrong_choice_is_an_error_that_says_what_was_expected(tmp_path: Path) -> None:
    found = run_program(PROGRAM, tmp_path, WAYS=" ".join(CHOICES)).splitlines()
    assert [text for text, line in zip(CHOICES.values(), found, strict=True) if text not in line] == []
    assert "TIDEMARK_SPARK_SUBMIT" in found[0]


MASTERS = {
    "": "no such Airflow connection",
    '{"conn_type": "spark", "host": "spark://m:7077"}': "set TIDEMARK_SPARK_SUBMIT to client",
    '{"conn_type": "spark", "host": "yarn"}': "expected yarn_resourcemanager_webapp_address",
    '{"conn_type": "spark", "host": "k8s://https://a:1"}': "Install the package apache-airflow-providers-cncf",
    json.dumps(YARN): "yarn",
}
MASTER_PROGRAM = """
import json
import os
from tidemark.core.errors import ConfigError
from tidemark_airflow.submit import spark_master
for connection in json.loads(os.environ["MASTERS"]):
    os.environ.pop("AIRFLOW_CONN_SPARK_DEFAULT", None)
    if connection:
        os.environ["AIRFLOW_CONN_SPARK_DEFAULT"] = connection
    try:
        print(spark_master())
    except ConfigError as error:
        print(error)
"""


def test_cluster_mode_wants_a_connection_to_yarn_or_kubernetes(tmp_path: Path) -> None:
    found = run_program(MASTER_PROGRAM, tmp_path, MASTERS=json.dumps(list(MASTERS))).splitlines()
    assert [text for text, line in zip(MASTERS.values(), found, strict=True) if text not in line] == []


def run_program(program: str, home: Path, **more: str) -> str:
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("TIDEMARK_", "AIRFLOW"))}
    own = {"AIRFLOW_HOME": str(home), "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"}
    env = {**inherited, **own, "PYTHONPATH": str(PROJECT / "include"), **more}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
