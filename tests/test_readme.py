"""The README's "Add a stream", followed to the letter: its own files, its own record, its own command."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.rows import kafka_rows
from tidemark.spark.process import classify, load_transform, process
from tidemark.spark.records import records
from tidemark.speed.output import RecordLimits, output
from tidemark.stack.local import PROJECT, LocalStack
from tidemark.streams import load_stream

TEXT = (PROJECT / "README.md").read_text(encoding="utf-8")
STEPS = TEXT.split("## Add a stream\n", 1)[1].split("\n## ", 1)[0]
PARSE_DAGS = """\
import runpy
from airflow.sdk import DAG
print(sorted(item.dag_id for item in runpy.run_path("dags/reconcile.py").values() if isinstance(item, DAG)))
"""


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


def run(stack: LocalStack, *command: str, cwd: Path = PROJECT, **env: str) -> str:
    """The command's output; it must end well."""
    done = subprocess.run(
        command,
        env={**os.environ, **stack.env, **env},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_stream_added_by_the_readmes_steps_is_checked_processed_by_both_layers_and_has_its_dag(
    stack: LocalStack, spark: SparkSession, streams: Path, tmp_path: Path
) -> None:
    (command,) = re.findall(r"```sh\n(.*?)\n```", STEPS, re.DOTALL)
    program, *arguments = command.split()
    assert program == "tidemark"
    main = "from tidemark.cli.app import main; main()"
    told = run(stack, sys.executable, "-c", main, *arguments, TIDEMARK_STREAMS_DIR=str(streams), COLUMNS="200")
    assert re.search(r"(?m)^rides +ok: definition, transformation \(4 columns\), 1 check$", told)

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
    home = str(tmp_path / "airflow")
    found = run(stack, sys.executable, "-c", PARSE_DAGS, AIRFLOW_HOME=home, TIDEMARK_STREAMS_DIR=str(streams))
    assert f"'{dag}'" in found.splitlines()[-1]


def test_the_two_commands_and_the_picture_come_first() -> None:
    first = TEXT.split("## Add a stream", 1)[0]
    assert re.findall(r"```sh\n(.*?)\n```", first) == ["make demo", "make test"]
    assert "](docs/flow.svg)" in first


def test_the_demos_output_shows_every_statement_it_makes() -> None:
    code = ast.parse((PROJECT / "include" / "tidemark" / "demo" / "verify.py").read_text(encoding="utf-8"))
    claims = {
        word.value.value
        for call in ast.walk(code)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Finding"
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
