"""Answers from statistics are those of Great Expectations, which sees the rows."""

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from tests.conftest import unique
from tidemark.reconcile.audit.checks import Expected
from tidemark.reconcile.audit.expectations import EXAMPLES_MAX, evaluate
from tidemark.reconcile.audit.from_statistics import answer
from tidemark.settings import Settings
from tidemark.tables.column_statistics import DayStatistics, added_days
from tidemark.tables.reader import load_table

TABLES, COLUMNS = 300, 10  # each column with the rows of its table is a generated table of its own
Values = Sequence[float | None]
COUNTS = ("element_count", "missing_count", "unexpected_count", "unexpected_percent")
CHECKS = (
    "expect_table_row_count_to_equal",
    "expect_table_row_count_to_be_between",
    "expect_column_values_to_not_be_null",
    "expect_column_values_to_be_null",
    "expect_column_min_to_be_between",
    "expect_column_max_to_be_between",
    "expect_column_values_to_be_between",
)


def values(chance: random.Random, rows: int) -> Values:
    """Whole numbers or halves, some of them or all null."""
    step, share = chance.choice((1, 0.5)), chance.choice((0, 0, 0.3, 1))
    return [None if chance.random() < share else step * chance.randint(-4, 4) for _ in range(rows)]


def statistics(columns: Mapping[str, Values], rows: int) -> DayStatistics:
    known = {name: [item for item in of if item is not None] for name, of in columns.items()}
    return DayStatistics(
        rows=rows,
        nulls={name: rows - len(of) for name, of in known.items()},
        bounds={name: (min(of), max(of)) for name, of in known.items() if of},
    )


def expected(chance: random.Random, name: str, column: str) -> Expected:
    kwargs: dict[str, Any] = {}
    if name != "expect_table_row_count_to_equal" and not name.endswith("null"):
        kwargs = {
            key: value
            for key, value in (
                ("min_value", chance.choice((None, chance.randint(-4, 4), chance.randint(-8, 8) / 2))),
                ("max_value", chance.choice((None, chance.randint(-2, 9), chance.randint(-4, 18) / 2))),
                ("strict_min", chance.choice((None, True, False))),
                ("strict_max", chance.choice((None, True, False))),
            )
            if value is not None
        }
        low, high = kwargs.get("min_value"), kwargs.get("max_value")
        if (low is None and high is None) or (low is not None and high is not None and low >= high):
            kwargs = {"min_value": -4}
    if name == "expect_table_row_count_to_equal":
        kwargs = {"value": chance.randint(1, 12)}
    if name.startswith("expect_table_row_count_to_be"):
        kwargs = {key: int(value) if "value" in key else value for key, value in kwargs.items()}
        if kwargs.get("min_value", -9) >= kwargs.get("max_value", 99):
            kwargs = {"min_value": 3}
    if name.startswith("expect_column_values") and chance.random() < 0.7:
        kwargs["mostly"] = chance.choice((0, 0.25, 0.5, 2 / 3, 0.9, 1))
    if name.startswith("expect_column"):
        kwargs["column"] = column
    return Expected(expectation=name, kwargs=kwargs, severity="critical", built_in=False)


def on_pandas(columns: Mapping[str, Values], checks: Sequence[Expected]) -> Iterator[tuple[bool, Any]]:
    """Success, and what was observed, as the library says of the rows themselves."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    frame = pd.DataFrame({name: pd.array(list(of), dtype="Float64") for name, of in columns.items()})
    asset = context.data_sources.add_pandas("source").add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    suite = gx.ExpectationSuite(name="suite")
    for number, check in enumerate(checks):
        given = ExpectationConfiguration(type=check.expectation, kwargs=check.kwargs, meta={"check": number})
        suite.add_expectation(given.to_domain_obj())
    found = batch.validate(suite, result_format={"result_format": "SUMMARY", "partial_unexpected_count": EXAMPLES_MAX})
    by_number: dict[int, Any] = {}
    for item in found.results:
        assert item.expectation_config is not None
        by_number[int(item.expectation_config.meta["check"])] = item
    for number in range(len(checks)):
        success, result = bool(by_number[number].success), by_number[number].result
        if "observed_value" in result:
            yield success, float(result["observed_value"])
        else:
            yield success, {name: float(result[name]) for name in COUNTS if name in result}


def test_three_thousand_generated_tables_have_the_librarys_verdicts() -> None:
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    chance = random.Random(30)  # noqa: S311  # not for secrets
    seen: Counter[tuple[str, bool | None]] = Counter()
    for _ in range(TABLES):
        rows = chance.randint(1, 12)
        columns = {f"c{number}": values(chance, rows) for number in range(COLUMNS)}
        checks = [expected(chance, chance.choice(CHECKS), name) for name in columns]
        checks = [item for number, item in enumerate(checks) if item not in checks[:number]]
        ours = [answer(item, statistics(columns, rows)) for item in checks]
        asked = [item for item, found in zip(checks, ours, strict=True) if found is not None]
        given = [item for item in ours if item is not None]
        for found, theirs in zip(given, on_pandas(columns, asked), strict=True):
            assert (found.success, found.observed) == theirs, found
            seen[found.expected.expectation, found.success] += 1
    assert sum(seen.values()) > 1_500
    only_passes = {"expect_column_values_to_be_null", "expect_column_values_to_be_between"}  # else a scan counts
    verdicts = [(name, passed) for name in CHECKS for passed in (True, False) if passed or name not in only_passes]
    assert [item for item in verdicts if seen[item] < 10] == []


def test_an_outcome_is_the_one_of_spark_with_its_examples(spark: SparkSession) -> None:
    chance = random.Random(31)  # noqa: S311  # not for secrets
    rows = 9
    columns = {f"c{number}": values(chance, rows) for number in range(12)}
    data = [tuple(None if of[at] is None else float(of[at] or 0) for of in columns.values()) for at in range(rows)]
    frame = spark.createDataFrame(data, ", ".join(f"{name} DOUBLE" for name in columns))
    checks = [expected(chance, name, column) for name in CHECKS for column in columns]
    ours = [answer(item, statistics(columns, rows)) for item in checks]
    answered = [item for item in ours if item is not None]
    assert len(answered) > len(checks) // 2
    assert evaluate(frame, [item.expected for item in answered]) == answered


NAN = float("nan")
# Each list is a column of the rows that Spark writes to three files: of row 0 to 2, 3 to 5, and 6 to 8.
WITH_NAN: Mapping[str, Values] = {
    "first": (NAN, 2, 3, 4, 5, 6, 7, 8, 9),
    "middle": (1, 2, 3, 4, NAN, 6, 7, 8, 9),
    "last": (1, 2, 3, 4, 5, 6, 7, 8, NAN),
    "a_file": (NAN, NAN, NAN, 4, 5, 6, 7, 8, 9),
    "all": (NAN,) * 9,
    "beside_null": (None, NAN, 3, None, None, None, 7, 8, 9),
}


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_files_of_spark_with_nan_have_the_librarys_verdicts(spark: SparkSession, settings: Settings, kind: str) -> None:
    columns = {**WITH_NAN, "without": (1, None, 3, 4, 5, 6, 7, 8, 9)}
    day = date(2013, 1, 14)
    schema = ", ".join(["_day DATE", "_file INT", *(f"{name} {kind}" for name in columns)])
    data = [
        (day, at // 3, *(None if of[at] is None else float(of[at] or 0) for of in columns.values())) for at in range(9)
    ]
    name = unique("with_nan")
    table = f"{settings.catalog}.{settings.namespace}.{name}"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {settings.catalog}.{settings.namespace}")
    spark.sql(f"CREATE TABLE {table} ({schema}) USING iceberg PARTITIONED BY (days(_day))")
    spark.createDataFrame(data, schema).repartitionByRange(3, "_file").writeTo(table).option(
        "distribution-mode", "none"
    ).append()
    loaded = load_table(settings, name)
    assert loaded is not None
    (snapshot,) = loaded.metadata.snapshots
    assert len(list(loaded.scan().plan_files())) == 3
    found = added_days(loaded, snapshot.snapshot_id)[day]
    checks = [
        Expected(expectation=expectation, kwargs={"column": column, **bounds}, severity="critical", built_in=False)
        for column in columns
        for expectation in CHECKS[2:]
        for bounds in ([{}] if expectation.endswith("null") else [{"min_value": 0}, {"max_value": 9}, {"max_value": 3}])
    ]
    ours = {number: outcome for number, item in enumerate(checks) if (outcome := answer(item, found)) is not None}
    theirs = evaluate(spark.table(table), [checks[number] for number in ours])
    assert list(ours.values()) == theirs
    bounded = {item.expected.kwargs["column"] for item in theirs if len(item.expected.kwargs) > 1}
    assert bounded == {"without"}


@pytest.mark.parametrize(
    "kwargs",
    [
        {"column": "c", "max_value": 9, "row_condition": "c > 1"},
        {"column": "c", "min_value": "2013-01-14"},
        {"column": "c", "min_value": float("nan")},
        {"column": "c", "min_value": True},
        {"column": "c"},
        {"column": "other", "min_value": 1},
        {"column": "c", "min_value": 2},
    ],
)
def test_what_may_need_rows_has_no_answer(kwargs: dict[str, Any]) -> None:
    day = DayStatistics(rows=3, nulls={"c": 0}, bounds={"c": (1, 3)})
    check = Expected(
        expectation="expect_column_values_to_be_between", kwargs=kwargs, severity="critical", built_in=False
    )
    assert answer(check, day) is None


@pytest.mark.parametrize(("column", "bound"), [(2**53 + 1, 2.0**53), (2.0**60, 2**60 + 1)])
def test_whole_numbers_beyond_those_of_a_float_have_no_answer(column: float, bound: float) -> None:
    """Python compares them exactly, Spark as floats."""
    kwargs = {"column": "c", "min_value": bound, "strict_min": True}
    name = "expect_column_values_to_be_between"
    check = Expected(expectation=name, kwargs=kwargs, severity="critical", built_in=False)
    assert answer(check, DayStatistics(rows=1, nulls={"c": 0}, bounds={"c": (column, column)})) is None


def test_a_day_without_rows_has_no_answer() -> None:
    check = Expected(expectation=CHECKS[0], kwargs={"value": 0}, severity="critical", built_in=False)
    assert answer(check, DayStatistics(rows=0, nulls={})) is None
