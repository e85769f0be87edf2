"""What scripts rely on: exit codes, one JSON object of the documented schema, and completion in the shell."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from tests.command_json import SCHEMAS, valid_error, valid_result
from tidemark.cli.app import app
from tidemark.cli.schemas import OTHER_RESULTS, RESULTS, text
from tidemark.cli.spark import command_spark
from tidemark.core.errors import ServiceError
from tidemark.settings import Settings

WITHOUT_JSON = {"up", "demo", "metrics"}
# A command line of each command that the parser accepts.
ARGUMENTS = {
    "acls": ("orders",),
    "adopt": ("orders", "--from", "topics"),
    "backfill": ("orders", "--from", "2025-06-01", "--to", "2025-06-02"),
    "delivery": ("orders",),
    "doctor": (),
    "jars": (),
    "maintain": ("orders",),
    "markers": ("orders",),
    "reconcile": ("orders",),
    "replay": ("orders",),
    "rollback": ("orders", "2025-06-01", "--to", "1"),
    "status": (),
    "streams": (),
    "verify": ("orders", "2025-06-01"),
    "where": ("orders", "orders", "0", "0"),
}
QUESTIONS = {"acls", "delivery", "doctor", "status", "streams", "verify", "where"}


def commands() -> dict[str, Any]:
    return dict(get_command(app).commands)  # type: ignore[attr-defined]  # it is a group


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"NO_COLOR": "1"})


@pytest.mark.parametrize(
    "arguments",
    [
        ("orders", "0"),
        ("orders", "0", "0", "--key-is", "hex"),
        ("--day", "2025-06-01"),
        ("--day", "2025-06-01", "--rejected", "--key-is", "hex"),
        ("--key", "a"),
        ("--key-is", "hex"),
    ],
)
def test_where_wants_a_place_or_a_key_and_nothing_of_the_other(arguments: tuple[str, ...]) -> None:
    found = run("where", "orders", *arguments)
    assert found.exit_code == 64
    assert "give TOPIC, PARTITION and OFFSET, or --day with" in " ".join(found.stderr.split())


@pytest.fixture
def no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command fails as it connects."""

    def refuse(_stack: str | None) -> Settings:
        raise ServiceError(
            "S3 is unreachable", expected="an answer", found="none", where="127.0.0.1:1", hint="Start it"
        )

    for module in ("acls", "adopt", "backfill", "delivery", "doctor", "maintain", "markers", "reconcile", "replay"):
        connect = "connect" if module in {"acls", "doctor", "markers"} else "connect_s3"
        monkeypatch.setattr(f"tidemark.cli.{module}.{connect}", refuse)
    for module in ("rollback", "status", "verify", "where"):
        monkeypatch.setattr(f"tidemark.cli.{module}.connect_s3", refuse)
    monkeypatch.setattr("tidemark.cli.streams._deployment", refuse)
    monkeypatch.setattr("tidemark.cli.jars.ensure_jars", lambda *_: refuse(None))


def test_every_command_but_those_that_run_until_ctrl_c_has_json_and_a_schema() -> None:
    with_json = {name for name, item in commands().items() if any("--json" in option.opts for option in item.params)}
    assert with_json == commands().keys() - WITHOUT_JSON == RESULTS.keys() == ARGUMENTS.keys()


@pytest.mark.parametrize("command", RESULTS | OTHER_RESULTS)
def test_the_schema_in_the_documentation_is_that_of_the_code(command: str) -> None:
    """``make schemas`` writes the files again."""
    assert (SCHEMAS / f"{command}.schema.json").read_text(encoding="utf-8") == text(command)


@pytest.mark.parametrize("command", ARGUMENTS)
@pytest.mark.usefixtures("no_service")
def test_an_error_ends_a_question_with_2_and_another_command_with_1(command: str) -> None:
    code = 2 if command in QUESTIONS else 1
    shown = run(command, *ARGUMENTS[command])
    explained = "ServiceError: S3 is unreachable: expected an answer, found none [127.0.0.1:1]. Start it\n"
    assert (shown.exit_code, shown.stdout, shown.stderr) == (code, "", explained)
    shown = run(command, *ARGUMENTS[command], "--json")
    assert (shown.exit_code, shown.stderr) == (code, "")
    assert valid_error(command, shown.stdout) == {
        "kind": "ServiceError",
        "message": "S3 is unreachable",
        "expected": "an answer",
        "found": "none",
        "where": "127.0.0.1:1",
        "hint": "Start it",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("no-such-command",),
        ("status", "--no-such-option"),
        ("status", "--grace-hours", "many"),
        ("status", "--from", "2025-06-01"),
        ("status", "flights", "2025-06-01", "--layer", "archive"),
        ("verify", "orders"),
        ("verify", "orders", "2025-06-01", "--all"),
        ("verify", "orders", "--all", "--version", "1"),
        ("backfill", "orders", "--from", "2025-06-01"),
        ("where", "orders", "orders", "-1", "0"),
        ("where", "orders", "orders", "0"),
        ("where", "orders", "--day", "2025-06-01"),
        ("where", "orders", "--rejected"),
        ("where", "orders", "--day", "2025-06-01", "--reason", "r"),
        ("where", "orders", "--day", "2025-06-01", "--rejected", "--key", "k"),
        ("where", "orders", "--day", "2025-06-01", "--from", "orders:id:0:0"),
        ("where", "orders", "--day", "2025-06-01", "--rejected", "--from", "orders:id:0:0"),
        ("where", "orders", "orders", "0", "0", "--from", "orders:id:0:0"),
        ("where", "orders", "orders", "0", "0", "--rejected"),
        ("where", "orders", "orders", "0", "0", "--day", "2025-06-01", "--key", "k"),
        *((command, "too", "many", "arguments", "of", "all", "kinds") for command in ("acls", "status", "up", "demo")),
    ],
)
def test_a_wrong_command_line_ends_with_64(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 64


def test_ctrl_c_ends_a_command_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_stack: str | None) -> Settings:
        raise KeyboardInterrupt

    monkeypatch.setattr("tidemark.cli.acls.connect", interrupt)
    assert run("acls", "orders").exit_code == 130


@pytest.mark.parametrize(("command", "code"), [("acls", 2), ("markers", 1)])
def test_an_error_that_nobody_explains_is_one_object_and_a_traceback(
    command: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_stack: str | None) -> Settings:
        raise OSError(28, "No space left")

    monkeypatch.setattr(f"tidemark.cli.{command}.connect", fail)
    shown = run(command, *ARGUMENTS[command], "--json")
    assert (shown.exit_code, shown.stderr.splitlines()[-1]) == (code, "OSError: [Errno 28] No space left")
    found = valid_error(command, shown.stdout)
    assert (found["kind"], found["message"]) == ("OSError", "[Errno 28] No space left")
    shown = run(command, *ARGUMENTS[command])
    assert (shown.exit_code, shown.stdout) == (code, "")
    assert shown.stderr.startswith("Traceback")


def test_permissions_are_printed_as_json(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> None:
    speed = {"topic": "orders.live", "dead_letter_topic": "orders.dead"}
    definition = {"name": "orders", "topic": "orders", "value_schema": "n BIGINT", "speed": speed}
    (tmp_path / "orders.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    monkeypatch.setattr("tidemark.cli.acls.connect", lambda _: settings.model_copy(update={"streams_dir": tmp_path}))
    found = valid_result("acls", run("acls", "orders", "--role", "archive", "--json").stdout)
    printed = run("acls", "orders", "--role", "archive").stdout
    assert found["roles"] == ["archive"]
    assert [f"{item['command']}  # {item['purpose']}" for item in found["permissions"]] == printed.splitlines()[1:]


def test_ctrl_c_while_spark_works_is_no_error_of_py4j(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)

    def start(_settings: Settings, _name: str) -> Mock:
        signal.signal(signal.SIGINT, lambda *_: pytest.fail("Spark's handler"))
        return Mock()

    monkeypatch.setattr("tidemark.cli.spark.quiet_session", start)
    try:
        with pytest.raises(KeyboardInterrupt), command_spark(settings, "name"):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def complete(shell: str, line: str, folder: Path, **others: str) -> list[str]:
    """What the shell would offer for the last word of the line."""
    words = line.split(" ")
    variables = {
        "_TIDEMARK_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "TIDEMARK_STREAMS_DIR": str(folder),
        **others,
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    command = Path(sys.executable).parent / "tidemark"
    done = subprocess.run(
        [command], env={**inherited, **variables}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands_and_stream_names(tmp_path: Path, shell: str) -> None:
    for name in ("orders", "order_lines", "flights"):
        (tmp_path / f"{name}.yaml").write_text("", encoding="utf-8")
    assert any("status" in word for word in complete(shell, "tidemark stat", tmp_path))
    names = " ".join(complete(shell, "tidemark status or", tmp_path))
    assert all(name in names for name in ("orders", "order_lines"))
    assert "flights" not in names


def test_completion_with_broken_settings_or_files_prints_no_error(tmp_path: Path) -> None:
    for name in ("orders.yaml", ".hidden.yaml", "orders.yml"):
        (tmp_path / name).touch()
    (tmp_path / "broken.toml").write_text("=", encoding="utf-8")
    (tmp_path / "binary.env").write_bytes(b"\xff")
    line = "tidemark status "
    assert complete("bash", line, tmp_path) == ["orders"]
    assert complete("bash", line, tmp_path / "missing") == []
    assert complete("bash", line, tmp_path, TIDEMARK_CONFIG=str(tmp_path / "broken.toml")) == []
    assert complete("bash", line, tmp_path, TIDEMARK_ENV_FILE=str(tmp_path / "binary.env")) == []
    assert complete("bash", line, tmp_path, TIDEMARK_STREAMS_DI="misspelt") == []
