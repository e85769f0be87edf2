"""Objects of the archive made by hand, with their manifests."""

import io
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.core.layout import DataName, Layout
from tidemark.core.manifest import CommittedRange, DataFile, DayRows, Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.s3 import ObjectStore

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


def archive_rows(
    store: ObjectStore,
    layout: Layout,
    zone: ZoneInfo,
    *,
    writer: str,
    batch: int,
    log: TopicPartition,
    span: OffsetRange,
    rows: Sequence[dict[str, Any]],
    path: str = "p",
) -> tuple[str, Manifest]:
    """Write ``span`` as one object of these rows, in the columns of ARROW_SCHEMA; its key, and the batch's manifest,
    which is not written."""
    # A writer of its own folder: two writers may have archived the same range, into objects of the same name.
    name = DataName(path=f"{path}/{writer}", topic=log.topic, partition=log.partition, range=span, seq=0)
    key, body = layout.data_key(name), data_object(rows)
    store.put(key, body)
    timestamps = [_micros(row["timestamp"]) for row in rows]
    file = DataFile(
        key=key,
        log=log,
        range=span,
        rows=len(rows),
        bytes=len(body),
        first_offset=rows[0]["offset"],
        last_offset=rows[-1]["offset"],
        min_timestamp_us=min(timestamps),
        max_timestamp_us=max(timestamps),
        days=_days(rows, zone),
        checksum="by hand",
        sha256=sha256(body).hexdigest(),
    )
    return key, Manifest(
        stream=layout.stream,
        writer=writer,
        batch=batch,
        committed_at_us=0,
        time_zone=str(zone),
        settings="by hand",
        previous=None,
        ranges=(CommittedRange(log=log, range=span, rows=len(rows)),),
        files=(file,),
    )


def _days(rows: Sequence[dict[str, Any]], zone: ZoneInfo) -> tuple[DayRows, ...]:
    by_day: dict[date, list[int]] = {}
    for row in rows:
        by_day.setdefault(row["event_time"].astimezone(zone).date(), []).append(row["offset"])
    return tuple(
        DayRows(day=day, rows=len(offsets), first_offset=min(offsets), last_offset=max(offsets))
        for day, offsets in sorted(by_day.items())
    )


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def data_object(rows: Sequence[dict[str, Any]]) -> bytes:
    """The rows, in the columns of ARROW_SCHEMA."""
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=ARROW_SCHEMA), body, compression="zstd")
    return body.getvalue()
