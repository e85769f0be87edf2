"""``tidemark up`` as a process that a signal ends."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from tidemark.installation import PROJECT

pytestmark = pytest.mark.services
# The command in its own folder. Its Airflow is a program that sleeps; without ``real``, so are its servers.
UP = """
import sys
from pathlib import Path
from tidemark.cli import up
from tidemark.stack import local
from tidemark.stack.airflow import USER, AirflowApi

up.PROJECT = Path(sys.argv.pop(1))

def sleeper(stack, name):
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    stack.processes.start(name, argv, env={}, ready=lambda: True, timeout_s=60, log=stack.logs / f"{name}.log")

def start_servers(stack):
    for name in ("kafka", "s3proxy"):
        sleeper(stack, name)
    stack._settings = {local.OWNER: local._settings(stack._plain_values(1, 2))}

def start_airflow(airflow):
    sleeper(airflow.stack, "airflow-api")
    airflow._api = AirflowApi("http://127.0.0.1:3", "http://127.0.0.1:4/execution/", USER, "a password")

up.LocalAirflow.start = start_airflow
def start_streams(stack, names):
    for name in names:
        sleeper(stack, name)

if sys.argv.pop(1) != "real":
    local.PROJECT = up.PROJECT  # its streams are this folder's
    up.LocalStack._start = start_servers
    up.start_streams = start_streams
from tidemark.cli.app import main
main()
"""


@contextmanager
def running_up(folder: Path, servers: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "include"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", UP, str(folder), servers, "up", "--name", "mine", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as running:
        yield running


@pytest.mark.parametrize(
    ("number", "servers", "options"), [(signal.SIGINT, "asleep", []), (signal.SIGTERM, "real", ["--airflow"])]
)
def test_up_prints_addresses_and_a_signal_stops_it_cleanly(
    tmp_path: Path, number: signal.Signals, servers: str, options: list[str]
) -> None:
    with running_up(tmp_path, servers, *options) as running:
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line.rstrip())
            if line.startswith("Up."):
                break
        pids = [child.pid for child in psutil.Process(running.pid).children(recursive=True)]
        running.send_signal(number)
        rest, problems = running.communicate(timeout=180)
    assert (running.returncode, problems) == (0, "")
    assert rest.endswith("Stopping; the data stays in its folder.\n")
    values = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in lines[:-1]}
    assert re.fullmatch(r"127\.0\.0\.1:\d+", values["Kafka"])
    assert values["settings and keys"] == f"TIDEMARK_ENV_FILE={tmp_path}/.tidemark/mine/stack.env"
    assert len(pids) >= 3
    assert ("Airflow" in values) == bool(options)
    wanted = rf"http://127\.0\.0\.1:\d+, user admin, password in {tmp_path}/.*/passwords\.json"
    assert not options or re.fullmatch(wanted, values["Airflow"])
    pages = r"http://127\.0\.0\.1:\d+/plugin/tidemark/tidemark/"
    assert not options or re.fullmatch(pages, values["Streams in Airflow"])
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids), "everything has ended")


def test_up_ends_with_an_explained_error_when_a_server_dies(tmp_path: Path) -> None:
    with running_up(tmp_path, "asleep") as running:
        assert running.stdout is not None
        line = next(line for line in running.stdout if line.startswith("s3proxy, pid "))
        server = psutil.Process(int(line.split()[2]))
        server.kill()
        _, problems = running.communicate(timeout=180)
    assert running.returncode == 1
    assert problems.startswith("StackError: a process of the local stack died: found s3proxy: ended by signal SIGKILL")
    assert "Traceback" not in problems


STREAMS = ("buses", "ferries", "rides")


@pytest.mark.parametrize(
    ("options", "started"),
    [
        ([], set()),
        (["--streams", "rides"], {"rides"}),
        (["--streams", "rides", "--streams", "buses"], {"buses", "rides"}),
        (["--streams", "all"], set(STREAMS)),
    ],
)
def test_up_runs_the_named_streams_only(tmp_path: Path, options: list[str], started: set[str]) -> None:
    define(tmp_path)
    with running_up(tmp_path, "asleep", *options) as running:
        assert running.stdout is not None
        lines = list(iter(running.stdout.readline, "Up. Ctrl-C stops everything and keeps the data.\n"))
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=180)
    assert {line.removesuffix(" runs.\n") for line in lines if line.endswith(" runs.\n")} == started
    processes = {line.partition(",")[0] for line in lines if ", pid " in line}
    assert processes == {"kafka", "s3proxy", *started}


def test_up_refuses_an_unknown_stream_before_anything_starts(tmp_path: Path) -> None:
    define(tmp_path)
    with running_up(tmp_path, "asleep", "--streams", "rides", "--streams", "trams") as running:
        printed, problems = running.communicate(timeout=180)
    assert (running.returncode, printed) == (1, "")
    assert problems.startswith(
        "ConfigError: no such stream: expected some of: buses, ferries, rides; or all, found trams"
    )
    assert not (tmp_path / ".tidemark").exists()


def define(folder: Path) -> None:
    (folder / "include" / "streams").mkdir(parents=True)
    for name in STREAMS:
        (folder / "include" / "streams" / f"{name}.yaml").touch()
