"""Slices of objects, read by Spark: what the archive's own writer wrote comes back to the byte."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.conftest import MakeStream, unique
from tidemark.archive.read import read_slices
from tidemark.archive.write.file import FileTarget, OpenFile
from tidemark.core.errors import IncompleteError
from tidemark.core.layout import DataName, Layout
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Slice
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.records import ARCHIVE_SCHEMA

LOG = TopicPartition(topic="orders", topic_id="id-one", partition=0)
RANGE = OffsetRange(start=0, end=1_000_000)
Row = dict[str, Any]


def row(offset: int, value: bytes | None = b"value", **others: Any) -> Row:
    moment = datetime(2013, 1, 14, 12, tzinfo=UTC) + timedelta(microseconds=offset)
    return {
        "topic": "orders",
        "partition": 0,
        "offset": offset,
        "timestamp": moment,
        "timestamp_type": 0,
        "key": None,
        "value": value,
        "headers": [],
        "event_time": moment,
        **others,
    }


ODD = [
    row(0, None, key=b"deleted"),
    row(1, b"", key=b""),
    row(2, b"\x00\xff", key=b"\xed\xa0\x80"),  # no UTF-8: half a surrogate pair
    row(3, 'a\x00"\\\r\n\t\x7f\u2028\ufeff𝄞'.encode(), key="ключ".encode()),
    row(
        5,
        b'{"a": 1}\n',
        headers=[
            {"key": "h", "value": b"1"},
            {"key": "h", "value": b"1"},
            {"key": "", "value": None},
            {"key": "é", "value": b""},
            {"key": "b", "value": b"\xc3\x28"},
        ],
    ),
    row(8, bytes(range(256)) * 20_480),
    row(9, b"\x01" * 1_000_000, timestamp_type=1),
]


def write(target: FileTarget, rows: list[Row]) -> str:
    """An object of these rows, in one batch; its key."""
    file = OpenFile(target, LOG, DataName(path="p", topic="orders", partition=0, range=RANGE, seq=0))
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    days = batch.column("event_time").cast(pa.date32()).cast(pa.int32()).to_numpy()
    file.add(batch, days, sum(len(item["key"] or b"") + len(item["value"] or b"") for item in rows))
    return file.finish().key


@pytest.fixture
def target(store: ObjectStore) -> FileTarget:
    layout = Layout(prefix="", stream=unique("slices"))
    return FileTarget(store=store, layout=layout, part_bytes=5 * 1024 * 1024, settings="settings-one")


def collected(spark: SparkSession, settings: Settings, slices: list[Slice]) -> list[Row]:
    rows = read_slices(spark, settings, slices)
    assert rows.schema == ARCHIVE_SCHEMA
    found = []
    for item in rows.collect():
        plain = item.asDict(recursive=True)
        plain |= {name: None if plain[name] is None else bytes(plain[name]) for name in ("key", "value")}
        plain |= {name: plain[name].astimezone(UTC) for name in ("timestamp", "event_time")}
        plain["headers"] = [
            {"key": one["key"], "value": None if one["value"] is None else bytes(one["value"])}
            for one in plain["headers"]
        ]
        found.append(plain)
    return sorted(found, key=lambda one: one["offset"])


@pytest.mark.conformance(9)
def test_odd_records_are_read_back_to_the_byte(
    spark: SparkSession, settings: Settings, target: FileTarget, make_stream: MakeStream
) -> None:
    slices = [Slice(key=write(target, ODD), log=LOG, range=RANGE, whole=True, bytes=0, sha256="")]
    assert collected(spark, settings, slices) == ODD


def test_slices_are_trimmed_to_their_offsets(
    spark: SparkSession, settings: Settings, target: FileTarget, make_stream: MakeStream
) -> None:
    rows = [row(number) for number in range(0, 100, 2)]
    slices = [
        Slice(
            key=write(replace(target, settings=f"settings-{start}"), rows),
            log=LOG,
            range=OffsetRange(start=start, end=end),
            whole=False,
            bytes=0,
            sha256="",
        )
        for start, end in ((0, 11), (11, 55), (55, 91))
    ]
    assert len({item.key for item in slices}) == 3
    assert collected(spark, settings, slices) == [item for item in rows if item["offset"] < 91]


def test_only_the_slices_objects_are_read_whatever_folders_are_called(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "a b%20*é{1,2}").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a b%20*é{1,2}"))
    rows = [row(number) for number in range(300)]
    layout = Layout(prefix=f"{unique('odd')}/a b%20*é{{1,2}}", stream="slices")
    target = FileTarget(store=store, layout=layout, part_bytes=5 * 1024 * 1024, settings="settings-one")
    keys = [
        write(replace(target, settings=f"settings-{number}"), rows[number * 100 : (number + 1) * 100])
        for number in range(3)
    ]
    assert len({key.rsplit("/", 1)[0] for key in keys}) == 1
    whole, part = OffsetRange(start=0, end=100), OffsetRange(start=250, end=260)
    slices = [
        Slice(key=keys[0], log=LOG, range=whole, whole=True, bytes=0, sha256=""),
        Slice(key=keys[2], log=LOG, range=part, whole=False, bytes=0, sha256=""),
    ]
    assert collected(spark, settings, slices) == [*rows[:100], *rows[250:260]]
    assert collected(spark, settings, slices[1:]) == rows[250:260]
    store.delete(keys[2])
    with pytest.raises(IncompleteError, match=re.escape(f"found 1; missing: {keys[2]}")):
        read_slices(spark, settings, slices)


def test_a_session_that_ignores_the_list_of_objects_is_refused(
    spark: SparkSession, settings: Settings, target: FileTarget, make_stream: MakeStream
) -> None:
    key = write(target, ODD)
    ignored = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
    spark.conf.set(ignored, True)
    try:
        with pytest.raises(IncompleteError, match=f"(?s)expected 1 objects.*found 0.*{re.escape(ignored)}"):
            read_slices(spark, settings, [Slice(key=key, log=LOG, range=RANGE, whole=True, bytes=0, sha256="")])
    finally:
        spark.conf.unset(ignored)
