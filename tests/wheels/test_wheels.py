"""Both wheels in a fresh environment of a stock Airflow, on each Python: nothing of this repository is in reach."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidemark
from tests.pythons import interpreter
from tests.wheels.environment import FOLDER, UV, Environment, build_wheels
from tidemark.installation import PROJECT

pytestmark = [pytest.mark.services, pytest.mark.conformance(67)]
STEPS = [
    "approve",
    "audit",
    "complete",
    "delivery",
    "finalize_plan",
    "plan",
    "publish",
    "rebuild",
    "refill",
    "report",
    "seal",
    "wait",
]
OWN_STEP = """
from airflow.sdk import BaseOperator
from tidemark_airflow.spark_step import SparkStep


class OwnStep(SparkStep, BaseOperator):
    def prepare(self, job):
        pass
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The environment, and what its Airflow finds of Tidemark."""

    environment: Environment
    found: dict[str, Any]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module", params=["3.11", "3.12", "3.13"])
def installed(
    request: pytest.FixtureRequest, wheels: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """A folder of DAGs beside a folder of streams, one of them broken."""
    environment = Environment.create(tmp_path_factory.mktemp("stock"), Path(interpreter(request.param)))
    environment.install("apache-airflow", *map(str, wheels))
    dags, streams = environment.home / "dags", environment.home / "include" / "streams"
    for folder in (dags, streams):
        folder.mkdir(parents=True)
    for name in ("flights.yaml", "flights.py"):
        shutil.copy(PROJECT / "include" / "streams" / name, streams)
    (streams / "trains.yaml").write_text("name: trains\ntopics: trains\n", encoding="utf-8")
    text = 'from tidemark_airflow import tidemark_dags\n\nglobals().update(tidemark_dags("include/streams"))\n'
    (dags / "tidemark_streams.py").write_text(text, encoding="utf-8")
    text = 'from tidemark_airflow import check_dags\n\ncheck_dags("include/streams")\n'
    (dags / "stream_definitions.py").write_text(text, encoding="utf-8")
    (environment.home / "own_step.py").write_text(OWN_STEP, encoding="utf-8")
    done = environment.run(
        "python",
        str(FOLDER / "installed.py"),
        str(dags),
        PYTHONPATH=str(environment.home),
        TIDEMARK_SPARK_SUBMIT="own_step:OwnStep",
    )
    assert done.returncode == 0, done.stderr
    yield Installed(environment=environment, found=json.loads(done.stdout.splitlines()[-1]))
    environment.remove()


def test_the_packages_agree_and_there_is_neither_spark_nor_great_expectations(installed: Installed) -> None:
    done = installed.environment.run("python", "-c", "print()")
    assert done.returncode == 0
    check = [str(UV), "pip", "check", "--python", str(installed.environment.bin / "python")]
    done = installed.environment.run(*check)
    assert done.returncode == 0, done.stderr
    assert installed.found["importable"] == []


def test_airflow_lists_the_provider_its_plugin_and_its_connection_forms(installed: Installed) -> None:
    found = installed.found
    versions = {item["package_name"]: item["version"] for item in found["providers"]}
    assert versions["airflow-provider-tidemark"] == tidemark.__version__
    assert [item["macros"] for item in found["plugins"]] == [["tidemark_airflow.plugin.sealed_days"]]
    kafka = ["bootstrap.servers", "sasl.mechanism", "sasl.password", "sasl.username", "security.protocol"]
    assert found["hooks"] == {
        "tidemark_kafka": [False, kafka, True],
        "tidemark_s3": [False, ["endpoint_url", "external_id", "profile_name", "region_name", "role_arn"], True],
        "tidemark_catalog": [False, ["type", "warehouse"], True],
    }


def test_the_dags_of_a_folder_parse_and_a_broken_definition_is_an_import_error(installed: Installed) -> None:
    found = installed.found
    shared = {f"tidemark_{name}" for name in ("backfill", "replay", "rollback", "maintenance", "watch")}
    assert set(found["dags"]) == {"reconcile_flights", "reconcile_trains"} | shared
    assert sorted(STEPS) == [name for name in found["dags"]["reconcile_flights"] if name != "wait_for_lease"]
    assert found["heavy"] == []
    assert list(found["errors"]) == ["stream_definitions.py"]
    assert "topics: unknown key" in found["errors"]["stream_definitions.py"]


def test_what_needs_an_extra_names_it(installed: Installed) -> None:
    run = installed.environment.run
    assert run("tidemark", "--version").stdout == f"tidemark {tidemark.__version__}\n"
    assert "Archive Kafka topics to S3" in run("tidemark", "--help").stdout
    for command, code in (("streams", 2), ("jars", 1)):
        done = run("tidemark", command)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert "tidemark[spark]" in done.stderr
    assert "airflow-provider-tidemark[spark]" in installed.found["client"]
