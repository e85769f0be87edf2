"""From two wheels to a sealed day in an Airflow that knows nothing of Tidemark: what the page says, word by word.

Kafka and S3 are there before, and no stream of Tidemark ever ran. The commands and files are those of the page.
"""

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from tests.conftest import Produce
from tests.pages import blocks
from tests.wheels.environment import Environment, build_wheels
from tidemark.installation import PROJECT
from tidemark.kafka.topics import ensure_topic
from tidemark.s3 import ObjectStore, ensure_bucket
from tidemark.settings import Settings
from tidemark.stack.files import free_ports
from tidemark.stack.java import BRIEF_JVM
from tidemark.stack.local import LocalStack

pytestmark = [pytest.mark.services, pytest.mark.conformance(67), pytest.mark.timeout(900)]
PAGE = PROJECT / "docs" / "how-to" / "use-your-own-airflow.md"
COMMANDS_MAX, YAML_LINES_MAX = 3, 12
STREAM, BUCKET, DAG = "payments", "lake", "reconcile_payments"
SEALED_S = 480  # a loaded machine


def test_three_commands_and_a_short_yaml_file_seal_yesterday_from_kafka_alone(
    stack: LocalStack, produce: Produce, tmp_path: Path
) -> None:
    commands = [block.text.strip() for block in blocks(PAGE) if block.language == "sh"]
    files = {block.title: block.text for block in blocks(PAGE) if block.title}
    lines = [text.count("\n") for name, text in files.items() if name.endswith(".yaml")]
    assert (len(commands), len(lines)) == (COMMANDS_MAX, 1)
    assert lines[0] <= YAML_LINES_MAX
    sent = send_days(stack.settings, produce)
    ensure_bucket(stack.settings.model_copy(update={"bucket": BUCKET}))
    environment = Environment.create(tmp_path, Path(sys.executable))
    environment.install("apache-airflow")  # theirs, before Tidemark
    build_wheels(environment.home / "wheels")
    catalog = f"jdbc:sqlite:{tmp_path}/catalog.db"
    write_files(environment.home, files, stack.settings, catalog)
    began = time.monotonic()

    pip, action, *arguments = shlex.split(commands[0])
    assert (pip, action) == ("pip", "install")
    environment.install(*expanded(arguments, environment.home))

    variables = deployment(environment.home, stack.settings, tmp_path / "cache")
    done = environment.run(*shlex.split(commands[1]), **variables)
    assert done.returncode == 0, done.stdout + done.stderr

    with airflow(environment, variables):
        known = f"SELECT 1 FROM dag WHERE dag_id = '{DAG}'"
        until(lambda: query(environment, known) != [], environment, "Airflow finds the DAG")
        done = environment.run(*shlex.split(commands[2]), **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        until(lambda: not {"success", "failed"}.isdisjoint(states(environment)), environment, "the run ends")
        assert states(environment) == ["success"], logs(environment)

    sys.stdout.write(f"from pip install to the sealed day: {time.monotonic() - began:.0f} s\n")
    (day,) = sealed_days(stack.settings)
    assert table_rows(stack.settings, catalog) == sorted(sent[day])
    done = environment.run("tidemark", "verify", STREAM, str(day), **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    environment.remove()


def send_days(settings: Settings, produce: Produce) -> dict[date, list[tuple[int, float]]]:
    """Records of today and of three days before, and the rows of each day."""
    ensure_topic(settings.kafka, STREAM, partitions=3)
    now = datetime.now(UTC)
    sent: dict[date, list[tuple[int, float]]] = {}
    for back in range(4):
        at = now - timedelta(days=back)
        rows = [(1000 * back + n, n / 4) for n in range(300)]
        values = [json.dumps({"id": key, "amount": amount}).encode() for key, amount in rows]
        moment = int(at.timestamp() * 1000)
        produce(STREAM, [(None, value, moment, n % 3, ()) for n, value in enumerate(values)])
        sent[at.date()] = rows
    return sent


def expanded(arguments: list[str], folder: Path) -> Iterator[str]:
    """The arguments, with the files that a pattern matches, as a shell gives them."""
    for text in arguments:
        yield from (sorted(map(str, folder.glob(text))) if "*" in text else [text])


def write_files(home: Path, files: dict[str, str], settings: Settings, catalog: str) -> None:
    """The page's files, with the addresses of this machine's servers."""
    here = {
        "localhost:9092": settings.kafka_bootstrap,
        "http://localhost:9000": str(settings.s3_endpoint),
        "jdbc:sqlite:/srv/tidemark/catalog.db": catalog,
    }
    for name, text in files.items():
        for theirs, ours in here.items():
            text = text.replace(theirs, ours)  # noqa: PLW2901
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def deployment(home: Path, settings: Settings, cache: Path) -> dict[str, str]:
    """What the page lets a person set for Airflow's processes and in the shell, and an Airflow beside others."""
    (port,) = free_ports(1)
    return {
        **BRIEF_JVM,
        "TIDEMARK_CONFIG": str(home / "tidemark.toml"),
        "S3_ACCESS_KEY": settings.s3_access_key.get_secret_value(),
        "S3_SECRET_KEY": settings.s3_secret_key.get_secret_value(),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "XDG_CACHE_HOME": str(cache),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
    }


@contextmanager
def airflow(environment: Environment, variables: dict[str, str]) -> Iterator[None]:
    """Their Airflow, restarted after the installation."""
    with (environment.home / "airflow.log").open("wb") as log:
        running = subprocess.Popen(
            [environment.bin / "airflow", "standalone"],
            cwd=environment.home,
            env=environment.variables(variables),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(running.pid, signal.SIGTERM)
            try:
                running.wait(30)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)


def query(environment: Environment, sql: str) -> list[tuple[Any, ...]]:
    """Rows of Airflow's database; none before it is migrated."""
    file = environment.home / "airflow" / "airflow.db"
    if not file.exists():
        return []
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as database:
            return database.execute(sql).fetchall()
    except sqlite3.OperationalError:
        return []


def until(condition: Callable[[], bool], environment: Environment, what: str) -> None:
    deadline = time.monotonic() + SEALED_S
    while not condition():
        assert time.monotonic() < deadline, f"not in {SEALED_S} s: {what}\n{logs(environment)}"
        time.sleep(0.5)


def states(environment: Environment) -> list[str]:
    """The states of the DAG's runs."""
    return [state for (state,) in query(environment, f"SELECT state FROM dag_run WHERE dag_id = '{DAG}'")]


def logs(environment: Environment) -> str:
    """The ends of Airflow's log and of its tasks' logs."""
    files = [environment.home / "airflow.log", *sorted((environment.home / "airflow" / "logs").rglob("*.log"))]
    return "\n".join(f"== {file}\n{file.read_text(encoding='utf-8', errors='replace')[-3000:]}" for file in files)


def sealed_days(settings: Settings) -> list[date]:
    """The days that have a first seal."""
    keys = [item.key for item in ObjectStore(settings.model_copy(update={"bucket": BUCKET})).list("")]
    found = [re.fullmatch(rf"seals/{STREAM}/([\d-]+)/0001\.json", key) for key in keys]
    return [date.fromisoformat(match[1]) for match in found if match]


def table_rows(settings: Settings, catalog: str) -> list[tuple[int, float]]:
    """The rows of the published table, as a reader without Tidemark sees them."""
    iceberg = load_catalog(
        "tidemark",
        **{
            "type": "sql",
            "uri": catalog.replace("jdbc:sqlite:", "sqlite:///"),
            "warehouse": f"s3://{BUCKET}/warehouse",
            "s3.endpoint": str(settings.s3_endpoint),
            "s3.access-key-id": settings.s3_access_key.get_secret_value(),
            "s3.secret-access-key": settings.s3_secret_key.get_secret_value(),
            "s3.region": settings.s3_region,
        },
    )
    found = iceberg.load_table(f"published.{STREAM}").scan(selected_fields=("id", "amount")).to_arrow().to_pylist()
    return sorted((row["id"], row["amount"]) for row in found)
