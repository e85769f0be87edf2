"""``tidemark reconcile``: every step in one process, its report, and how it ends where a step fails."""

import json
import sys
from datetime import UTC, date, datetime

import pytest
from pyspark.sql import SparkSession

from tests.catalog import another_catalog
from tests.conftest import MakeStream, Produce
from tidemark.cli import app as command_line
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.seals import read_seal

pytestmark = pytest.mark.services
DAY = date(2013, 1, 14)
NOON_MS = int(datetime(2013, 1, 14, 12, tzinfo=UTC).timestamp() * 1000)
POSITIVE = {"expectation": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 0}}


def reconcile(*arguments: str) -> int:
    sys.argv = ["tidemark", "reconcile", *arguments]
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def _same_process(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command as it is, in the tests' own Spark session."""
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr("tidemark.spark.session.quiet_session", lambda *_: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.setenv("COLUMNS", "200")


def published(settings: Settings, stream: Stream) -> list[int]:
    name = f"{settings.namespace}.{stream.table}"
    with another_catalog(settings) as catalog:
        rows = catalog.load_table(name).scan().to_arrow().to_pylist()
    return sorted(row["n"] for row in rows)


def test_a_day_that_nobody_archived_is_refilled_published_and_sealed(
    settings: Settings, make_stream: MakeStream, produce: Produce, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = make_stream(batch={"wait_seconds": 0, "checks": [POSITIVE]})
    produce(stream.topic, [(None, json.dumps({"n": n}).encode(), NOON_MS, 0, ()) for n in range(5)])

    assert reconcile(stream.name, "--from", str(DAY)) == 0

    printed = capsys.readouterr().out
    assert f"{DAY}, version 1: 5 records read, 5 published, 0 quarantined" in printed
    assert printed.rstrip().endswith("report.html")
    assert published(settings, stream) == [0, 1, 2, 3, 4]
    layout = Layout(prefix=settings.prefix, stream=stream.name)
    seal = read_seal(ObjectStore(settings), layout, DAY, 1)
    assert seal is not None
    assert seal.rows_published == 5


def test_a_failed_check_is_reported_and_ends_the_command_with_1(
    settings: Settings, make_stream: MakeStream, produce: Produce, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = make_stream(batch={"wait_seconds": 0, "checks": [POSITIVE]})
    produce(stream.topic, [(None, json.dumps({"n": n}).encode(), NOON_MS, 0, ()) for n in (1, -1)])

    assert reconcile(stream.name, "--from", str(DAY)) == 1

    printed, problem = capsys.readouterr()
    assert "report.html" in printed
    assert problem.startswith("QualityError: ")
    assert published(settings, stream) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [(("--to", str(DAY)), "the span of days is incomplete"), (("--from", "2999-01-01"), "the last day is not over")],
)
def test_days_that_cannot_be_reconciled_are_refused_before_anything_runs(
    make_stream: MakeStream, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    stream = make_stream()
    assert reconcile(stream.name, *arguments) == 1
    printed, error = capsys.readouterr()
    assert printed == ""
    assert error.startswith(f"RequestError: {problem}")
