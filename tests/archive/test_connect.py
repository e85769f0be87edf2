"""Objects of Kafka Connect by themselves: what a key says, and what values are."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.adopt.scan import meaning
from tidemark.core.connect import ConnectName, parse_connect_key
from tidemark.objects.connect import read_values


def test_avro_and_parquet_values_are_rendered_as_json_of_equal_value(tmp_path: Path) -> None:
    moment = datetime(2013, 1, 14, 17, 0, 0, 250_000, tzinfo=UTC)
    row = {
        "n": 2**53 + 1,
        "at": moment,
        "day": date(2013, 1, 14),
        "fare": Decimal("1.50"),
        "raw": b"\x00\xff",
        "no": None,
    }
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
    body = io.BytesIO()
    fastavro.writer(body, avro, [{**row, "tags": {"ä": [1, 2]}}] * 2, codec="deflate")
    (tmp_path / "avro").write_bytes(body.getvalue())
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
    rows = [{**row, "tags": [("ä", [1, 2])]}] * 2
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "parquet", compression="zstd")
    for form in ("avro", "parquet"):
        name = parse_connect_key(f"t/partition=0/t+0+0000000000.{form}")
        assert isinstance(name, ConnectName)
        with io.FileIO(tmp_path / form) as file:
            values = list(read_values(name, file, where=form))
        assert [json.loads(value) for value in values] == [expected, expected], form


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (b'{"a": 1, "b": [1.50, null]}', b'{"b":[1.5,null],"a":1.0}', True),
        (b'{"a": 1, "b": null}', b'{"a": 1}', True),
        (b'{"a": 1}', b'{"a": "1"}', False),
        (b'{"a": true}', b'{"a": 1}', False),
        (b'{"a": 1e400}', b'{"a": 2e400}', True),
        (b"no json", b"no json", True),
        (b"no json", b"no JSON", False),
    ],
)
def test_values_are_compared_as_json(one: bytes, other: bytes, alike: bool) -> None:
    assert (meaning(one) == meaning(other)) is alike


@pytest.mark.parametrize(
    ("form", "encoding", "gzipped"),
    [
        ("json", "lines", False),
        ("json.gz", "lines", True),
        ("bin", "lines", False),
        ("bin.gz", "lines", True),
        ("avro", "avro", False),
        ("parquet", "parquet", False),
        ("gz.parquet", "parquet", False),
        ("zstd.parquet", "parquet", False),
    ],
)
def test_a_connect_key_says_topic_partition_start_and_format(form: str, encoding: Any, gzipped: bool) -> None:
    assert parse_connect_key(f"topics/a.b_c-d/partition=12/a.b_c-d+12+0000000345.{form}") == ConnectName(
        topic="a.b_c-d", partition=12, start=345, encoding=encoding, gzipped=gzipped
    )


def test_an_own_data_object_is_none_of_connects() -> None:
    key = f"data/s/partition=0/t+0+{0:020}+{9:020}+0000.parquet"
    assert parse_connect_key(key) == "not named <topic>+<partition>+<start>.<format>"
