"""Objects of Kafka Connect by themselves: what a key says, and what values are."""

import io
import json
import random
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.archive.conftest import through
from tests.conftest import unique
from tests.faults import FaultProxy, Rule
from tidemark.adopt.scan import meaning
from tidemark.core.connect_key import ConnectName, parse_connect_key
from tidemark.core.errors import ServiceError
from tidemark.core.offsets import OffsetRange
from tidemark.objects.connect import read_rows, read_values
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings


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


def put(store: ObjectStore, values: list[bytes]) -> str:
    """An object of these values, from offset 100 on; its key."""
    key = f"{unique('topics')}/orders/partition=0/orders+0+0000000100.bin"
    store.put(key, b"".join(value + b"\n" for value in values))
    return key


def read(store: ObjectStore, key: str, start: int, end: int) -> dict[int, bytes]:
    batches = read_rows(store, key, OffsetRange(start=start, end=end))
    assert batches is not None
    return {row["offset"]: row["value"] for batch in batches for row in batch.to_pylist()}


def random_values(number: int) -> list[bytes]:
    source = random.Random(number)  # noqa: S311 - any bytes will do
    return [source.randbytes(400).hex().encode() for _ in range(number)]


def test_rows_are_cut_to_the_wanted_offsets_and_an_absent_object_has_none(store: ObjectStore) -> None:
    values = random_values(12_000)
    key, expected = put(store, values), dict(enumerate(values, 100))
    for start, end in ((0, 101), (103, 109), (5_050, 5_150), (12_095, 20_000), (0, 100), (12_100, 12_200), (0, 99_999)):
        wanted = {offset: value for offset, value in expected.items() if start <= offset < end}
        assert read(store, key, start, end) == wanted
    assert read_rows(store, key.replace("100.bin", "200.bin"), OffsetRange(start=0, end=9)) is None


def test_a_connection_that_breaks_while_an_object_is_read_is_taken_up_where_it_broke(
    store: ObjectStore, settings: Settings, proxy: FaultProxy
) -> None:
    values = random_values(4_000)
    key = put(store, values)
    proxy.add(Rule(method="GET", pattern="/orders", times=3, truncate=True))
    found = read(ObjectStore(through(settings, proxy)), key, 0, 99_999)
    assert found == dict(enumerate(values, 100))
    started = [int(fields.get("range", "bytes=0-")[6:-1]) for _, _, fields in proxy.sent]
    assert (len(started), started) == (4, sorted(set(started)))


def test_a_connection_that_never_holds_is_an_error_that_names_the_object(
    store: ObjectStore, settings: Settings, proxy: FaultProxy
) -> None:
    key = put(store, random_values(1_000))
    proxy.add(Rule(method="GET", pattern="/orders", times=99, truncate=True))
    with pytest.raises(ServiceError, match=rf"S3 get failed: found \w+: .*{re.escape(key)}"):
        read(ObjectStore(through(settings, proxy)), key, 0, 99_999)
