"""Single objects of Kafka Connect: what a key says, and which records an object holds."""

import gzip
import io
import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.archive.connect import header_lines, lines
from tests.conftest import unique
from tidemark.adopt import decode
from tidemark.adopt.check import meaning
from tidemark.adopt.decode import read_object
from tidemark.adopt.listing import ConnectFile, ConnectObject, connect_file, sort_objects
from tidemark.adopt.rows import NO_FIELDS, ValueFields
from tidemark.core.errors import FormatError
from tidemark.s3 import ObjectInfo, ObjectStore

STEM = "topics/a.b_c-d/partition=12/a.b_c-d+12+0000000345"


def info(key: str) -> ObjectInfo:
    return ObjectInfo(key=key, size=1, etag="", modified=datetime(2013, 1, 14, tzinfo=UTC))


@pytest.mark.parametrize(
    ("form", "encoding"),
    [
        ("json", "json"),
        ("json.gz", "json"),
        ("bin", "bin"),
        ("bin.gz", "bin"),
        ("avro", "avro"),
        ("parquet", "parquet"),
        ("gz.parquet", "parquet"),
        ("zstd.parquet", "parquet"),
    ],
)
@pytest.mark.parametrize("part", ["values", "keys", "headers"])
def test_a_connect_key_has_topic_partition_start_part_and_format(form: str, encoding: str, part: str) -> None:
    side = "" if part == "values" else f".{part}"
    found = info(f"{STEM}{side}.{form}")
    assert connect_file(found) == ConnectFile(
        info=found,
        stem=STEM,
        topic="a.b_c-d",
        partition=12,
        start=345,
        part=part,
        encoding=encoding,
        in_order=True,
    )


@pytest.mark.parametrize(
    ("folder", "in_order"),
    [
        ("topics/t/partition=0/", True),
        ("", False),
        ("topics/t/partition=1/", False),
        ("topics/t/year=2013/month=01/day=14/hour=05/", False),
        ("topics/t/city=Lyon/", False),
    ],
)
def test_only_the_default_partitioners_folder_keeps_records_in_order(folder: str, in_order: bool) -> None:
    file = connect_file(info(f"{folder}t+0+0000000007.json"))
    assert file is not None
    assert (file.start, file.in_order) == (7, in_order)


def test_a_data_object_of_the_archive_is_no_connect_object() -> None:
    key = f"data/s/partition=0/t+0+{0:020}+{9:020}+0000.parquet"
    assert connect_file(info(key)) is None


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (b'{"a": 1, "b": [1.50, null]}', b'{"b":[1.5,null],"a":1.0}', True),
        (b'{"a": 1, "b": null}', b'{"a": 1}', True),
        (b'{"a": 1}', b'{"a": "1"}', False),
        (b'{"a": true}', b'{"a": false}', False),
        (b'{"a": NaN}', b'{"a":NaN}', True),
        (b'{"a": 1e400}', b'{"a": 2e400}', True),
        (b"no json", b"no json", True),
        (b"no json", b"no JSON", False),
    ],
)
def test_values_are_compared_as_json(one: bytes, other: bytes, equal: bool) -> None:
    assert (meaning(one, NO_FIELDS) == meaning(other, NO_FIELDS)) is equal


def test_fields_that_the_sink_added_are_not_compared() -> None:
    fields = ValueFields(offset="_offset", timestamp="_at")
    added = b'{"a": {"_offset": 1}, "_offset": 7, "_at": 1000}'
    assert meaning(added, fields) == meaning(b'{"a": {"_offset": 1}}', fields)
    assert meaning(added, fields) != meaning(b'{"a": {}}', fields)


def read(store: ObjectStore, **parts: tuple[str, bytes]) -> pa.Table:
    """The records of an object whose parts have these formats and bytes."""
    folder = f"{unique('topics')}/orders/partition=0"
    for part, (form, body) in parts.items():
        side = "" if part == "values" else f".{part}"
        store.put(f"{folder}/orders+0+0000000100{side}.{form}", body)
    listing = sort_objects(store.list(f"{folder}/"), "orders")
    (item,) = listing.objects
    assert isinstance(item, ConnectObject)
    assert (listing.problems, listing.ignored) == ((), {})
    return read_object(store, item)


def test_lines_are_values_byte_for_byte(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(7)  # noqa: S311 - any bytes will do
    values = [source.randbytes(source.randrange(40)).replace(b"\n", b"") for _ in range(2_000)]
    monkeypatch.setattr(decode, "BATCH_ROWS", 30)  # many arrays
    body = b"".join(value + b"\n" for value in values)
    for form, written in (("bin", body), ("bin.gz", gzip.compress(body)), ("json", body + b"last")):
        table = read(store, values=(form, written))
        assert table.column("value").to_pylist() == ([*values, b"last"] if form == "json" else values)
        assert (table.column("key").null_count, table.column("headers").to_pylist()[0]) == (table.num_rows, [])


def test_avro_and_parquet_values_become_json_of_equal_value(store: ObjectStore) -> None:
    moment = datetime(2013, 1, 14, 17, 0, 0, 250_000, tzinfo=UTC)
    row = {"n": 2**53 + 1, "at": moment, "day": date(2013, 1, 14), "fare": Decimal("1.50"), "raw": b"\x00\xff"}
    expected = {
        "n": 2**53 + 1,
        "at": "2013-01-14T17:00:00.250000Z",
        "day": "2013-01-14",
        "fare": "1.50",
        "raw": "AP8=",
        "no": None,
        "tags": {"ä": [1, 2]},
    }
    avro = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "n", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
            {"name": "raw", "type": "bytes"},
            {"name": "no", "type": ["null", "string"]},
            {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        ],
    }
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("at", pa.timestamp("ms", tz="UTC")),
            ("day", pa.date32()),
            ("fare", pa.decimal128(8, 2)),
            ("raw", pa.binary()),
            ("no", pa.string()),
            ("tags", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ]
    )
    bodies = {"avro": io.BytesIO(), "zstd.parquet": io.BytesIO()}
    fastavro.writer(bodies["avro"], avro, [{**row, "no": None, "tags": {"ä": [1, 2]}}] * 2, codec="deflate")
    rows = [{**row, "no": None, "tags": [("ä", [1, 2])]}] * 2
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), bodies["zstd.parquet"], compression="zstd")
    for form, body in bodies.items():
        values = read(store, values=(form, body.getvalue())).column("value").to_pylist()
        assert [json.loads(value) for value in values] == [expected, expected], form


def avro_of(schema: Any, records: list[Any]) -> bytes:
    body = io.BytesIO()
    fastavro.writer(body, schema, records)
    return body.getvalue()


def parquet_of(records: list[dict[str, Any]]) -> bytes:
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), body)
    return body.getvalue()


@pytest.mark.parametrize(
    ("form", "body", "expected"),
    [
        ("json", lines(["k1", "", "k3"]), [b"k1", b"", b"k3"]),
        ("json", lines(["k1", 'say "ä"', {"id": 3}]), [b"k1", 'say "ä"'.encode(), b'{"id":3}']),
        ("json", lines([1, {"id": 2}, "3"]), [b"1", b'{"id":2}', b"3"]),
        ("bin.gz", gzip.compress(b'"k1"\n\x00\nk3\n'), [b'"k1"', b"\x00", b"k3"]),
        ("avro", avro_of("string", ["k1", "", "k3"]), [b"k1", b"", b"k3"]),
        ("parquet", parquet_of([{"key": "k1"}, {"key": ""}, {"key": "k3"}]), [b"k1", b"", b"k3"]),
    ],
    ids=["texts", "escapes", "mixed", "bytes", "avro", "parquet"],
)
def test_keys_are_texts_as_they_are_and_other_keys_as_json(
    store: ObjectStore, form: str, body: bytes, expected: list[bytes]
) -> None:
    table = read(store, values=("json", lines([1, 2, 3])), keys=(form, body))
    assert table.column("key").to_pylist() == expected


HEADERS = [[("h", "1"), ("h", "2")], [("ä", "")]]
STRUCTS = [[{"key": key, "value": value} for key, value in one] for one in HEADERS]
ONE_HEADER = {
    "type": "record",
    "name": "Header",
    "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "string"}],
}


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("json", header_lines(HEADERS)),
        ("json.gz", gzip.compress(header_lines(HEADERS))),
        ("avro", avro_of({"type": "array", "items": ONE_HEADER}, STRUCTS)),
        ("parquet", parquet_of([{"headers": one} for one in STRUCTS])),
    ],
    ids=["json", "json.gz", "avro", "parquet"],
)
def test_headers_are_read_from_the_object_beside_the_values(store: ObjectStore, form: str, body: bytes) -> None:
    table = read(store, values=("json", lines([1, 2])), headers=(form, body))
    assert table.column("headers").to_pylist() == [
        [{"key": key, "value": value.encode()} for key, value in one] for one in HEADERS
    ]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"values": ("json", b"")}, "an object has no records"),
        ({"values": ("json.gz", gzip.compress(lines([1]))[:-9])}, "does not decode: expected a complete json file"),
        ({"values": ("avro", avro_of("long", [1, 2])[:-3])}, "does not decode: expected a complete avro file"),
        ({"values": ("parquet", b"PAR1")}, "does not decode: expected a complete parquet file"),
        (
            {"values": ("json", lines([1, 2])), "keys": ("json", lines(["k"]))},
            "an object of keys does not fit its values: expected 2 records, found 1",
        ),
        (
            {"values": ("json", lines([1])), "headers": ("json", header_lines(HEADERS))},
            "an object of headers does not fit its values: expected 1 records, found 2",
        ),
    ],
    ids=["empty", "gzip", "avro", "parquet", "keys", "headers"],
)
def test_an_object_that_cannot_be_read_is_named(
    store: ObjectStore, parts: dict[str, tuple[str, bytes]], message: str
) -> None:
    with pytest.raises(FormatError, match=rf"{message}.*orders\+0\+0000000100"):
        read(store, **parts)
