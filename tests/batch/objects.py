"""Objects of the archive made by hand: Parquet by pyarrow, JSON Lines by json, gzip and zstandard."""

import base64
import gzip
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tidemark.archive.footer import Footer

ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("event_time", pa.timestamp("us", tz="UTC")),
    ]
)


def data_object(form: str, rows: Sequence[dict[str, Any]], *, topic_id: str) -> bytes:
    """The rows, in the columns of ARROW_SCHEMA, as ``parquet``, ``jsonl.gz`` or ``jsonl.zst``."""
    if form == "parquet":
        body = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(list(rows), schema=ARROW_SCHEMA), body, compression="zstd")
        return body.getvalue()
    lines = "".join(json.dumps(_line(row)) + "\n" for row in rows).encode()
    offsets = [row["offset"] for row in rows]
    footer = Footer(
        rows=len(rows),
        first_offset=offsets[0],
        last_offset=offsets[-1],
        checksum="by hand",
        settings="by hand",
        topic_id=topic_id,
    )
    if form == "jsonl.gz":
        return gzip.compress(lines) + footer.trailer(".gz")
    return zstandard.ZstdCompressor().compress(lines) + footer.trailer(".zst")


def _line(row: dict[str, Any]) -> dict[str, Any]:
    line = {name: row[name] for name in ("topic", "partition", "offset", "timestamp_type")}
    line |= {name: _moment(row[name]) for name in ("timestamp", "event_time")}
    line |= _content("key", row["key"]) | _content("value", row["value"])
    line["headers"] = [{"key": item["key"], **_content("value", item["value"])} for item in row["headers"]]
    return line


def _moment(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _content(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
