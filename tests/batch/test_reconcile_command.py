"""``tidemark reconcile``: every step in one process, its report, and how it ends where a step fails."""

import json
import sys
from datetime import UTC, date, datetime

import pytest
from pyspark.sql import SparkSession

from tests.catalog import another_catalog
from tests.collector import Collector, step_exports
from tests.command_json import valid_result
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
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    collector: Collector,
    capsys: pytest.CaptureFixture[str],
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
    exports = step_exports(collector)
    assert [item.step for item in exports] == [
        *("wait", "plan", "refill", "finalize_plan", "rebuild", "audit", "publish", "seal", "delivery", "report")
    ]
    exported = [item.values for item in exports]
    assert all(0 <= values.pop("tidemark.step.duration") < 600 for values in exported)
    assert {values.pop("tidemark.step.failed") for values in exported} == {0}
    assert exported == [
        {},
        {},
        {"tidemark.refill.offsets": 5, "tidemark.refill.lost": 0},
        {"tidemark.plan.lost": 0},
        {
            "tidemark.rebuild.read": 5,
            "tidemark.rebuild.published": 5,
            "tidemark.rebuild.quarantined": 0,
            "tidemark.rebuild.duplicates": 0,
        },
        {"tidemark.audit.held_back": 0, "tidemark.audit.failed_checks": 0},
        {"tidemark.publish.days": 1},
        {"tidemark.seal.days": 1},
        {},
        {},
    ]


def test_a_failed_check_is_reported_and_ends_the_command_with_1(
    settings: Settings, make_stream: MakeStream, produce: Produce, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = make_stream(batch={"wait_seconds": 0, "checks": [POSITIVE]})
    produce(stream.topic, [(None, json.dumps({"n": n}).encode(), NOON_MS, 0, ()) for n in (1, -1)])

    assert reconcile(stream.name, "--from", str(DAY), "--json") == 1

    printed, problem = capsys.readouterr()
    found = valid_result("reconcile", printed)
    assert (found["verdict"], found["days"], found["sealed"]) == ("failed", [str(DAY)], [])
    assert found["error"].startswith("QualityError: ")
    assert "report.html" in problem
    assert "QualityError: " in problem
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
