"""Schemas of one stream whose records look the same, and values that are records of two schemas."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.avro import block, text, varint
from tests.spark.rows import avro_stream, outcomes
from tidemark.core.errors import ConfigError
from tidemark.spark.avro import avro_type
from tidemark.spark.decode import NOT_AVRO, NOT_ONE_SCHEMA

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9}
STATES = {"type": "enum", "name": "State"}
PERSON = {"type": "record", "name": "Person"}


def states(*symbols: str) -> dict[str, Any]:
    return {**STATES, "symbols": list(symbols)}


def person(*names: str) -> dict[str, Any]:
    return {**PERSON, "fields": [{"name": name, "type": "string"} for name in names]}


def amount(name: str, scale: int, **more: Any) -> dict[str, Any]:
    kind = {"type": "fixed", "name": name, "size": 2}
    return {**kind, "logicalType": "decimal", "precision": 4, "scale": scale, **more}


R, Y = {"type": "record", "name": "R"}, {"name": "y", "type": "int"}
SAME = "the same bytes as a record of sample.avsc, with which "
NOTE: dict[str, Any] = {"note": ("string", {"default": ""})}
A, B = ({"type": "record", "name": name, "fields": [{"name": "x", "type": "string"}]} for name in "AB")
MISREAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "reordered": (
        {"first": "string", "last": "string"},
        {"last": "string", "first": "string"},
        SAME + "last is read as first, first is read as last",
    ),
    "promoted": (
        {"a": "long", "b": "double", "c": "long"},
        {"c": "int", "b": "double", "a": "int"},
        SAME + "c is read as a, a is read as c",
    ),
    "replaced": (
        {"a": "string", "new": ("string", {"default": ""})},
        {"a": "string", "old": "string"},
        "old is read as new",
    ),
    "symbols": (
        {"state": states("PAID", "VOID", "OPEN")},
        {"state": states("VOID", "PAID", "OPEN")},
        SAME + "VOID of state is read as PAID, PAID of state is read as VOID",
    ),
    "inside": (
        {"n": "int", "who": ["null", person("first", "last")]},
        {"n": "int", "who": ["null", person("last", "first")]},
        SAME + "who.last is read as who.first, who.first is read as who.last",
    ),
    "in a list": (
        {"who": {"type": "array", "items": person("first", "last")}},
        {"who": {"type": "array", "items": person("last", "first")}},
        SAME + "who.last is read as who.first, who.first is read as who.last",
    ),
    "named again": (
        {"a": person("x"), "b": "Person", "c": "int"},
        {"b": person("x"), "a": "Person", "c": "int"},
        SAME + "b.x is read as a.x, a.x is read as b.x",
    ),
    "branches": ({"e": [A, B]}, {"e": [B, A]}, SAME + "e.B.x is read as e.A.x, e.A.x is read as e.B.x"),
    "text and bytes": ({"e": ["string", "bytes"]}, {"e": ["bytes", "string"]}, "e.bytes is read as e.string"),
    "unit": (
        {"at": MICROS, **NOTE},
        {"at": MILLIS},
        "at is timestamp-millis here, and timestamp-micros in sample.avsc",
    ),
    "unit of a branch": (
        {"at": ["int", MICROS], **NOTE},
        {"at": ["int", MILLIS]},
        "at.long is timestamp-millis here, and timestamp-micros in sample.avsc",
    ),
    "scale": (
        {"price": ["null", {**MONEY, "scale": 2}], **NOTE},
        {"price": {**MONEY, "scale": 4}},
        "price is decimal(4) here, and decimal(2) in sample.avsc",
    ),
    "another logical type": (
        {"at": MILLIS, **NOTE},
        {"at": {"type": "long", "logicalType": "timestamp-seconds"}},
        "at is timestamp-seconds here, and timestamp-millis in sample.avsc",
    ),
    "unit of a renamed type": (
        {"p": ["null", amount("New", 1, aliases=["Old"])], **NOTE},
        {"p": ["null", amount("Old", 2)]},
        "p is decimal(2) here, and decimal(1) in sample.avsc",
    ),
    "unit of a renamed field": (
        {"a": (MILLIS, {"default": 0}), "b": (MICROS, {"aliases": ["a"], "default": 0})},
        {"a": MILLIS},
        "b is timestamp-millis here, and timestamp-micros in sample.avsc",
    ),
    "alias in another namespace": (
        {
            "r": {**R, "namespace": "v2", "fields": [{"name": "y", "type": "int", "aliases": ["x"], "default": 0}]},
            **NOTE,
        },
        {"r": {**R, "namespace": "v1", "fields": [{"name": "x", "type": "int"}]}},
        "r.x is not read as y: its record has another name or namespace, so Avro ignores the alias",
    ),
    "text as a number": (
        {"price": {**MONEY, "scale": 2}, **NOTE},
        {"price": "string"},
        "price is string here, and decimal(2) in sample.avsc",
    ),
}


@pytest.mark.conformance(77)
@pytest.mark.parametrize(("newest", "earlier", "found"), MISREAD.values(), ids=MISREAD)
def test_an_earlier_schema_whose_records_would_be_read_as_something_else_is_refused(
    spark: SparkSession, newest: dict[str, Any], earlier: dict[str, Any], found: str
) -> None:
    with pytest.raises(ConfigError, match="records are read as they were written") as caught:
        avro_type(avro_stream(newest, earlier))
    assert found in str(caught.value)
    assert caught.value.where == "sample-1.avsc"


ACCEPTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "renamed": ({"given": ("string", {"aliases": ["first"]}), "last": "string"}, {"first": "string", "last": "string"}),
    "reordered with a new field": (
        {"first": "string", "last": "string", "age": ("int", {"default": 0})},
        {"last": "string", "first": "string"},
    ),
    "symbol added": ({"state": states("PAID", "VOID", "OPEN")}, {"state": states("PAID", "VOID")}),
    "field left out": ({"a": "string"}, {"a": "string", "b": "string"}),
    "wider": ({"a": "long", "s": "bytes"}, {"a": "int", "s": "string"}),
    "a time from now on": ({"at": MILLIS}, {"at": "long"}),
    "a number from now on": ({"at": "long"}, {"at": MILLIS}),
    "more digits": ({"price": {**MONEY, "precision": 12, "scale": 2}}, {"price": {**MONEY, "scale": 2}}),
    "times of two branches": (
        {"at": ["null", {"type": "int", "logicalType": "date"}, MILLIS], **NOTE},
        {"at": ["null", {"type": "int", "logicalType": "date"}, MILLIS]},
    ),
    "lists in one of two records": (
        {"e": [A, {**B, "fields": [{"name": "x", "type": {"type": "array", "items": "string"}}]}], **NOTE},
        {"e": [A, {**B, "fields": [{"name": "x", "type": {"type": "array", "items": "string"}}]}]},
    ),
    "an unknown logical type": (
        {"name": {"type": "string", "logicalType": "upper"}, **NOTE},
        {"name": {"type": "string", "logicalType": "lower"}},
    ),
    "a renamed enum": (
        {"e": ["null", {**STATES, "name": "New", "aliases": ["State"], "symbols": ["A", "B"]}]},
        {"e": ["null", states("A", "B")]},
    ),
    "wider in a union": ({"a": ["int", "long"]}, {"a": ["long", "int"]}),
    "symbols that nobody reads": ({"n": "int"}, {"n": "int", "state": states("PAID", "VOID")}),
}


@pytest.mark.parametrize(("newest", "earlier"), ACCEPTED.values(), ids=ACCEPTED)
def test_an_earlier_schema_that_reads_as_it_was_written_is_accepted(
    spark: SparkSession, newest: dict[str, Any], earlier: dict[str, Any]
) -> None:
    assert avro_type(avro_stream(newest, earlier)).names == list(newest)


@pytest.mark.conformance(77)
@pytest.mark.parametrize("extra", [{}, {"tags": {"type": "map", "values": "string"}}], ids=["plain", "with a map"])
def test_a_value_that_two_schemas_read_differently_is_rejected_and_never_guessed(
    spark: SparkSession, extra: dict[str, Any]
) -> None:
    newest = {"a": "long", "new": ("long", {"default": -1}), "note": "string", **extra}
    wanted = avro_stream(newest, {"a": "long", "note": "string", **extra})
    end = block(text("k") + text("v")) if extra else b""
    tags = {"tags": {"k": "v"}} if extra else {}
    values: dict[bytes | None, str | dict[str, Any]] = {
        varint(7) + varint(5) + text("plain") + end: {"a": 7, "new": 5, "note": "plain", **tags},
        varint(7) + text("plain") + end: {"a": 7, "new": -1, "note": "plain", **tags},
        # A note of three bytes; or new = 3 and a note of two.
        varint(7) + text(b"\x04ab") + end: NOT_ONE_SCHEMA,
        varint(7) + text(b"\x04ab") + end + b"\x00": NOT_AVRO,
    }
    assert outcomes(spark, wanted, list(values)) == list(values.values())
