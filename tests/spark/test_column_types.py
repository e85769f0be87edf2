"""Types that a value or a table can't have are refused when a definition is checked, with what to write instead."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.spark.rows import stream
from tidemark.core.errors import ConfigError
from tidemark.reconcile.check_definition import check_definition
from tidemark.spark.value_schema import value_schema
from tidemark.tables.schema_evolution import evolution

DECLARE = "declare STRING, and convert it in the transformation"
NAME = "this object has the name twice, whatever the case: declare it once"
OWN = "Tidemark reserves this name: no field can have it"
MAP = "declare MAP<STRING, …>: in JSON each name is text"


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ("took INTERVAL DAY TO SECOND", f"took INTERVAL DAY TO SECOND ({DECLARE})"),
        ("took INTERVAL", f"took INTERVAL ({DECLARE})"),
        ("x VOID", f"x VOID ({DECLARE})"),
        ("x VARIANT", f"x VARIANT ({DECLARE})"),
        ("code CHAR(3), name VARCHAR(9)", f"code CHAR(3) ({DECLARE}); name VARCHAR(9) ({DECLARE})"),
        ("name STRING COLLATE UTF8_LCASE", f"name STRING COLLATE UTF8_LCASE ({DECLARE})"),
        ("rates MAP<INT, DOUBLE>", f"rates MAP<INT,DOUBLE> ({MAP})"),
        ("a ARRAY<STRUCT<b: MAP<STRING, VARIANT>>>", f"a.element.b.value VARIANT ({DECLARE})"),
        ("amount DECIMAL(0,0)", "amount DECIMAL(0,0) (declare at least one digit)"),
        ("id INT, Id INT", f"id ({NAME}); Id ({NAME})"),
        ("a STRUCT<id: INT, ID: INT>", f"a.id ({NAME}); a.ID ({NAME})"),
        ("_tidemark STRING", f"_tidemark ({OWN})"),
    ],
)
@pytest.mark.conformance(78)
def test_a_field_that_json_has_no_form_for_is_refused_with_what_to_declare(
    spark: SparkSession, tmp_path: Path, schema: str, found: str
) -> None:
    wanted = stream(schema, batch={"profile": "default"})
    (problem,) = check_definition(spark, wanted, tmp_path).problems
    assert problem.problem == "value_schema: fields that can't be read from JSON"
    assert str(problem.found) == found
    assert problem.where == str(tmp_path / "sample.yaml")
    with pytest.raises(ConfigError, match="can't be read from JSON"):  # as the applications see it
        value_schema(wanted)


KINDS = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(6,2)", "STRING", "BINARY"),
    *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
)


def test_every_type_of_the_page_can_be_declared_and_stored(spark: SparkSession) -> None:
    fields = [f"f{number} {kind}" for number, kind in enumerate(KINDS)]
    inside = ", ".join(item.replace(" ", ": ") for item in fields)
    schema = value_schema(
        stream(", ".join([*fields, f"one STRUCT<{inside}>", f"many ARRAY<MAP<STRING, STRUCT<{inside}>>>"]))
    )
    assert schema.names == [*(f"f{number}" for number in range(len(KINDS))), "one", "many"]
    other = spark.sql("SELECT array(1) AS x, 2 AS `X.element`, named_struct('b', 1) AS a, 3 AS `a.c`").schema
    for wanted in (schema, other):
        assert evolution(StructType(), wanted, {}).refused == ()


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ("a STRING COLLATE nonsense", "COLLATION_INVALID_NAME"),
        (f"a {'ARRAY<' * 900}INT{'>' * 900}", ""),
        ("a INT,", "PARSE_SYNTAX_ERROR"),
    ],
    ids=["collation", "nesting", "comma"],
)
def test_text_that_spark_can_not_parse_is_an_error_of_the_definition(
    spark: SparkSession, tmp_path: Path, schema: str, found: str
) -> None:
    (problem,) = check_definition(spark, stream(schema), tmp_path).problems
    assert problem.problem == "value_schema: not Spark DDL"
    assert found in str(problem.found)


TAKEN, RENAME = "Iceberg has the name", " for another column, too: rename one of them"
NUMBER = "store its length as BIGINT, such as seconds, or cast it to STRING"


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ("INTERVAL 1 DAY AS x", f"column x: table none, definition interval day ({NUMBER})"),
        ("make_interval(1) AS x", f"column x: table none, definition interval ({NUMBER})"),
        ("NULL AS x", "column x: table none, definition void (cast it to its intended type)"),
        (
            "parse_json('1') AS x",
            "column x: table none, definition variant (store its JSON: F.to_json makes it a STRING)",
        ),
        (
            "collate('a', 'UTF8_LCASE') AS x",
            (
                "column x: table none, definition string collate UTF8_LCASE "
                "(give it Spark's default collation: F.collate(column, 'UTF8_BINARY'))"
            ),
        ),
        (
            "array(named_struct('y', named_struct())) AS x",
            "column x.element.y: table none, definition struct<> (leave it out, or give it a field)",
        ),
        (
            "map('a', array()) AS x",
            "column x.value.element: table none, definition void (cast it to its intended type)",
        ),
        (
            "named_struct('y', 1) AS x, 2 AS `x.y`",
            f"column x.y: table none, definition int ({TAKEN} x.y{RENAME})",
        ),
        (
            "array(1) AS x, 2 AS `x.element`",
            f"column x.element: table none, definition int ({TAKEN} x.element{RENAME})",
        ),
        (
            "named_struct('y', 1, 'Y', 2) AS x",
            f"column x.Y: table none, definition int ({TAKEN} x.y{RENAME})",
        ),
    ],
)
@pytest.mark.conformance(78)
def test_a_column_that_no_table_can_store_is_refused_with_what_to_write(
    spark: SparkSession, column: str, found: str
) -> None:
    wanted = spark.sql(f"SELECT 1L AS id, {column}").schema
    assert [str(item) for item in evolution(StructType(), wanted, {}).refused] == [found]
    before = StructType([wanted["id"]])
    assert [str(item) for item in evolution(before, wanted, {}).refused] == [found]
    with pytest.raises(ConfigError, match="can't become the definition's"):
        evolution(before, wanted, {}).require_allowed("t")
