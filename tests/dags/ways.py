"""Run as a program: a step that fails, submitted as the deployment wants it. Prints how its tasks ended, as JSON.

In client mode, Spark is real. Elsewhere a process stands in for the cluster. It has only what the submission gives it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, TaskDeferred

from tests.dags.state_file import StateFile
from tidemark.connections.config_file import toml_text
from tidemark.core.errors import TidemarkError
from tidemark_airflow.connections import task_settings
from tidemark_airflow.spark_step import spark_step

STEP = "rebuild"
INHERITED = ("PATH", "HOME", "JAVA_HOME", "JDK_JAVA_OPTIONS")
APPLICATION = "application_1_1"


def main(stream: str, run: str, folder: str) -> None:
    state = StateFile(Path(folder) / "state.json")
    ti = SimpleNamespace(dag_id="d", task_id=STEP, map_index=-1, try_number=1, stats_tags={})
    dag = SimpleNamespace(parent_dag=None)
    context = {"run_id": run, "params": {}, "task_state_store": state, "ti": ti, "dag": dag}
    way = os.environ["TIDEMARK_SPARK_SUBMIT"]
    with {"cluster": _yarn, "kubernetes": _kubernetes}.get(way, _nothing)(Path(folder)):
        found = [_attempt(stream, context)]
        if way == "cluster":
            found.append(_reconnected(stream, context))
    sys.stdout.write(json.dumps(found) + "\n")


def _attempt(stream: str, context: dict[str, Any]) -> tuple[str, str]:
    kind = spark_step()
    try:
        try:
            kind(task_id=STEP, step=STEP, stream=stream).execute(context)
        except TaskDeferred as deferred:
            other = kind(task_id=STEP, step=STEP, stream=stream)  # in a process of its own
            other.resume_execution(deferred.method_name, deferred.kwargs, context)
    except (AirflowException, TidemarkError) as error:
        return type(error).__name__, str(error)
    return "success", ""


def _reconnected(stream: str, context: dict[str, Any]) -> tuple[str, str]:
    """An attempt after a worker's death, at the moment when the application has saved its outcome and still runs."""
    answers = iter([("RUNNING", "UNDEFINED", ""), ("FINISHED", "FAILED", "")])
    with (
        patch.object(SparkSubmitHook, "submit", side_effect=AssertionError("it was submitted again")),
        patch.object(SparkSubmitHook, "_query_yarn_application_status", lambda *_: next(answers)),
    ):
        return _attempt(stream, context)


def _run(file: str, arguments: list[str], cwd: Path, **variables: str) -> int:
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    argv = [sys.executable, file, *arguments]
    return subprocess.run(argv, env={**inherited, **variables}, cwd=cwd, check=False).returncode


@contextmanager
def _nothing(_folder: Path) -> Iterator[None]:
    yield


@contextmanager
def _yarn(folder: Path) -> Iterator[None]:
    """spark-submit and the resource manager: the application has the files that were sent, in a folder of its own."""
    codes: list[int] = []

    def submit(hook: Any, application: str) -> None:
        assert not {"AWS_SECRET_ACCESS_KEY", "PYTHONPATH"} & os.environ.keys()
        container = Path(mkdtemp(dir=folder))
        for file in hook._files.split(","):
            shutil.copy(file, container)
        for archive in hook._archives.split(","):
            path, _, name = archive.partition("#")
            shutil.unpack_archive(path, container / name)
        package = shutil.copy(hook._py_files, container)
        hook._yarn_application_id = APPLICATION
        variables = {**hook._env_vars, "PYTHONPATH": package}
        codes.append(_run(application, hook._application_args, container, **variables))

    def status(*_: object) -> tuple[str, str, str]:
        return "FINISHED", "FAILED" if codes[-1] else "SUCCEEDED", ""

    with (
        patch.object(SparkSubmitHook, "submit", submit),
        patch.object(SparkSubmitHook, "_query_yarn_application_status", status),
    ):
        yield


@contextmanager
def _kubernetes(folder: Path) -> Iterator[None]:
    """Kubernetes and its operator of Spark: the driver has the mounted file of settings."""
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
    from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator

    config = folder / "tidemark.toml"
    config.write_text(toml_text(task_settings().texts()), encoding="utf-8")

    def create(*, body: Any, **_: object) -> Any:
        spec = body["spec"]
        file = spec["mainApplicationFile"].removeprefix("local://")
        _run(file, spec["arguments"], folder, TIDEMARK_CONFIG=str(config))
        return body

    api = SimpleNamespace(
        create_namespaced_custom_object=create,
        get_namespaced_custom_object_status=lambda **_: {"status": {"applicationState": {"state": "RUNNING"}}},
    )
    ended = AirflowException("the pod has failed")
    with (
        patch.object(SparkKubernetesOperator, "find_spark_job", lambda *_, **__: None),
        patch.object(SparkKubernetesOperator, "client", None),
        patch.object(SparkKubernetesOperator, "custom_obj_api", api),
        patch.object(KubernetesPodOperator, "execute", side_effect=ended),
    ):
        yield


if __name__ == "__main__":
    main(*sys.argv[1:])
