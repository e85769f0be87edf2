"""Decode and the transformation's contract, against outcomes written down by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.rows import avro_stream, kafka_rows, stream
from tidemark.core.errors import ConfigError
from tidemark.spark.decode import NOT_JSON, NOT_SCHEMA, NOT_UTF8, TOMBSTONE
from tidemark.spark.process import classify, load_transform, process
from tidemark.spark.records import records

SCHEMA = (
    "n INT, text STRING, inner STRUCT<b: INT, list: ARRAY<INT>>, moment TIMESTAMP, day DATE, ratio DOUBLE, "
    "price DECIMAL(6,2), flag BOOLEAN"
)
EMPTY = dict.fromkeys(("n", "text", "inner", "moment", "day", "ratio", "price", "flag"))


def flat(rows: DataFrame) -> DataFrame:
    return rows.select("source", "event_time", "event.*")


def outcomes(spark: SparkSession, values: list[bytes | None]) -> list[str | dict[str, Any]]:
    """Per value the reason it was rejected for, or the fields that came out, as ``to_json`` shows them."""
    rows = classify(records(kafka_rows(spark, values), stream(SCHEMA)), stream(SCHEMA), flat)
    fields = F.to_json(
        F.struct(*EMPTY), {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    )
    found = rows.select("source.offset", "_reason", fields.alias("fields")).orderBy("offset").collect()
    assert [row.offset for row in found] == list(range(len(values)))
    return [row["_reason"] or json.loads(row.fields) for row in found]


FORMS = {
    "n": "INT such as 12",
    "text": 'STRING such as "text"',
    "inner": "an object of b INT such as 12, list a list of INT such as 12",
    "moment": 'TIMESTAMP such as "2013-01-31T05:15:00Z"',
    "day": 'DATE such as "2013-01-31"',
    "ratio": "DOUBLE such as 12.5",
    "price": 'DECIMAL(6,2) such as 12.5 or "12.5"',
    "flag": "BOOLEAN such as true",
    "old": "INT such as 12",
}


def misfit(*names: str) -> str:
    """The reason for values that do not fit these fields."""
    return f"{NOT_SCHEMA}: {'; '.join(f'{name} is not {FORMS[name]}' for name in names)}"


GOOD: dict[bytes, dict[str, Any]] = {
    b'{"n":1,"text":"x"}': {"n": 1, "text": "x"},
    b"{}": {},
    b'{"n":null}': {},
    b' \t\r\n{"n":1}\n ': {"n": 1},
    b'{"n":1,"unknown":{"a":[1]}}': {"n": 1},
    b'{"_corrupt":"x","_last":7,"n":1}': {"n": 1},
    b'{"N":1}': {},
    b'{"n":1,"n":2}': {"n": 2},
    b'{"text":5}': {"text": "5"},
    b'{"text":{"q":[1, 2]}}': {"text": '{"q":[1,2]}'},
    b'{"text":"a]}\\u0022,{["}': {"text": 'a]}",{['},
    '{"text":"Zoë 🌊"}'.encode(): {"text": "Zoë 🌊"},
    b'{"inner":{"b":2,"list":[1,2],"extra":0}}': {"inner": {"b": 2, "list": [1, 2]}},
    b'{"inner":{"list":[]}}': {"inner": {"b": None, "list": []}},
    b'{"moment":"2013-01-01T05:00:00Z"}': {"moment": "2013-01-01T05:00:00.000000Z"},
    b'{"moment":"2013-01-01T05:00:00.123456+02:00"}': {"moment": "2013-01-01T03:00:00.123456Z"},
    b'{"moment":"2013-01-01T05:00:00.1-0500"}': {"moment": "2013-01-01T10:00:00.100000Z"},
    b'{"moment":"2013-01-01 05:00:00"}': {"moment": "2013-01-01T05:00:00.000000Z"},
    b'{"moment":"2013-01-01T05:00+05:30"}': {"moment": "2012-12-31T23:30:00.000000Z"},
    b'{"moment":"2013-01-01"}': {"moment": "2013-01-01T00:00:00.000000Z"},
    b'{"day":"2024-02-29"}': {"day": "2024-02-29"},
    b'{"ratio":1}': {"ratio": 1.0},
    b'{"ratio":-1.5e3}': {"ratio": -1500.0},
    b'{"price":12.34}': {"price": 12.34},
    b'{"flag":true}': {"flag": True},
    b'{"text":12345678901234567890}': {"text": "12345678901234567890"},
    # Text is no number, whatever it looks like.
    b'{"text":"1e9000000"}': {"text": "1e9000000"},
    b'{"text":"a \\"1e99999\\" b","price":1}': {"text": 'a "1e99999" b', "price": 1.0},
    b'{"text":"' + b"x" * 1_000_000 + b'1e99999"}': {"text": "x" * 1_000_000 + "1e99999"},
}

BAD: dict[bytes | None, str] = {
    None: TOMBSTONE,
    b"": NOT_JSON,
    b" \n ": NOT_JSON,
    b"null": NOT_JSON,
    b"{": NOT_JSON,
    b'{"n":1': NOT_JSON,
    b'{"n":1,"text":"x': NOT_JSON,
    b'{"n":1,}': NOT_JSON,
    b"garbage": NOT_JSON,
    # Texts that close what the decoder puts around them.
    b'{"n":1}],"x":[1': NOT_JSON,
    b'{"n":1}],"event":[{"n":2}': NOT_JSON,
    b'{"n":1}],"event":[{"_tidemark":"1"},{"n":2}': NOT_JSON,
    b'{"n":1},{"_tidemark":"1"}]} garbage': NOT_JSON,
    b'{"n":1}],"_last":1} garbage': NOT_JSON,
    b'{"n":1}],"_last":1}\n{"n":3}': NOT_JSON,
    b'[{"n":1}]': NOT_JSON,
    b"[]": NOT_JSON,
    b"1": NOT_JSON,
    b'"text"': NOT_JSON,
    b'{"n":1} and more': NOT_JSON,
    b'{"n":1}{"n":2}': NOT_JSON,
    b'{"n":1},{"n":2}': NOT_JSON,
    b'{"n":1}]} and more': NOT_JSON,
    b'{"n":1}\n{"n":2}': NOT_JSON,
    b'{"n":1}\x00': NOT_JSON,
    b"{'n':1}": NOT_JSON,
    b"{n:1}": NOT_JSON,
    b'{"n":01}': NOT_JSON,
    b'{"ratio":NaN}': NOT_JSON,
    b'{"text":"line\nbreak"}': NOT_JSON,
    b'\xef\xbb\xbf{"n":1}': NOT_JSON,
    b'{"n":' + b"[" * 2000 + b"]" * 2000 + b"}": NOT_JSON,
    b'{"text":"\xff"}': NOT_UTF8,
    b'{"text":"\xc3"}': NOT_UTF8,
    '{"n":1}'.encode("utf-16"): NOT_UTF8,
    b'{"n":"1"}': misfit("n"),
    b'{"n":1.5}': misfit("n"),
    b'{"n":3000000000}': misfit("n"),
    b'{"n":true}': misfit("n"),
    b'{"n":{}}': misfit("n"),
    b'{"n":[1]}': misfit("n"),
    b'{"n":1,"inner":{"b":"x"}}': NOT_SCHEMA,
    b'{"inner":{"list":[1,"x"]}}': NOT_SCHEMA,
    b'{"inner":[]}': misfit("inner"),
    b'{"moment":"garbage"}': misfit("moment"),
    b'{"moment":"12:30"}': misfit("moment"),
    b'{"moment":"T12:30:00"}': misfit("moment"),
    b'{"moment":"2013-02-30T00:00:00Z"}': misfit("moment"),
    b'{"day":"2013"}': misfit("day"),
    b'{"ratio":"NaN"}': misfit("ratio"),
    b'{"flag":"true"}': misfit("flag"),
    b'{"price":12345}': misfit("price"),
    b'{"price":1e9999}': misfit("price"),
    b'{"text":"x","n":"1","day":"x","flag":null}': misfit("n", "day"),
    b'{"n":"","moment":"","ratio":"","flag":"","day":"","price":""}': misfit("n", "moment", "day", "ratio", "price"),
    b'{"text":1.10}': misfit("text"),
    b'{"price":1e-9999}': misfit("price"),
    # Each of these would keep Spark busy for seconds to minutes.
    b'{"price":1e9000000}': misfit("price"),
    b'{"price":-1.5E+900000000}': misfit("price"),
    b'{"price":1e-999999999}': misfit("price"),
    b'{"price":"1e9000000"}': misfit("price"),
    b'{"price":"1e-9000000"}': misfit("price"),
    b'{"text":"1e9000000","price":1e9000000}': misfit("price"),
    b'{"price":"1e9000000", broken': NOT_JSON,
    b'{"n":1e9000000}': misfit("n"),
}


def test_values_that_are_one_object_of_the_schema_are_decoded(spark: SparkSession) -> None:
    found = outcomes(spark, list(GOOD))
    assert dict(zip(GOOD, found, strict=True)) == {value: {**EMPTY, **fields} for value, fields in GOOD.items()}


@pytest.mark.conformance(24)
def test_every_other_value_is_rejected_with_its_reason(spark: SparkSession) -> None:
    assert dict(zip(BAD, outcomes(spark, list(BAD)), strict=True)) == BAD


@pytest.mark.conformance(24)
def test_good_and_rejected_share_no_row_and_lose_none(spark: SparkSession) -> None:
    values: list[bytes | None] = [value for pair in zip(GOOD, BAD, strict=False) for value in pair]
    processed = process(records(kafka_rows(spark, values), stream(SCHEMA)), stream(SCHEMA), flat)
    good = {row.offset for row in processed.good.select("source.offset").collect()}
    rejected = [
        (row.offset, row.key, row.value)
        for row in processed.rejected.select("source.offset", "source.key", "source.value").collect()
    ]
    assert good == set(range(0, len(values), 2))
    assert sorted(rejected) == [(at, f"k{at}".encode(), values[at]) for at in range(1, len(values), 2)]
    assert processed.good.columns == ["source", "event_time", *EMPTY]
    assert processed.rejected.columns == ["source", "event_time", "reason"]


def test_a_reject_column_sorts_rows_out_and_an_unreadable_value_keeps_its_own_reason(spark: SparkSession) -> None:
    def positive(rows: DataFrame) -> DataFrame:
        unwanted = F.when(F.coalesce(F.col("event.n"), F.lit(0)) <= 0, "n must be positive")
        return rows.select("source", "event_time", (F.col("event.n") * 2).alias("twice"), unwanted.alias("reject"))

    values = [b'{"n":4}', b'{"n":-4}', b"{", b"{}"]
    processed = process(records(kafka_rows(spark, values), stream("n INT")), stream("n INT"), positive)
    assert [tuple(row) for row in processed.good.select("source.offset", "twice").collect()] == [(0, 8)]
    assert processed.good.columns == ["source", "event_time", "twice"]
    rejected = processed.rejected.select("source.offset", "reason").orderBy("offset").collect()
    assert [tuple(row) for row in rejected] == [(1, "n must be positive"), (2, NOT_JSON), (3, "n must be positive")]


def test_a_record_keeps_its_coordinates_key_bytes_and_headers(spark: SparkSession) -> None:
    frame = kafka_rows(spark, [b'{"n":1}']).withColumn(
        "headers",
        F.expr("array(struct('h' AS key, X'00FF' AS value), struct('h' AS key, CAST(NULL AS BINARY) AS value))"),
    )
    row = process(records(frame, stream()), stream(), flat).good.select("source.*").collect()[0]
    assert (row.topic, row.partition, row.offset, row.key, row.value) == ("source", 3, 0, b"k0", b'{"n":1}')
    assert [tuple(header) for header in row.headers] == [("h", b"\x00\xff"), ("h", None)]


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (lambda rows: rows.select("event_time", "event.*"), "no source"),
        (lambda rows: rows.select("source", "event.*"), "no event_time"),
        (lambda rows: rows.select("source.offset", "event.n"), "no source, no event_time"),
        (lambda rows: flat(rows).withColumn("source", F.lit("mine")), "source changed"),
        (lambda rows: flat(rows).withColumn("event_time", F.lit("2024-01-01")), "event_time changed"),
        (lambda rows: flat(rows).withColumn("_day", F.lit(1)), "_day"),
        (lambda rows: rows.select("source", "event_time", F.lit(1).alias("a"), F.lit(2).alias("A")), "a among"),
        (lambda rows: flat(rows).withColumn("reject", F.lit(True)), "reject boolean"),
        (lambda rows: rows.select("source", "event_time"), "none among"),
    ],
)
def test_a_transformation_that_breaks_its_contract_is_named_before_a_row_is_read(
    spark: SparkSession, transform: Any, text: str
) -> None:
    with pytest.raises(ConfigError, match="breaks its contract") as caught:
        process(records(kafka_rows(spark, []), stream()), stream(), transform)
    assert text in str(caught.value)
    assert "transform of stream sample" in str(caught.value)


def test_a_transformation_that_names_an_unknown_field_says_which(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"does not fit its stream.*nonsense"):
        process(
            records(kafka_rows(spark, []), stream()),
            stream(),
            lambda rows: rows.select("source", "event_time", "event.nonsense"),
        )


def test_a_value_schema_that_is_not_ddl_is_quoted(spark: SparkSession) -> None:
    broken = stream("n INTT")
    with pytest.raises(ConfigError, match=r"value_schema: not Spark DDL.*n INTT"):
        process(records(kafka_rows(spark, []), broken), broken, flat)


@pytest.mark.conformance(49)
def test_a_renamed_field_is_read_under_all_its_names_the_newest_first(spark: SparkSession) -> None:
    values: dict[bytes, tuple[int | None, str | None] | str] = {
        b'{"n":1,"b.c":"x"}': (1, "x"),
        b'{"old":1,"b.c":"x"}': (1, "x"),
        b'{"older":1}': (1, None),
        b'{"older":3,"old":2,"n":1}': (1, None),
        b'{"older":3,"old":2,"n":null}': (2, None),
        b'{"before":"y","old":2}': (2, "y"),
        b"{}": (None, None),
        b'{"old":"text"}': misfit("old"),
        b'{"old":1}{"old":2}': NOT_JSON,
    }
    wanted = stream("n INT, `b.c` STRING", renamed={"n": ["old", "older"], "b.c": ["before"]})
    found = classify(records(kafka_rows(spark, list(values)), wanted), wanted, flat)
    assert found.columns == ["source", "event_time", "_reason", "n", "b.c"]
    read = [row["_reason"] or (row["n"], row["b.c"]) for row in found.orderBy("source.offset").collect()]
    assert read == list(values.values())
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_json(") == 3


def test_an_earlier_name_that_is_also_a_field_is_refused(spark: SparkSession) -> None:
    wrong = stream("n INT, Old INT", renamed={"n": ["old"]})
    with pytest.raises(ConfigError, match=r"renamed.n: the earlier name is also a field.s name.*found old"):
        process(records(kafka_rows(spark, []), wrong), wrong, flat)


@pytest.mark.parametrize("value_format", ["json", "avro"])
def test_decoding_parses_a_good_value_once_and_in_the_jvm(spark: SparkSession, value_format: str) -> None:
    wanted = stream("n BIGINT, text STRING") if value_format == "json" else avro_stream({"n": "long", "text": "string"})
    frame = records(kafka_rows(spark, []), wanted)
    for rows in (classify(frame, wanted, flat), process(frame, wanted, flat).good):
        plan = rows._jdf.queryExecution().executedPlan().toString()
        # JSON is parsed again if it does not fit, to name the fields, or if a string looks like a number.
        assert plan.count(f"from_{value_format}(") == (3 if value_format == "json" else 1)
        assert "Python" not in plan


def test_load_transform_names_the_file_and_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text("transform = 3\n")
    with pytest.raises(ConfigError, match="def transform"):
        load_transform(stream(), tmp_path)
    (tmp_path / "sample.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(ConfigError, match=r"does not load.*nothing_of_that_name"):
        load_transform(stream(), tmp_path)
    (tmp_path / "sample.py").write_text("def transform(records):\n    return 'mine'\n")
    function: Any = load_transform(stream(), tmp_path)
    assert function(None) == "mine"
