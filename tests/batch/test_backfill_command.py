"""``tidemark backfill``: several runs in one process, what they leave out, and what a script reads of them."""

import json
from datetime import UTC, date, datetime

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.command_json import valid_result
from tests.conftest import MakeStream, Produce
from tidemark.cli.app import app

DAYS = tuple(date(2013, 1, number) for number in (14, 15, 16))
POSITIVE = {"expectation": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 0}}


@pytest.mark.services
def test_a_failed_run_does_not_stop_the_next_and_sealed_days_are_left_out_after_it(
    spark: SparkSession, make_stream: MakeStream, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.spark.session.quiet_session", lambda *_: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    stream = make_stream(batch={"wait_seconds": 0, "checks": [POSITIVE]})
    for day, number in zip(DAYS[:2], (-1, 1), strict=True):  # the first day fails its check
        noon = int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp() * 1000)
        produce(stream.topic, [(None, json.dumps({"n": number}).encode(), noon, 0, ())])
    span = (stream.name, "--from", str(DAYS[0]), "--to", str(DAYS[1]))

    shown = CliRunner().invoke(app, ["backfill", *span, "--days-per-run", "1", "--json"])

    found = valid_result("backfill", shown.stdout)
    assert shown.exit_code == 1
    assert [(item["days"], item["verdict"]) for item in found["runs"]] == [
        ([str(DAYS[0])], "failed"),
        ([str(DAYS[1])], "complete"),
    ]
    assert (found["already_sealed"], found["not_sealed"]) == ([], [str(DAYS[0])])
    assert "QualityError: " in shown.stderr
    assert f"1 of 2 days reconciled in 2 runs, {sum(item['seconds'] for item in found['runs']):,.0f} s" in shown.stderr

    shown = CliRunner().invoke(app, ["backfill", *span, "--dry-run"])
    assert shown.exit_code == 0
    # 58 PUT, 44 + 4 HEAD, 26 + 1 LIST, and 177 + 3 GET and four for each of the two manifests of the refills.
    assert [" ".join(line.split()) for line in shown.stdout.splitlines()] == [
        f"Backfill of {stream.name}: 1 day in 1 run",
        f"Left out, sealed with every archived record: {DAYS[1]}",
        "run day rows objects state",
        f"1 {DAYS[0]} 1 1 not sealed, at most 1 record waiting",
        "At most 1 row of 1 object; 321 requests to S3, $0.00 (S3 Standard in us-east-1, list price of 2025)",
        "Records that Kafka has and the archive lacks are not counted: the runs fetch them",
    ]
    forced = CliRunner().invoke(app, ["backfill", *span, "--dry-run", "--force", "--json"])
    assert valid_result("backfill", forced.stdout)["to_reconcile"] == [str(day) for day in DAYS[:2]]
