"""The README's "Add a stream", followed to the letter: its own files, its own record, its own command."""

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.spark.rows import kafka_rows
from tidemark.cli.app import app
from tidemark.definitions.stream import load_stream
from tidemark.orchestration.steps import reconciles
from tidemark.settings import Settings
from tidemark.spark.process import classify, load_transform, process
from tidemark.spark.records import records
from tidemark.speed.output import RecordLimits, output
from tidemark.stack.local import PROJECT

pytestmark = pytest.mark.conformance(57)

TEXT = (PROJECT / "README.md").read_text(encoding="utf-8")
STEPS = TEXT.split("## Add a stream\n", 1)[1].split("\n## ", 1)[0]


@pytest.fixture
def streams(tmp_path: Path) -> Path:
    """A folder with the project's streams and the files the steps say to write."""
    folder = tmp_path / "streams"
    shutil.copytree(PROJECT / "include" / "streams", folder, ignore=shutil.ignore_patterns("__pycache__"))
    files = re.findall(r"Write `include/streams/([a-z.]+)`:\n\n```[a-z]+\n(.*?)```", STEPS, re.DOTALL)
    assert [name for name, _ in files] == ["rides.yaml", "rides.py"]
    for name, text in files:
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_stream_added_by_the_readmes_steps_is_checked_processed_by_both_layers_and_has_its_dag(
    settings: Settings, spark: SparkSession, streams: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = re.findall(r"```sh\n(.*?)\n```", STEPS, re.DOTALL)
    program, *arguments = command.split()
    assert program == "tidemark"
    deployment = settings.model_copy(update={"streams_dir": streams})
    monkeypatch.setattr("tidemark.cli.streams.connect", lambda _: deployment)
    monkeypatch.setattr("tidemark.spark.session.bare_session", lambda _: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.setenv("COLUMNS", "200")
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    assert re.search(r"(?m)^rides +ok: definition, transformation \(4 columns\), 1 check$", told.stdout)

    stream = load_stream("rides", streams)
    transform = load_transform(stream, streams)
    sent, arrives = re.findall(r"```json\n(.*?)\n```", STEPS, re.DOTALL)
    source = kafka_rows(spark, [sent.encode(), b'{"ride":"r-18"}'])
    limits = RecordLimits(live=1_000_000, dead_letter=1_000_000)
    sent_rows = output(classify(records(source, stream), stream, transform), stream, "an id", record_limits=limits)
    live, dead = sent_rows.orderBy("_good", ascending=False).collect()
    assert (live.topic, bytes(live.key), json.loads(live.value)) == ("rides.live", b"r-17", json.loads(arrives))
    assert (dead.topic, bytes(dead.value)) == ("rides.dead-letter", b'{"ride":"r-18"}')
    assert dict(dead.headers)["tidemark.reason"] == b"no distance"

    processed = process(records(source, stream), stream, transform)
    (row,) = processed.good.drop("source", "event_time").collect()
    assert (row.ride, str(row.fare), row.distance_km) == ("r-17", "12.50", 3.4)
    assert [item.reason for item in processed.rejected.collect()] == ["no distance"]

    (dag,) = re.findall(r"The DAG `(\w+)`", STEPS)
    assert {item.dag_id: item.error for item in reconciles(streams)}[dag] is None


def test_the_two_commands_and_the_picture_come_first() -> None:
    first = TEXT.split("## Add a stream", 1)[0]
    assert re.findall(r"```sh\n(.*?)\n```", first) == ["make demo", "make test"]
    assert "](docs/flow.svg)" in first


def test_the_demos_output_shows_every_statement_it_makes() -> None:
    code = ast.parse((PROJECT / "include" / "tidemark" / "demo" / "verify.py").read_text(encoding="utf-8"))
    claims = {
        word.value.value
        for call in ast.walk(code)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Statement"
        for word in call.keywords
        if word.arg == "claim" and isinstance(word.value, ast.Constant)
    }
    shown: list[str] = []
    for mark, claim in re.findall(r"^│ (.{4}) │ (.+?) │", TEXT, re.MULTILINE):
        if mark == "true":
            shown.append("")
        shown[-1] = f"{shown[-1]} {claim.strip()}".strip()
    assert set(shown) == claims
    assert len(shown) == len(claims) > 0
