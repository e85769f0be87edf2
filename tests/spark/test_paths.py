"""Folders of field values and times: safe, readable by Hadoop's rules, another one for every value."""

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.avro import text, union, varint
from tests.spark.rows import avro_stream, kafka_rows, microseconds, stream
from tidemark.core.errors import ConfigError
from tidemark.spark.paths import folder_name, folder_value, partition_path, time_folder
from tidemark.spark.records import records

NULL = "__HIVE_DEFAULT_PARTITION__"
PLAIN = ("UA", "null", "NULL", "~", "1.5", "-", ".", "..", "...", "a=b", "_", "_hidden", ".hidden", "x._COPYING_")
HOSTILE = (
    *(
        "/",
        "//",
        "../../etc/passwd",
        "..\\..",
        "a/b",
        "/a",
        "a/",
        "%",
        "%2F",
        "%2f",
        "%%",
        "%25",
        "a%20b",
        "a b",
        "a+b",
    ),
    *("*", "?", "[x]", "{a,b}", "\\", ":", ";", "#", "&", "'", '"', "<script>", "$", "@", "!", "^", "`", "|", ","),
    *("\x00", "\n", "\r\n", "\t", "\x7f", "\x1b[2J", "\u202e", "\ufeff", " ", "  ", "é", "e\u0301", "東京", "🌊"),
    *(NULL, "%5F" + NULL[1:], NULL + "x", "~empty", "%7Eempty", "true", "{}", "[]"),
)
LONG = ("a" * 100, "a" * 101, "a" * 102, "a" * 101 + "/", "a/" * 60, "🌊" * 8, "🌊" * 9, "🌊" * 10, "x" * 1_000_000)
# Their encoded forms would be cut inside a character.
INSIDE = ("東" * 40, "a" + "é" * 60, "abc" + "🌊" * 20, "ab" + "🌊" * 20, "a" + "🌊" * 20)


def values(spark: SparkSession, texts: list[str | None]) -> list[str]:
    frame = spark.createDataFrame(list(enumerate(texts)), "at INT, text STRING")
    rows = frame.select("at", folder_value(F.col("text")).alias("value")).orderBy("at").collect()
    return [row.value for row in rows]


@pytest.mark.conformance(28)
def test_every_text_has_a_folder_of_its_own_of_safe_characters(spark: SparkSession) -> None:
    texts = [None, "", *PLAIN, *HOSTILE, *LONG, *INSIDE, *(chr(code) for code in range(1, 0x250))]
    texts = list(dict.fromkeys(texts))
    found = values(spark, texts)
    assert found[:2] == [NULL, "~empty"]
    assert len(set(found)) == len(texts)
    assert [value for value in found if not re.fullmatch(r"[A-Za-z0-9._~%-]{1,100}", value)] == []
    short = [(value, content) for value, content in zip(found[2:], texts[2:], strict=True) if "~" not in value]
    assert [(value, content) for value, content in short if unquote(value) != content] == []
    hashed = [content for value, content in zip(found[2:], texts[2:], strict=True) if "~" in value]
    assert hashed == ["a" * 101, "a" * 102, "a" * 101 + "/", "a/" * 60, "🌊" * 9, "🌊" * 10, "x" * 1_000_000, *INSIDE]
    starts = [unquote(value.rpartition("~")[0], errors="strict") for value in found[2:] if "~" in value]
    assert [content for start, content in zip(starts, hashed, strict=True) if not str(content).startswith(start)] == []
    assert [value for value in found if re.search(r"%(?![0-9A-F]{2})", value)] == []


def test_names_that_hadoop_skips_are_encoded(spark: SparkSession) -> None:
    assert values(spark, ["x._COPYING_", NULL]) == ["x%2E_COPYING_", "%5F_HIVE_DEFAULT_PARTITION__"]


def paths(spark: SparkSession, wanted: Any, contents: list[bytes | None], clock_us: int = 0) -> list[str]:
    rows = records(kafka_rows(spark, contents), wanted)
    folder = partition_path(wanted, clock_us)
    assert folder is not None
    found = rows.select("offset", folder.alias("path")).orderBy("offset").collect()
    return [row.path for row in found]


def by(*fields: str) -> dict[str, Any]:
    return {"partitioner": {"type": "field", "fields": list(fields)}}


def test_fields_of_a_json_value_nest_in_their_order(spark: SparkSession) -> None:
    contents = {
        b'{"carrier":"UA","a":{"b":1}}': "carrier=UA/a.b=1",
        b'{"a":{"b":true},"carrier":"B6"}': "carrier=B6/a.b=true",
        b'{"carrier":null,"a":{"b":"null"}}': f"carrier={NULL}/a.b=null",
        b'{"carrier":"","a":{}}': f"carrier=~empty/a.b={NULL}",
        b'{"carrier":["x", 1],"a":{"b":{"c":"/"}}}': "carrier=%5B%22x%22%2C1%5D/a.b=%7B%22c%22%3A%22%2F%22%7D",
        b'{"carrier":"..","a":{"b":"../.."}}': "carrier=../a.b=..%2F..",
        b'{"carrier":"UA","a":"text"}': f"carrier=UA/a.b={NULL}",
        b"not json": f"carrier={NULL}/a.b={NULL}",
        b"\xff\xfe": f"carrier={NULL}/a.b={NULL}",
        b"": f"carrier={NULL}/a.b={NULL}",
        None: f"carrier={NULL}/a.b={NULL}",
    }
    wanted = stream(archive=by("$.carrier", "$.a.b"))
    assert dict(zip(contents, paths(spark, wanted, list(contents)), strict=True)) == contents


def test_fields_of_an_avro_record_are_named_by_their_json_text(spark: SparkSession) -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    fields = {
        "text": ["null", "string"],
        "number": "long",
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "inner": inner,
    }
    rest = varint(5) + varint(1_357_016_400_123) + varint(7)
    tail = "number=5/at=2013-01-01T05%3A00%3A00.123000Z/inner=%7B%22x%22%3A7%7D"
    nothing = "/".join(f"{name}={NULL}" for name in fields)
    contents = {
        union(1, text("a/b")) + rest: f"text=a%2Fb/{tail}",
        union(0) + rest: f"text={NULL}/{tail}",
        union(1, text("")) + rest: f"text=~empty/{tail}",
        union(1, text(b"\xff")) + rest: f"text={NULL}/{tail}",
        union(1, text("a/b")) + rest + b"\x00": nothing,
        b"{}": nothing,
        None: nothing,
    }
    wanted = avro_stream(fields, archive=by(*(f"$.{name}" for name in fields)))
    assert dict(zip(contents, paths(spark, wanted, list(contents)), strict=True)) == contents


def test_a_field_that_the_avro_schema_lacks_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"expected a field \$\.b: one of: a, found b \[sample\.avsc\]"):
        partition_path(avro_stream({"a": "int"}, archive=by("$.b")), 0)


def test_a_folders_name_is_the_encoded_path_of_its_field() -> None:
    assert [folder_name(path) for path in ("$.carrier", "$.a.b[1]", "$.a b/c", "$.=")] == [
        "carrier",
        "a.b%5B1%5D",
        "a%20b%2Fc",
        "%3D",
    ]


def test_times_become_folders_that_hadoop_lists_and_that_stay_below_the_stream(spark: SparkSession) -> None:
    wanted = {
        "year=2013/month=01": "year=2013/month=01",
        "/../../x//./a b?2013/..": "-./-./x/-/a-b-2013/-.",
        "_hidden/.git/x._COPYING_": "-hidden/-git/x-COPYING-",
        "05:00*": "05-00-",
        "///": "-",
        "": "-",
        "é%2F": "--2F",
    }
    frame = spark.createDataFrame(list(enumerate(wanted)), "at INT, text STRING")
    found = frame.select("at", time_folder(F.col("text")).alias("folder")).orderBy("at").collect()
    assert dict(zip(wanted, (row.folder for row in found), strict=True)) == wanted


@pytest.mark.parametrize(
    ("clock", "path_format", "folder"),
    [
        ("event_time", "hourly", "year=2024/month=05/day=17/hour=08"),
        ("event_time", "daily", "year=2024/month=05/day=17"),
        ("wall_clock", "hourly", "year=2013/month=01/day=14/hour=23"),
        ("wall_clock", "daily", "year=2013/month=01/day=14"),
    ],
)
def test_shorthands_give_folders_in_the_streams_zone_by_the_chosen_clock(
    spark: SparkSession, clock: str, path_format: str, folder: str
) -> None:
    wanted = stream(
        time_zone="America/New_York",
        archive={"partitioner": {"type": "time", "path_format": path_format, "clock": clock}},
    )
    fixed = microseconds(datetime(2013, 1, 15, 4, 59, 59, 999_999, tzinfo=UTC))  # still the 14th in New York
    assert paths(spark, wanted, [b"{}"], fixed) == [folder]
