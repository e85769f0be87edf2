"""A definition checked on Spark: each kind of mistake is reported with its file and the expected value."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import TRANSFORM
from tidemark.cli.streams import _check_stream
from tidemark.definitions.own_checks import DISTINCT_VALUES, HOURLY_ROW_COUNTS, MEAN, NULL_SHARE, ROW_COUNT
from tidemark.definitions.stream import Stream
from tidemark.reconcile.check_definition import Checked, check_definition

SCHEMA = "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>"
AVRO = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "int"},
    {"name": "trip", "type": {"type": "record", "name": "Trip", "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}}]}"""
NOT_NULL = "expect_column_values_to_not_be_null"
LINEAGE = "_day, _topic_id, _kafka_partition, _offset, _timestamp, _event_time"


def checked(spark: SparkSession, folder: Path, transform: str = TRANSFORM, **overrides: Any) -> Checked:
    (folder / "orders.py").write_text(transform, encoding="utf-8")
    return check_definition(spark, stream_of(folder, **overrides), folder)


def stream_of(folder: Path, **overrides: Any) -> Stream:
    raw = {
        "name": "orders",
        "topic": "orders",
        "value_schema": SCHEMA,
        **overrides,
        "speed": {"topic": "orders.live", "dead_letter_topic": "orders.dead", **overrides.get("speed", {})},
    }
    stream = Stream.model_validate(raw)
    if stream.avro_schema_file is not None:
        stream = stream.with_avro_schemas((folder / stream.avro_schema_file).read_text(encoding="utf-8"))
    return stream


def one(expectation: str, **kwargs: Any) -> dict[str, Any]:
    return {"batch": {"checks": [{"expectation": expectation, "kwargs": kwargs}]}}


def test_a_valid_definition_has_its_columns_and_no_problem(spark: SparkSession, tmp_path: Path) -> None:
    checks = [
        {"expectation": NOT_NULL, "kwargs": {"column": "id", "mostly": 0.9}},
        {"expectation": NOT_NULL, "kwargs": {"column": "_offset"}},
        {"expectation": "expect_compound_columns_to_be_unique", "kwargs": {"column_list": ["id", "at"]}},
    ]
    transform = TRANSFORM.replace('"event.*"', '"event.*", records.event.id.cast("string").alias("reject")')
    found = checked(
        spark,
        tmp_path,
        transform,
        event_time={"extractor": "record_field", "field": "$.at"},
        speed={"key": "id"},
        batch={"checks": checks},
    )
    table = (*LINEAGE.split(", "), "id", "at", "tags")
    assert found == Checked(columns=("id", "at", "tags"), table_columns=table, problems=())


def test_a_string_may_hold_the_json_of_an_event_time(spark: SparkSession, tmp_path: Path) -> None:
    time = {"extractor": "record_field", "field": "$.trip.stops[0].at", "format": "epoch_ms"}
    assert checked(spark, tmp_path, value_schema="trip STRING", event_time=time).problems == ()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"event_time": {"extractor": "record_field", "field": "$.when.at"}},
            "event_time.field: not a field of value_schema: expected one of: id, at, tags, found when",
        ),
        (
            {"event_time": {"extractor": "record_field", "field": "$.id"}},
            (
                "event_time.field: not a time: expected a type that holds iso8601, or a type of time, "
                "found $.id of type bigint"
            ),
        ),
        (
            {"event_time": {"extractor": "record_field", "field": "$.at", "format": "epoch_ms"}},
            "event_time.field: not a time: expected a type that holds epoch_ms, found $.at of type timestamp",
        ),
        (
            {
                "value_schema": f"{SCHEMA}, trip STRUCT<began: TIMESTAMP>",
                "event_time": {"extractor": "record_field", "field": "$.trip.ended"},
            },
            "event_time.field: not a field of value_schema: expected one of: began, found ended of $.trip.ended",
        ),
        (
            {"speed": {"key": "ident"}},
            "speed.key: not a plain column of the transformation: expected one of: id, at, found ident",
        ),
        (
            {"speed": {"key": "tags"}},
            "speed.key: not a plain column of the transformation: expected one of: id, at, found tags",
        ),
        (
            {"batch": {"deduplicate": {"key": ["id", "tags"]}}},
            ("batch.deduplicate.key.1: not a plain column of the transformation: expected one of: id, at, found tags"),
        ),
        (
            one(NOT_NULL, column="x"),
            (
                "batch.checks.0.kwargs.column: not a column of the table: "
                f"expected one of: {LINEAGE}, id, at, tags, found x"
            ),
        ),
        (
            one("expect_column_pair_values_to_be_equal", column_A="id", column_B="x"),
            (
                "batch.checks.0.kwargs.column_B: not a column of the table: "
                f"expected one of: {LINEAGE}, id, at, tags, found x"
            ),
        ),
        (
            one("expect_compound_columns_to_be_unique", column_list=["id", "x"]),
            (
                "batch.checks.0.kwargs.column_list: not a column of the table: "
                f"expected one of: {LINEAGE}, id, at, tags, found x"
            ),
        ),
    ],
    ids=[
        "event time",
        "event time of a number",
        "event time of a timestamp in ms",
        "event time below a struct",
        "key",
        "nested key",
        "key for duplicates",
        "column",
        "column of a pair",
        "column of a list",
    ],
)
def test_an_unknown_name_is_answered_with_the_known_ones(
    spark: SparkSession, tmp_path: Path, overrides: dict[str, Any], message: str
) -> None:
    found = checked(spark, tmp_path, **overrides)
    assert [str(item) for item in found.problems] == [f"{message} [{tmp_path / 'orders.yaml'}]"]


def test_the_checks_of_the_profile_follow_from_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    off = {"expectation": MEAN, "kwargs": {"column": "id"}, "severity": "none"}
    found = checked(spark, tmp_path, batch={"profile": "default", "checks": [off]})
    assert found.problems == ()
    assert [(item.expectation, item.kwargs) for item in found.profile] == [
        (ROW_COUNT, {}),
        (HOURLY_ROW_COUNTS, {}),
        *((NULL_SHARE, {"column": name}) for name in ("id", "at", "tags")),
    ]
    _, text = _check_stream(spark, stream_of(tmp_path, batch={"profile": "default", "checks": [off]}), tmp_path, None)
    assert (
        f"(3 columns), 0 checks, 5 of profile default: {ROW_COUNT}; {HOURLY_ROW_COUNTS}; {NULL_SHARE} of id, at, tags"
        in text
    )


def test_the_profile_expects_no_null_where_the_schema_declares_none(spark: SparkSession, tmp_path: Path) -> None:
    key = {"deduplicate": {"key": ["id"]}, "profile": "default"}
    schema = "id BIGINT NOT NULL, at TIMESTAMP NOT NULL, tags ARRAY<STRING>, unused INT NOT NULL"
    transform = TRANSFORM.replace('"event.*"', '"event.id", "event.at", "event.tags"')
    found = checked(spark, tmp_path, transform, value_schema=schema, batch=key)
    assert found.problems == ()
    assert [item.kwargs for item in found.profile if item.expectation == NOT_NULL] == [
        {"column": "id"},
        {"column": "at"},
    ]


def test_a_column_that_is_nearly_right_is_suggested(spark: SparkSession, tmp_path: Path) -> None:
    (problem,) = checked(spark, tmp_path, **one(NOT_NULL, column="tag")).problems
    assert str(problem).endswith(f", found tag [{tmp_path / 'orders.yaml'}]. Did you mean tags?")


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        ({"value_schema": "id BIGNT"}, ["value_schema: not Spark DDL", "found 'id BIGNT'", "BIGNT"]),
        ({"value_schema": "BIGINT"}, ["value_schema: not Spark DDL", "a type without a field's name"]),
        ({"renamed": {"id": ["AT"]}}, ["renamed.id: the earlier name is also a field's name", "found AT"]),
        ({"renamed": {"idd": ["i"]}}, ["renamed: neither a field", "expected one of: at, id, tags, found idd"]),
        (
            one("expect_column_values_to_match_regex", column="at", regex="("),
            ["checks.0: ", "evaluated", "Unclosed group"],
        ),
        (
            one("expect_column_values_to_be_between", column="id", min_value=5, max_value=3),
            ["checks.0: expect_column_values_to_be_between can't be evaluated", "min_value"],
        ),
        (
            one(NOT_NULL, column="id", row_condition="idd > 1"),
            ["checks.0: expect_column_values_to_not_be_null can't be evaluated", "idd"],
        ),
    ],
    ids=[
        "unknown type",
        "no field",
        "name of two",
        "name of none",
        "regular expression",
        "crossed bounds",
        "condition on rows",
    ],
)
def test_a_value_spark_or_great_expectations_refuses_is_a_problem_of_the_definition(
    spark: SparkSession, tmp_path: Path, overrides: dict[str, Any], parts: list[str]
) -> None:
    (problem,) = checked(spark, tmp_path, **overrides).problems
    assert [part for part in parts if part not in str(problem)] == []
    assert problem.where == str(tmp_path / "orders.yaml")


@pytest.mark.parametrize(
    ("selected", "parts"),
    [
        ('"source", "event_time", "event.idd"', ["does not fit its stream", f"event of {SCHEMA}", "`idd`"]),
        ('"event_time", "event.id"', ["breaks its contract", "source and event_time as they were", "no source"]),
        ('"source", "event_time", "event.id").collect(', ["transform fails", "a DataFrame", "found AttributeError"]),
        ('"source", 1 / 0', ["transform fails", "found ZeroDivisionError: division by zero"]),
    ],
    ids=["misspelt column", "no source", "no frame", "crash"],
)
def test_a_transformation_that_does_not_run_is_a_problem_of_its_file(
    spark: SparkSession, tmp_path: Path, selected: str, parts: list[str]
) -> None:
    transform = f"def transform(records):\n    return records.select({selected})\n"
    found = checked(spark, tmp_path, transform, speed={"key": "unknowable"})
    assert found.columns == ()
    (problem,) = found.problems
    assert [part for part in parts if part not in str(problem)] == []
    assert problem.where == str(tmp_path / "orders.py")


def test_a_column_without_a_type_is_a_problem_before_there_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    transform = """\
from pyspark.sql import functions as F

def transform(records):
    untyped = [F.lit(None).alias("x"), F.struct(F.array().alias("z")).alias("y")]
    return records.select("source", "event_time", "event.id", *untyped)
"""
    found = checked(spark, tmp_path, transform)
    message = "table orders can't be made: found column {} (cast it to its intended type) [{}]"
    assert [str(item) for item in found.problems] == [
        message.format(column, tmp_path / "orders.py")
        for column in ("x: table none, definition void", "y.z.element: table none, definition void")
    ]
    assert found.changes == ()


def test_problems_of_every_part_are_reported_at_once(spark: SparkSession, tmp_path: Path) -> None:
    found = checked(
        spark,
        tmp_path,
        event_time={"extractor": "record_field", "field": "$.when"},
        speed={"key": "x"},
        batch={"checks": [{"expectation": NOT_NULL, "kwargs": {"column": "y"}}]},
    )
    assert [item.problem.partition(":")[0] for item in found.problems] == [
        "event_time.field",
        "speed.key",
        "batch.checks.0.kwargs.column",
    ]


def avro(folder: Path, schema: str = AVRO, **overrides: Any) -> dict[str, Any]:
    """The keys of a definition with Avro values, whose schema file is written."""
    (folder / "orders.avsc").write_text(schema, encoding="utf-8")
    return {"value_format": "avro", "avro_schema_file": "orders.avsc", "value_schema": None, **overrides}


def by_field(*fields: str) -> dict[str, Any]:
    return {"archive": {"partitioner": {"type": "field", "fields": list(fields)}}}


def by_time(path_format: str) -> dict[str, Any]:
    return {"archive": {"partitioner": {"type": "time", "path_format": path_format}}}


def test_avro_and_raw_definitions_have_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    time = {"extractor": "record_field", "field": "$.trip.at"}
    wanted = avro(tmp_path, event_time=time, **by_field("$.id", "$.trip.at"))
    table = tuple(LINEAGE.split(", "))
    assert checked(spark, tmp_path, **wanted) == Checked(
        columns=("id", "trip"), table_columns=(*table, "id", "trip"), problems=()
    )
    raw = checked(spark, tmp_path, value_format="raw", value_schema=None, speed={"key": "value"})
    assert raw == Checked(columns=("value",), table_columns=(*table, "value"), problems=())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"event_time": {"extractor": "record_field", "field": "$.trip.when"}},
            "event_time.field: not a field of orders.avsc: expected one of: at, found when of $.trip.when",
        ),
        (
            {"event_time": {"extractor": "record_field", "field": "$.id"}},
            (
                "event_time.field: not a time: expected a type that holds iso8601, or a type of time, "
                "found $.id of type int"
            ),
        ),
        (
            by_field("$.id", "$.carrier"),
            (
                "archive.partitioner.fields.1: not a field of orders.avsc: "
                "expected one of: id, trip, found carrier of $.carrier"
            ),
        ),
    ],
    ids=["no such field", "no time", "partitioner"],
)
def test_a_field_is_looked_up_in_the_avro_schema(
    spark: SparkSession, tmp_path: Path, overrides: dict[str, Any], message: str
) -> None:
    found = checked(spark, tmp_path, **avro(tmp_path, **overrides))
    assert [str(item) for item in found.problems] == [f"{message} [{tmp_path / 'orders.yaml'}]"]


def test_a_schema_file_that_avro_refuses_is_a_problem_of_that_file(spark: SparkSession, tmp_path: Path) -> None:
    found = checked(spark, tmp_path, **avro(tmp_path, AVRO.replace('"int"', '"intt"')), speed={"key": "unknowable"})
    (problem,) = found.problems
    assert str(problem).startswith("not a schema for a stream's values: expected a schema that Avro and Spark take")
    assert problem.where == str(tmp_path / "orders.avsc")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            by_field("$.carrier"),
            "fields.0: not a field of value_schema: expected one of: id, at, tags, found carrier",
        ),
        (by_field("$.id", "$.at", "$.id"), "fields.2: a field twice: expected each field once, found $.id"),
        (
            by_field(*(f"$.tags[{number}]" for number in range(8))),
            (
                "fields: object keys would be longer than S3 takes: "
                "expected at most 900 bytes without the archive's prefix, found up to 988"
            ),
        ),
        (by_time("yyyy-QQQQQQQ"), "path_format: not a datetime pattern: expected hourly, daily, or "),
        (by_time("YYYY"), "path_format: not a datetime pattern: expected hourly, daily, or "),
        (by_time("'all'"), "path_format: every record would be in one folder: expected hourly, daily, or "),
        (by_time("HH:mm"), "path_format: not a folder: expected folders of letters, digits and =_.- that"),
        (by_time("'../'yyyy"), "found '../2013'"),
        (by_time("'_'yyyy"), "found '_2013'"),
        (by_time("yyyy/'.x'"), "found '2013/.x'"),
        (by_time("'/'yyyy"), "found '/2013'"),
        (by_time("yyyy'//'MM"), "found '2013//01'"),
    ],
)
def test_an_unsafe_partitioner_is_a_problem_of_the_definition(
    spark: SparkSession, tmp_path: Path, overrides: dict[str, Any], message: str
) -> None:
    (problem,) = checked(spark, tmp_path, **overrides).problems
    assert message in str(problem)
    assert str(problem).startswith("archive.partitioner.")
    assert problem.where == str(tmp_path / "orders.yaml")


SHARE_ONLY = f"Use {NULL_SHARE}"
NUMBERS = "expected a column of numbers that is not personal"
VALUES = "expected a column that is no array, bytes, map, struct or variant"


@pytest.mark.parametrize(
    ("expectation", "column", "message"),
    [
        (MEAN, "name", f"{NUMBERS}, found name STRING [WHERE]. Use {DISTINCT_VALUES} or {NULL_SHARE}"),
        (MEAN, "at", f"{NUMBERS}, found at TIMESTAMP [WHERE]. Use {DISTINCT_VALUES} or {NULL_SHARE}"),
        (MEAN, "age", f"{NUMBERS}, found age INT, which is personal [WHERE]. Use {DISTINCT_VALUES} or {NULL_SHARE}"),
        (MEAN, "tags", f"{NUMBERS}, found tags ARRAY<STRING> [WHERE]. {SHARE_ONLY}"),
        (DISTINCT_VALUES, "tags", f"{VALUES}, found tags ARRAY<STRING> [WHERE]. {SHARE_ONLY}"),
        (DISTINCT_VALUES, "raw", f"{VALUES}, found raw BINARY [WHERE]. {SHARE_ONLY}"),
    ],
)
def test_a_check_against_history_of_a_column_without_that_figure_is_refused(
    spark: SparkSession, tmp_path: Path, expectation: str, column: str, message: str
) -> None:
    schema = "id BIGINT, name STRING, at TIMESTAMP, age INT, tags ARRAY<STRING>, raw BINARY"
    found = checked(spark, tmp_path, value_schema=schema, personal=["age"], **one(expectation, column=column))
    where = str(tmp_path / "orders.yaml")
    assert [str(item) for item in found.problems] == [
        f"batch.checks.0.kwargs.column: {expectation} can't judge the column: {message.replace('WHERE', where)}"
    ]


def test_a_check_against_history_of_a_column_of_the_platform_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (problem,) = checked(spark, tmp_path, **one(NULL_SHARE, column="_offset")).problems
    assert "batch.checks.0.kwargs.column: not a column of the transformation" in str(problem)
