"""What the README says: its stream works, its commands exist, its figures and versions are the ones used."""

import ast
import json
import re
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.pages import blocks
from tests.spark.rows import kafka_rows
from tidemark.cli.app import app
from tidemark.definitions.stream import load_stream
from tidemark.installation import PROJECT
from tidemark.orchestration.steps import reconciles
from tidemark.settings import Settings
from tidemark.spark.process import classify, load_transform, process
from tidemark.spark.records import records
from tidemark.speed.output import output
from tidemark.speed.record_limits import RecordLimits

pytestmark = pytest.mark.conformance(57)

PAGE = PROJECT / "README.md"
TEXT = PAGE.read_text(encoding="utf-8")
FILES = {block.title: block.text for block in blocks(PAGE) if block.title}
SENT = {"ride": "r-17", "ended_at": "2024-03-31T01:30:00+01:00", "fare": 12.5, "distance_m": 3400}
ARRIVES = {"ride": "r-17", "ended_at": "2024-03-31T00:30:00.000000Z", "fare": 12.50, "distance_km": 3.4}


@pytest.fixture
def streams(tmp_path: Path) -> Path:
    """A folder with the project's streams and the README's."""
    folder = tmp_path / "streams"
    shutil.copytree(PROJECT / "include" / "streams", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in FILES.items():
        (folder / Path(name).name).write_text(text, encoding="utf-8")
    return folder


def test_the_readmes_stream_passes_its_check_works_in_both_layers_and_has_its_dag(
    settings: Settings, spark: SparkSession, streams: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = settings.model_copy(update={"streams_dir": streams})
    monkeypatch.setattr("tidemark.cli.streams.connect", lambda _: deployment)
    monkeypatch.setattr("tidemark.spark.session.bare_session", lambda _: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.setenv("COLUMNS", "200")
    checked = CliRunner().invoke(app, ["streams"])
    assert checked.exit_code == 0, checked.output
    assert re.search(r"(?m)^rides +ok: definition, transformation \(4 columns\), 1 check$", checked.stdout)

    stream = load_stream("rides", streams)
    transform = load_transform(stream, streams)
    source = kafka_rows(spark, [json.dumps(SENT).encode(), b'{"ride":"r-18"}'])
    limits = RecordLimits(live=1_000_000, dead_letter=1_000_000)
    sent_rows = output(classify(records(source, stream), stream, transform), stream, "an id", record_limits=limits)
    live, dead = sent_rows.orderBy("_good", ascending=False).collect()
    assert (live.topic, bytes(live.key), json.loads(live.value)) == ("rides.live", b"r-17", ARRIVES)
    assert (dead.topic, bytes(dead.value)) == ("rides.dead-letter", b'{"ride":"r-18"}')
    assert dict(dead.headers)["tidemark.reason"] == b"no distance"

    processed = process(records(source, stream), stream, transform)
    (row,) = processed.good.drop("source", "event_time").collect()
    assert (row.ride, str(row.fare), row.distance_km) == ("r-17", "12.50", 3.4)
    assert [rejected.reason for rejected in processed.rejected.collect()] == ["no distance"]

    (dag,) = re.findall(r"the DAG `(\w+)`", TEXT)
    assert {item.dag_id: item.error for item in reconciles(streams)}[dag] is None


def test_the_readmes_stream_is_the_tutorials() -> None:
    tutorial = {block.title: block.text for block in blocks(PROJECT / "docs" / "tutorial.md")}
    assert list(FILES) == ["include/streams/rides.yaml", "include/streams/rides.py"]
    assert FILES.items() <= tutorial.items()


def test_the_picture_and_the_two_commands_come_first() -> None:
    first = TEXT.split("## Add a stream", 1)[0]
    assert [block.text for block in blocks(PAGE) if block.language == "sh"] == ["make demo\n", "make test\n"]
    assert first.index("](docs/flow.svg)") < first.index("make install") < first.index("make demo\n")


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


def test_the_versions_and_limits_for_ones_own_services_are_those_of_the_code() -> None:
    for service, package in (("Spark", "pyspark"), ("Airflow", "apache-airflow")):
        series = ".".join(version(package).split(".")[:2])
        assert re.search(rf"^\| {service} \| it is version {re.escape(series)}\b", TEXT, re.MULTILINE)
    catalogs = Settings.model_fields["catalog_type"].annotation
    named = re.search(r"^\| Catalog \| it is (.*) \|$", TEXT, re.MULTILINE)
    assert named is not None
    assert re.findall(r"JDBC|REST|Glue|Hive|Nessie", named[1]) == [
        {"jdbc": "JDBC", "rest": "REST"}.get(name, name.title()) for name in get_args(catalogs)
    ]


def test_every_rate_is_one_that_the_performance_page_reports() -> None:
    page = (PROJECT / "docs" / "explanation" / "performance.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (?:Archive|Speed|Rebuild|Plan) .*? \| (.*) \|$", TEXT, re.MULTILINE)
    figures = [figure for row in table for figure in re.findall(r"\d[\d.,]*", row)]
    assert len(table) == 5
    assert [figure for figure in figures if figure not in page] == []
