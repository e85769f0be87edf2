"""Tidemark's expectations in somebody's own suite: a plain context of Great Expectations, and Spark."""

import json
from typing import Any

import great_expectations as gx
import pytest
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.expectation import Expectation
from pyspark.sql import DataFrame, SparkSession

from tidemark.expectations import (
    ExpectColumnValuesToExistInOtherTable,
    ExpectKafkaRecordsToBeUnique,
    ExpectKeyToBeUnique,
    ExpectLiveTopicToAgreeWithTable,
    ExpectOffsetsToBeComplete,
    ExpectRowsToBeConserved,
    live_records,
)

ROWS = """SELECT DATE'2013-01-14' AS _day, topic AS _topic_id, partition AS _kafka_partition, offset AS _offset, code
    FROM VALUES ('a', 0, 3L, 'x'), ('a', 0, 4L, 'y'), ('a', 0, 6L, NULL), ('b', 1, 0L, 'x')
    AS rows(topic, partition, offset, code)"""
RANGE = {"topic_id": "a", "partition": 0, "start": 3, "end": 7}


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(ROWS)


@pytest.fixture(scope="module")
def definition() -> Any:
    context = gx.get_context(mode="ephemeral")
    asset = context.data_sources.add_spark("plain", persist=False).add_dataframe_asset("rows")
    return asset.add_batch_definition_whole_dataframe("all")


def judged(definition: Any, rows: DataFrame, expectation: Expectation) -> tuple[bool, dict[str, Any]]:
    """Whether the expectation succeeds, and its result after a round trip through JSON."""
    result = definition.get_batch({"dataframe": rows}).validate(expectation)
    found = json.loads(json.dumps(result.to_json_dict()))
    assert not found["exception_info"].get("raised_exception"), found["exception_info"]
    return bool(found["success"]), found["result"]


def test_they_form_a_suite_with_the_librarys_own_and_survive_json(definition: Any, rows: DataFrame) -> None:
    suite = gx.ExpectationSuite(name="mine")
    suite.add_expectation(ExpectColumnValuesToNotBeNull(column="_offset"))
    suite.add_expectation(ExpectKafkaRecordsToBeUnique())
    suite.add_expectation(ExpectRowsToBeConserved(days={"2013-01-14": {"read": 4}}))
    suite.add_expectation(ExpectOffsetsToBeComplete(ranges=[{**RANGE, "missing": 1}]))
    parsed = gx.ExpectationSuite(**json.loads(json.dumps(suite.to_json_dict())))
    result = definition.get_batch({"dataframe": rows}).validate(parsed)
    assert [item.success for item in result.results] == [True] * 4


def test_a_record_that_occurs_twice_is_found(definition: Any, rows: DataFrame) -> None:
    assert judged(definition, rows, ExpectKafkaRecordsToBeUnique())[0]
    doubled = rows.union(rows.where("_offset = 4"))
    success, result = judged(definition, doubled, ExpectKafkaRecordsToBeUnique())
    assert (success, result["unexpected_count"]) == (False, 1)
    assert result["observed_value"] == "1 unexpected row"
    place = {"_topic_id": "a", "_kafka_partition": 0, "_offset": 4, "copies": 2}
    assert result["partial_unexpected_list"] == [place]


def test_equal_offsets_of_other_logs_are_other_records(definition: Any, spark: SparkSession) -> None:
    rows = spark.sql("SELECT * FROM VALUES ('a', 0, 1L), ('a', 1, 1L), ('b', 0, 1L) AS r(`my topic`, p, o)")
    own: dict[str, Any] = {"topic_id_column": "my topic", "partition_column": "p", "offset_column": "o"}
    assert judged(definition, rows, ExpectKafkaRecordsToBeUnique(**own))[0]


def test_a_row_with_a_null_in_its_key_is_not_judged(definition: Any, rows: DataFrame) -> None:
    assert judged(definition, rows, ExpectKeyToBeUnique(columns=["_topic_id", "code"]))[0]
    success, result = judged(definition, rows.union(rows), ExpectKeyToBeUnique(columns=["_topic_id", "code"]))
    assert (success, result["unexpected_count"]) == (False, 3)


@pytest.mark.parametrize(
    ("ranges", "found"),
    [
        ([{**RANGE, "missing": 1}], []),
        ([{**RANGE, "end": 5}, {"topic_id": "b", "partition": 1, "start": 0, "end": 1}], []),
        ([RANGE], [("a", 0, 3, 7, 4, 3)]),
        ([{**RANGE, "missing": 2}], [("a", 0, 3, 7, 2, 3)]),  # a row where none should be
        ([{**RANGE, "topic_id": "it's {c}", "end": 5}], [("it's {c}", 0, 3, 5, 2, 0)]),
        (None, [("a", 0, 3, 7, 4, 3)]),
    ],
    ids=["hole known", "parts", "hole", "too many", "no row", "without ranges"],
)
def test_offsets_without_a_row_are_found(
    definition: Any, rows: DataFrame, ranges: list[dict[str, Any]] | None, found: list[tuple[Any, ...]]
) -> None:
    success, result = judged(definition, rows, ExpectOffsetsToBeComplete(ranges=ranges))
    assert success == (not found)
    names = ("topic_id", "partition", "start", "end", "expected", "found")
    assert result["partial_unexpected_list"] == [dict(zip(names, item, strict=True)) for item in found]


@pytest.mark.parametrize(
    ("days", "found"),
    [
        ({"2013-01-14": {"read": 6, "quarantined": 1, "removed": 1}}, []),
        ({"2013-01-14": {"read": 4}, "2013-01-15": {"read": 2, "quarantined": 2}}, []),
        ({"2013-01-14": {"read": 5}}, [("2013-01-14", 5, 4)]),
        ({"2013-01-15": {"read": 0}}, [("2013-01-14", 0, 4)]),
    ],
)
def test_rows_that_are_not_conserved_are_found_by_day(
    definition: Any, rows: DataFrame, days: dict[str, dict[str, int]], found: list[tuple[str, int, int]]
) -> None:
    success, result = judged(definition, rows, ExpectRowsToBeConserved(days=days))
    assert success == (not found)
    expected = [dict(zip(("day", "expected", "found"), item, strict=True)) for item in found]
    assert result["partial_unexpected_list"] == expected


def test_a_row_without_a_day_is_not_conserved(definition: Any, rows: DataFrame, spark: SparkSession) -> None:
    rows = rows.union(spark.sql("SELECT NULL, 'a', 0, 9L, 'x'"))
    success, result = judged(definition, rows, ExpectRowsToBeConserved(days={"2013-01-14": {"read": 4}}))
    assert not success
    assert result["partial_unexpected_list"] == [{"day": None, "expected": 0, "found": 1}]


@pytest.mark.parametrize(
    "days",
    [{}, {"14 January": {"read": 1}}, {"2013-01-14": {"quarantined": 1}}, {"2013-01-14": {"read": 1, "lost": 2}}],
)
def test_days_are_validated_when_the_expectation_is_made(days: dict[str, dict[str, int]]) -> None:
    with pytest.raises(ValueError, match="days"):
        ExpectRowsToBeConserved(days=days)


def test_values_that_another_table_lacks_are_found(definition: Any, rows: DataFrame, spark: SparkSession) -> None:
    spark.sql("SELECT * FROM VALUES ('x'), ('x'), (NULL) AS codes(known)").createOrReplaceTempView("codes_of_test")
    of: dict[str, Any] = {"column": "code", "other_table": "codes_of_test", "other_column": "known"}
    success, result = judged(definition, rows, ExpectColumnValuesToExistInOtherTable(**of))
    assert not success
    assert (result["element_count"], result["missing_count"], result["unexpected_count"]) == (4, 1, 1)
    assert result["partial_unexpected_list"] == [{"value": "y", "rows": 1}]
    assert judged(definition, rows, ExpectColumnValuesToExistInOtherTable(**of, mostly=0.66))[0]
    assert not judged(definition, rows, ExpectColumnValuesToExistInOtherTable(**of, mostly=0.67))[0]


def kafka_records(spark: SparkSession, *sources: str | None) -> DataFrame:
    """Records as Spark's Kafka source gives them, with the header of their source record."""
    headers = [(None if item is None else [("tidemark.source", item.encode()), ("x", b"1")],) for item in sources]
    return spark.createDataFrame(headers, "headers array<struct<key: string, value: binary>>")


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        (["t:a:0:3", "t:a:0:4", "t:a:0:6", "t:b:1:0"], {}),
        (["t:a:0:3", "t:a:0:3", "t:a:0:3", "t:a:0:6", "t:b:1:0"], {"missing": 1, "duplicated": 2}),
        (["t:a:0:3", "t:a:0:4", "t:a:0:6", "t:b:1:0", "t:a:1:0", None, None], {"unexpected": 3}),
    ],
    ids=["the same", "missing and duplicated", "unexpected"],
)
def test_a_live_topic_is_compared_with_the_table(
    definition: Any, rows: DataFrame, spark: SparkSession, sources: list[str | None], found: dict[str, int]
) -> None:
    live_records(kafka_records(spark, *sources)).createOrReplaceTempView("live_of_test")
    success, result = judged(definition, rows, ExpectLiveTopicToAgreeWithTable(live="live_of_test"))
    assert success == (not found)
    assert {item["finding"]: item["found"] for item in result["partial_unexpected_list"]} == found
    bounds: dict[str, Any] = {f"{finding}_max": count for finding, count in found.items()}
    assert judged(definition, rows, ExpectLiveTopicToAgreeWithTable(live="live_of_test", **bounds))[0]
