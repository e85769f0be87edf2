"""The chart against Helm's own engine: the rendered files are its output, and wrong values are refused (no server).

Without Go these tests are skipped. The tests of the rendered files need none.
"""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import setup_helm
from tests.deploy.chart import CHART, EXAMPLES, HELM, documents, named, values
from tests.deploy.test_contents import accept


@pytest.fixture(scope="module")
def renderer() -> Path:
    try:
        return setup_helm.build()
    except setup_helm.GoError as error:
        pytest.skip(str(error))


def render(renderer: Path, wanted: str, *files: Path) -> str:
    """What Helm renders. Fails with what it says."""
    command = [str(renderer), str(CHART), wanted, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_rendered_files_are_what_helm_renders(renderer: Path, example: str) -> None:
    found = render(renderer, "DOCUMENTS", HELM / "examples" / f"{example}.yaml")
    assert found == (HELM / "rendered" / f"{example}.yaml").read_text(encoding="utf-8"), "run 'make chart'"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"settings": {"bucket": ""}}, "settings.bucket: missing"),
        ({"settings": {"buckett": "x"}}, "at '/settings': additional properties 'buckett' not allowed"),
        ({"settings": {"streams_dir": "/x"}}, "settings.streams_dir: the chart sets it; see definitions"),
        ({"settings": {"s3_secret_key": "hunter2"}}, "settings.s3_secret_key: a secret; name it in secrets"),
        (
            {"settings": {"kafka_properties": {"sasl.password": "hunter2"}}},
            "settings.kafka_properties.sasl.password: ",
        ),
        ({"settings": {"kafka_properties": {"ssl.key.pem": "hunter2"}}}, "settings.kafka_properties.ssl.key.pem: "),
        ({"settings": {"catalog_properties": {"credential": "hunter2"}}}, "settings.catalog_properties.credential: "),
        ({"settings": {"spark": {"conf": {"spark.x.password": "hunter2"}}}}, "settings.spark.conf.spark.x.password: a"),
        (
            {"settings": {"catalog_properties": {"s3.sse.key": "hunter2"}}},
            "settings.catalog_properties.s3.sse.key: not on the list",
        ),
        ({"settings": {"catalog_uri": "http://me:hunter2@host"}}, "settings.catalog_uri: it may have a password"),
        ({"settings": {"catalog_uri": "http://me:a/hunter2@host"}}, "settings.catalog_uri: it may have a password"),
        ({"settings": {"s3_endpoint": "http://host?sig=hunter2"}}, "settings.s3_endpoint: it may have a password"),
        (
            {"settings": {"kafka_bootstrap": "me:a/hunter2@host:9092"}},
            "settings.kafka_bootstrap: it may have a password",
        ),
        ({"settings": {"kafka_properties": '{"sasl.password": "hunter2"}'}}, "settings.kafka_properties: write the"),
        (
            {"settings": {"catalog_properties": {"warehouse": "u:hunter2@h"}}},
            "settings.catalog_properties.warehouse: it may have a password",
        ),
        (
            {"settings": {"spark": {"conf": {"spark.x.uri": "http://u:a/hunter2@h"}}}},
            "settings.spark.conf.spark.x.uri: it may have a password",
        ),
        ({"env": {"OPENLINEAGE_URL": "http://u:a/hunter2@h"}}, "env.OPENLINEAGE_URL: it may have a password"),
        ({"settings": {"s3_secret_key": "file:/run/secrets/tidemark/x"}}, "secrets has no entry for this file"),
        ({"env": {"TIDEMARK_PREFIX": "x"}}, "env.TIDEMARK_PREFIX: it is a setting; set settings.prefix"),
        ({"env": {"MY_PASSWORD": "hunter2"}}, "env.MY_PASSWORD: it has a secret's name"),
        ({"streams": {"flights": {"archiv": {}}}}, "at '/streams/flights': additional properties 'archiv' not allowed"),
        (
            {"streams": {"flights": {"archive": {"cores": "x"}}}},
            "at '/streams/flights/archive/cores': got string, want",
        ),
        ({"streams": {"Flights": {"archive": {}}}}, "'Flights' does not match pattern"),
        ({"streams": {"flights": {"reconcile": {}}}}, "streams.flights.reconcile.schedule: missing"),
        ({"streams": {"f" * 60: {"archive": {}}}}, "has more than 52 characters; install the chart under a shorter"),
        ({"definitions": {"orders.yaml": ""}}, "streams.flights: definitions has no flights.yaml"),
        ({"archive": {"serviceAccount": {"create": False}}}, "archive.serviceAccount.name: needed if create is false"),
        ({"archive": {"resources": {"limits": {"memory": "3 GB"}}}}, "'3 GB' does not match pattern"),
        ({"probes": {"staleSeconds": 1}}, "at '/probes/staleSeconds': minimum: got 1, want 30"),
    ],
    ids=lambda item: None if isinstance(item, str) else "-".join(_path(item)),
)
def test_wrong_values_are_refused_with_the_reason(
    renderer: Path, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(change), encoding="utf-8")
    with pytest.raises(AssertionError) as raised:
        render(renderer, "DOCUMENTS", HELM / "examples" / "minimal.yaml", file)
    assert reason in str(raised.value)
    assert "hunter2" not in str(raised.value)


def _path(change: dict[str, Any]) -> list[str]:
    """The keys down to the value."""
    (name, inner), *_ = change.items()
    return [name[:20], *(_path(inner) if isinstance(inner, dict) and inner else [])]


def test_the_charts_own_values_need_a_bucket(renderer: Path) -> None:
    with pytest.raises(AssertionError, match=r"settings\.bucket: missing; it is the bucket of the archive"):
        render(renderer, "DOCUMENTS")


def test_a_setting_that_only_resembles_a_secret_is_taken(renderer: Path, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    harmless = {
        "token-refresh-enabled": "x",
        "client.credentials-provider": "x",
        "authentication.oauth2.token-endpoint": "https://x",
        "table-default.write.format.default": "parquet",
    }
    resembling = {
        "catalog_properties": harmless,
        "catalog_uri": "jdbc:sqlite:/data/a#1@b.db",
        "docs_url": "https://wiki/x#runbook",
        "table_location": "s3://lake/tables@v1",
        "spark": {"conf": {"spark.driver.extraJavaOptions": "-Dx=https://h/a#b"}},
    }
    file.write_text(yaml.safe_dump({"settings": resembling}), encoding="utf-8")
    assert "token-refresh-enabled" in render(renderer, "DOCUMENTS", HELM / "examples" / "minimal.yaml", file)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_notes_have_commands_that_work(renderer: Path, example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = render(renderer, "NOTES", HELM / "examples" / f"{example}.yaml")
    found = documents(example)
    commands = [shlex.split(line) for line in notes.splitlines() if line.startswith("  kubectl ")]
    assert len(commands) > len(values(example)["streams"])
    for command in commands:
        assert command[1:3] == ["--namespace", "data"]
        if "exec" in command:
            assert command[4].removeprefix("deploy/") in named(found, "Deployment")
            accept(command[command.index("--") + 1 :], monkeypatch)
        if found_job := re.search(r"--from=cronjob/(\S+)", shlex.join(command)):
            assert found_job[1] in named(found, "CronJob")
