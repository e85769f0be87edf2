"""The command line: its answers, and its errors as one paragraph without a traceback."""

import fcntl
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from tests.conftest import TRANSFORM, MakeStream, unique
from tidemark.cli import app as command_line
from tidemark.cli import connect as connection
from tidemark.cli import where as where_command
from tidemark.core.errors import RequestError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.inspect.locate import Located, LocatedVersion, RecordCopy
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.settings import settings as process_settings
from tidemark.stack.local import LOCK, PROJECT, LocalStack

Called = Callable[..., tuple[int, str, str]]
STREAM: dict[str, Any] = {
    "value_schema": "id BIGINT",
    "topic": "orders",
    "speed": {"topic": "orders.live", "dead_letter_topic": "orders.dead-letter"},
}


def tidemark(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command like a user, with only the given variables of a deployment."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    environment = {**inherited, "PYTHONPATH": str(PROJECT / "include"), "COLUMNS": "200", "NO_COLOR": "1", **variables}
    command = [sys.executable, "-c", "from tidemark.cli.app import main; main()", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Called:
    """Runs the command in this process, with its variables; the exit code and what it printed on either output."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tidemark", *arguments])
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    return call


def define(
    folder: Path, name: str, transform: str = "def transform(records):\n    return records\n", **speed: str
) -> None:
    wanted = {"name": name, **STREAM, "speed": {**STREAM["speed"], **speed}}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(wanted), encoding="utf-8")
    (folder / f"{name}.py").write_text(transform, encoding="utf-8")


@pytest.mark.services
def test_help_names_every_command_and_imports_neither_spark_nor_kafka() -> None:
    script = (
        "import sys\nfrom tidemark.cli.app import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'pyspark', 'confluent_kafka', 'boto3', 'great_expectations', 'airflow'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "include"), "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert re.findall(r"(?m)^│ (\w+) ", done.stdout.partition("Commands")[2]) == [
        "up",
        "reconcile",
        "rollback",
        "markers",
        "adopt",
        "replay",
        "maintain",
        "demo",
        "streams",
        "where",
        "report",
        "days",
        "versions",
        "verify",
        "health",
        "doctor",
        "topics",
        "acls",
        "delivery",
    ]
    assert done.stdout.endswith("heavy: []\n")


def commands() -> dict[str, Any]:
    group = get_command(command_line.app)
    assert isinstance(group, TyperGroup)
    return dict(group.commands)


def test_every_argument_and_option_has_a_help_text() -> None:
    unexplained = [
        (name, item.name)
        for name, command in commands().items()
        for item in command.params
        if not getattr(item, "help", None)
    ]
    assert unexplained == []


@pytest.mark.parametrize("name", commands())
def test_help_shows_every_word_of_its_texts_on_80_columns(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    shown = CliRunner().invoke(command_line.app, [name, "--help"]).stdout
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    command = commands()[name]
    texts = [command.help or "", *(getattr(item, "help", None) or "" for item in command.params)]
    assert set(" ".join(texts).split()) <= set(shown.split())


def test_streams_lists_valid_definitions_and_exits_0(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.spark.session.bare_session", lambda _: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.setattr("tidemark.cli.streams._deployment", lambda _: None)
    monkeypatch.setenv("TIDEMARK_STREAMS_DIR", str(tmp_path))
    define(tmp_path, "orders")
    done = CliRunner().invoke(command_line.app, ["streams"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "orders  ok: definition, transformation (1 column), 0 checks\n"


@pytest.mark.services
@pytest.mark.conformance(23)
def test_streams_explains_every_invalid_definition_and_exits_1(tmp_path: Path) -> None:
    """Without any server, in its own Spark session."""
    define(tmp_path, "good")
    (tmp_path / "typo.yaml").write_text(
        yaml.safe_dump({**STREAM, "name": "typo", "flush": 1, "topic": "a b"}), encoding="utf-8"
    )
    define(tmp_path, "crashes", "1 / 0\n")
    define(tmp_path, "empty", "")
    define(tmp_path, "misspelt", TRANSFORM.replace('"event.*"', '"event.nosuch"'))
    for delivery in ("exactly_once", "at_least_once"):
        dropping = TRANSFORM.replace("return records.", 'return records.where("event.id > 3").')
        define(tmp_path, delivery, dropping, delivery=delivery)
    (tmp_path / "alone.yaml").write_text(yaml.safe_dump({"name": "alone", **STREAM}), encoding="utf-8")
    done = tidemark("streams", TIDEMARK_STREAMS_DIR=str(tmp_path))
    assert done.returncode == 1
    verdicts = dict(re.findall(r"(?m)^(\w+) +(ok|invalid: .*)(?:: .*)?$", done.stdout))
    one = "invalid: 1 problem"
    assert verdicts == {
        "alone": one,
        "at_least_once": "ok",
        "crashes": one,
        "empty": one,
        "exactly_once": one,
        "good": "ok",
        "misspelt": one,
        "typo": "invalid: 2 problems",
    }
    text = done.stdout
    assert len(text.splitlines()) == 8 + 7
    assert re.search(r"(?m)^good +ok: definition, transformation \(1 column\), 0 checks$", text)
    assert (
        f"topic: String should match pattern '^[a-zA-Z0-9._-]{{1,249}}$', found 'a b' [{tmp_path / 'typo'}.yaml]"
        in text
    )
    assert "flush: unknown key, allowed keys: archive, avro_earlier_schema_files, avro_schema_file, batch" in text
    assert f"does not load: found ZeroDivisionError('division by zero') [{tmp_path / 'crashes'}.py]" in text
    assert "no transformation: expected def transform(records: DataFrame) -> DataFrame" in text
    assert f"a stream has no transformation: expected a file {tmp_path / 'alone'}.py" in text
    assert "No such struct field `nosuch`" in text
    assert "exactly-once delivery does not work with this transformation" in text
    assert "found Filter, which drops rows: mark them with a text in the column reject" in text
    assert done.stderr == ""


@pytest.mark.services
def test_a_folder_without_streams_is_an_explained_error(tmp_path: Path) -> None:
    done = tidemark("streams", TIDEMARK_STREAMS_DIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"ConfigError: no streams: expected <name>.yaml files [{tmp_path}]\n"


def test_an_unexpected_exception_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(stack: str | None) -> bool:
        raise RuntimeError(f"a bug, stack {stack}")

    monkeypatch.setattr("tidemark.cli.streams.check_streams", crash)
    monkeypatch.setattr(sys, "argv", ["tidemark", "streams"])
    with pytest.raises(RuntimeError, match="a bug, stack None"):
        command_line.main()


def test_an_unknown_local_stack_is_named(called: Called) -> None:
    name = f"no-such-{os.getpid()}"
    code, _, problem = called("report", "--stack", name)
    assert code == 1
    assert problem.startswith("RequestError: no such local stack: expected a file ")
    assert problem.endswith(f"{name}/stack.env, found {name}\n")


def test_a_named_stack_overrides_another_deployments_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stack: LocalStack
) -> None:
    for name in [name for name in os.environ if name.startswith("TIDEMARK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TIDEMARK_BUCKET", "production")
    monkeypatch.setattr("tidemark.stack.local.PROJECT", tmp_path)
    folder = tmp_path / ".tidemark" / "named"
    folder.mkdir(parents=True)
    (folder / "stack.env").write_text(stack.env_file.read_text(encoding="utf-8"), encoding="utf-8")
    process_settings.cache_clear()
    try:
        with pytest.raises(
            RequestError, match=r"is not running: found named\. Start it with 'tidemark up --name named'"
        ):
            connection.connect("named")
        with (folder / LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert connection.connect("named") == stack.settings
    finally:
        process_settings.cache_clear()


def test_the_version_is_that_of_the_project() -> None:
    shown = CliRunner().invoke(command_line.app, ["--version"])
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (shown.exit_code, shown.stdout) == (0, f"tidemark {project['version']}\n")


def test_where_refuses_a_stream_that_does_not_exist(stack: LocalStack, called: Called) -> None:
    code, _, problem = called("where", "nothing", "topic", "0", "0")
    assert code == 1
    assert problem.startswith("ConfigError: no such stream: expected one of: ")
    assert "found nothing" in problem


def test_where_names_object_manifest_seal_and_snapshot(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    log = TopicPartition(topic="flights", topic_id="AbC", partition=1)
    copies = [
        RecordCopy(
            log=log,
            range=OffsetRange(start=0, end=50),
            writer=f"writer-{number}",
            batch=number,
            manifest=f"manifests/flights/writer-{number}/000000000007.json",
            object=f"data/flights/{number}.parquet",
        )
        for number in (1, 2)
    ]
    seal = LocatedVersion(
        key="seals/flights/2013-01-14/0002.json",
        day=date(2013, 1, 14),
        version=2,
        run="manual",
        snapshot_id=4711,
        quarantine_snapshot_id=None,
        writer="writer-2",
        batch=2,
        status=("published", None),
    )
    quarantined = replace(seal, version=1, status=("quarantined", "the value is not one JSON object"))
    asked = []

    def locate(connection: Settings, *question: str | int) -> Located:
        asked.append((connection, *question))
        return Located(
            stream="flights",
            topic="flights",
            partition=1,
            offset=42,
            day=date(2013, 1, 14),
            event_time=datetime(2013, 1, 14, 12, tzinfo=UTC),
            copies=tuple(copies),
            seals=(quarantined, seal),
        )

    monkeypatch.setattr(where_command, "connect_s3", lambda _: settings)
    monkeypatch.setattr(where_command, "locate", locate)
    monkeypatch.setenv("COLUMNS", "40")
    where_command.print_location(None, "flights", "flights", 1, 42)
    assert asked == [(settings, "flights", "flights", 1, 42)]
    out = capsys.readouterr().out
    used, other, kept, published = re.split(r"Copy in the archive|Quarantined|Published", out)[1:]
    assert "used by a rebuild" in used
    assert "data/flights/2.parquet" in used
    assert "manifests/flights/writer-2/000000000007.json" in used
    assert "data/flights/1.parquet" in other
    assert kept.startswith(": the value is not one JSON object\n")
    assert "seals/flights/2013-01-14/0002.json (version 2)" in published
    assert re.search(r"snapshot +4711\b", published)


def test_report_names_the_newest_reports_verdict_and_place(
    settings: Settings, store: ObjectStore, make_stream: MakeStream, called: Called
) -> None:
    stream = make_stream(name=unique("reported"))
    layout = Layout(prefix=settings.prefix, stream=stream.name)
    none = called("report", stream.name)
    assert none == (1, "", f"RequestError: no report yet [{stream.name}]. Start a reconcile run\n")
    for run, moment, status in (
        ("b-older", "2026-01-01T00:00:00+00:00", "failed"),
        ("a-newer", "2026-01-02T00:00:00+00:00", "complete"),
    ):
        page = layout.run_key(run, "report.html")
        report = {
            "stream": stream.name,
            "run": run,
            "generated_at": moment,
            "verdict": {"status": status, "title": f"{run} is {status}", "sentences": ["One.", "Two."]},
            "html_key": page,
            "html_url": f"s3://{settings.bucket}/{page}",
        }
        value = {"status": "ok", "result": report}
        store.put(layout.run_key(run, "report.json"), json.dumps(value).encode())
        store.put(page, b"<html>")
    code, out, problem = called("report", stream.name)
    assert (code, problem) == (0, "")
    *lines, place = out.splitlines()
    assert lines == [
        "a-newer is complete",
        "One.",
        "Two.",
        f"Run a-newer of stream {stream.name}, 2026-01-02T00:00:00+00:00",
    ]
    assert Path(place).read_bytes() == b"<html>"
    assert place.endswith(layout.run_key("a-newer", "report.html"))


def test_demo_exits_with_the_code_of_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def demo(*, exit_after: bool, secure: bool) -> int:
        asked.append((exit_after, secure))
        return 0 if exit_after else 3

    monkeypatch.setattr("tidemark.demo.run.demo", demo)
    runner = CliRunner()
    assert runner.invoke(command_line.app, ["demo", "--exit"]).exit_code == 0
    assert runner.invoke(command_line.app, ["demo", "--secure"]).exit_code == 3
    assert asked == [(True, False), (False, True)]
