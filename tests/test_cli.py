"""The command line: its answers, and its errors as one paragraph without a traceback."""

import fcntl
import os
import re
import subprocess
import sys
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

from tests.command_json import valid_result
from tests.conftest import TRANSFORM
from tests.tables import read_tables
from tidemark import __version__
from tidemark.cli import app as command_line
from tidemark.cli import connect as connection
from tidemark.cli import where as where_command
from tidemark.core.errors import RequestError
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.inspect.locate import Located, LocatedVersion, RecordCopy
from tidemark.inspect.locate_rejected import ReasonCount, RejectedPlace, RejectedRecords
from tidemark.installation import PROJECT, TIDEMARK
from tidemark.settings import Settings
from tidemark.settings import settings as process_settings
from tidemark.stack.local import LOCK, LocalStack

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
    command = [*TIDEMARK, *arguments]
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
        "jars",
        "reconcile",
        "backfill",
        "rollback",
        "markers",
        "adopt",
        "replay",
        "maintain",
        "demo",
        "status",
        "streams",
        "where",
        "verify",
        "metrics",
        "doctor",
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
    first, costs = done.stdout.splitlines()
    assert first == "orders  ok: definition, transformation (1 column), 0 checks"
    (found,) = valid_result("streams", CliRunner().invoke(command_line.app, ["streams", "--json"]).stdout)["streams"]
    assert (found["stream"], found["valid"], f"  {found['costs']}") == ("orders", True, costs)
    assert costs.startswith("  S3 in a day with 1 partition and records at all times: at most 8,640 objects, ")


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
        "alone": "ok",
        "at_least_once": "ok",
        "crashes": one,
        "empty": one,
        "exactly_once": one,
        "good": "ok",
        "misspelt": one,
        "typo": "invalid: 2 problems",
    }
    text = done.stdout
    assert len(text.splitlines()) == 8 + 6 + 3  # each valid one has a line about its costs
    assert re.search(r"(?m)^good +ok: definition, transformation \(1 column\), 0 checks$", text)
    assert (
        f"topic: String should match pattern '^[a-zA-Z0-9._-]{{1,249}}$', found 'a b' [{tmp_path / 'typo'}.yaml]"
        in text
    )
    assert "flush: unknown key, allowed keys: archive, avro_earlier_schema_files, avro_schema_file, batch" in text
    assert f"does not load: found ZeroDivisionError('division by zero') [{tmp_path / 'crashes'}.py]" in text
    assert "no transformation: expected def transform(records: DataFrame) -> DataFrame" in text
    assert "No such struct field `nosuch`" in text
    assert "exactly-once delivery does not work with this transformation" in text
    assert "found Filter, which drops rows: mark them with a text in the column reject" in text
    assert done.stderr == ""


@pytest.mark.services
def test_a_folder_without_streams_is_an_explained_error(tmp_path: Path) -> None:
    done = tidemark("streams", TIDEMARK_STREAMS_DIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"ConfigError: no streams: expected <name>.yaml files [{tmp_path}]\n"


def test_an_unexpected_exception_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(stack: str | None, *, as_json: bool) -> bool:
        raise RuntimeError(f"a bug, stack {stack}, JSON {as_json}")

    monkeypatch.setattr("tidemark.cli.streams.check_streams", crash)
    monkeypatch.setattr(sys, "argv", ["tidemark", "streams"])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback (most recent call last):" in printed.err
    assert printed.err.endswith("RuntimeError: a bug, stack None, JSON False\n")


def test_an_unknown_local_stack_is_named(called: Called) -> None:
    name = f"no-such-{os.getpid()}"
    code, _, problem = called("status", "--stack", name)
    assert code == 2
    assert problem.startswith("RequestError: no such local stack: expected a file ")
    assert problem.endswith(f"{name}/stack.env, found {name}\n")


def test_a_named_stack_overrides_another_deployments_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stack: LocalStack
) -> None:
    for name in [name for name in os.environ if name.startswith("TIDEMARK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TIDEMARK_BUCKET", "production")
    monkeypatch.setattr("tidemark.installation.PROJECT", tmp_path)
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
    assert (shown.exit_code, shown.stdout) == (0, f"tidemark {__version__}\n")


def test_where_refuses_a_stream_that_does_not_exist(stack: LocalStack, called: Called) -> None:
    code, _, problem = called("where", "nothing", "topic", "0", "0")
    assert code == 2
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
    where_command.print_location(None, "flights", "flights", 1, 42, as_json=False)
    assert asked == [(settings, "flights", "flights", 1, 42)]
    out = capsys.readouterr().out
    where_command.print_location(None, "flights", "flights", 1, 42, as_json=True)
    located = valid_result("where", capsys.readouterr().out)
    assert [item["status"] for item in located["seals"]] == [
        ["quarantined", "the value is not one JSON object"],
        ["published", None],
    ]
    used, other, kept, published = re.split(r"Copy in the archive|Quarantined|Published", out)[1:]
    assert "used by a rebuild" in used
    assert "data/flights/2.parquet" in used
    assert "manifests/flights/writer-2/000000000007.json" in used
    assert "data/flights/1.parquet" in other
    assert kept.startswith(": the value is not one JSON object\n")
    assert "seals/flights/2013-01-14/0002.json (version 2)" in published
    assert re.search(r"snapshot +4711\b", published)


def test_where_counts_rejected_records_by_reason_and_lists_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def find_rejected(*question: object) -> RejectedRecords:
        asked.append(question)
        at = datetime(2013, 1, 14, 12, tzinfo=UTC)
        record = RejectedPlace(topic_id="AbC", partition=1, offset=42, event_time=at, reason="no [b]distance")
        return RejectedRecords(
            stream="flights",
            day=date(2013, 1, 14),
            version=2,
            rejected=1300,
            rows=1200,
            reasons=(ReasonCount(reason="no [b]distance", rows=1150),),
            reasons_found=3,
            records=(record,),
        )

    monkeypatch.setattr(where_command, "connect_s3", lambda _: "settings")
    monkeypatch.setattr(where_command, "find_rejected", find_rejected)
    where_command.print_rejected(None, "flights", date(2013, 1, 14), "dist", as_json=False)
    assert asked == [("settings", "flights", date(2013, 1, 14), "dist")]
    out = capsys.readouterr().out
    assert "2013-01-14, version 2: 1,300 rejected records, 1,200 for a reason with 'dist'" in out
    assert "The 1 most frequent of 3 reasons:" in out
    assert "The first 1 records:" in out
    assert read_tables(out, "Records") == [{"Records": "1,150", "Reason": "no [b]distance"}]
    assert read_tables(out, "Offset") == [
        {"Partition": "1", "Offset": "42", "Event time": "2013-01-14 12:00:00 UTC", "Reason": "no [b]distance"}
    ]
    where_command.print_rejected(None, "flights", date(2013, 1, 14), None, as_json=True)
    assert valid_result("where", capsys.readouterr().out)["records"][0]["offset"] == 42


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
