"""With ``TIDEMARK_LOG_FORMAT=json``, every line that a stream and a step write is a JSON object."""

import gc
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.batch.logs import MONDAY, at
from tests.conftest import MakeStream, Produce
from tidemark import logs
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.installation import PROJECT, TIDEMARK
from tidemark.logs import add_log_context, log_context, log_error, log_range, set_up_logs
from tidemark.settings import Settings

INVALID = r"invalid literal for int() with base 10: 'two\nlines'"
pytestmark = pytest.mark.conformance(55)
EVERY = {"time", "level", "logger", "message"}
# What a JVM writes before it knows how to log: see docs/how-to/read-logs.md.
OF_THE_LAUNCHER = ("WARNING: Using incubator modules", "NOTE: Picked up JDK_JAVA_OPTIONS")


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """Reads standard error of a process that logs JSON; afterwards logging is as it was."""
    handlers, hook, own = logging.root.handlers[:], sys.excepthook, logging.getLogger("tidemark")
    of_threads, unraisable = threading.excepthook, sys.unraisablehook
    level = own.level
    logs._context.clear()
    set_up_logs("json")
    yield lambda: capsys.readouterr().err
    set_up_logs("text")
    logging.captureWarnings(capture=False)
    logging.root.handlers[:], sys.excepthook = handlers, hook
    threading.excepthook, sys.unraisablehook = of_threads, unraisable
    own.setLevel(level)
    logs._context.clear()


def parsed(text: str) -> list[dict[str, Any]]:
    lines = [line for line in text.splitlines() if not line.startswith(OF_THE_LAUNCHER)]
    found = [json.loads(line) for line in lines]
    assert all(item.keys() >= EVERY for item in found), found
    return found


def test_a_line_has_its_context_and_its_range(stderr: Callable[[], str]) -> None:
    log = TopicPartition(topic="flights", topic_id="i", partition=2)
    logger = logging.getLogger("tidemark.reconcile.refill")
    with log_context(stream="flights", run="run-1", step="refill"):
        add_log_context(days=[MONDAY])
        logger.warning("retention took %s", "them", extra=log_range(log, OffsetRange(start=3, end=9)))
    logger.info("over")
    first, second = parsed(stderr())
    del first["time"], second["time"]
    assert first == {
        "level": "warning",
        "logger": "tidemark.reconcile.refill",
        "message": "retention took them",
        "stream": "flights",
        "run": "run-1",
        "step": "refill",
        "days": ["2013-01-14"],
        "topic": "flights",
        "partition": 2,
        "start": 3,
        "end": 9,
    }
    assert second == {"level": "info", "logger": "tidemark.reconcile.refill", "message": "over"}


def test_an_exception_stands_once_in_a_field(stderr: Callable[[], str]) -> None:
    try:
        int("two\nlines")
    except ValueError as error:
        logging.getLogger("other").exception("it failed")
        log_error(error)
        sys.excepthook(type(error), error, error.__traceback__)
    caught, last, uncaught = parsed(stderr())
    assert (caught["message"], last["message"]) == ("it failed", f"ValueError: {INVALID}")
    for item in (caught, uncaught):
        assert item["exception"].count(f"ValueError: {INVALID}") == 1


def test_a_line_of_a_library_with_wrong_arguments_does_not_end_the_work(stderr: Callable[[], str]) -> None:
    record = logging.LogRecord("other", logging.WARNING, "file", 1, "%d\nof %s", ("two",), None)
    logs._JsonHandler().handle(record)  # pytest's own handler refuses it
    logging.getLogger("other").warning("huge", extra={"status": {(1, 2): 10**5000}})
    first, second = parsed(stderr())
    assert first["message"] == r"a log line can't be written: TypeError: '%d\nof %s'"
    assert second["message"].startswith("a log line can't be written: ")


def test_the_exception_of_a_thread_is_one_line_too(stderr: Callable[[], str]) -> None:
    thread = threading.Thread(target=int, args=("two\nlines",))
    thread.start()
    thread.join()
    (found,) = parsed(stderr())
    assert (found["level"], found["message"]) == ("critical", f"ValueError: {INVALID}")


def test_the_exception_of_a_finalizer_is_one_line_too(stderr: Callable[[], str]) -> None:
    class Closing:
        def __del__(self) -> None:
            raise OSError("not closed")

    Closing()
    gc.collect()
    (found,) = parsed(stderr())
    assert found["message"] == "OSError: not closed"


@pytest.mark.services
def test_every_line_of_a_stream_and_of_a_step_is_a_json_object(
    settings: Settings, make_stream: MakeStream, produce: Produce, tmp_path: Path
) -> None:
    stream = make_stream()
    produce(stream.topic, [(b"k", b'{"n": 1}', at(MONDAY, 9), 0, [])] * 3)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [PROJECT, PROJECT / "include"])),
        "TIDEMARK_LOG_FORMAT": "json",
    }
    commands = {
        "archive": ["archive_stream.py", stream.name, "--available-now"],
        "publish": ["publish.py", "--stream", stream.name, "--run", "run-1"],
    }
    started = {}
    for name, (app, *arguments) in commands.items():
        argv = [sys.executable, str(PROJECT / "spark_apps" / app), *arguments]
        with (tmp_path / f"{name}.out").open("w") as out, (tmp_path / f"{name}.err").open("w") as err:
            started[name] = subprocess.Popen(argv, env=environment, cwd=PROJECT, stdout=out, stderr=err)
    codes = {name: process.wait(120) for name, process in started.items()}
    found = {
        name: [*parsed((tmp_path / f"{name}.out").read_text()), *parsed((tmp_path / f"{name}.err").read_text())]
        for name in commands
    }
    assert codes == {"archive": 0, "publish": 1}, found
    (batch,) = (item for item in found["archive"] if item.get("event") == "batch")
    assert (batch["stream"], batch["layer"], batch["level"]) == (stream.name, "archive", "info")
    assert (batch["message"], batch["records"], batch["offsets"]) == ("batch", 3, {"0": [0, 3]})
    (error,) = (item for item in found["publish"] if item["level"] == "error")
    assert error["message"].startswith("IncompleteError: step 'finalize_plan' of the run has not succeeded")
    assert (error["stream"], error["run"], error["step"]) == (stream.name, "run-1", "publish")
    secret = settings.s3_secret_key.get_secret_value()
    assert secret
    assert secret not in json.dumps(found)
    assert any(item["logger"].startswith("org.apache.") for item in found["archive"])  # the JVM's own


def test_a_command_that_fails_writes_its_error_as_json(tmp_path: Path) -> None:
    variables = {"TIDEMARK_LOG_FORMAT": "json", "TIDEMARK_STREAMS_DIR": str(tmp_path)}
    done = subprocess.run(
        [*TIDEMARK, "streams"],
        env={**os.environ, **variables, "PYTHONPATH": str(PROJECT / "include")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    (error,) = parsed(done.stderr)
    assert (error["level"], error["exception"]) == ("error", "ConfigError")
    assert error["message"].startswith("ConfigError: no streams")
