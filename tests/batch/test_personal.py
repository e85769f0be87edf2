"""Values of personal data planted in a stream, and searched for in everything that its runs leave."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.batch.world import World, january, moment
from tidemark.core.seal import Difference
from tidemark.definitions.stream import Stream
from tidemark.inspect.locate import record_statuses
from tidemark.installation import PROJECT
from tidemark.reconcile.audit.checks import CheckOutcome, Expected, explain, masked
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.rebuild.version_diff import masked as masked_difference
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.results import AUDIT, REBUILD, ChangedRow, ChangedValue, DayDifference
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings
from tidemark.tables.history_columns import CHECKS as CHECKS_HISTORY
from tidemark.tables.history_columns import REASONS
from tidemark.tables.reader import load_table
from tidemark.tables.seals import latest_seals

PLANTED = "planted"
SCHEMA = "id INT, name STRING, email STRING, passenger STRUCT<name: STRING>, delay DOUBLE"
PERSONAL = ("email", "contact", "passenger.name", "passenger_name")
TRANSFORM = """
from pyspark.sql import functions as F


@F.udf("int")
def length(text):
    raise ValueError("no length of " + text)


def transform(records):
    return records.select(
        "source", "event_time", "event.id", "event.name", "event.delay", "event.email",
        F.lower("event.email").alias("contact"), F.col("event.passenger.name").alias("passenger_name"),
        F.when(F.col("event.name") == "refused", F.concat(F.lit("no such address: "), "event.email")).alias("reject"),
    )
"""
FAILING = {
    "a cast": ('"event.id"', 'F.col("event.email").cast("int").alias("id")', "[CAST_INVALID_INPUT] •••"),
    "a function": ('"event.id"', 'length("event.email").alias("id")', "ValueError: •••"),
    "an error": (
        '"event.id"',
        'F.raise_error(F.concat(F.lit("no "), "event.email")).cast("int").alias("id")',
        "[USER_RAISED_EXCEPTION] •••",
    ),
}


def check(expectation: str, severity: str = "warning", **kwargs: Any) -> dict[str, Any]:
    return {"expectation": expectation, "kwargs": kwargs, "severity": severity}


CHECKS = [
    check("expect_column_values_to_be_in_set", column="contact", value_set=["nobody"]),
    check("expect_column_most_common_value_to_be_in_set", column="passenger_name", value_set=["nobody"]),
    check("expect_column_pair_values_to_be_equal", column_A="name", column_B="email"),
    check(
        "expect_column_values_to_not_be_null",
        column="delay",
        row_condition="CAST(email AS INT) > 1",
    ),
    check("expect_column_values_to_be_between", column="delay", max_value=1),
]


def value(number: int, name: str = "row") -> bytes:
    event = {
        "id": number,
        "name": name,
        "email": f"{PLANTED.capitalize()}-{number % 3}@example.org",
        "passenger": {"name": f"{PLANTED} passenger {number}"},
        "delay": 1.5,
    }
    return json.dumps(event).encode()


def make_world(
    spark: SparkSession, settings: Settings, folder: Path, *, personal: tuple[str, ...] = PERSONAL, **batch: Any
) -> World:
    """Good records, two of the same key, a refused one and one that is no JSON, archived."""
    world = World.make(
        spark, settings, folder, checks=CHECKS, transform=TRANSFORM, value_schema=SCHEMA, personal=personal, **batch
    )
    bodies = [*map(value, range(6)), value(6, "refused"), f"{PLANTED} broken".encode()]
    world.produce([(moment(14), body) for body in bodies])
    world.archive(0, len(bodies))
    return world


def left(world: World) -> Iterator[tuple[str, str]]:
    """Each object of the stream but the archived ones and the tables' files, with its text."""
    store = world.run("any").store
    for item in store.list(world.settings.prefix):
        if world.name in item.key and "/data/" not in item.key and not item.key.endswith((".parquet", ".avro")):
            body = store.get(item.key)
            assert body is not None
            yield item.key, body.decode(errors="replace")


def leaks(world: World) -> dict[str, str]:
    """Where a planted value is, with what is around it."""
    found = {}
    for key, text in left(world):
        at = text.lower().find(PLANTED)
        if at >= 0:
            found[key] = text[max(at - 200, 0) : at + 100]
    return found


def test_no_run_leaves_a_personal_value_in_results_reports_seals_or_summaries(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """Failed checks with examples, a broken check, a duplicate by key, quarantined records, a changed version."""
    world = make_world(spark, settings, tmp_path, deduplicate={"key": ["email"]})
    first = world.reconcile("first", [january(14)], audit=audit_run)
    seal_run(first)
    report_run(first)
    (counts,) = first.require(REBUILD).days
    assert (counts.published, counts.quarantined, counts.duplicates_removed) == (3, 2, 3)
    outcomes = [item for item in first.require(AUDIT).checks if not item.expected.built_in]
    assert [item.success for item in outcomes] == [False] * len(CHECKS)
    assert outcomes[0].observed["unexpected_count"] == 3
    assert outcomes[-2].exception is not None
    assert {example for item in outcomes[:-1] for example in item.examples} == {"•••"}
    assert outcomes[-1].examples == (1.5,) * 3

    # The same records with other values: each row changes.
    code = tmp_path / f"{world.name}.py"
    code.write_text(TRANSFORM.replace('F.lower("event.email")', 'F.concat(F.lit("x"), F.lower("event.email"))'))
    (seal,) = latest_seals(first.store, first.layout)
    second = world.plan("second", [january(14)], seals=[seal], force=True)
    world.rebuild(second)
    (difference,) = second.require(REBUILD).differences
    assert difference.rows == Difference(added=0, removed=0, changed=3)
    assert {(item.column, item.before, item.after) for row in difference.examples for item in row.values} == {
        ("contact", "•••", "•••")
    }
    report_run(second)

    places = [(world.log(), offset) for offset in range(8)]
    statuses = record_statuses(world.settings, first.stream, seal, places)
    assert statuses[world.log(), 6] == ("quarantined", "no such address: •••")
    assert PLANTED not in repr(statuses).lower()
    assert leaks(world) == {}
    for name in (CHECKS_HISTORY.name, REASONS.name):
        table = load_table(world.settings, name)
        assert table is not None
        rows = table.scan(row_filter=f"stream = '{world.name}'").to_arrow().to_pylist()
        assert rows
        assert PLANTED not in str(rows).lower()
    keys = [key for key, _ in left(world)]
    for part in (
        "first/report.html",
        "first/data-docs-2013-01-14.html",
        "first/report.json",
        "first/audit.json",
        "second/rebuild.json",
        "seals/",
    ):
        assert [key for key in keys if part in key], part
    # What the search can find: the table has the values.
    assert PLANTED in str(spark.table(world.table).collect()).lower()


def test_an_audit_that_fails_on_personal_values_ends_with_an_error_without_them(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = make_world(spark, settings, tmp_path)
    path = tmp_path / f"{world.name}.yaml"
    path.write_text(path.read_text().replace("severity: warning", "severity: critical"))
    run = world.plan("first", [january(14)])
    world.rebuild(run)
    printed, _ = run_elsewhere("audit", world, tmp_path)
    report_run(run)
    last = printed.strip().splitlines()[-1]
    assert last.startswith("QualityError: critical checks did not pass: "), printed
    assert "expect_column_most_common_value_to_be_in_set (passenger_name): failed, observed •••" in last
    assert PLANTED not in printed.lower()
    assert leaks(world) == {}


@pytest.mark.parametrize("fault", FAILING)
def test_an_application_that_fails_on_a_personal_value_does_not_show_it(
    spark: SparkSession, settings: Settings, tmp_path: Path, fault: str
) -> None:
    before, after, shown = FAILING[fault]
    world = make_world(spark, settings, tmp_path)
    (tmp_path / f"{world.name}.py").write_text(TRANSFORM.replace(before, after))
    run = world.plan("first", [january(14)])
    printed, events = run_elsewhere("rebuild", world, tmp_path)
    report_run(run)
    last = printed.strip().splitlines()[-1]
    assert last.startswith("TransformError: the transformation fails on a record: "), printed
    assert f"{world.name}, partition 0, offset 0: " in last
    assert shown in last
    assert "Lost task" in printed  # Spark's own log is there
    assert PLANTED not in printed.lower()
    assert events == ""
    assert leaks(world) == {}


def test_without_the_key_personal_the_same_failure_shows_the_value_everywhere(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """So the tests above would find it."""
    world = make_world(spark, settings, tmp_path, personal=())
    before, after, _ = FAILING["a cast"]
    (tmp_path / f"{world.name}.py").write_text(TRANSFORM.replace(before, after))
    run = world.plan("first", [january(14)])
    printed, events = run_elsewhere("rebuild", world, tmp_path)
    report_run(run)
    assert {PLANTED in text.lower() for text in (printed, events)} == {True}
    assert {key.rpartition("/")[2] for key in leaks(world)} == {"rebuild.json", "report.json", "report.html"}


def run_elsewhere(step: str, world: World, folder: Path) -> tuple[str, str]:
    """What the application of a step that fails prints, with Spark's event logs on, and what these hold."""
    events = folder / "events"
    events.mkdir()
    conf = f"spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir {events.as_uri()}\n"
    (folder / "spark-defaults.conf").write_text(conf)
    arguments = ["--stream", world.name, "--run", "first"]
    done = subprocess.run(
        [sys.executable, str(PROJECT / "spark_apps" / f"{step}.py"), *arguments],
        env={**os.environ, **world.settings.environment(), "SPARK_CONF_DIR": str(folder)},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    logs = [path.read_text(errors="replace") for path in events.rglob("*") if path.is_file()]
    return done.stdout + done.stderr, "".join(logs)


STREAM = Stream.model_validate(
    {
        "name": "people",
        "topic": "people",
        "value_schema": SCHEMA,
        "personal": [*PERSONAL],
        "speed": {"topic": "people.live", "dead_letter_topic": "people.dead"},
    }
)


EXPECTATIONS = {
    "column": "expect_column_values_to_be_in_set",
    "column_A": "expect_column_pair_values_to_be_equal",
    "column_list": "expect_select_column_values_to_be_unique_within_record",
    "unexpected_rows_query": "unexpected_rows_expectation",
}


def outcome(observed: Any, examples: tuple[Any, ...] = (), exception: str | None = None, **kwargs: Any) -> CheckOutcome:
    names = [name for argument, name in EXPECTATIONS.items() if argument in kwargs]
    expected = Expected(expectation=names[0], kwargs=kwargs, severity="critical", built_in=False)
    return CheckOutcome(expected=expected, success=False, observed=observed, examples=examples, exception=exception)


COUNTS = {"element_count": 9, "unexpected_count": 2}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (outcome("ada", column="email"), outcome("•••", column="email")),
        (outcome(COUNTS, ("ada", "bob"), column="email"), outcome(COUNTS, ("•••", "•••"), column="email")),
        (outcome(3, column="delay"), outcome(3, column="delay")),
        (outcome(3, (1.5,), column="name"), outcome(3, (1.5,), column="name")),
        (outcome(None, column="email"), outcome(None, column="email")),
        (outcome("ada", column_A="name", column_B="Contact"), outcome("•••", column_A="name", column_B="Contact")),
        (outcome("ada", column_list=["name", "email"]), outcome("•••", column_list=["name", "email"])),
        (
            outcome(1, ({"any": "ada"},), unexpected_rows_query="SELECT"),
            outcome("•••", ("•••",), unexpected_rows_query="SELECT"),
        ),
        (
            outcome(None, exception="ValueError: ada", column="delay"),
            outcome(None, exception="ValueError: •••", column="delay"),
        ),
    ],
)
def test_what_a_check_saw_of_a_personal_column_is_masked_and_counts_stay(
    given: CheckOutcome, expected: CheckOutcome
) -> None:
    assert masked(given, STREAM) == expected
    assert masked(given, STREAM.model_copy(update={"personal": ()})) == given
    assert "ada" not in explain(masked(given, STREAM))


def test_duplicates_that_the_platform_finds_itself_show_the_columns_that_are_not_personal() -> None:
    expected = Expected(expectation="rows", kwargs={}, severity="critical", built_in=True, about="unique")
    given = CheckOutcome(expected=expected, success=False, observed=1, examples=({"email": "ada", "copies": 2},))
    assert masked(given, STREAM).examples == ({"email": "•••", "copies": 2},)


def test_examples_of_changed_rows_keep_the_values_of_other_columns() -> None:
    values = tuple(ChangedValue(column=name, before="old", after=None) for name in ("Email", "delay"))
    row = ChangedRow(topic_id="t", partition=0, offset=7, values=values)
    rows = Difference(added=0, removed=0, changed=1)
    (found,) = masked_difference(DayDifference(day=january(14), rows=rows, examples=(row,)), STREAM).examples
    assert [(item.column, item.before, item.after) for item in found.values] == [
        ("Email", "•••", "•••"),
        ("delay", "old", None),
    ]
