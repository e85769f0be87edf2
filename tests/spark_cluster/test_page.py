"""The page "Use a Spark cluster" without a cluster: its versions, settings, connection and table."""

import json
import re
import shlex
from pathlib import Path

import pyspark
import pytest

from tests.pages import blocks
from tests.spark_cluster.conftest import PAGE, block
from tidemark.connections.spark import SparkSettings, size_properties
from tidemark.settings import Settings, resolve

MASTER = "spark://MASTER:7077"


def settings(title: str, folder: Path) -> Settings:
    file = folder / "tidemark.toml"
    file.write_text(block(title), encoding="utf-8")
    needed = {"KAFKA_BOOTSTRAP": "k:1", "BUCKET": "lake", "CATALOG_URI": "jdbc:sqlite:c", "CONFIG": str(file)}
    return resolve(variables={f"TIDEMARK_{name}": value for name, value in needed.items()}).settings


def test_the_nodes_have_the_drivers_version_of_spark() -> None:
    assert re.findall(r"Spark (\d[\d.]+\d)", PAGE.read_text(encoding="utf-8")) == [pyspark.__version__]


def test_both_forms_of_the_settings_name_master_python_and_memory(tmp_path: Path) -> None:
    installed, packed = settings("tidemark.toml", tmp_path), settings("tidemark.toml, packed", tmp_path)
    for found in (installed, packed):
        assert found.spark_master == MASTER
        assert found.spark_sizes("archive").executor_memory == "2g"
    assert installed.spark_sizes("batch").executor_python == "/opt/tidemark/python/bin/python"
    sizes = packed.spark_sizes("batch")
    archive, _, folder = sizes.conf["spark.archives"].partition("#")
    assert sizes.executor_python == f"{folder}/bin/python"
    assert archive in block("tar -czf")


def test_airflows_connection_names_the_same_master() -> None:
    _, text = shlex.split(block("AIRFLOW_CONN_SPARK_DEFAULT"))
    assert json.loads(text.partition("=")[2]) == {"conn_type": "spark", "host": MASTER}


@pytest.mark.parametrize("layer", ["archive", "speed", "batch"])
def test_the_table_of_sizes_has_the_defaults(layer: str) -> None:
    row = "archive stream, speed stream" if layer != "batch" else "reconcile run, maintenance"
    found = re.search(rf"^\| {row} \| (\d) \| (\d) \| (\w+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    properties = size_properties(SparkSettings(), layer, MASTER)  # type: ignore[arg-type]  # a layer
    names = ("spark.executor.instances", "spark.executor.cores", "spark.executor.memory")
    assert tuple(properties[name] for name in names) == found.groups()


def test_every_block_is_used_by_a_test() -> None:
    """``block`` names those that start the cluster and its drivers; tests/test_docs.py reads the definition."""
    used = ("spark-defaults.conf", "tidemark.toml", "tidemark.toml, packed")
    commands = ("deploy.master.Master", "uv venv", "tar -czf", "AIRFLOW_CONN_SPARK_DEFAULT")
    texts = {block(name) for name in (*used, *commands)}
    assert [item.text for item in blocks(PAGE) if item.text not in texts and item.language != "yaml"] == []
