"""The queries that docs/how-to/query-the-history.md shows, over history tables with known versions."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import unique
from tests.pages import blocks
from tidemark.installation import PROJECT
from tidemark.settings import Settings
from tidemark.tables.history import VersionHistory, write_history
from tidemark.tables.history_columns import CHECKS, REASONS, RECONCILIATION, RUNS

PAGE = PROJECT / "docs" / "how-to" / "query-the-history.md"


def test_the_queries_of_the_page_answer_its_questions(spark: SparkSession, settings: Settings) -> None:
    first, second = unique("rides"), unique("orders")
    days = [date(2025, 6, day) for day in (1, 2)]
    for stream, hours in ((first, 2), (second, 9)):
        write_history(settings, stream, [_queried(stream, day, 1, hours=hours) for day in days])
    write_history(settings, first, [_queried(first, days[0], 2, hours=30, rejected=3)])
    queries = [block.text for block in blocks(PAGE) if block.language == "sql"]
    late, reasons, checks = (
        [
            tuple(row)
            for row in spark.sql(
                query.replace("tidemark.published.", f"{settings.catalog}.{settings.namespace}.")
            ).collect()
            if row["stream"] in {first, second}
        ]
        for query in queries
    )
    assert sorted(late) == [(second, days[0], 9.0), (second, days[1], 9.0)]
    assert reasons == sorted(
        [
            (first, days[0], "no ride", 3, 3.0),
            (first, days[1], "no ride", 7, 7.0),
            *((second, day, "no ride", 7, 7.0) for day in days),
        ]
    )
    assert sorted(checks) == sorted(
        (stream, "expect_a", "fare", "warning", 2, "3 of 90 unexpected") for stream in (first, second)
    )


def test_the_example_without_spark_counts_a_rebuilt_day_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = unique("rides")
    days = [date(2025, 6, day) for day in (1, 2)]
    write_history(settings, stream, [_queried(stream, day, 1, hours=2, lost=5) for day in days])
    write_history(settings, stream, [_queried(stream, days[0], 2, hours=30, lost=3)])
    monkeypatch.setattr("tidemark.settings.settings", lambda: settings)
    (code,) = (block.text for block in blocks(PAGE) if block.language == "python")
    found: dict[str, Any] = {}
    # The example itself, as a reader runs it, but for its last step, which prints.
    exec(code.replace("duckdb.sql(", "answer = duckdb.sql(").replace(".show()", ".fetchall()"), found)  # noqa: S102
    assert dict(found["answer"])[stream] == 3 + 5


def _queried(stream: str, day: date, number: int, *, hours: int, rejected: int = 7, lost: int = 0) -> VersionHistory:
    """A version that was sealed some hours after its day, with a failed check and rejected records."""
    own = {"stream": stream, "day": day, "version": number, "run": "run-1"}
    ended = datetime(2025, 6, day.day + 1, tzinfo=UTC)
    check = {"column_name": "fare", "severity": "warning", "observed": "3 of 90 unexpected"}
    return VersionHistory(
        day=day,
        version=number,
        run="run-1",
        rows={
            RUNS: [
                {
                    **own,
                    "day_ended_at": ended,
                    "sealed_at": ended + timedelta(hours=hours),
                    "rows_read": 100,
                    "lost_offsets_of_day": lost,
                }
            ],
            CHECKS: [
                {**own, "expectation": "expect_a", "passes": False, **check},
                {**own, "expectation": "expect_b", "passes": True, **check},
            ],
            RECONCILIATION: [],
            REASONS: [{**own, "reason": "no ride", "row_count": rejected}],
        },
    )
