"""OpenLineage's listener in a consumer's Spark job names the stream's datasets as Tidemark does.

It fetches the listener from Maven Central: ``.venv/bin/python -m pytest -m soak tests/test_lineage_spark.py``. The
consumer reads the table by a REST catalog: version 1.53 of the listener leaves tables of a JDBC catalog out.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY, Log, at
from tests.batch.verifying import seal
from tests.conftest import MakeStream, Produce
from tests.lineage import lineage_tool
from tidemark.archive.stream.driver import archive
from tidemark.installation import PROJECT
from tidemark.lineage.datasets import TableFacts, table
from tidemark.settings import Settings
from tidemark.stack.files import free_ports
from tidemark.stack.local import LocalStack
from tidemark.stack.rest_catalog import rest_catalog_uri, start_rest_catalog
from tidemark.tables.reader import load_table, open_catalog

PACKAGE = "io.openlineage:openlineage-spark_2.13:1.53.0"
pytestmark = [pytest.mark.soak, pytest.mark.services, pytest.mark.timeout(600)]


@pytest.fixture
def rest(stack: LocalStack) -> Iterator[Settings]:
    """The stack's settings with an empty REST catalog."""
    (port,) = free_ports(1)
    folder, log = stack.folder / "rest", stack.logs / "rest.log"
    server = start_rest_catalog(stack.processes, folder, jars=stack.jars, log=log, port=port, settings=stack.settings)
    given = stack.settings.model_dump() | {"catalog_type": "rest", "catalog_uri": rest_catalog_uri(port)}
    yield Settings.model_validate(given)
    server.stop()


def test_the_listener_of_a_consumers_job_names_table_and_topic_as_tidemark_does(
    settings: Settings,
    rest: Settings,
    make_stream: MakeStream,
    produce: Produce,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = make_stream(time_zone="America/New_York", batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    produce(stream.topic, [(b"k", b'{"n": 1}', at(MONDAY, 9), 0, [])])
    with lineage_tool() as tool:
        monkeypatch.setenv("OPENLINEAGE_URL", tool.url)
        archive(spark, stream, settings, available_now=True)
        seal(log, spark, "run-1")
    monkeypatch.delenv("OPENLINEAGE_URL")
    (rebuilt,) = tool.of(f"{stream.name}.reconcile.rebuild", "COMPLETE")
    (archived,) = tool.of(f"{stream.name}.archive", "COMPLETE")
    ours = {(it["namespace"], it["name"]) for it in (rebuilt["outputs"][0], archived["inputs"][0])}

    published = load_table(settings, stream.table)
    assert published is not None
    with open_catalog(rest) as catalog:
        catalog.create_namespace(settings.namespace)
        catalog.register_table((settings.namespace, stream.table), published.metadata_location)
    events = tmp_path / "events.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "tests.consumer_job", stream.name, str(events), PACKAGE],
        cwd=PROJECT,
        env={
            **os.environ,
            "PYTHONPATH": f"{PROJECT}:{PROJECT / 'include'}",
            "TIDEMARK_CATALOG_TYPE": "rest",
            "TIDEMARK_CATALOG_URI": rest.catalog_uri,
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    inputs = [item for event in lines for item in event.get("inputs", [])]
    assert {(item["namespace"], item["name"]) for item in inputs} == ours, done.stderr
    symlinks = {
        (it["namespace"], it["name"])
        for item in inputs
        for it in item["facets"].get("symlinks", {}).get("identifiers", [])
    }
    facts = TableFacts(location=published.location(), columns=(), snapshot=None)
    assert symlinks == {table(rest, stream.table, "", facts).symlink}
