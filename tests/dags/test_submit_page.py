"""The page on submitting, rendered: every class, command line and manifest on it, with the real operators."""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeStream
from tests.dags.providers import providers
from tests.pages import blocks
from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT
from tidemark.run import run_name
from tidemark.settings import Settings, resolve
from tidemark.stack.local import LocalStack

pytestmark = pytest.mark.services
PAGE = PROJECT / "docs" / "how-to" / "choose-how-steps-are-submitted.md"
PROGRAM = Path(__file__).with_name("rendered.py")
FILES = {block.title: block.text for block in blocks(PAGE) if block.title}
COMMANDS = [line for block in blocks(PAGE) if block.language == "sh" for line in block.text.splitlines()]


def exports(*wanted: str) -> dict[str, str]:
    """The variables that the page sets on lines with one of these texts."""
    lines = [line for line in COMMANDS if line.startswith("export ") and any(text in line for text in wanted)]
    words = [word for line in lines for word in shlex.split(line.removeprefix("export "))]
    return dict(word.split("=", maxsplit=1) for word in words)


@pytest.fixture(scope="module")
def stream(make_stream: MakeStream) -> Stream:
    return make_stream()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files."""
    found = tmp_path_factory.mktemp("page")
    for name, text in FILES.items():
        (found / name).write_text(text, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def rendered(stack: LocalStack, stream: Stream, folder: Path) -> Any:
    """What the program prints about each way. All at once."""
    base = {
        **os.environ,
        **stack.env,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "PYTHONPATH": os.pathsep.join(map(str, [folder, PROJECT, PROJECT / "include", providers()])),
    }
    manifest = {"TIDEMARK_SPARK_APPLICATION": str(folder / "spark-application.yaml")}
    ways = {
        "yarn": exports('"yarn"', "environment/bin") | {"TIDEMARK_SPARK_SUBMIT": "cluster"},
        "kubernetes": exports("k8s://", "driver.secrets") | {"TIDEMARK_SPARK_SUBMIT": "cluster"},
        "application": {**manifest, "TIDEMARK_SPARK_SUBMIT": "kubernetes"},
        "services": {"TIDEMARK_SPARK_SUBMIT": "emr_steps:EmrServerlessStep"},
    }
    argv = [sys.executable, str(PROGRAM), stream.name]
    started = {
        way: subprocess.Popen(
            argv, env={**base, **own}, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for way, own in ways.items()
    }
    found = {}
    for way, process in started.items():
        text, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        found[way] = json.loads(text.splitlines()[-1])
    return found


def pairs(command: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(command) if name == option]


def arguments(stream: Stream) -> list[str]:
    return ["--stream", stream.name, "--run", run_name("by hand")]


def test_yarn_gets_code_definitions_and_settings_as_files_and_no_secret(
    rendered: Any, stream: Stream, settings: Settings
) -> None:
    command: list[str] = rendered["yarn"]
    assert command[-5:] == [str(PROJECT / "spark_apps" / "maintain.py"), *arguments(stream)]
    assert (pairs(command, "--master"), pairs(command, "--deploy-mode")) == (["yarn"], ["cluster"])
    names = {
        option: Path(text.split(",")[0]).name
        for option in ("--files", "--archives", "--py-files")
        for text in pairs(command, option)
    }
    assert names == {"--files": "tidemark.toml", "--archives": "streams.zip#streams", "--py-files": "tidemark.zip"}
    assert pairs(command, "--archives")[0].endswith(",hdfs:///tidemark/environment.tar.gz#environment")
    conf = dict(text.split("=", maxsplit=1) for text in pairs(command, "--conf"))
    variables = {name.removeprefix("spark.yarn.appMasterEnv."): text for name, text in conf.items() if "Env." in name}
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), "environment/bin/python")
    assert variables == {"TIDEMARK_CONFIG": "tidemark.toml", **python}
    assert (conf["spark.executor.instances"], conf["spark.yarn.maxAppAttempts"]) == ("2", "1")
    assert not any(settings.s3_secret_key.get_secret_value() in word for word in command)


def test_kubernetes_gets_applications_from_the_image_and_settings_from_a_secret(
    rendered: Any, stream: Stream, settings: Settings
) -> None:
    command: list[str] = rendered["kubernetes"]
    assert command[-5:] == [f"local://{PROJECT}/spark_apps/maintain.py", *arguments(stream)]
    assert pairs(command, "--master") == ["k8s://https://api.acme.example:6443"]
    assert all(jar.startswith("local:///") for jar in pairs(command, "--jars")[0].split(","))
    conf = dict(text.split("=", maxsplit=1) for text in pairs(command, "--conf"))
    assert conf["spark.kubernetes.namespace"] == "data"
    assert conf["spark.kubernetes.driver.secrets.tidemark"] == "/etc/tidemark"
    assert not any(settings.s3_secret_key.get_secret_value() in word for word in command)
    (secret,) = [line for line in COMMANDS if line.startswith("kubectl ")]
    assert re.search(r"--namespace data create secret generic tidemark --from-file=tidemark.toml$", secret)


def test_a_spark_application_has_the_steps_file_arguments_and_sizes(rendered: Any, stream: Stream) -> None:
    body = rendered["application"]
    spec = body["spec"]
    assert body["metadata"] == {"namespace": "data", "name": f"tidemark-maintain-{stream.name.replace('_', '-')}"}
    assert spec["mainApplicationFile"] == "local:///tidemark/spark_apps/maintain.py"
    assert all(jar.startswith("local:///tidemark/.tidemark/jars/spark/") for jar in spec["deps"]["jars"])
    assert (spec["type"], spec["mode"], spec["restartPolicy"]) == ("Python", "cluster", {"type": "Never"})
    assert spec["arguments"] == arguments(stream)
    assert spec["driver"]["secrets"] == [{"name": "tidemark", "path": "/etc/tidemark", "secretType": "Generic"}]
    assert spec["driver"]["memory"] == "1g"
    sizes = {name: spec["executor"][name] for name in ("memory", "cores", "instances")}
    assert sizes == {"memory": "1g", "cores": 2, "instances": 2}


def test_each_service_gets_the_application_and_a_step_without_an_outcome_fails(rendered: Any, stream: Stream) -> None:
    found = rendered["services"]
    assert {name: "saved no result" in text for name, (text, _) in found.items()} == dict.fromkeys(found, True)
    emr = found["emr"][1]["jobDriver"]["sparkSubmit"]
    assert emr["entryPoint"] == "s3://acme-lake/tidemark/spark_apps/maintain.py"
    assert emr["entryPointArguments"] == arguments(stream)
    assert "--conf=spark.executor.memory=1g" in shlex.split(emr["sparkSubmitParameters"])
    task = found["databricks"][1]["spark_python_task"]
    expected = {"python_file": "/Workspace/tidemark/spark_apps/maintain.py", "parameters": arguments(stream)}
    assert task == expected
    livy = found["livy"][1]
    assert (livy["file"], livy["args"]) == ("local:///opt/tidemark/spark_apps/maintain.py", arguments(stream))
    assert livy["conf"]["spark.yarn.appMasterEnv.TIDEMARK_CONFIG"] == "/etc/tidemark/tidemark.toml"


def test_the_pages_variables_are_settings_that_are_accepted(stack: LocalStack) -> None:
    for line in COMMANDS:
        if line.startswith("export "):
            resolve(None, {**stack.env, **exports(line)})
