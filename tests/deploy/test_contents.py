"""What the chart's pods run and read: real commands, real settings, real definitions (no server)."""

import json
import runpy
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

import tidemark
from tests.deploy.chart import CHART, EXAMPLES, HELM, STREAM_APPS, Document, documents, named, pods, values
from tidemark.cli.app import app
from tidemark.connections import shown as rule
from tidemark.connections.sources import OWN_VARIABLES, variable
from tidemark.definitions.stream import load_stream
from tidemark.installation import PROJECT
from tidemark.settings import Settings, resolve
from tidemark.spark import app as spark_app
from tidemark.stack.certificates import client_certificate

CLIENTS = ("kafka_properties", "speed_kafka_properties", "catalog_properties")
SECRET_FILES = "/run/secrets/tidemark/"  # noqa: S105 - a folder
VARIABLES = {variable(name) for name in Settings.model_fields} | set(OWN_VARIABLES)


@pytest.fixture(params=EXAMPLES)
def example(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def found(example: str) -> list[Document]:
    return documents(example)


class _ParsedError(Exception):
    """The application has read its arguments."""


def accept(command: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails unless ``tidemark`` or the Spark application takes the arguments."""
    program, name, *arguments = command
    if program == "tidemark":
        get_command(app).commands[name].make_context(name, list(arguments))  # type: ignore[attr-defined]  # a group
        return

    def stop() -> Settings:
        raise _ParsedError

    assert program == "python"
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    monkeypatch.setattr(spark_app, "settings", stop)
    with pytest.raises(_ParsedError):
        runpy.run_path(str(PROJECT / name), run_name="__main__")


def test_every_command_is_one_that_tidemark_or_its_applications_accept(
    found: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    for pod in pods(found):
        if pod.layer == "executor":
            continue
        accept(pod.container["command"], monkeypatch)
        if pod.layer != "metrics":
            assert pod.container["command"][2] == pod.labels["tidemark/stream"]
        assert pod.container["workingDir"] == "/tidemark"
        for probe in ("startupProbe", "livenessProbe"):
            if pod.layer in STREAM_APPS:
                accept(pod.container[probe]["exec"]["command"], monkeypatch)


def test_every_variable_of_tidemark_is_a_setting(found: list[Document]) -> None:
    names = {item["name"] for pod in pods(found) for item in pod.container["env"]}
    airflow = {item["name"] for item in _airflow()["env"]}
    assert {name for name in names | airflow if name.startswith("TIDEMARK_")} <= VARIABLES


def _airflow() -> Document:
    return dict(yaml.safe_load((HELM / "airflow-values.yaml").read_text(encoding="utf-8")))


def test_the_file_of_settings_is_one_that_tidemark_takes(example: str, found: list[Document], tmp_path: Path) -> None:
    given = values(example)
    text = named(found, "ConfigMap")["prod-tidemark-settings"]["data"]["tidemark.toml"]
    text = text.replace("/etc/tidemark/certificates/ca.pem", str(client_certificate(tmp_path, "tidemark").ca))
    for name in given.get("secrets", {}):
        (tmp_path / name).write_text(f"value-of-{name}\n", encoding="utf-8")
    file = tmp_path / "tidemark.toml"
    file.write_text(text.replace(SECRET_FILES, f"{tmp_path}/"), encoding="utf-8")

    settings = resolve(variables={"TIDEMARK_CONFIG": str(file), "TIDEMARK_SPARK_MASTER": "local[2]"}).settings
    for name, value in given["settings"].items():
        shown = getattr(settings, name)
        if isinstance(value, bool) or (isinstance(value, str) and not value.startswith(("file:", "/"))):
            assert shown == value
    if "s3_secret_key" in given["settings"]:
        assert settings.s3_secret_key.get_secret_value() == "value-of-s3-secret-key"
        assert settings.kafka.properties["sasl.password"] == "value-of-kafka-password"
        assert settings.catalog_properties.get_secret_value()["jdbc.password"] == "value-of-catalog-password"
    if "spark" in given["settings"]:
        sizes = settings.spark_sizes("batch")
        assert (sizes.instances, sizes.executor_memory) == (4, "4g")


def test_a_secret_setting_names_a_file(found: list[Document]) -> None:
    text = named(found, "ConfigMap")["prod-tidemark-settings"]["data"]["tidemark.toml"]
    for name, value in tomllib.loads(text)["default"].items():
        for key, inner in value.items() if isinstance(value, dict) else [(name.replace("_", "-"), value)]:
            may_be_seen = rule.shown(key) if name in CLIENTS else not rule.has_secret_word(key)
            assert may_be_seen or str(inner).startswith(f"file:{SECRET_FILES}"), key


def test_definitions_load_and_jobs_run_at_the_time_that_they_say(
    example: str, found: list[Document], tmp_path: Path
) -> None:
    folder = PROJECT / "include" / "streams"
    if "definitions" in values(example):
        folder = tmp_path
        for name, text in named(found, "ConfigMap")["prod-tidemark-streams"]["data"].items():
            (folder / name).write_text(text, encoding="utf-8")
    for stream, layers in values(example)["streams"].items():
        definition = load_stream(stream, folder)
        if "reconcile" in layers:
            job = named(found, "CronJob")[f"prod-tidemark-{stream}-reconcile"]["spec"]
            assert (job["schedule"], job["timeZone"]) == (definition.batch.schedule, definition.time_zone)


def test_the_schema_knows_every_setting() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert schema["properties"]["settings"]["properties"].keys() == Settings.model_fields.keys()
    assert schema["properties"]["settings"]["additionalProperties"] is False


def test_the_chart_takes_the_same_names_for_secrets_as_the_code() -> None:
    checks = (CHART / "templates" / "_checks.tpl").read_text(encoding="utf-8")
    assert f'"{rule.HARMLESS}"' in checks
    assert f'"(?i){rule.SECRET_WORDS}"' in checks
    assert f'"(?i)^({rule.SHOWN})$"' in checks
    assert f'"(?i)^({rule.PARAMETERS})(=.*)?$"' in checks
    assert json.dumps(f"(?i){rule.LOGIN}") in checks
    assert [name for name in CLIENTS if f'"settings.{name}"' not in checks] == []


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == tidemark.__version__


def test_airflow_gets_the_settings_secrets_and_definitions_of_the_release() -> None:
    airflow, release = _airflow(), documents("own-servers")
    accounts = named(release, "ServiceAccount")
    assert airflow["scheduler"]["serviceAccount"]["name"] in accounts
    (reconcile,) = (pod for pod in pods(release) if pod.layer == "reconcile")
    paths = {mount["mountPath"] for mount in reconcile.container["volumeMounts"]} - {"/tmp"}  # noqa: S108 - in the pod
    assert {mount["mountPath"] for mount in airflow["volumeMounts"]} == paths
    assert {mount["name"] for mount in airflow["volumeMounts"]} == {volume["name"] for volume in airflow["volumes"]}
    assert _secret_files(airflow["volumes"]) == _secret_files(reconcile.spec["volumes"])
    assert (airflow["uid"], airflow["gid"]) == (1000, 1000)
    assert {Path(airflow["config"]["core"][f"{name}_folder"]).name for name in ("dags", "plugins")} == {
        "dags",
        "plugins",
    }


def _secret_files(volumes: list[Document]) -> set[tuple[str, str, str]]:
    """Secret, key and file name of everything projected."""
    return {
        (source["secret"]["name"], item["key"], item["path"])
        for volume in volumes
        for source in volume.get("projected", {}).get("sources", [])
        if "secret" in source
        for item in source["secret"]["items"]
    }
