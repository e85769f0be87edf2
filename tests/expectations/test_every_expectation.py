"""Every expectation of the catalogue on Spark: on rows that pass it, on rows that fail it, and without a value."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidemark.definitions.check_catalogue import catalogue, check_problems
from tidemark.definitions.own_checks import OWN_CHECKS
from tidemark.definitions.sections import Check
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.audit.expectations import evaluate

pytestmark = pytest.mark.conformance(47)

ROWS = """
SELECT id, id + 0 AS same, CAST(id AS DOUBLE) / 2 AS half, IF(id < 4, 'AA', 'BB') AS code, CAST(NULL AS DOUBLE) AS none,
       '{"n": 1}' AS json, IF(id < 5, '2013-01-14', 'late') AS day, IF(id < 6, 1.0D, 900.0D) AS lone, 6 - id AS down
FROM VALUES (1), (2), (3), (4), (5), (6) AS numbers(id)
"""
COLUMNS = ["id", "same", "half", "code", "none", "json", "day", "lone", "down"]
PARTS = {"values": ["AA", "BB"], "weights": [0.5, 0.5]}
BINS = {"bins": [0.0, 1.5, 3.1], "weights": [0.34, 0.66]}
COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}}
TEXTS = {"type": "object", "properties": {"n": {"type": "string"}}}


def of(column: str, **kwargs: Any) -> dict[str, Any]:
    return {"column": column, **kwargs}


def pair(first: str, second: str, **kwargs: Any) -> dict[str, Any]:
    return {"column_A": first, "column_B": second, **kwargs}


def quantiles(low: float, high: float) -> dict[str, Any]:
    return {"quantiles": [0.5], "value_ranges": [[low, high]]}


# Arguments with which the rows pass, and arguments with which they fail.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "expect_column_distinct_values_to_be_in_set": (
        of("code", value_set=["AA", "BB", "CC"]),
        of("code", value_set=["AA"]),
    ),
    "expect_column_distinct_values_to_contain_set": (of("code", value_set=["AA"]), of("code", value_set=["CC"])),
    "expect_column_distinct_values_to_equal_set": (of("code", value_set=["AA", "BB"]), of("code", value_set=["AA"])),
    "expect_column_kl_divergence_to_be_less_than": (
        of("code", partition_object=PARTS, threshold=0.1),
        of("code", partition_object={**PARTS, "weights": [0.05, 0.95]}, threshold=0.1),
    ),
    "expect_column_max_to_be_between": (of("id", max_value=6), of("id", max_value=5)),
    "expect_column_mean_to_be_between": (of("id", min_value=3, max_value=4), of("id", min_value=4)),
    "expect_column_median_to_be_between": (of("half", min_value=1, max_value=2), of("half", max_value=1)),
    "expect_column_min_to_be_between": (of("id", min_value=1), of("id", min_value=2)),
    "expect_column_most_common_value_to_be_in_set": (of("lone", value_set=[1.0]), of("lone", value_set=[900.0])),
    "expect_column_pair_values_a_to_be_greater_than_b": (pair("id", "half"), pair("half", "id")),
    "expect_column_pair_values_to_be_equal": (pair("id", "same"), pair("id", "half")),
    "expect_column_pair_values_to_be_in_set": (
        pair("code", "json", value_pairs_set=[["AA", '{"n": 1}'], ["BB", '{"n": 1}']]),
        pair("code", "json", value_pairs_set=[["AA", '{"n": 1}']]),
    ),
    "expect_column_proportion_of_non_null_values_to_be_between": (of("id", min_value=1), of("none", min_value=0.1)),
    "expect_column_proportion_of_unique_values_to_be_between": (of("id", min_value=1), of("code", min_value=0.5)),
    "expect_column_quantile_values_to_be_between": (
        of("half", quantile_ranges=quantiles(1, 2)),
        of("half", quantile_ranges=quantiles(2, 3)),
    ),
    "expect_column_stdev_to_be_between": (of("half", max_value=1), of("half", max_value=0.1)),
    "expect_column_sum_to_be_between": (of("id", min_value=21, max_value=21), of("id", max_value=20)),
    "expect_column_to_exist": (of("id"), of("absent")),
    "expect_column_type_to_be": (of("id", type_="IntegerType"), of("id", type_="StringType")),
    "expect_column_unique_value_count_to_be_between": (of("code", min_value=2), of("code", min_value=3)),
    "expect_column_value_lengths_to_be_between": (of("code", max_value=2), of("code", max_value=1)),
    "expect_column_value_lengths_to_equal": (of("code", value=2), of("code", value=3)),
    "expect_column_value_z_scores_to_be_less_than": (
        of("id", threshold=2, double_sided=True),
        of("lone", threshold=2, double_sided=True),
    ),
    "expect_column_values_to_be_between": (of("id", max_value=6), of("id", max_value=5)),
    "expect_column_values_to_be_decreasing": (of("down"), of("id")),
    "expect_column_values_to_be_in_set": (of("code", value_set=["AA", "BB"]), of("code", value_set=["AA"])),
    "expect_column_values_to_be_in_type_list": (
        of("id", type_list=["IntegerType", "LongType"]),
        of("id", type_list=["StringType"]),
    ),
    "expect_column_values_to_be_increasing": (of("id"), of("down")),
    "expect_column_values_to_be_json_parseable": (of("json"), of("day")),
    "expect_column_values_to_be_null": (of("none"), of("id")),
    "expect_column_values_to_be_of_type": (of("id", type_="IntegerType"), of("id", type_="StringType")),
    "expect_column_values_to_be_unique": (of("id"), of("code")),
    "expect_column_values_to_match_json_schema": (of("json", json_schema=COUNT), of("json", json_schema=TEXTS)),
    "expect_column_values_to_match_regex": (of("code", regex="^[AB]+$"), of("code", regex="^A+$")),
    "expect_column_values_to_match_regex_list": (
        of("code", regex_list=["^A+$", "^B+$"]),
        of("code", regex_list=["^A+$"]),
    ),
    "expect_column_values_to_match_strftime_format": (
        of("day", strftime_format="%Y-%m-%d", row_condition="id < 5"),
        of("day", strftime_format="%Y-%m-%d"),
    ),
    "expect_column_values_to_not_be_in_set": (of("code", value_set=["CC"]), of("code", value_set=["AA"])),
    "expect_column_values_to_not_be_null": (of("id"), of("none")),
    "expect_column_values_to_not_be_outliers": (of("id"), of("lone")),
    "expect_column_values_to_not_match_regex": (of("code", regex="C"), of("code", regex="A")),
    "expect_column_values_to_not_match_regex_list": (of("code", regex_list=["C", "D"]), of("code", regex_list=["A"])),
    "expect_compound_columns_to_be_unique": ({"column_list": ["code", "id"]}, {"column_list": ["code", "json"]}),
    "expect_multicolumn_sum_to_equal": (
        {"column_list": ["id", "down"], "sum_total": 6},
        {"column_list": ["id", "down"], "sum_total": 7},
    ),
    "expect_multicolumn_values_to_be_equal": ({"column_list": ["id", "same"]}, {"column_list": ["id", "down"]}),
    "expect_select_column_values_to_be_unique_within_record": (
        {"column_list": ["code", "json"]},
        {"column_list": ["id", "same"]},
    ),
    "expect_table_column_count_to_be_between": ({"min_value": len(COLUMNS)}, {"max_value": len(COLUMNS) - 1}),
    "expect_table_column_count_to_equal": ({"value": len(COLUMNS)}, {"value": 1}),
    "expect_table_columns_to_match_ordered_list": ({"column_list": COLUMNS}, {"column_list": COLUMNS[::-1]}),
    "expect_table_columns_to_match_set": ({"column_set": COLUMNS[::-1]}, {"column_set": ["id"]}),
    "expect_table_row_count_to_be_between": ({"min_value": 6, "max_value": 6}, {"max_value": 5}),
    "expect_table_row_count_to_equal": ({"value": 6}, {"value": 5}),
    "unexpected_rows_expectation": (
        {"unexpected_rows_query": "SELECT * FROM {batch} WHERE id > 6"},
        {"unexpected_rows_query": "SELECT * FROM {batch} WHERE id > 5"},
    ),
}
# Five whose results have a form of their own: no observed value, or one of numpy's.
ODD_RESULTS = {
    "expect_column_distinct_values_to_be_in_set": ({"unexpected_count": 0}, {"unexpected_count": 1}),
    "expect_column_distinct_values_to_contain_set": ({"missing_count": 0}, {"missing_count": 1}),
    "expect_column_distinct_values_to_equal_set": (
        {"missing_count": 0, "unexpected_count": 0},
        {"missing_count": 0, "unexpected_count": 1},
    ),
    "expect_column_kl_divergence_to_be_less_than": (0.0, pytest.approx(0.83, abs=0.01)),
    "expect_column_median_to_be_between": (1.75, 1.75),
}


def expected(name: str, kwargs: dict[str, Any]) -> Expected:
    return Expected(expectation=name, kwargs=kwargs, severity="critical", built_in=False)


def verdict(outcome: CheckOutcome) -> str | bool | None:
    return outcome.exception or outcome.success


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(ROWS)


def test_each_expectation_that_a_definition_may_name_passes_and_fails_on_spark(rows: DataFrame) -> None:
    names = sorted(catalogue().expectations.keys() - OWN_CHECKS)
    assert sorted(CASES) == names
    made = [Check(expectation=name, kwargs=kwargs) for name in names for kwargs in CASES[name]]
    assert check_problems(made) == []
    outcomes = evaluate(rows, [Expected.of(check) for check in made])
    assert {
        name: (verdict(good), verdict(bad))
        for name, good, bad in zip(names, outcomes[::2], outcomes[1::2], strict=True)
    } == (dict.fromkeys(names, (True, False)))


def test_a_verdict_is_the_librarys_whatever_the_form_of_its_result(rows: DataFrame) -> None:
    outcomes = evaluate(rows, [expected(name, kwargs) for name in ODD_RESULTS for kwargs in CASES[name]])
    assert [verdict(item) for item in outcomes] == [True, False] * len(ODD_RESULTS)
    assert [item.observed for item in outcomes] == [value for pair in ODD_RESULTS.values() for value in pair]


def test_a_value_outside_of_every_expected_part_fails_though_nothing_can_be_observed(rows: DataFrame) -> None:
    only = {"values": ["AA"], "weights": [1.0]}
    (found,) = evaluate(rows, [expected(*kl(of("code", partition_object=only, threshold=0.1)))])
    assert (found.success, found.observed, found.exception) == (False, None, None)


def kl(kwargs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "expect_column_kl_divergence_to_be_less_than", kwargs


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::RuntimeWarning")  # of pandas and numpy, in the library
def test_a_column_without_a_value_leaves_each_of_them_unknown(rows: DataFrame) -> None:
    checks = [
        *(expected(f"expect_column_distinct_values_to_{end}", of("none", value_set=[1.0])) for end in SETS),
        expected(*kl(of("none", partition_object={"values": [1.0, 2.0], "weights": [0.5, 0.5]}, threshold=0.1))),
        expected("expect_column_median_to_be_between", of("none", max_value=1)),
        expected("expect_column_quantile_values_to_be_between", of("none", quantile_ranges=quantiles(1, 2))),
    ]
    assert [(item.success, item.exception) for item in evaluate(rows, checks)] == [(None, None)] * len(checks)


SETS = ("be_in_set", "contain_set", "equal_set")


def test_checks_that_differ_only_in_spelling_have_an_outcome_each(rows: DataFrame) -> None:
    name = "expect_column_values_to_be_between"
    spelled: list[dict[str, Any]] = [
        of("id", max_value=5),
        of("id", max_value=5.0),
        of("id", max_value=5, min_value=None),
        of("id", max_value=5, mostly=1),
        of("id", max_value=5, strict_max=False),
    ]
    outcomes = evaluate(rows, [expected(name, kwargs) for kwargs in spelled])
    assert [(item.success, item.expected.kwargs) for item in outcomes] == [(False, kwargs) for kwargs in spelled]
