"""Personal data in rows: names that fit the stream, and reasons without values."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.rows import kafka_rows, stream
from tidemark.core.errors import ConfigError
from tidemark.reconcile.check_definition import check_definition
from tidemark.spark.process import classify, process
from tidemark.spark.records import records

SCHEMA = (
    "email STRING, age INT, passenger STRUCT<name: STRING, seat: STRING>, phones ARRAY<STRING>,"
    " notes MAP<STRING, STRUCT<text: STRING>>"
)
VALUE = (
    b'{"email":"ada@example.org","age":36,"passenger":{"name":"Ada.*$1","seat":"4A"},"phones":[null,"030","040"],'
    b'"notes":{"home":{"text":"bell"}}}'
)
ALL = ["email", "age", "passenger.name", "phones", "notes"]
REASON = "ada@example.org|36|Ada.*$1|4A|030|040|home|bell|ada@example.org"


def rejecting(rows: DataFrame) -> DataFrame:
    """Rejects each row with all of its values, and with one more that only a column has."""
    return rows.select("source", "event_time", F.lit("made").alias("contact"), F.lit(REASON + "|made").alias("reject"))


def reason(spark: SparkSession, value: bytes, *personal: str) -> str | None:
    definition = stream(SCHEMA, personal=[*personal])
    (row,) = process(records(kafka_rows(spark, [value]), definition), definition, rejecting).rejected.collect()
    return str(row.reason)


@pytest.mark.parametrize(
    ("personal", "expected"),
    [
        ([], REASON + "|made"),
        (["email"], "•••|36|Ada.*$1|4A|030|040|home|bell|•••|made"),
        (["EMAIL", "Passenger.Name"], "•••|36|•••|4A|030|040|home|bell|•••|made"),
        (["passenger", "contact"], "ada@example.org|36|•••|•••|030|040|home|bell|ada@example.org|•••"),
        ([*ALL, "contact"], "•••|•••|•••|4A|•••|•••|•••|•••|•••|•••"),
    ],
)
def test_a_reason_has_a_mask_in_place_of_each_personal_value(
    spark: SparkSession, personal: list[str], expected: str
) -> None:
    assert reason(spark, VALUE, *personal) == expected


@pytest.mark.parametrize("value", [b"{}", b'{"email":"","phones":null,"passenger":null}'])
def test_a_reason_stays_where_the_record_has_no_personal_value(spark: SparkSession, value: bytes) -> None:
    assert reason(spark, value, *ALL) == REASON + "|made"


def test_a_record_that_can_not_be_decoded_keeps_its_reason(spark: SparkSession) -> None:
    assert reason(spark, b"ada@example.org", *ALL) == "the value is not one JSON object"


def test_good_rows_and_their_source_are_the_same_with_and_without_personal_data(spark: SparkSession) -> None:
    def keep(rows: DataFrame) -> DataFrame:
        return rows.select("source", "event_time", "event.email", F.lit(None).cast("string").alias("reject"))

    found = []
    for personal in ([], ALL):
        definition = stream(SCHEMA, personal=personal)
        good = process(records(kafka_rows(spark, [VALUE, b"{}"]), definition), definition, keep).good
        found.append((good.schema.simpleString(), good.collect()))
    assert found[0] == found[1]
    assert [row.email for row in found[0][1]] == ["ada@example.org", None]


def test_a_name_that_fits_nothing_ends_the_work_before_a_row_is_read(spark: SparkSession, tmp_path: Path) -> None:
    definition = stream(SCHEMA, personal=["email", "passenger.nam", "contct"])
    expected = (
        r"personal\.1: neither a field of the value nor a column of the transformation: expected one of: email, .*"
        r"found passenger\.nam \[.*\]\. Did you mean passenger\.name\?"
    )
    with pytest.raises(ConfigError, match=expected):
        classify(records(kafka_rows(spark, [VALUE]), definition), definition, rejecting)

    def problem(*personal: Any) -> list[tuple[Any, ...]]:
        found = check_definition(spark, stream(SCHEMA, personal=personal), tmp_path).problems
        return [(item.problem.partition(":")[0], item.found, item.hint) for item in found]

    assert problem("email", "notes") == []
    assert problem("passenger.nam", "contct", "phones") == [
        ("personal.0", "passenger.nam", "Did you mean passenger.name?"),
        ("personal.1", "contct", None),
    ]
