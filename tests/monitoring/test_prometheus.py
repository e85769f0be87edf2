"""A real Prometheus with our rules, which scrapes ``tidemark metrics --serve``: what fires, and the dashboard."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import yaml

from tests.batch.logs import Log
from tests.batch.test_seal import finalized, finish
from tests.conftest import MakeStream, MakeTopic, Produce
from tests.monitoring.conftest import Prometheus, StartPrometheus
from tests.monitoring.files import FOLDER, metrics_in, queries
from tests.waiting import wait_until
from tidemark.connections.sources import ENV_FILE_VARIABLE
from tidemark.core.heartbeat import Heartbeat
from tidemark.inspect.status_metrics import STATUS_METRICS
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.seal import seal_run
from tidemark.stack.files import free_ports
from tidemark.stack.local import LocalStack
from tidemark.stack.processes import Processes

pytestmark = [pytest.mark.services, pytest.mark.conformance(55)]

YESTERDAY = (datetime.now(UTC) - timedelta(days=1)).date()
FOUR_DAYS_AGO = YESTERDAY - timedelta(days=3)
HOUR_MS = 3_600_000
COMMAND = [str(Path(sys.executable).with_name("tidemark"))]


def noon_ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp() * 1000)


def beat(log: Log, **fields: object) -> None:
    """A heartbeat of the archive layer. No layer runs, so the exporter takes one of the last hour for recent."""
    values: dict[str, object] = {
        "deployment": log.settings.deployment,
        "stream": log.stream.name,
        "layer": "archive",
        "state": "running",
        "time": datetime.now(UTC),
        "version": 1,
        "writer": "w",
        "batch": 1,
        "positions": (),
        "lag_records": 3,
        "lag_seconds": 1.5,
        "overflow_rows": 0,
        "out_of_bounds_rows": 0,
        "alarm_until": None,
        "error": None,
        **fields,
    }
    heartbeat = Heartbeat(**values)  # type: ignore[arg-type]  # tests name the fields
    log.store.put(log.layout.heartbeat_key("archive"), heartbeat.to_json())


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """One stream that needs nobody, and one that does; and the variables of their deployment."""

    well: Log
    ill: Log
    variables: dict[str, str]


@pytest.fixture
def streams(
    stack: LocalStack, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> Streams:
    settings = stack.settings
    folder = tmp_path / "streams"
    folder.mkdir()
    deployment = settings.model_copy(update={"streams_dir": folder})

    def make(retention_ms: int) -> Log:
        archive = {"flush_size": 4, "retention_alarm_hours": 100}
        topic = make_topic(retention_ms=str(retention_ms))
        stream = make_stream(topic=topic, time_zone="UTC", batch={"wait_seconds": 0}, archive=archive)
        for name in (f"{stream.name}.yaml", f"{stream.name}.py"):
            (folder / name).write_text((settings.streams_dir / name).read_text(encoding="utf-8"), encoding="utf-8")
        return Log(stream=stream, settings=deployment, produce_records=produce)

    well = make(-1)
    well.produce(3, noon_ms(YESTERDAY))
    well.archive(0, 3)
    run = finalized(well, "run-1", YESTERDAY)
    finish(run, {YESTERDAY: 3})
    seal_run(run)
    report_run(run)
    beat(well)
    ill = make(10 * 24 * HOUR_MS)
    ill.produce(2, noon_ms(FOUR_DAYS_AGO))
    ill.archive(0, 2)
    ill.produce(1, noon_ms(FOUR_DAYS_AGO - timedelta(days=5)))  # Kafka may delete it within two days
    beat(ill, state="failed", error="ServiceError: it broke")
    variables = {ENV_FILE_VARIABLE: str(stack.env_file), "TIDEMARK_STREAMS_DIR": str(folder)}
    return Streams(well=well, ill=ill, variables=variables)


@pytest.fixture
def exporter(streams: Streams, tmp_path: Path) -> Iterator[str]:
    """The address of a process that serves the metrics."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    processes = Processes()
    try:
        processes.start(
            "metrics",
            [*COMMAND, "metrics", "--serve", address, "--stale-seconds", "3600"],
            env=streams.variables,
            ready=lambda: _answers(address),
            timeout_s=60,
            log=tmp_path / "metrics.log",
        )
        yield address
    finally:
        processes.stop(grace_s=5)


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/metrics", timeout=10).is_success
    except httpx.TransportError:
        return False


def rules_without_waiting(folder: Path) -> Path:
    """Our rules, but an alert fires at once. The tests of promtool have the times."""
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    file = folder / "alerts.yaml"
    file.write_text(yaml.safe_dump(rules), encoding="utf-8")
    return file


def of_stream(found: dict[str, list[dict[str, str]]], log: Log) -> set[str]:
    """The alerts about a stream."""
    return {
        name
        for name, all_labels in found.items()
        for item in all_labels
        if item.get("tidemark_stream") == log.stream.name
    }


def test_alerts_fire_about_the_stream_with_a_problem_until_it_is_solved(
    streams: Streams, exporter: str, start_prometheus: StartPrometheus, tmp_path: Path
) -> None:
    well, ill = streams.well, streams.ill
    config = {
        "rule_files": [str(rules_without_waiting(tmp_path))],
        "scrape_configs": [{"job_name": "tidemark", "static_configs": [{"targets": [exporter]}]}],
    }
    with start_prometheus(config) as prometheus:
        expected = {"TidemarkLayerFailed", "TidemarkDayOverdue", "TidemarkRetentionRunway"}
        wait_until(lambda: of_stream(prometheus.firing(), ill) >= expected, "the alerts fire")
        assert of_stream(prometheus.firing(), ill) == expected
        assert of_stream(prometheus.firing(), well) == set()
        assert value(prometheus, "tidemark_day_overdue", ill) == 1
        sealed_until = datetime.combine(YESTERDAY + timedelta(days=1), datetime.min.time(), UTC).timestamp()
        assert value(prometheus, "tidemark_sealed_until_timestamp_seconds", well) == sealed_until
        check_dashboard(prometheus)

        beat(ill)
        expected.remove("TidemarkLayerFailed")
        wait_until(lambda: of_stream(prometheus.firing(), ill) == expected, "one alert ends")


def value(prometheus: Prometheus, metric: str, log: Log) -> float:
    (found,) = prometheus.query(f'{metric}{{tidemark_stream="{log.stream.name}"}}')
    return float(found["value"][1])


def check_dashboard(prometheus: Prometheus) -> None:
    """Prometheus can run every query of the dashboard, and those about the status find something."""
    status = {item.name for item in STATUS_METRICS}
    for title, query in queries():
        found = prometheus.query(query)
        if metrics_in(query) <= status:
            assert found, f"{title}: {query}"


def test_the_metrics_printed_once_pass_promtool(streams: Streams, promtool: str) -> None:
    environment = {**os.environ, **streams.variables}
    done = subprocess.run(
        [*COMMAND, "metrics"], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=done.stdout, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for kind, number in (("archive_failed", "1.0"), ("run_failed", "0.0")):
        labels = {
            "tidemark_deployment": streams.ill.settings.deployment,
            "tidemark_kind": kind,
            "tidemark_stream": streams.ill.stream.name,
        }
        text = ",".join(f'{name}="{label}"' for name, label in labels.items())
        assert f"tidemark_problem{{{text}}} {number}" in lines
