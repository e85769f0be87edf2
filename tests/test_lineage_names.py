"""Datasets have the names of OpenLineage's specification and of its Spark integration (no server)."""

import json
import os
import re
import shlex
from typing import Any

import pytest

from tests.test_settings import given
from tidemark.installation import PROJECT
from tidemark.lineage.datasets import TableFacts, table, topic
from tidemark.lineage.emit import configured
from tidemark.lineage.run_events import JobRun, given_ancestors, use_ancestors
from tidemark.spark.conf import session_conf

FACTS = TableFacts(location="s3a://lake/prod/warehouse/published/flights/", columns=(), snapshot=None)
REST = {"catalog_type": "rest", "catalog_uri": "https://catalog.example/api"}
HIVE = {"catalog_type": "hive", "catalog_uri": "thrift://meta.example:9083"}


def test_the_first_broker_names_the_cluster() -> None:
    found = topic(given(kafka_bootstrap="SASL_SSL://b1.example:9093, b2.example:9093").kafka, "flights", "")
    assert (found.namespace, found.name) == ("kafka://b1.example:9093", "flights")


@pytest.mark.parametrize(
    ("more", "symlink"),
    [
        (REST, ("https://catalog.example/api", "published.flights")),
        (HIVE, ("hive://meta.example:9083", "published.flights")),
        ({}, None),  # JDBC
    ],
)
def test_a_table_is_named_by_its_folder_and_by_its_catalog(
    more: dict[str, Any], symlink: tuple[str, str] | None
) -> None:
    found = table(given(**more), "flights", "", FACTS)
    assert (found.namespace, found.name) == ("s3://lake", "prod/warehouse/published/flights")
    assert found.symlink == symlink


def test_an_application_takes_its_parents_from_its_spark_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENLINEAGE_PARENT_ID", "OPENLINEAGE_ROOT_PARENT_ID"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    use_ancestors({"spark.openlineage.parentRunId": "r"})
    assert given_ancestors() is None
    task = {"RunId": "r-1", "JobNamespace": "https://airflow/prod", "JobName": "d.t"}
    dag = {"RunId": "r-2", "JobNamespace": "https://airflow/prod", "JobName": "d"}
    properties = {f"spark.openlineage.parent{key}": text for key, text in task.items()}
    properties |= {f"spark.openlineage.rootParent{key}": text for key, text in dag.items()}
    use_ancestors(properties)
    found = given_ancestors()
    assert found is not None
    assert found.parent == JobRun(namespace="https://airflow/prod", name="d.t", run_id="r-1")
    assert found.root == JobRun(namespace="https://airflow/prod", name="d", run_id="r-2")


@pytest.mark.parametrize(
    ("variables", "sends"),
    [
        ({}, False),
        ({"OPENLINEAGE_URL": "http://h"}, True),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "console"}, True),
        ({"OPENLINEAGE_CONFIG": "/openlineage.yml", "OPENLINEAGE_DISABLED": "true"}, False),
        ({"OPENLINEAGE_NAMESPACE": "prod"}, False),
    ],
)
def test_events_are_sent_only_where_variables_name_a_place(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, sends: bool
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert configured() is sends


def test_the_pages_variables_switch_lineage_and_the_listener_on(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (PROJECT / "docs" / "how-to" / "lineage.md").read_text(encoding="utf-8")
    for line in re.findall(r"^ +export (.+)$", page, re.MULTILINE):
        (word,) = shlex.split(line)
        monkeypatch.setenv(*word.split("=", 1))
    assert configured()
    settings = given(spark=json.loads(os.environ["TIDEMARK_SPARK"]))
    assert settings.lineage_namespace == "prod"
    conf = session_conf(settings, settings.spark_sizes("batch"))
    assert conf["spark.extraListeners"] == "io.openlineage.spark.agent.OpenLineageSparkListener"
