"""``tidemark health``: the table, and the exit code that alerts use."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.conftest import MakeTopic, Produce, unique
from tests.tables import read_tables
from tidemark.cli import health as health_command
from tidemark.cli.app import app
from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.core.heartbeat import Heartbeat
from tidemark.core.layout import Layout
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(55)

Health = Callable[..., tuple[int, dict[tuple[str, str], dict[str, str]]]]
Beat = Callable[..., None]


@pytest.fixture
def prefix() -> str:
    return unique("health")


@pytest.fixture
def shown() -> list[str]:
    """What the command printed, each time it ran."""
    return []


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
def health(
    settings: Settings,
    prefix: str,
    topics: tuple[str, str],
    shown: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Health:
    """Runs the command over the streams ``one`` and ``two``: exit code, and rows by stream and layer."""
    for name, topic in zip(("one", "two"), topics, strict=True):
        speed = {"topic": f"{name}.live", "dead_letter_topic": f"{name}.dead"}
        definition = {"name": name, "topic": topic, "value_schema": "n BIGINT", "speed": speed}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")

    deployment = settings.model_copy(update={"prefix": prefix, "streams_dir": tmp_path})
    monkeypatch.setattr(health_command, "connect_s3", lambda _: deployment)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, dict[tuple[str, str], dict[str, str]]]:
        done = CliRunner().invoke(app, ["health", *arguments])
        if isinstance(done.exception, TidemarkError):
            raise done.exception
        shown.append(done.stdout)
        return done.exit_code, {(row.pop("Stream"), row.pop("Layer")): row for row in read_tables(done.stdout, "Layer")}

    return run


def test_running_streams_are_healthy(health: Health, beat: Beat) -> None:
    beat("one", 1)
    beat("one", 2, layer="speed", lag_records=1234, lag_seconds=200.0)
    beat("two", 1, lag_records=None, lag_seconds=None)
    code, rows = health()
    ages = [row.pop("Age") for row in rows.values()]
    assert all(re.fullmatch(r"\d+ s", age) for age in ages)
    assert code == 0
    assert rows == {
        ("one", "archive"): {"State": "running", "Lag": "none", "Retention": "nothing waits"},
        ("one", "speed"): {"State": "running", "Lag": "1,234 records, 3 min", "Retention": ""},
        ("two", "archive"): {"State": "running", "Lag": "unknown", "Retention": "nothing waits"},
    }


@pytest.mark.parametrize("layer", ["archive", "speed"])
def test_a_failed_layer_shows_its_error_literally_and_exits_1(
    health: Health, beat: Beat, shown: list[str], layer: str
) -> None:
    beat("one")
    beat("two")
    beat("two", layer=layer, state="failed", error="ConflictError: [red]two[/red] writers")
    code, rows = health()
    assert code == 1
    assert rows["two", layer]["State"] == "failed"
    assert f"Last error of two {layer}: ConflictError: [red]two[/red] writers\n" in shown[-1]
    assert health("one")[0] == 0
    assert health("two")[0] == 1


def test_a_heartbeat_older_than_the_limit_is_stale(health: Health, beat: Beat) -> None:
    beat("one", 7200)
    code, rows = health("one")
    assert (code, rows["one", "archive"]["State"], rows["one", "archive"]["Age"]) == (1, "running, stale", "2 h")
    code, rows = health("one", "--stale-seconds", "86400")
    assert (code, rows["one", "archive"]["State"], rows["one", "archive"]["Age"]) == (0, "running", "2 h")


def test_a_layer_without_a_heartbeat_is_shown_as_never_started(health: Health, beat: Beat) -> None:
    beat("one")
    code, rows = health()
    assert code == 1
    assert rows["two", "archive"] == {"State": "never started", "Age": "", "Lag": "", "Retention": "nothing waits"}


def test_a_record_that_kafka_may_soon_delete_unarchived_is_an_alarm(
    health: Health, beat: Beat, topics: tuple[str, str], produce: Produce, shown: list[str]
) -> None:
    for stream in ("one", "two"):
        beat(stream)
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    for topic in topics:
        produce(topic, [(None, b"{}", now_ms - 40 * 3_600_000, 0, [])])
    code, rows = health()
    assert (code, rows["one", "archive"]["State"], rows["one", "archive"]["Retention"]) == (1, "running", "no limit")
    assert rows["two", "archive"]["State"] == "running"
    assert re.fullmatch(r"\d\.\d h left", rows["two", "archive"]["Retention"])
    assert f"{topics[1]}-0: offset 0 is unarchived" in shown[-1]
    assert "the topic keeps 48.0 h" in shown[-1]
    assert (health("one")[0], health("two")[0]) == (0, 1)


@pytest.mark.conformance(34)
def test_records_beyond_a_bound_are_an_alarm_until_it_ends(health: Health, beat: Beat, shown: list[str]) -> None:
    now = datetime.now(UTC)
    beat("one", overflow_rows=4_999, out_of_bounds_rows=12, alarm_until=now + timedelta(hours=1))
    beat("two", overflow_rows=4_999, alarm_until=now - timedelta(seconds=1))
    assert health("one")[0] == 1
    assert "one: 4,999 records in the overflow folder, beyond archive.max_folders; alarm until 2" in shown[-1]
    assert "one: 12 records with a time field beyond event_time.max_distance_days; alarm until 2" in shown[-1]
    assert health("two")[0] == 0
    assert "overflow" not in shown[-1]


def test_a_stream_without_its_topic_is_unhealthy(health: Health, beat: Beat, tmp_path: Path, shown: list[str]) -> None:
    beat("one")
    path = tmp_path / "one.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "topic": "no.such.topic"}))
    code, rows = health("one")
    assert (code, rows["one", "archive"]["Retention"]) == (1, "unknown")
    assert "one: cannot tell how long Kafka keeps what is not archived: " in shown[-1]


def test_an_unknown_stream_is_an_explained_error(health: Health, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        health("three")
    assert str(raised.value) == f"no such stream: expected one of one, two, found three [{tmp_path}]"
