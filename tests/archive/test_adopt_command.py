"""``tidemark adopt``: what the command prints, and that it is finished after a kill."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.archive.connect import Value, lines
from tests.archive.connect_world import MakeWorld
from tests.command_json import valid_result
from tests.waiting import wait_until
from tidemark.adopt import run
from tidemark.adopt.rows import NO_FIELDS, ValueFields
from tidemark.cli import adopt as command
from tidemark.cli.app import app

pytestmark = pytest.mark.conformance(56)


def test_a_command_that_is_killed_is_finished_by_the_next_one(make_world: MakeWorld) -> None:
    world = make_world()
    number = 2 * run.CHUNK_OBJECTS + 10  # three chunks
    values: list[Value] = [{"n": offset, "at": "2013-01-14T17:00:00Z"} for offset in range(number)]
    bodies = [json.dumps(value).encode() for value in values]
    world.produce_records(world.stream.topic, [(b"k", body, 1_358_182_800_000, 0, []) for body in bodies])
    client = world.sink.client  # one for all, as it takes longer to make than to use
    for offset, value in enumerate(values):
        client.put_object(Bucket=world.settings.bucket, Key=world.sink.key(0, offset), Body=lines([value]))
    program = Path(sys.executable).with_name("tidemark")
    given = [str(program), "adopt", world.stream.name, "--from", world.sink.topics_dir]
    with subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
        wait_until(lambda: process.poll() is not None or bool(world.oracle.keys("manifests")), "a chunk is imported")
        os.killpg(process.pid, signal.SIGKILL)
        output = process.communicate()[0].decode()
    assert process.returncode == -signal.SIGKILL, output
    assert run.CHUNK_OBJECTS <= len(world.archived()) < number

    done = subprocess.run(given, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert world.numbers() == world.expected(*range(number))
    assert world.adopt().logs[0].rows == 0


def test_the_command_shows_a_row_per_partition_and_fails_where_something_is_left(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    world.produce(12)
    world.connect(0, 4)
    world.sink.write(0, 4, world.records(4, 5))
    world.connect(8, 12)
    # The tests' own session instead of another one, which takes ten seconds to start.
    monkeypatch.setattr(command, "quiet_session", lambda *_: world.spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _self: None)
    given = ["adopt", world.stream.name, "--from", world.sink.topics_dir]
    planned = CliRunner().invoke(app, [*given, "--dry-run"], env={"COLUMNS": "120"})
    assert (planned.exit_code, "To be imported into stream" in planned.output) == (1, True), planned.output
    assert world.oracle.keys("manifests") == {}
    shown = CliRunner().invoke(app, given, env={"COLUMNS": "120"})
    assert shown.exit_code == 1, shown.output
    cells = next(line for line in shown.output.splitlines() if "[0, 12)" in line).replace("│", " ").split()
    assert cells == ["0", "3", "0", "8", "[0,", "12)", "[4,", "8)"]
    assert (
        "not imported  the offsets of an object's records are unknown: expected the 4 records of [4, 8)" in shown.output
    )
    assert "values compared with Kafka's, all equal" in shown.output
    world.sink.write(0, 4, world.records(*range(4, 8)))
    assert CliRunner().invoke(app, given, env={"COLUMNS": "120"}).exit_code == 0
    last = CliRunner().invoke(app, given, env={"COLUMNS": "120"})
    assert (last.exit_code, "Nothing to import: all records" in last.output) == (0, True), last.output
    (log,) = valid_result("adopt", CliRunner().invoke(app, [*given, "--json"]).stdout)["logs"]
    assert (log["records"], log["not_archived"]) == (0, [])
    assert ValueFields() == NO_FIELDS
