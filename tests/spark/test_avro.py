"""Avro values, encoded by the specification's rules and decoded by Spark, against written-down results."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.avro import block, double, text, union, varint
from tests.spark.rows import NOON, avro_stream, flat, kafka_rows, microseconds, outcomes, stream
from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import Stream
from tidemark.spark.avro import avro_type
from tidemark.spark.decode import NOT_AVRO, NOT_BARE, NOT_UTF8_TEXT, TOMBSTONE, decode, decoded_schema
from tidemark.spark.process import classify
from tidemark.spark.records import event_time, records

FAR = {"max_distance_days": 36_500}  # these times are years before their records'
FIELDS: dict[str, Any] = {
    "id": "int",
    "name": "string",
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "us": {"type": "long", "logicalType": "timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    "ratio": "double",
    "maybe": ["null", "string"],
    "either": ["int", "string"],
    "colour": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]},
    "inner": {"type": "record", "name": "Inner", "fields": [{"name": "flag", "type": "boolean"}]},
    "list": {"type": "array", "items": "long"},
    "map": {"type": "map", "values": "string"},
    "blob": {"type": "fixed", "name": "Blob", "size": 2},
}
GOOD = {
    "id": varint(-7),
    "name": text("Zoë 🌊"),
    "at": varint(1_357_016_400_123),
    "us": varint(-1),
    "day": varint(15_706),
    "price": text(b"\x04\xd2"),
    "ratio": double(-1.5),
    "maybe": union(1, text("x")),
    "either": union(1, text("y")),
    "colour": varint(1),
    "inner": b"\x01",
    "list": block(varint(1), varint(2**40)),
    "map": block(text("k") + text("v")),
    "blob": b"\x00\xff",
}
OUT: dict[str, Any] = {
    "id": -7,
    "name": "Zoë 🌊",
    "at": "2013-01-01T05:00:00.123000Z",
    "us": "1969-12-31T23:59:59.999999Z",
    "day": "2013-01-01",
    "price": 12.34,
    "ratio": -1.5,
    "maybe": "x",
    "either": {"member0": None, "member1": "y"},
    "colour": "BLUE",
    "inner": {"flag": True},
    "list": [1, 2**40],
    "map": {"k": "v"},
    "blob": "AP8=",
}


def value(**changes: bytes) -> bytes:
    return b"".join({**GOOD, **changes}.values())


def test_every_kind_of_field_comes_out_as_its_spark_type(spark: SparkSession) -> None:
    empty = value(maybe=union(0), either=union(0, varint(4)), list=block(), map=block(), name=text(""))
    found = outcomes(spark, avro_stream(FIELDS), [value(), empty])
    other: dict[str, Any] = {
        "maybe": None,
        "either": {"member0": 4, "member1": None},
        "list": [],
        "map": {},
        "name": "",
    }
    assert found == [OUT, {**OUT, **other}]


BAD: dict[bytes | None, str] = {
    None: TOMBSTONE,
    b"": NOT_AVRO,
    b"{}": NOT_AVRO,
    b"\xff" * 40: NOT_AVRO,
    value()[:-1]: NOT_AVRO,
    value()[:7]: NOT_AVRO,
    value() + b"\x00": NOT_AVRO,
    value() + b"\x00" * 8: NOT_AVRO,
    value() + value(): NOT_AVRO,
    b"\x00\x00\x00\x00\x07" + value(): NOT_BARE,
    b"\xc3\x01" + b"\x00" * 8 + value(): NOT_AVRO,  # Avro's single-object encoding
    value(colour=varint(2)): NOT_AVRO,
    value(maybe=union(2)): NOT_AVRO,
    value(maybe=union(-1)): NOT_AVRO,
    value(id=varint(2**40)): NOT_AVRO,
    value(name=varint(-5)): NOT_AVRO,
    value(at=varint(2**62)): NOT_AVRO,
    value(price=text(b"\x7f\xff\xff\xff")): NOT_AVRO,  # 21474836.47 has more than six digits
    value(price=text(b"")): NOT_AVRO,
    value(price=text(b"\x7f" * 200_000)): NOT_AVRO,
    # A length that exceeds the memory.
    value(name=varint(2**31 - 20)): NOT_AVRO,
    value(price=varint(2**31 - 20)): NOT_AVRO,
    value(list=varint(2**30)): NOT_AVRO,
    value(map=varint(2**30)): NOT_AVRO,
    value(list=varint(-(2**30)) + varint(1)): NOT_AVRO,
    value(name=text(b"\xff")): NOT_UTF8_TEXT,
    value(maybe=union(1, text(b"\xc3"))): NOT_UTF8_TEXT,
    value(either=union(1, text(b"\xc3"))): NOT_UTF8_TEXT,
    value(map=block(text(b"\xed\xa0\x80") + text("v"))): NOT_UTF8_TEXT,
    value(map=block(text("a") + text("v"), text("k") + text(b"\xff"))): NOT_UTF8_TEXT,
}


def test_bytes_that_are_not_exactly_one_record_are_rejected_with_their_reason(spark: SparkSession) -> None:
    found = outcomes(spark, avro_stream(FIELDS), [*BAD, value()])
    assert dict(zip(BAD, found[:-1], strict=True)) == BAD
    assert found[-1] == OUT


def test_a_raw_value_is_its_bytes_and_only_a_tombstone_is_rejected(spark: SparkSession) -> None:
    raw = stream(None, value_format="raw")
    rows = classify(records(kafka_rows(spark, [b"\x00\xff", b"", None]), raw), raw, flat)
    found = [tuple(row) for row in rows.select("source.offset", "_reason", "value").orderBy("offset").collect()]
    assert found == [(0, None, b"\x00\xff"), (1, None, b""), (2, TOMBSTONE, None)]


@pytest.mark.parametrize("value_format", ["json", "avro", "raw"])
def test_the_schema_found_without_decoding_is_that_of_the_decoded_rows(spark: SparkSession, value_format: str) -> None:
    schemas: dict[str, Stream] = {
        "json": stream("n INT, inner STRUCT<b: ARRAY<INT>>"),
        "avro": avro_stream(FIELDS),
        "raw": stream(None, value_format="raw"),
    }
    wanted = schemas[value_format]
    decoded = decode(records(kafka_rows(spark, []), wanted), wanted)
    schema = decoded_schema(wanted)
    assert [(item.name, item.dataType.simpleString()) for item in decoded.schema] == [
        (item.name, item.dataType.simpleString()) for item in schema
    ]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"a": "intt"}, "Undefined schema: intt"),
        ({"a": "int", "b c": "int"}, "Illegal character in: b c"),
        (
            {"a": ["null", {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}]},
            "recursive reference",
        ),
        ({"carrier": "string", "Carrier": "string"}, "found carrier, Carrier"),
        (
            {
                "x": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "R",
                        "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}],
                    },
                }
            },
            "found x.element.a, x.element.A",
        ),
        ({}, "found none"),
    ],
    ids=["unknown type", "name", "recursive", "case", "case inside", "no fields"],
)
def test_a_schema_that_avro_or_spark_refuses_is_an_error_that_names_its_file(
    spark: SparkSession, fields: dict[str, Any], found: str
) -> None:
    with pytest.raises(ConfigError, match="not a schema for a stream's values") as caught:
        avro_type(avro_stream(fields))
    assert found in str(caught.value)
    assert caught.value.where == "sample.avsc"


OLDEST = {"id": "int", "delay": "int"}
EARLIER = {"id": "long", "delay": "int", "carrier": "string"}
NEWEST = {
    "id": "long",
    "minutes": ("double", {"aliases": ["delay"]}),
    "carrier": (["null", "string"], {"default": None}),
    "note": ("string", {"default": "none"}),
}


@pytest.mark.conformance(49)
def test_records_of_earlier_schemas_are_read_as_the_newest(spark: SparkSession) -> None:
    wanted = avro_stream(NEWEST, EARLIER, OLDEST)
    values: dict[bytes | None, str | dict[str, Any]] = {
        varint(7) + varint(30): {"id": 7, "minutes": 30.0, "carrier": None, "note": "none"},
        varint(2**40) + varint(5) + text("UA"): {"id": 2**40, "minutes": 5.0, "carrier": "UA", "note": "none"},
        varint(1) + double(1.5) + union(1, text("AA")) + text("x"): {
            "id": 1,
            "minutes": 1.5,
            "carrier": "AA",
            "note": "x",
        },
        varint(7) + varint(30) + text(b"\xff"): NOT_UTF8_TEXT,
        varint(7) + varint(30) + text("UA") + b"\x00": NOT_AVRO,
        varint(2**40) + varint(30): NOT_AVRO,  # the oldest has an int
        varint(7): NOT_AVRO,
        b"\x00\x00\x00\x00\x07" + varint(7) + varint(30): NOT_BARE,
        None: TOMBSTONE,
    }
    assert outcomes(spark, wanted, list(values)) == list(values.values())


@pytest.mark.parametrize(
    ("earlier", "found"),
    [
        ({"id": "string"}, "TYPE_MISMATCH at /fields/0/type"),
        ({"number": "long"}, "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/0: id"),
        ({"id": "longg"}, "Undefined schema: longg"),
        ({"old": "long", "id": "long"}, "matches multiple fields"),
    ],
    ids=["type", "no default", "no schema", "two names"],
)
@pytest.mark.conformance(49)
def test_an_incompatible_earlier_schema_is_refused_with_every_difference(
    spark: SparkSession, earlier: dict[str, Any], found: str
) -> None:
    with pytest.raises(ConfigError, match="not a schema for a stream's values") as caught:
        avro_type(avro_stream({"id": ("long", {"aliases": ["old"]})}, {"id": "int"}, earlier))
    assert found in str(caught.value)
    assert caught.value.where == "sample-1.avsc"


MS = 1_357_016_400_123  # 2013-01-01T05:00:00.123Z
TIMES: list[tuple[Any, str, bytes, int]] = [
    ({"type": "long", "logicalType": "timestamp-millis"}, "iso8601", varint(MS), MS * 1000),
    ({"type": "long", "logicalType": "timestamp-micros"}, "epoch_ms", varint(MS * 1000 + 7), MS * 1000 + 7),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, "iso8601", varint(MS), MS * 1000),
    ({"type": "int", "logicalType": "date"}, "iso8601", varint(15_706), 15_706 * 86_400_000_000),
    ({"type": "int", "logicalType": "date"}, "iso8601", varint(2**31 - 1), microseconds(NOON)),
    ("long", "epoch_ms", varint(MS), MS * 1000),
    ("long", "epoch_s", varint(MS // 1000), MS // 1000 * 1_000_000),
    ("long", "epoch_s", varint(2**62), microseconds(NOON)),
    ("double", "epoch_s", double(1_357_016_400.25), 1_357_016_400_250_000),
    ("double", "epoch_s", double(float("nan")), microseconds(NOON)),
    ("string", "iso8601", text("2013-01-01T05:00:00.123Z"), MS * 1000),
    ("string", "epoch_ms", text(str(MS)), MS * 1000),
    ("string", "iso8601", text("soon"), microseconds(NOON)),
    (["null", "long"], "epoch_ms", union(0), microseconds(NOON)),
    ("long", "epoch_ms", varint(MS) + b"\x00", microseconds(NOON)),  # not exactly one record
    ("long", "epoch_ms", b"", microseconds(NOON)),
]


def test_a_field_of_a_record_gives_the_event_time_whatever_its_type(spark: SparkSession) -> None:
    streams = [
        avro_stream({"at": kind}, event_time={"extractor": "record_field", "field": "$.at", "format": form, **FAR})
        for kind, form, _, _ in TIMES
    ]
    # Each value is read by every stream; only its own counts.
    times = F.array(*(F.unix_micros(event_time(item)) for item in streams))
    rows = kafka_rows(spark, [raw for _, _, raw, _ in TIMES]).select(
        "offset", F.get(times, F.col("offset")).alias("us")
    )
    assert {row.offset: row.us for row in rows.collect()} == {at: item[3] for at, item in enumerate(TIMES)}


@pytest.mark.conformance(49)
def test_a_field_gives_the_event_time_of_records_of_earlier_schemas(spark: SparkSession) -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    newest = {"note": ("string", {"default": ""}), "when": (millis, {"aliases": ["at"]})}
    wanted = avro_stream(newest, {"at": millis}, event_time={"extractor": "record_field", "field": "$.when", **FAR})
    rows = kafka_rows(spark, [varint(MS), text("x") + varint(MS + 1), b""])
    found = rows.select("offset", F.unix_micros(event_time(wanted)).alias("us")).collect()
    assert {row.offset: row.us for row in found} == {0: MS * 1000, 1: MS * 1000 + 1000, 2: microseconds(NOON)}


def test_a_field_inside_records_lists_and_maps_is_found_by_its_path(spark: SparkSession) -> None:
    stop = {"type": "record", "name": "Stop", "fields": [{"name": "times", "type": {"type": "map", "values": "long"}}]}
    fields = {"stops": {"type": "array", "items": stop}}
    raw = block(block(text("x") + varint(1)), block(text("at") + varint(60)))
    expected = {
        "$.stops[1].times.at": 60_000_000,
        "$.stops[1].times['at']": 60_000_000,
        "$.stops[1].times.none": microseconds(NOON),
        "$.stops[2].times.at": microseconds(NOON),
    }
    wanted = ({"extractor": "record_field", "field": path, "format": "epoch_s", **FAR} for path in expected)
    times = [F.unix_micros(event_time(avro_stream(fields, event_time=item))) for item in wanted]
    (row,) = kafka_rows(spark, [raw]).select(*times).collect()
    assert dict(zip(expected, row, strict=True)) == expected


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("$.when", "expected a field $.when: one of: at, found when"),
        ("$.at.x", "expected a field $.at.x: bigint, found x"),
        ("$.at", "event_time.field: not a time: expected a type that holds iso8601, or a type of time"),
    ],
)
def test_a_field_that_a_schema_cannot_have_is_refused_before_a_row_is_read(
    spark: SparkSession, field: str, message: str
) -> None:
    wanted = {"extractor": "record_field", "field": field}
    with pytest.raises(ConfigError) as caught:
        event_time(avro_stream({"at": "long"}, event_time=wanted))
    assert message in str(caught.value)
    assert caught.value.where == "sample.avsc"
