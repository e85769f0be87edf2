"""Each type of a value_schema and each form a producer may write, against docs/reference/json-values.md.

What is right is computed here in Python, from the page's rules: Spark has no part in it.
"""

import base64
import json
import math
import re
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tests.spark.rows import kafka_rows, stream
from tidemark.spark.decode import NOT_SCHEMA, NOT_UTF8_TEXT, decode
from tidemark.spark.process import Transform, fields, process
from tidemark.spark.records import records

PAGE = Path(__file__).parents[2] / "docs/reference/json-values.md"
REFUSED = "refused"
HALF = "half of a character"
NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?"
DAY = r"(?P<day>\d{4}-\d\d-\d\d)"
CLOCK = r"(T?[ ]?(?P<hour>\d\d):(?P<minute>\d\d)(:(?P<second>\d\d)(\.(?P<fraction>\d{1,9}))?)?)?"
ZONE = r"(Z|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)?)?"
BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


class Number(str):
    """A number as it stands in the JSON text."""

    __slots__ = ()


def expected(kind: str, text: str) -> Any:
    """What a field of the type has of a JSON text; REFUSED, or HALF where the whole record is refused."""
    value = json.loads(text, parse_int=Number, parse_float=Number)
    if re.search(r"[\ud800-\udfff]", json.dumps(value, ensure_ascii=False)):
        return HALF
    if value is None:
        return None
    type_name, *figures = re.findall(r"[A-Z_]+|\d+", kind)
    if isinstance(value, Number):
        return _of_number(type_name, figures, value)
    if isinstance(value, str):
        return _of_text(type_name, figures, value)
    if type_name == "BOOLEAN":
        return value if isinstance(value, bool) else REFUSED
    return json.dumps(json.loads(text), separators=(",", ":")) if type_name == "STRING" else REFUSED


def _of_number(type_name: str, figures: list[str], text: str) -> Any:
    whole = re.fullmatch("-?[0-9]+", text)
    if type_name in BITS:
        limit = 2 ** (BITS[type_name] - 1)
        return int(text) if whole and -limit <= int(text) < limit else REFUSED
    if type_name in ("FLOAT", "DOUBLE"):
        return _nearest(type_name, text)
    if type_name == "DECIMAL":
        return _exact(text, *map(int, figures))
    return str(int(text)) if type_name == "STRING" and whole else REFUSED


def _of_text(type_name: str, figures: list[str], text: str) -> Any:
    if type_name == "STRING":
        return text
    if type_name == "DECIMAL":
        return _exact(text, *map(int, figures))
    if type_name == "BINARY":
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            return REFUSED
    return _time(type_name, text) if type_name in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ") else REFUSED


def _nearest(name: str, text: str) -> Any:
    found = float(text)
    if name == "FLOAT":
        try:
            (found,) = struct.unpack("f", struct.pack("f", found))
        except OverflowError:
            return REFUSED
    return found if math.isfinite(found) else REFUSED


def _exact(text: str, digits: int, scale: int) -> Any:
    form = re.fullmatch(NUMBER, text)
    if form is None:
        return REFUSED
    number = Fraction(text)
    given = len(re.sub("[-.]", "", text.lower().split("e")[0]))
    bare = isinstance(text, Number)
    if (form[3] and (given > 15 or (bare and not number))) or (bare and given > 38):
        return REFUSED
    exact = (number * 10**scale).denominator == 1 and abs(number) < 10 ** (digits - scale)
    return Decimal(text) if exact else REFUSED


def _time(name: str, text: str) -> Any:
    pattern = {"DATE": DAY, "TIMESTAMP": DAY + CLOCK + ZONE, "TIMESTAMP_NTZ": DAY + CLOCK}[name]
    form = re.fullmatch(pattern, text, re.ASCII | re.IGNORECASE)
    if form is None:
        return REFUSED
    part = {key: found or "" for key, found in form.groupdict().items()}
    try:
        day = date.fromisoformat(part["day"])
        if name == "DATE":
            return day
        hour, minute, second = (int(part[key] or 0) for key in ("hour", "minute", "second"))
        micros = int((part["fraction"] + "000000")[:6])
        moment = datetime(day.year, day.month, day.day, hour, minute, second, micros)
        if name == "TIMESTAMP_NTZ":
            return moment
        offset = timedelta(hours=int(part["hours"] or 0), minutes=int(part["minutes"] or 0))
        zone = timezone(-offset if part["sign"] == "-" else offset)
        return moment.replace(tzinfo=zone).astimezone(UTC) if offset <= timedelta(hours=18) else REFUSED
    except (ValueError, OverflowError):
        return REFUSED


def rows_of_the_page() -> list[tuple[str, list[str], list[str]]]:
    """Per type what the page accepts and refuses."""
    lines = re.findall(r"^\| ([A-Z_0-9(),]+) \| (.*?) \| (.*?) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return [(kind, re.findall("`(.+?)`", good), re.findall("`(.+?)`", bad)) for kind, good, bad in lines]


def read(spark: SparkSession, cases: list[tuple[str, str]], shape: str = "{}", value: str = "{}") -> list[Any]:
    """What each case's field has: its type stands in ``shape`` in the schema, its text in ``value`` in the record."""
    kinds = sorted({kind for kind, _ in cases})
    schema = ", ".join(f"{name(kind)} {shape.format(kind)}" for kind in kinds)
    values = [f'{{"{name(kind)}":{value.format(text)}}}'.encode() for kind, text in cases]
    wanted = stream(schema)
    decoded = decode(records(kafka_rows(spark, list(values)), wanted), wanted).orderBy("source.offset")
    found = decoded.select(F.col("source._reason").alias("reason"), "event.*").toArrow().to_pylist()
    assert len(found) == len(cases)
    return [row["reason"] or row[name(kind)] for row, (kind, _) in zip(found, cases, strict=True)]


def name(kind: str) -> str:
    return re.sub("[^a-z0-9]", "_", kind.lower())


def only(made: Column) -> Transform:
    """A transformation whose one column is ``at``."""
    return lambda frame: frame.select("source", "event_time", made.alias("at"))


def judged(kind: str, text: str, found: Any) -> tuple[str, str, Any]:
    """A case with its outcome in the form of ``wanted``."""
    if isinstance(found, str) and found.startswith(f"{NOT_SCHEMA}: {name(kind)} is not {kind} such as "):
        return kind, text, REFUSED
    return kind, text, HALF if found == NOT_UTF8_TEXT else found


def wanted(kind: str, text: str) -> tuple[str, str, Any]:
    return kind, text, expected(kind, text)


@pytest.mark.conformance(74)
def test_the_page_lists_what_is_accepted_and_refused(spark: SparkSession) -> None:
    cases = [(kind, text) for kind, good, bad in rows_of_the_page() for text in good + bad]
    assert len(cases) > 70
    found = read(spark, cases)
    assert [judged(*case, value) for case, value in zip(cases, found, strict=True)] == [wanted(*case) for case in cases]
    refused = {(kind, text) for kind, _, bad in rows_of_the_page() for text in bad}
    assert refused == {case for case in cases if expected(*case) in (REFUSED, HALF)}


# Forms that producers write, beside those of the page.
OTHERS = [
    *(
        "null",
        "-0",
        "0",
        "0.0",
        "-0.00",
        "1.0",
        "1e0",
        "0e5",
        "1E+2",
        "1.5E-7",
        "123456789012345e-2",
        "12e99",
        "1e-400",
    ),
    *(
        "1e9999",
        "-1e400",
        "1e-9999",
        "0.005",
        "9999.99",
        "9999.994",
        "-9999.99",
        "10000",
        "1.10",
        "1234567890123456789",
    ),
    *("12345678901234567.5", "0.1234567890123456789", "1.2345678901234567890e2", "1" + "0" * 40, "1." + "0" * 40, "[]"),
    *(
        "0." + "1" * 40,
        "0.30000000000000004",
        "true",
        "false",
        "{}",
        '{"a":1}',
        "[1,2]",
        '["x"]',
        '"0"',
        '"-0"',
        '"1."',
    ),
    *('"1e2"', '"1E-2"', '"1e5"', '"0x10"', '"1_000"', '"1 000"', '"1\u00a0000"', '"\u0661"', '"-"', '"- 1"', '"--1"'),
    *(
        '"12.5 "',
        '"12.5\\n"',
        '"5\\n"',
        '"2013-01-31\\n"',
        "1234",
        '"12.5€"',
        '"12,345.67"',
        '"1.5f"',
        '"1/2"',
        '"50%"',
        '"NaN"',
        '"INF"',
        '"-Infinity"',
        '"Infinity"',
    ),
    *('"true"', '"TRUE"', '"yes"', '"null"', '""', '" "', '"AQI"', '"AQI=\\n"', '"AQ-_"', '"AQ+/"', '"=AQI"', '"A==="'),
    *('"2013-01-31T05"', '"2013-01-31T05:15:00.1234567Z"', '"2013-01-31T05:15:00,5Z"', '"2013-01-31T5:15:00Z"'),
    *('"2013-01-31t05:15:00z"', '"2013-01-31T05:15:00+02"', '"2013-01-31T05:15:00+18:30"', '"20130131T051500Z"'),
    *('"2013-01-31T23:59:60Z"', '"2013-02-29T00:00:00Z"', '"2012-02-29T00:00:00Z"', '"2013-01-31T05:15:00 Z"'),
    *('"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"', '"0001-01-01T00:00:00+01:00"', '"0000-12-31"'),
    *('"9999-12-31T23:59:59-01:00"', '"+12013-01-31"', '"12013-01-31"', '"-2013-01-31"', '"13-01-31"', '"2013-01"'),
    *('"2013-01-31Z"', '"today"', '"now"', '"epoch"', '"1970-01-01"', '"1582-10-10"', '"01/31/2013"', '"2013-W05-4"'),
    *('"Thu, 31 Jan 2013 05:15:00 GMT"', '"PT5M"', '"\\ud83d\\ude00"', '"\\ude00\\ud83d"', '"\\\\ud83d"', '"🌊"'),
]
KINDS = ["DECIMAL(38,0)", "DECIMAL(38,18)", "DECIMAL(38,38)", *(kind for kind, _, _ in rows_of_the_page())]


@pytest.mark.conformance(74)
def test_every_form_in_every_type(spark: SparkSession) -> None:
    texts = dict.fromkeys(OTHERS + [text for _, good, bad in rows_of_the_page() for text in good + bad])
    cases = [(kind, text) for kind in KINDS for text in texts]
    found = read(spark, cases)
    wrong = [
        (one, other)
        for case, value in zip(cases, found, strict=True)
        if (one := judged(*case, value)) != (other := wanted(*case))
    ]
    assert not wrong


@pytest.mark.conformance(74)
@pytest.mark.parametrize(
    ("shape", "value", "inside"),
    [
        ("STRUCT<b: {}, a: INT>", '{{"a":1,"b":{}}}', lambda found: found["b"]),
        ("ARRAY<{}>", "[null,{}]", lambda found: found[1]),
        ("MAP<STRING, ARRAY<{}>>", '{{"k":[],"b":[{}]}}', lambda found: dict(found)["b"][0]),
        ("ARRAY<STRUCT<b: MAP<STRING, {}>>>", '[{{}},{{"b":{{"k":{}}}}}]', lambda found: dict(found[1]["b"])["k"]),
    ],
    ids=["struct", "list", "map", "map in a list"],
)
def test_forms_inside_of_other_types(spark: SparkSession, shape: str, value: str, inside: Any) -> None:
    cases = [(kind, text) for kind, good, bad in rows_of_the_page() for text in good + bad]
    for case, found in zip(cases, read(spark, cases, shape, value), strict=True):
        right = expected(*case)
        if right in (REFUSED, HALF):
            assert isinstance(found, str), case
            assert found.startswith(NOT_SCHEMA if right == REFUSED else NOT_UTF8_TEXT), case
        else:
            assert inside(found) == right, case


def test_other_forms_are_converted_as_the_page_says(spark: SparkSession) -> None:
    rows = re.findall(r"^\| `(.+?)`.*? \| `(.+?)` \| `(.+?)` \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    found = []
    for text, kind, code in rows:
        declared = stream(f"at {kind}")
        hostile = {"BIGINT": str(2**63 - 1), "STRING": '"x"'}.get(kind, "0")
        values: list[bytes | None] = [f'{{"at":{item}}}'.encode() for item in (text, hostile)]
        converted = eval(code, {"F": F})  # noqa: S307 - the page's own code
        kept = process(records(kafka_rows(spark, values), declared), declared, only(converted))
        assert kept.rejected.count() == 0
        first, _ = kept.good.orderBy("source.offset").select("at").toArrow()["at"].to_pylist()
        found.append(first)
    moment = datetime(2013, 1, 31, 5, 15, tzinfo=UTC)
    assert found == [moment, moment, Decimal("12.50"), date(2013, 1, 31), Decimal("12.35")]


@pytest.mark.conformance(74)
@pytest.mark.parametrize(
    ("schema", "value", "wrong"),
    [
        ("s STRING, t STRING", '{"t":{"x":{"a":1,"a":2}},"s":1.10}', 's is not STRING such as "text"'),
        (
            "l ARRAY<STRING>",
            '{"l":[12345678901234567890.5,{"x":{"a":1,"a":2}}]}',
            'l is not a list of STRING such as "text"',
        ),
        ("d DECIMAL(6,2)", '{"d":{"x":{"a":1,"a":2}}}', 'd is not DECIMAL(6,2) such as 12.5 or "12.5"'),
        ("d DECIMAL(6,2)", '{"d":1,"d":{"a":1,"a":1}}', 'd is not DECIMAL(6,2) such as 12.5 or "12.5"'),
        ("d DECIMAL(6,2)", '{"d":' + "[" * 900 + "]" * 900 + "}", 'd is not DECIMAL(6,2) such as 12.5 or "12.5"'),
        ("d DECIMAL(6,2)", '{"d":' + '{"a":' * 990 + "1" + "}" * 991, 'd is not DECIMAL(6,2) such as 12.5 or "12.5"'),
        ("d BINARY", '{"d":' + '{"a":' * 990 + "1" + "}" * 991, 'd is not BINARY such as "AQI=" in base64'),
        ("s STRING, d DECIMAL(6,2)", '{"s":"1.5","d":1e9000000}', 'd is not DECIMAL(6,2) such as 12.5 or "12.5"'),
        ("_corrupt INT, s STRING", '{"_corrupt":"x","s":"1.5"}', "_corrupt is not INT such as 12"),
        ("_corrupt INT, s STRING", '{"_corrupt":1,"s":"1.5"}', None),
        ("d DECIMAL(6,2), s STRING", '{"d":1.5,"s":' + "[" * 400 + "]" * 400 + "}", None),
    ],
)
def test_values_that_a_parser_may_stumble_over(spark: SparkSession, schema: str, value: str, wrong: str | None) -> None:
    declared = stream(schema)
    (row,) = decode(records(kafka_rows(spark, [value.encode()]), declared), declared).collect()
    assert row.source["_reason"] == (wrong and f"{NOT_SCHEMA}: {wrong}")


@pytest.mark.conformance(75)
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ", "DATE", "ARRAY<TIMESTAMP>", "STRUCT<b: DATE>"])
def test_a_time_that_python_cannot_hold_is_rejected_after_the_transformation(spark: SparkSession, kind: str) -> None:
    declared = stream("years INT")
    inner = re.sub(r"ARRAY<(.+)>|STRUCT<b: (.+)>", r"\1\2", kind)
    moved = F.try_add(F.lit(datetime(2013, 1, 31, tzinfo=UTC)).cast(inner), F.make_ym_interval("event.years"))
    made = {"A": F.array(moved), "S": F.struct(moved.alias("b"))}.get(kind[0], moved)
    values: list[bytes | None] = [f'{{"years":{years}}}'.encode() for years in (0, 7986, 7987, -2012, -2013)]
    processed = process(records(kafka_rows(spark, values), declared), declared, only(made))
    assert [row.offset for row in processed.good.select("source.offset").orderBy("offset").collect()] == [0, 1, 3]
    rejected = processed.rejected.select("source.offset", "reason").orderBy("offset").collect()
    reason = "at: a time outside of the years 1 to 9999"
    assert [tuple(row) for row in rejected] == [(2, reason), (4, reason)]


def test_every_type_of_the_page_has_its_fields_as_columns(spark: SparkSession) -> None:
    declared = stream(", ".join(f"{name(kind)} {kind}" for kind, _, _ in rows_of_the_page()))
    one = {name(kind): f'"{name(kind)}":{good[0]}' for kind, good, _ in rows_of_the_page()}
    frame = records(kafka_rows(spark, [f"{{{','.join(one.values())}}}".encode()]), declared)
    (row,) = process(frame, declared, fields).good.drop("source", "event_time").toArrow().to_pylist()
    assert row == {name(kind): expected(kind, good[0]) for kind, good, _ in rows_of_the_page()}
