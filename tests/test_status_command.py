"""``tidemark status``: one answer, the rows of streams and layers, and the exit code that alerts use."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.command_json import valid_error, valid_result
from tests.conftest import MakeTopic, Produce, unique
from tests.tables import read_tables
from tidemark.cli.app import app
from tidemark.core.heartbeat import Heartbeat
from tidemark.core.layout import Layout
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack

pytestmark = pytest.mark.conformance(55)

Status = Callable[..., Any]  # the result has a type of typer's own
Beat = Callable[..., None]


@pytest.fixture
def prefix() -> str:
    return unique("status")


@pytest.fixture
def beat(store: ObjectStore, prefix: str) -> Beat:
    """Writes a heartbeat with an age of some seconds."""

    def write(stream: str, seconds: float = 0, layer: str = "archive", **fields: object) -> None:
        values: dict[str, object] = {
            "deployment": "prod",
            "stream": stream,
            "layer": layer,
            "state": "running",
            "time": datetime.now(UTC) - timedelta(seconds=seconds),
            "version": 1,
            "writer": "w",
            "batch": 1,
            "positions": ((0, 5),),
            "lag_records": 0,
            "lag_seconds": 0.0,
            "overflow_rows": 0,
            "out_of_bounds_rows": 0,
            "alarm_until": None,
            "error": None,
            **fields,
        }
        heartbeat = Heartbeat(**values)  # type: ignore[arg-type]  # tests name the fields
        store.put(Layout(prefix=prefix, stream=stream).heartbeat_key(layer), heartbeat.to_json())

    return write


@pytest.fixture
def topics(make_topic: MakeTopic) -> tuple[str, str]:
    """The first one keeps records for ever, the second one for two days."""
    return make_topic(), make_topic(retention_ms=str(48 * 3_600_000))


@pytest.fixture
def status(
    settings: Settings, prefix: str, topics: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Status:
    """Runs the command over the streams ``one`` and ``two``."""
    for name, topic in zip(("one", "two"), topics, strict=True):
        speed = {"topic": f"{name}.live", "dead_letter_topic": f"{name}.dead"}
        definition = {"name": name, "topic": topic, "value_schema": "n BIGINT", "speed": speed}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")

    deployment = settings.model_copy(update={"prefix": prefix, "streams_dir": tmp_path})
    for command in ("status", "probe"):
        monkeypatch.setattr(f"tidemark.cli.{command}.connect_s3", lambda _: deployment)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, ["status", *arguments])


def rows(text: str) -> dict[str, dict[str, str]]:
    return {row.pop("Stream"): row for row in read_tables(text, "Stream")}


def test_streams_whose_layers_run_are_fine(status: Status, beat: Beat) -> None:
    beat("one", 1)
    beat("one", 2, layer="speed", lag_records=1234, lag_seconds=200.0)
    beat("two", 1, lag_records=None, lag_seconds=None)
    shown = status()
    assert (shown.exit_code, shown.stdout.splitlines()[0]) == (0, "Yes, fine: all 2 streams.")
    assert rows(shown.stdout) == {
        "one": {
            "Fine": "yes",
            "Layers": "archive running, speed running",
            "Last sealed": "none",
            "Last run": "none",
        },
        "two": {"Fine": "yes", "Layers": "archive running", "Last sealed": "none", "Last run": "none"},
    }
    layers = {row["Layer"]: row for row in read_tables(status("one").stdout, "Layer")}
    assert layers["archive"]["Retention"] == "nothing waits"
    assert layers["speed"]["Lag"] == "1,234 records, 3 min"


def test_a_file_that_is_no_stream_s_is_named_in_json_too(status: Status, beat: Beat, tmp_path: Path) -> None:
    beat("one")
    beat("two")
    (tmp_path / "three.yml").touch()
    shown = status("--json")
    problems = {
        item["stream"]: [it["kind"] for it in item["problems"]]
        for item in valid_result("status", shown.stdout)["streams"]
    }
    assert (shown.exit_code, problems) == (1, {"one": [], "two": [], "three.yml": ["definition_invalid"]})


def test_a_failed_layer_is_named_first_and_its_error_is_shown_literally(status: Status, beat: Beat) -> None:
    beat("one", 7200)
    beat("two", state="failed", error="ConflictError: [red]two[/red] writers")
    shown = status()
    assert (shown.exit_code, shown.stdout.splitlines()[0]) == (
        1,
        "No, needs attention: one (archive_stale), two (archive_failed).",
    )
    assert "The archive layer of two failed: ConflictError: [red]two[/red] writers\n" in shown.stdout
    assert rows(shown.stdout)["one"]["Layers"] == "archive stale"
    assert status("one", "--stale-seconds", "86400").exit_code == 0
    assert status("two").exit_code == 1


def test_a_record_that_kafka_may_soon_delete_unarchived_is_an_alarm(
    status: Status, beat: Beat, topics: tuple[str, str], produce: Produce
) -> None:
    for stream in ("one", "two"):
        beat(stream)
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    for topic in topics:
        produce(topic, [(None, b"{}", now_ms - 40 * 3_600_000, 0, [])])
    shown = status()
    assert shown.stdout.startswith("No, needs attention: two (retention).")
    assert f"{topics[1]}-0: offset 0 is unarchived" in shown.stdout
    assert "the topic keeps 48.0 h" in shown.stdout
    assert (status("one").exit_code, status("two").exit_code) == (0, 1)


def test_a_stream_without_its_topic_is_unknown_and_hides_no_other(status: Status, beat: Beat, tmp_path: Path) -> None:
    beat("one")
    beat("two")
    path = tmp_path / "one.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "topic": "no.such.topic"}))
    shown = status()
    assert (shown.exit_code, shown.stdout.splitlines()[0]) == (2, "Cannot tell: one (unknown).")
    assert {name: row["Fine"] for name, row in rows(shown.stdout).items()} == {"one": "unknown", "two": "yes"}
    found = valid_result("status", status("--json").stdout)
    assert (found["fine"], [item["fine"] for item in found["streams"]]) == (None, [None, True])


def test_an_unknown_stream_is_an_explained_error(status: Status, tmp_path: Path) -> None:
    shown = status("three")
    assert shown.exit_code == 2
    assert shown.stderr == f"ConfigError: no such stream: expected one of: one, two, found three [{tmp_path}]\n"
    assert valid_error("status", status("three", "--json").stdout)["found"] == "three"


def test_a_probe_of_a_layer_asks_for_its_own_heartbeat_only(status: Status, beat: Beat, tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "topic": "no.such.topic"}))
    soon = datetime.now(UTC) + timedelta(hours=1)
    beat("one", overflow_rows=1, alarm_until=soon)
    beat("one", 7200, layer="speed")
    shown = status("one", "--layer", "archive")
    assert shown.exit_code == 0
    assert re.fullmatch(r"Yes: one archive running, heartbeat \d s ago\n", shown.stdout)
    shown = status("one", "--layer", "speed")
    assert (shown.exit_code, shown.stdout) == (1, "No: one speed running, heartbeat 2 h ago\n")
    assert status("one", "--layer", "speed", "--stale-seconds", "86400").exit_code == 0
    beat("one", layer="archive", state="failed", error="it broke")
    assert status("one", "--layer", "archive").stdout.endswith(": it broke\n")
    shown = status("two", "--layer", "speed")
    assert (shown.exit_code, shown.stdout) == (1, "No: two speed never started\n")
    assert valid_result("status", status("two", "--layer", "speed", "--json").stdout)["layer"]["alive"] is False
    assert status("--layer", "archive").exit_code == 64


def test_the_command_loads_nothing_that_takes_seconds(
    status: Status, beat: Beat, stack: LocalStack, prefix: str, tmp_path: Path
) -> None:
    """Pyiceberg alone takes two seconds, and the command has to answer in as much."""
    beat("one")
    beat("two")
    script = (
        "import sys\nfrom tidemark.cli.app import app\n"
        "try:\n    app(['status'])\nexcept SystemExit as ended:\n    print('code:', ended.code)\n"
        "heavy = {'pyiceberg', 'pyspark', 'sqlalchemy', 'great_expectations', 'airflow'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))\n"
    )
    own = {"TIDEMARK_PREFIX": prefix, "TIDEMARK_STREAMS_DIR": str(tmp_path)}
    environment = {**os.environ, **stack.env, **own, "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "Yes, fine: all 2 streams."
    assert done.stdout.endswith("code: 0\nheavy: []\n")
