"""The events of a real stream and a real run reach a lineage tool, are valid, and make one graph."""

import json
import logging
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY, Log, at
from tests.batch.steps import pass_audit
from tests.conftest import MakeStream, Produce, Record
from tests.dags.providers import providers
from tests.lineage import LineageTool, Node, check_events, lineage_tool, reached
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import IncompleteError
from tidemark.installation import PROJECT
from tidemark.lineage import emit
from tidemark.lineage.datasets import LineageJob
from tidemark.lineage.emit import FLUSH_S, emitter
from tidemark.lineage.run_events import LineageEvent
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings
from tidemark.spark.monitor import BatchFigures, Monitor
from tidemark.speed.stream import speed
from tidemark.tables.reader import load_table

pytestmark = [pytest.mark.services, pytest.mark.conformance(55)]
NINE = at(MONDAY, 9)
GOOD, BAD = 7, 2


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[LineageTool]:
    with lineage_tool() as running:
        monkeypatch.setenv("OPENLINEAGE_URL", running.url)
        yield running


@dataclass(frozen=True, kw_only=True)
class Day:
    """A stream's sealed day, what its streams and its run have sent, and its datasets' names."""

    log: Log
    tool: LineageTool
    topic: Node
    archive: Node
    table: Node
    quarantine: Node


@pytest.fixture(scope="module")
def day(settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession) -> Day:
    stream = make_stream(time_zone="America/New_York", batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    records: list[Record] = [(b"k", b'{"n": %d}' % number, NINE, 0, []) for number in range(GOOD)]
    produce(stream.topic, [*records, *([(b"k", b"broken", NINE, 0, [])] * BAD)])
    with lineage_tool() as tool, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENLINEAGE_URL", tool.url)
        patch.setenv("OPENLINEAGE_NAMESPACE", "lake")
        archive(spark, stream, settings, available_now=True)
        speed(spark, stream, settings, available_now=True)
        run = log.run("run-1")
        plan_run(run, [MONDAY], False)
        refill_run(run, spark)
        finalize_plan_run(run)
        for step in (rebuild_run, pass_audit, publish_run):
            step(run, spark)
        seal_run(run)
        report_run(run)
    table = load_table(settings, stream.table)
    assert table is not None
    bucket = f"s3://{settings.bucket}"
    folder = table.location().removeprefix(f"{bucket}/")
    return Day(
        log=log,
        tool=tool,
        topic=(f"kafka://{settings.kafka_bootstrap}", stream.topic),
        archive=(bucket, f"data/{stream.name}"),
        table=(bucket, folder),
        quarantine=(bucket, f"{folder}_quarantine"),
    )


def test_a_stream_and_a_run_make_one_graph_from_topic_to_table(day: Day) -> None:
    stream, tool = day.log.stream, day.tool
    check_events(tool.events)
    live = {(day.topic[0], name) for name in (stream.speed.topic, stream.speed.dead_letter_topic)}
    assert reached(tool.events, day.topic) == {day.archive, day.table, day.quarantine, *live}
    assert reached(tool.events, day.archive) == {day.table, day.quarantine}
    jobs = {event["job"]["name"]: event["job"]["namespace"] for event in tool.events}
    steps = ("refill", "rebuild", "publish", "seal")
    names = ("archive", "speed", "reconcile", *(f"reconcile.{step}" for step in steps))
    assert jobs == {f"{stream.name}.{name}": "lake" for name in names}


def test_events_have_the_counts_the_columns_and_the_version_of_the_day(day: Day) -> None:
    stream, tool = day.log.stream, day.tool
    (archived,) = tool.of(f"{stream.name}.archive", "COMPLETE")
    assert archived["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == GOOD + BAD
    (running,) = tool.of(f"{stream.name}.speed", "RUNNING")
    counts = {it["name"]: it["outputFacets"]["outputStatistics"]["rowCount"] for it in running["outputs"]}
    assert counts == {stream.speed.topic: GOOD, stream.speed.dead_letter_topic: BAD}

    (whole,) = tool.of(f"{stream.name}.reconcile", "COMPLETE")
    (began,) = tool.of(f"{stream.name}.reconcile", "START")
    assert began["run"]["runId"] == whole["run"]["runId"]
    own, quarantine = whole["outputs"]
    assert own["outputFacets"]["outputStatistics"]["rowCount"] == GOOD
    assert quarantine["outputFacets"]["outputStatistics"]["rowCount"] == BAD
    assert {it["name"]: it["type"] for it in own["facets"]["schema"]["fields"]}["n"] == "long"
    table = load_table(day.log.settings, stream.table)
    assert table is not None
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert own["facets"]["version"]["datasetVersion"] == str(snapshot.snapshot_id)
    tags = {it["key"]: it["value"] for it in whole["run"]["facets"]["tags"]["tags"] if it["source"] == "TIDEMARK"}
    assert tags == {"tidemark.run": "run-1", f"tidemark.version.{MONDAY}": "1"}
    (rebuilt,) = tool.of(f"{stream.name}.reconcile.rebuild", "COMPLETE")
    assert rebuilt["run"]["facets"]["parent"]["run"]["runId"] == whole["run"]["runId"]


def test_airflows_provider_gets_the_datasets_of_a_step_and_gives_it_its_parents(day: Day, tmp_path: Path) -> None:
    stream = day.log.stream.name
    variables = {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": '{"type": "console"}',
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "airflow",
        "PYTHONPATH": os.pathsep.join(map(str, [PROJECT, PROJECT / "include", providers()])),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.dags.lineage_task", stream, "run-1", "rebuild"],
        env={**os.environ, **variables},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["inputs"] == [[*day.archive]]
    assert found["outputs"] == [[*day.table], [*day.quarantine]]
    parent, root = found["variables"]
    assert re.fullmatch(rf"airflow/reconcile_{stream}\.rebuild/[0-9a-f-]{{36}}", parent)
    assert re.fullmatch(rf"airflow/reconcile_{stream}/[0-9a-f-]{{36}}", root)
    assert found["properties"] == {
        "spark.openlineage.parentJobNamespace": "airflow",
        "spark.openlineage.parentJobName": f"reconcile_{stream}.rebuild",
        "spark.openlineage.parentRunId": parent[-36:],
        "spark.openlineage.rootParentJobNamespace": "airflow",
        "spark.openlineage.rootParentJobName": f"reconcile_{stream}",
        "spark.openlineage.rootParentRunId": root[-36:],
    }


def test_a_failed_step_says_why_and_names_the_scheduler_as_its_parent(
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    tool: LineageTool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = make_stream()
    task, dag_run = "0197a3f0-0000-7000-8000-000000000001", "0197a3f0-0000-7000-8000-000000000002"
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"https://airflow/prod/reconcile_x.seal/{task}")
    monkeypatch.setenv("OPENLINEAGE_ROOT_PARENT_ID", f"https://airflow/prod/reconcile_x/{dag_run}")
    log = Log(stream=stream, settings=settings, produce_records=produce)
    with pytest.raises(IncompleteError, match="finalize_plan"):
        seal_run(log.run("run-1"))
    check_events(tool.events)
    _, failed = tool.of(f"{stream.name}.reconcile.seal")
    assert failed["eventType"] == "FAIL"
    assert "step 'finalize_plan' of the run has not succeeded" in failed["run"]["facets"]["errorMessage"]["message"]
    parent = failed["run"]["facets"]["parent"]
    assert parent["job"] == {"namespace": "https://airflow/prod", "name": "reconcile_x.seal", "facets": {}}
    assert (parent["run"]["runId"], parent["root"]["run"]["runId"]) == (task, dag_run)


def test_an_unreachable_lineage_tool_costs_one_warning_and_the_stream_continues(
    settings: Settings,
    make_stream: MakeStream,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = make_stream()
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", "http://user:hidden@127.0.0.1:1")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY__TOTAL", "1")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with Monitor(stream, settings, layer="archive") as monitor:
                monitor.batch(BatchFigures(batch=0, ends={0: 1}, seconds=1.0, records=1))
    (warning,) = caplog.records
    assert "lineage events are not delivered" in warning.getMessage()
    assert "hidden" not in caplog.text


def test_a_lineage_tool_that_never_answers_is_waited_for_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        first = emitter()
        began = time.monotonic()
        for wait_s in (FLUSH_S, 7200, 7200):  # longer than a test may take
            monkeypatch.setattr(emit, "FLUSH_S", wait_s)
            emitter().send(_nothing)
            emitter().flush()
        assert time.monotonic() - began >= FLUSH_S
        assert emitter() is first
        named = {name for name in os.environ if name.startswith("OPENLINEAGE__TRANSPORT")}
        assert named == set(), "the client's own variables stay, and reach child processes"


def _nothing() -> LineageEvent:
    job = LineageJob(namespace="n", name="j", about="a job", inputs=(), outputs=(), continuous=False)
    return LineageEvent(state="START", time=datetime.now(UTC), run_id=str(uuid4()), job=job)
