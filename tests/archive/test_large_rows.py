"""Large rows in chunks: through Spark and back they stay the same, and no Arrow batch is large."""

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tidemark.core.errors import PositionError
from tidemark.objects.schema import SCHEMA
from tidemark.spark.large_rows import CHUNK_BYTES, LEFT, ROWS, bounded_batches, join, split
from tidemark.spark.records import ARCHIVE_SCHEMA

WITH_LEFT = SCHEMA.append(pa.field(LEFT, pa.int32()))
Header = tuple[str, bytes | None]


def row(offset: int, key: bytes | None, value: bytes | None, headers: Iterable[Header] = ()) -> dict[str, Any]:
    listed = [{"key": name, "value": content} for name, content in headers]
    return {"topic": "t", "partition": 0, "offset": offset, "key": key, "value": value, "headers": listed}


def _same(content: bytes, count: int) -> list[Header]:
    return [("same", content)] * count


def batch(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def found(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    keys = row(0, None, None).keys()
    return [{key: one[key] for key in keys} for item in join(batches) for one in item.to_pylist()]


def described(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A line per Arrow batch (its rows, the most bytes of a key, value or headers), then a line per joined row."""
    seen: list[pa.RecordBatch] = []
    for item in batches:
        seen.append(item)
        widths = [
            max(len(one["key"] or b""), len(one["value"] or b""), sum(len(h["value"] or b"") for h in one["headers"]))
            for one in item.to_pylist()
        ]
        yield pa.record_batch({"described": [json.dumps({"rows": item.num_rows, "most": max(widths)})]})
    for one in found(seen):
        text = {
            **one,
            **{name: None if one[name] is None else one[name].hex() for name in ("key", "value")},
            "headers": [[h["key"], None if h["value"] is None else h["value"].hex()] for h in one["headers"]],
        }
        yield pa.record_batch({"described": [json.dumps(text)]})


def test_rows_of_any_size_pass_spark_unchanged_in_batches_of_bounded_size(spark: SparkSession) -> None:
    noise = bytes(range(256)) * 64  # no UTF-8
    sizes = (0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 2 * CHUNK_BYTES + 1, 1_000_000)
    contents = [None, *((noise * (size // len(noise) + 1))[:size] for size in sizes)]
    cases: list[tuple[bytes | None, bytes | None, list[Header]]] = [
        *((None, content, []) for content in contents),
        *((content, b"small", _same(b"1", 1)) for content in contents),
        *((b"k", content, [("ü", content), ("none", None), ("", b"")]) for content in contents),
        *((b"k", b"v", _same(noise[:900], count)) for count in (3, 4, 5, 6, 50)),
        (b"k", b"v", [("long name " * 1000, b"")]),
        *((b"k", b"small, too", []) for _ in range(ROWS + 1)),
    ]
    rows = [row(offset, *case) for offset, case in enumerate(cases)]
    frame = spark.createDataFrame(
        [tuple(one.get(field.name) for field in ARCHIVE_SCHEMA) for one in rows], ARCHIVE_SCHEMA
    ).coalesce(1)
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    with bounded_batches(spark):
        lines = [json.loads(one.described) for one in split(frame).mapInArrow(described, "described string").collect()]
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == before
    batches = [line for line in lines if "most" in line]
    assert len(batches) > 1
    assert max(line["rows"] for line in batches) <= ROWS
    assert max(line["most"] for line in batches) <= CHUNK_BYTES
    back = [line for line in lines if "most" not in line]
    assert [line["offset"] for line in back] == list(range(len(cases)))
    for line, (key, value, headers) in zip(back, cases, strict=True):
        assert (line["key"], line["value"]) == tuple(None if part is None else part.hex() for part in (key, value))
        assert line["headers"] == [[name, None if part is None else part.hex()] for name, part in headers]


some_bytes = st.none() | st.binary(max_size=40)
rows_in_chunks = st.lists(
    st.tuples(some_bytes, some_bytes, st.lists(st.tuples(st.text(max_size=3), some_bytes), max_size=3), st.booleans()),
    max_size=8,
)


def chunks(one: dict[str, Any], width: int) -> list[dict[str, Any]]:
    """The row's chunks, made without the product."""
    listed = [
        {"key": h["key"], **({} if h["value"] is None else {"value": base64.b64encode(h["value"]).decode()})}
        for h in one["headers"]
    ]
    packed = json.dumps(listed).encode()
    count = max(-(-len(part or b"") // width) for part in (one["key"], one["value"], packed))

    def share(content: bytes | None, at: int) -> bytes | None:
        return None if content is None else content[at * width : (at + 1) * width]

    return [
        {
            **one,
            "key": share(one["key"], at),
            "value": share(one["value"], at),
            "headers": [{"key": "", "value": share(packed, at)}],
            LEFT: count - 1 - at if at else 1 - count,
        }
        for at in range(count)
    ]


@given(rows_in_chunks, st.lists(st.integers(1, 5), min_size=1, max_size=60))
def test_chunks_are_joined_at_any_batch_boundary(
    contents: list[tuple[bytes | None, bytes | None, list[Header], bool]], sizes: list[int]
) -> None:
    whole = [row(offset, key, value, headers) for offset, (key, value, headers, _) in enumerate(contents)]
    sent: list[dict[str, Any]] = []
    for one, (*_, large) in zip(whole, contents, strict=True):
        parts = chunks(one, 7)
        sent += parts if large and len(parts) > 1 else [{**one, LEFT: 0}]
    batches: list[pa.RecordBatch] = []
    start = 0
    while start < len(sent):
        size = sizes[len(batches) % len(sizes)]
        batches.append(batch(sent[start : start + size], WITH_LEFT))
        start += size
    assert found(batches) == whole


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_a_missing_chunk_is_an_error(missing: int) -> None:
    parts = chunks(row(7, None, b"x" * 28), 7)
    assert len(parts) == 4
    with pytest.raises(PositionError, match="chunks do not fit"):
        found(
            [
                batch(parts[:missing] + parts[missing + 1 :], WITH_LEFT),
                batch([{**row(8, None, b""), LEFT: 0}], WITH_LEFT),
            ]
        )
