"""Airflow's own API app as a server of its own, with users of each role, over the streams of the local stack."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.batch.logs import MONDAY, TUESDAY, Log, Produce
from tests.batch.test_seal import finalized, finish, two_days
from tests.hung_server import hung_server
from tests.waiting import wait_until
from tests.web.keyed import seal_keyed
from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack

# Each DAG is of the team "north".
USERS = "ada:admin,vera:viewer:north,ned:user:north,sam:user:south"


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesServer:
    """A running api-server with Airflow's ``home``. ``routes`` are the paths of the pages' app with their methods."""

    home: Path
    url: str
    tokens: Mapping[str, str]
    routes: tuple[tuple[str, tuple[str, ...]], ...]

    def client(self, user: str | None = None, **options: object) -> httpx.Client:
        """A browser of the user, logged in by Airflow's cookie; without one anonymous."""
        cookies = {"_token": self.tokens[user]} if user else {}
        return httpx.Client(base_url=f"{self.url}/tidemark", cookies=cookies, timeout=60, **options)  # type: ignore[arg-type]


def serve(home: Path, variables: Mapping[str, str]) -> Iterator[PagesServer]:
    """Start the program ``airflow_server``, and end it afterwards."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TIDEMARK_", "AIRFLOW"))}
    log = home / "server.log"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("airflow_server.py")), str(PROJECT / "dags"), str(port)],
            env={
                **inherited,
                "PYTHONPATH": os.pathsep.join([str(PROJECT / "include"), str(PROJECT)]),
                "AIRFLOW_HOME": str(home),
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
                "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
                "AIRFLOW__CORE__MULTI_TEAM": "True",
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": USERS,
                "AIRFLOW__API__BASE_URL": url,
                "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
                "_AIRFLOW_PROCESS_CONTEXT": "server",
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = next((text for text in process.stdout if text.startswith('{"tokens"')), None)
        assert line is not None, log.read_text(encoding="utf-8")
        found = json.loads(line)
        wait_until(lambda: _answers(url), "the api-server answers")
        yield PagesServer(
            home=home,
            url=url,
            tokens=found["tokens"],
            routes=tuple((path, tuple(methods)) for path, methods in found["routes"]),
        )
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/v2/version", timeout=5).is_success
    except httpx.TransportError:
        return False


@pytest.fixture(scope="session")
def shown(settings: Settings, make_stream: Callable[..., Stream], produce: Produce) -> Log:
    """A stream whose Monday and Tuesday are sealed, by a run with a report, and whose archive layer runs."""
    stream = make_stream(
        partitions=2, time_zone="America/New_York", archive={"flush_size": 4}, batch={"wait_seconds": 0}
    )
    log = Log(stream=stream, settings=settings, produce_records=produce)
    two_days(log)
    run = finalized(log, "run-1", MONDAY, TUESDAY)
    finish(run, {MONDAY: 10, TUESDAY: 5})
    seal_run(run)
    report_run(run)
    return log


@pytest.fixture(scope="session")
def keyed(settings: Settings, make_stream: Callable[..., Stream], produce: Produce) -> Log:
    """A stream whose Monday is sealed, and whose records have keys."""
    stream = make_stream(partitions=2, time_zone="America/New_York", batch={"wait_seconds": 0})
    return seal_keyed(Log(stream=stream, settings=settings, produce_records=produce))


@pytest.fixture(scope="session")
def deployed(stack: LocalStack, shown: Log, keyed: Log, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The stack's variables, with a folder of both streams alone: hundreds of other tests' streams have no status yet,
    and the home page reads as many as it can within its time limit."""
    folder = tmp_path_factory.mktemp("deployed")
    for log in (shown, keyed):
        for file in stack.streams_dir.glob(f"{log.stream.name}.*"):
            shutil.copy(file, folder)
    return {**stack.env, "TIDEMARK_STREAMS_DIR": str(folder)}


@pytest.fixture(scope="session")
def pages(deployed: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesServer]:
    """The server over the local stack, which knows the DAGs of both streams."""
    yield from serve(tmp_path_factory.mktemp("pages"), deployed)


@pytest.fixture(scope="session")
def down(deployed: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesServer]:
    """A server whose Kafka, S3 and catalog do not answer."""
    with socket.socket() as nobody:  # bound, and not listening
        nobody.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{nobody.getsockname()[1]}"
        catalog = tmp_path_factory.mktemp("catalog") / "missing" / "catalog.db"
        variables = {
            **deployed,
            "TIDEMARK_KAFKA_BOOTSTRAP": closed,
            "TIDEMARK_S3_ENDPOINT": f"http://{closed}",
            "TIDEMARK_CATALOG_URI": f"jdbc:sqlite:{catalog}",
        }
        yield from serve(tmp_path_factory.mktemp("down"), variables)


@pytest.fixture(scope="session")
def no_kafka(deployed: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesServer]:
    """A server whose Kafka alone accepts connections and never answers."""
    with hung_server(end_s=1800) as server:
        yield from serve(tmp_path_factory.mktemp("no-kafka"), {**deployed, "TIDEMARK_KAFKA_BOOTSTRAP": server.address})


@pytest.fixture(scope="session")
def hung(deployed: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesServer]:
    """A server whose catalog accepts connections and never answers."""
    with hung_server(end_s=1800) as server:  # longer than a busy machine needs for the server and its tests
        catalog = {"TIDEMARK_CATALOG_TYPE": "rest", "TIDEMARK_CATALOG_URI": f"http://{server.address}"}
        yield from serve(tmp_path_factory.mktemp("hung"), {**deployed, **catalog})
