"""What a check's outcome means for the run: severity, broken checks, nothing to check."""

from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from tests.batch.steps import ended, pass_audit
from tests.batch.world import World, january, moment, value
from tidemark.core.errors import QualityError
from tidemark.definitions.sections import FieldTime
from tidemark.reconcile.audit.checks import CheckOutcome, Expected, explain, observed_text, times_read
from tidemark.reconcile.audit.expectations import evaluate
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.json_values import safe
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.results import AUDIT, AuditResult
from tidemark.settings import Settings
from tidemark.tables.iceberg import IcebergTable

pytestmark = pytest.mark.conformance(47)

NAMES = {"expectation": "expect_column_values_to_be_in_set", "kwargs": {"column": "name", "value_set": ["ROW"]}}
DELAYS = {
    "expectation": "expect_column_values_to_be_between",
    "kwargs": {"column": "delay", "max_value": 100},
    "severity": "warning",
}


def user_checks(audit: AuditResult) -> list[CheckOutcome]:
    return [item for item in audit.checks if not item.expected.built_in]


def test_a_failing_critical_check_blocks_publication_and_leaves_the_old_day(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, checks=[NAMES, DELAYS])
    world.produce([(moment(14), value(number, delay=500.0)) for number in range(4)])
    world.archive(0, 4)
    first = world.reconcile("first", [january(14)], audit=audit_run)
    old = world.published()
    warned = user_checks(first.require(AUDIT))[1]
    assert (warned.expected.severity, warned.success, warned.observed["unexpected_count"]) == ("warning", False, 4)
    assert warned.examples == (500.0,) * 4

    world.produce([(moment(14), value(9, "<script>"))])
    world.archive(4, 5)
    run = world.plan("second", [january(14)])
    world.rebuild(run)
    with pytest.raises(QualityError, match=r"expect_column_values_to_be_in_set \(name\): failed"):
        audit_run(run, spark)
    status, audit = ended(run, AUDIT)
    assert (status, audit.passed) == ("failed", False)
    assert [item.success for item in user_checks(audit)] == [False, False]
    assert user_checks(audit)[0].examples == ("<SCRIPT>",)
    with pytest.raises(QualityError, match="only an audited branch is published"):
        publish_run(run, spark)
    assert world.published() == old


def test_publication_needs_an_audit_and_one_of_this_very_rebuild(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path)
    world.produce([(moment(14), value(1))])
    world.archive(0, 1)
    run = world.plan("first", [january(14)])
    world.rebuild(run)
    with pytest.raises(QualityError, match="expected a passed audit, found no audit"):
        publish_run(run, spark)
    pass_audit(run, spark)
    world.rebuild(run)
    with pytest.raises(QualityError, match="the audit was made of another rebuild"):
        publish_run(run, spark)
    assert world.published() == []


def test_a_day_whose_every_record_was_quarantined_is_unknown_not_passed(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, checks=[NAMES])
    world.produce([(moment(14), b"broken"), (moment(15), value(1))])
    world.archive(0, 2)
    run = world.plan("first", [january(14), january(15)])
    world.rebuild(run)
    with pytest.raises(QualityError, match="unknown, observed every record of 2013-01-14 was quarantined"):
        audit_run(run, spark)


@pytest.mark.conformance(76)
@pytest.mark.parametrize(
    ("share", "rows", "unreadable", "passes"),
    [
        (0.01, 100, 1, True),
        (0.29, 100, 29, True),  # as doubles, 0.29 × 100 is less than 29
        (0.01, 100, 2, False),
        (0.01, 99, 1, False),
        (0, 10**6, 1, False),
        (1, 3, 3, True),
        (0.5, 0, 0, True),
    ],
)
def test_a_day_passes_with_at_most_the_share_of_times_that_can_not_be_read(
    share: float, rows: int, unreadable: int, passes: bool
) -> None:
    wanted = FieldTime(extractor="record_field", field="$.trip.at", unreadable_alarm_share=share)
    found = times_read(january(14), rows, unreadable, wanted)
    assert (found.success, found.blocks) == (passes, False)
    if not passes:
        said = f"2013-01-14: at most {share:.0%} of the records have no time in $.trip.at: failed, observed"
        assert explain(found).replace(" %", "%") == f"{said} {unreadable} of {rows:,} unexpected"


def test_doubled_or_missing_rows_of_the_branch_are_found(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path)
    world.produce([(moment(14), value(number)) for number in range(3)])
    world.archive(0, 3)
    run = world.plan("first", [january(14)])
    rebuilt = world.rebuild(run)
    rows = IcebergTable(spark, settings, world.name).read(str(rebuilt.branch))
    doubled = spark.createDataFrame(rows.where("_offset = 1").collect(), rows.schema)
    doubled.writeTo(f"{world.table}.branch_{rebuilt.branch}").append()
    with pytest.raises(QualityError, match=r"every record occurs once: failed.*each day has the rows .*: failed"):
        audit_run(run, spark)
    _, audit = ended(run, AUDIT)
    assert audit.checks[1].examples == ({"_topic_id": "topic-id-1", "_kafka_partition": 0, "_offset": 1, "copies": 2},)
    assert audit.checks[2].examples == ({"day": "2013-01-14", "expected": 3, "found": 4},)


def test_a_check_that_cannot_run_is_an_error_not_a_pass(spark: SparkSession) -> None:
    made: list[tuple[str, dict[str, Any]]] = [
        ("expect_column_values_to_not_be_null", {"column": "no_such_column"}),
        ("expect_something_unheard_of", {}),
        ("expect_column_values_to_be_between", {"colum": "id"}),
        ("expect_column_values_to_not_be_null", {"column": "id"}),
    ]
    checks = [Expected(expectation=name, kwargs=kwargs, severity="critical", built_in=False) for name, kwargs in made]
    *broken, fine = evaluate(spark.sql("SELECT 1 AS id"), checks)
    assert [(item.success, item.blocks, bool(item.exception)) for item in broken] == [(False, True, True)] * 3
    assert (fine.success, fine.blocks, fine.exception) == (True, False, None)


def test_a_check_that_is_there_twice_or_breaks_the_library_takes_no_other_with_it(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS id, CAST(NULL AS DOUBLE) AS none")
    made: list[tuple[str, dict[str, Any], Literal["critical", "warning"]]] = [
        ("expect_column_values_to_not_be_null", {"column": "id"}, "critical"),
        ("expect_column_values_to_not_be_null", {"column": "id"}, "warning"),
        ("expect_column_values_to_be_in_set", {"column": "id", "value_set": {"$PARAMETER": "x"}}, "warning"),
        # The library finds no parts for a column without a value.
        ("expect_column_kl_divergence_to_be_less_than", {"column": "none", "threshold": 1}, "warning"),
    ]
    checks = [
        Expected(expectation=name, kwargs=kwargs, severity=severity, built_in=False) for name, kwargs, severity in made
    ]
    outcomes = evaluate(rows, checks)
    assert [item.expected for item in outcomes] == checks
    assert [(item.success, item.exception is None) for item in outcomes] == [(True, True)] * 2 + [(False, False)] * 2


def test_a_condition_limits_a_check_to_the_rows_that_meet_it(spark: SparkSession) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1, 'a'), (2, NULL), (3, NULL) AS rows(id, name)")
    checks = [
        Expected(
            expectation="expect_column_values_to_not_be_null",
            kwargs={"column": "name", "row_condition": condition},
            severity="critical",
            built_in=False,
        )
        for condition in ("id = 1", "id < 3", "id > 3")
    ]
    outcomes = evaluate(rows, checks)
    assert [item.success for item in outcomes] == [True, False, None]
    assert [item.expected for item in outcomes] == checks


@pytest.mark.parametrize(
    ("observed", "text"),
    [
        ({"element_count": 4_000, "unexpected_count": 1, "missing_count": 0}, "1 of 4,000 unexpected"),
        ({"element_count": 4, "unexpected_count": 1, "missing_count": 2}, "1 of 4 unexpected, 2 missing"),
        ({"unexpected_count": 1, "missing_count": 2}, "1 unexpected, 2 missing"),
        ({"missing_count": 0}, "0 missing"),
        (1_000, "1,000"),
        (None, "–"),
    ],
)
def test_what_a_check_saw_is_shown_in_words(observed: Any, text: str) -> None:
    assert observed_text(observed) == text


def test_evaluation_leaves_nothing_cached(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS id")
    check = Expected(
        expectation="expect_column_values_to_not_be_null", kwargs={"column": "id"}, severity="warning", built_in=False
    )
    evaluate(rows, [check])
    assert not rows.storageLevel.useMemory


def test_values_are_made_fit_for_strict_json() -> None:
    value = {"nan": float("nan"), "bytes": b"\xff", "long": "x" * 300, "nested": (1, [None, january(14)])}
    assert safe(value) == {"nan": "nan", "bytes": "ff", "long": "x" * 199 + "…", "nested": [1, [None, "2013-01-14"]]}
