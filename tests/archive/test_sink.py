"""The sink's files: boundaries, keys, results, refused rows. Real S3 server, with Arrow batches from the test."""

import io
import os
import re
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.archive.oracle import Oracle
from tests.conftest import unique
from tidemark.archive.write.file import FileTarget
from tidemark.archive.write.task import FileLimits, write_files
from tidemark.core.errors import ConflictError, PositionError
from tidemark.core.layout import Layout
from tidemark.core.manifest import DataFile, DayRows
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.objects.columns import object_batches
from tidemark.objects.footer import Footer, Stored, read_footer
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack

LOG = TopicPartition(topic="orders", topic_id="id-one", partition=0)
RANGE = OffsetRange(start=100, end=200)
NOON = datetime(2013, 1, 14, 12, tzinfo=UTC)
ROWS = [
    # offset, path, value: two paths interleaved, a hole at 103, nulls and empties
    (100, "hour=12", b"a"),
    (101, "hour=13", b"bb"),
    (102, "hour=12", None),
    (104, "hour=12", b""),
    (105, "hour=13", b"\xff\x00\xfe"),
    (106, "hour=12", b"ffff"),
    (107, "hour=12", b"ggggg"),
]


@pytest.fixture
def target(store: ObjectStore) -> FileTarget:
    return FileTarget(
        store=store,
        layout=Layout(prefix="", stream=unique("sink")),
        part_bytes=5 * 1024 * 1024,
        settings="settings-one",
    )


@pytest.fixture
def oracle(settings: Settings, target: FileTarget) -> Oracle:
    return Oracle(settings, target.layout.stream)


def row(offset: int, path: str, value: bytes | None, partition: int = 0) -> dict[str, Any]:
    moment = NOON + timedelta(hours=12 if path == "hour=13" else 0, microseconds=offset)
    return {
        "topic": "orders",
        "partition": partition,
        "offset": offset,
        "timestamp": moment,
        "timestamp_type": 0,
        "key": None if offset % 2 else b"k",
        "value": value,
        "headers": [{"key": "h", "value": None}, {"key": "h", "value": b"2"}] if offset % 2 else [],
        "event_time": moment,
        "path": path,
        "day": moment.date(),
    }


def batches(rows: list[dict[str, Any]], size: int = 1000) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([*SCHEMA, ("path", pa.string()), ("day", pa.date32())])
    for start in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[start : start + size], schema=schema)


WIDE = FileLimits(
    flush_size=1000,
    max_bytes=1 << 30,
    rotate_interval_us=None,
    max_open_files=20,
    max_folders=1_000,
    overflow="~overflow",
)


def write(target: FileTarget, rows: list[dict[str, Any]], size: int = 1000, **changes: Any) -> list[DataFile]:
    limits = replace(WIDE, **changes)
    return sorted(write_files(batches(rows, size), [(LOG, RANGE)], target, limits), key=lambda file: file.key)


def archived(target: FileTarget, path: str, seq: int) -> str:
    return f"data/{target.layout.stream}/{path}/orders+0+{100:020}+{200:020}+{seq:04}.parquet"


@pytest.mark.conformance(1)
def test_two_interleaved_paths_of_a_partition_make_one_complete_file_each(target: FileTarget, oracle: Oracle) -> None:
    rows = [row(*item) for item in ROWS]
    first, second = write(target, rows, size=2)
    assert [first.key, second.key] == [archived(target, "hour=12", 0), archived(target, "hour=13", 0)]
    for file, path in ((first, "hour=12"), (second, "hour=13")):
        expected = [{name: item[name] for name in SCHEMA.names} for item in rows if item["path"] == path]
        assert oracle.table(file.key).to_pylist() == expected
    assert oracle.keys("data") == {first.key: first.bytes, second.key: second.bytes}


@pytest.mark.conformance(34)
def test_half_a_million_values_in_one_batch_make_few_objects_and_a_repetition_the_same(
    target: FileTarget, oracle: Oracle
) -> None:
    """Each row has a folder of its own; an honest value is among the first and among the last rows."""
    rows, most = 500_000, 20
    numbers = np.arange(rows)
    paths = [f"v={number}" if number not in {5, rows - 1} else "v=honest" for number in range(rows)]
    moments = pa.array(np.full(rows, int(NOON.timestamp()) * 1_000_000), pa.timestamp("us", "UTC"))
    whole = pa.RecordBatch.from_arrays(
        [
            pa.repeat("orders", rows),
            pa.array(np.zeros(rows), pa.int32()),
            pa.array(numbers, pa.int64()),
            moments,
            pa.array(np.zeros(rows), pa.int32()),
            pa.nulls(rows, pa.binary()),
            pa.repeat(b"{}", rows),
            pa.array([[]], SCHEMA.field("headers").type).take(pa.array(np.zeros(rows, np.int64))),
            moments,
            pa.array(paths),
            pa.repeat(NOON.date(), rows),
        ],
        schema=pa.schema([*SCHEMA, ("path", pa.string()), ("day", pa.date32())]),
    )
    span = OffsetRange(start=0, end=rows)
    limits = replace(WIDE, flush_size=rows, max_folders=most, max_open_files=7)

    def written(size: int) -> list[DataFile]:
        parts = (whole.slice(start, size) for start in range(0, rows, size))
        return sorted(write_files(parts, [(LOG, span)], target, limits), key=lambda file: file.key)

    files = written(rows)
    assert {target.layout.parse_data_key(file.key).path: file.rows for file in files} == {
        "~overflow": rows - most - 1,
        "v=honest": 2,
        **{f"v={number}": 1 for number in range(most) if number != 5},
    }
    assert len(oracle.keys("data")) == most + 1
    assert written(40_000) == files
    batches = (object_batches(target.store, file.key, ["offset"]) or () for file in files)
    found = np.concatenate([part.column(0).to_numpy() for own in batches for part in own])
    assert (np.sort(found) == numbers).all()


def test_the_data_file_has_rows_extent_and_days(target: FileTarget) -> None:
    (file,) = write(target, [row(*item) | {"path": "all"} for item in ROWS])
    noon_us = int(NOON.timestamp()) * 1_000_000
    assert replace(file, checksum="", sha256="", bytes=0) == DataFile(
        key=archived(target, "all", 0),
        log=LOG,
        range=RANGE,
        rows=7,
        bytes=0,
        first_offset=100,
        last_offset=107,
        min_timestamp_us=noon_us + 100,
        max_timestamp_us=noon_us + 12 * 3600 * 1_000_000 + 105,
        days=(
            DayRows(day=date(2013, 1, 14), rows=5, first_offset=100, last_offset=107),
            DayRows(day=date(2013, 1, 15), rows=2, first_offset=101, last_offset=105),
        ),
        checksum="",
        sha256="",
    )


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_flush_size_ends_a_file_after_its_rows_with_any_arrow_batches(target: FileTarget, size: int) -> None:
    files = write(target, [row(*item) for item in ROWS], size=size, flush_size=3)
    assert [(file.key, file.first_offset, file.last_offset, file.rows) for file in files] == [
        (archived(target, "hour=12", 0), 100, 104, 3),
        (archived(target, "hour=12", 1), 106, 107, 2),
        (archived(target, "hour=13", 0), 101, 105, 2),
    ]


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_max_bytes_ends_a_file_after_the_row_that_reaches_it(target: FileTarget, size: int) -> None:
    rows = [row(100 + at, "all", b"x" * length) for at, length in enumerate([3, 5, 1, 20, 4, 4])]
    # with the keys of even offsets: 4, 5, 2, 20, 5, 4
    files = write(target, rows, size=size, max_bytes=9)
    assert [(file.first_offset, file.last_offset) for file in files] == [(100, 101), (102, 103), (104, 105)]


def test_an_object_has_its_content_type_and_footer(target: FileTarget, oracle: Oracle) -> None:
    (file,) = write(target, [row(*item) | {"path": "all"} for item in ROWS])
    head = oracle.client.head_object(Bucket=target.store.bucket, Key=file.key)
    assert head["ContentType"] == "application/vnd.apache.parquet"
    assert read_footer(target.store, file.key) == Stored(
        footer=Footer(
            rows=7,
            first_offset=100,
            last_offset=107,
            checksum=file.checksum,
            settings="settings-one",
            topic_id="id-one",
        ),
        bytes=file.bytes,
        modified=head["LastModified"],
    )


@pytest.mark.conformance(7)
def test_the_same_rows_reuse_their_objects(target: FileTarget, oracle: Oracle) -> None:
    rows = [row(*item) for item in ROWS]
    first = write(target, rows, flush_size=3)
    there = {key: oracle.client.head_object(Bucket=target.store.bucket, Key=key)["ETag"] for key in oracle.keys("data")}
    assert write(target, rows, size=1, flush_size=3) == first
    assert there == {
        key: oracle.client.head_object(Bucket=target.store.bucket, Key=key)["ETag"] for key in oracle.keys("data")
    }


@pytest.mark.conformance(7)
def test_other_content_under_the_same_key_is_a_conflict(target: FileTarget, oracle: Oracle) -> None:
    write(target, [row(100, "all", b"one")])
    before = oracle.body(archived(target, "all", 0))
    with pytest.raises(ConflictError) as caught:
        write(target, [row(100, "all", b"two"), row(101, "all", b"two")])
    assert "expected 2 rows, offsets 100 to 101" in str(caught.value)
    assert "found 1 rows, offsets 100 to 100" in str(caught.value)
    assert archived(target, "all", 0) in str(caught.value)
    assert oracle.body(archived(target, "all", 0)) == before


def parquet(rows: int) -> bytes:
    """An object that another program wrote."""
    body = io.BytesIO()
    pq.write_table(pa.table({"n": range(rows)}), body)
    return body.getvalue()


@pytest.mark.parametrize(
    "body",
    [b"", b"not parquet", bytes(5_000), parquet(0), parquet(100_000)],
    ids=["empty", "text", "zeros", "empty table", "table"],
)
def test_an_object_of_another_program_is_a_conflict_that_names_it(target: FileTarget, body: bytes) -> None:
    key = archived(target, "all", 0)
    target.store.put(key, body)
    with pytest.raises(
        ConflictError, match="an object that Tidemark did not write has a data file.s key: .*" + re.escape(key)
    ):
        write(target, [row(100, "all", b"one")])


def test_files_of_other_settings_stay_and_the_next_free_names_are_used(target: FileTarget) -> None:
    rows = [row(100 + at, "all", b"x") for at in range(6)]
    crashed = write(target, rows[:4], flush_size=2)
    assert [file.key[-12:] for file in crashed] == ["0000.parquet", "0001.parquet"]
    other = replace(target, settings="settings-two")
    files = write(other, rows, flush_size=3)
    assert [(file.key[-12:], file.first_offset, file.last_offset) for file in files] == [
        ("0002.parquet", 100, 102),
        ("0003.parquet", 103, 105),
    ]
    assert write(other, rows, flush_size=3) == files  # its own retry finds its own files
    assert [file.key[-12:] for file in write(target, rows, flush_size=2)] == [
        "0000.parquet",
        "0001.parquet",
        "0004.parquet",
    ]


def test_after_an_object_too_old_to_reuse_only_free_names_are_used(stack: LocalStack, target: FileTarget) -> None:
    rows = [row(100 + at, "all", b"x") for at in range(4)]
    first, second = write(target, rows, flush_size=2)
    folder = stack.folder / "s3" / "data" / target.store.bucket  # where the S3 server keeps objects
    then = NOON.timestamp()
    os.utime(folder / first.key, (then, then))  # a later attempt wrote the second one
    assert write(replace(target, oldest=NOON), rows, flush_size=2) == [first, second]
    files = write(replace(target, oldest=NOON + timedelta(seconds=1)), rows, flush_size=2)
    assert [(file.key[-12:], file.first_offset, file.last_offset) for file in files] == [
        ("0002.parquet", 100, 101),
        ("0003.parquet", 102, 103),
    ]


def test_a_recreated_topic_does_not_reuse_the_earlier_topics_files(target: FileTarget) -> None:
    (old,) = write(target, [row(100, "all", b"old")])
    recreated = replace(LOG, topic_id="id-two")
    (new,) = write_files(batches([row(100, "all", b"new")]), [(recreated, RANGE)], target, WIDE)
    assert (old.key[-12:], new.key[-12:]) == ("0000.parquet", "0001.parquet")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(100, "all", b"x"), row(200, "all", b"x")], "expected [100, 200), found offsets 100 to 200 [orders-0]"),
        ([row(99, "all", b"x")], "expected [100, 200), found offsets 99 to 99 [orders-0]"),
        ([row(100, "all", b"x", partition=1)], "expected no rows, found offsets 100 to 100 [orders-1]"),
        ([row(101, "all", b"x"), row(101, "all", b"x")], "expected offsets ascending from 0, found 101 to 101"),
        ([row(102, "all", b"x"), row(101, "all", b"x")], "expected offsets ascending from 0, found 102 to 101"),
    ],
)
def test_rows_outside_the_range_are_refused_and_nothing_becomes_visible(
    target: FileTarget, oracle: Oracle, rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(PositionError) as error:
        write(target, rows)
    assert message in str(error.value)
    assert (oracle.keys("data"), oracle.open_uploads()) == ({}, [])


def test_many_small_batches_make_few_row_groups(target: FileTarget, oracle: Oracle) -> None:
    rows = [row(100 + at, "all", b"x" * 100) for at in range(100)]
    (file,) = write(target, rows, size=5)
    assert pq.ParquetFile(io.BytesIO(oracle.body(file.key))).metadata.num_row_groups == 1


def test_memory_stays_bounded_while_a_large_object_is_written_and_read(target: FileTarget) -> None:
    highest = 0
    tracemalloc.start()
    try:
        pool = pa.total_allocated_bytes()

        def arriving() -> Iterator[pa.RecordBatch]:
            nonlocal highest
            for offset in range(100, 200):
                yield from batches([row(offset, "all", os.urandom(2_000_000))])
                highest = max(highest, pa.total_allocated_bytes() - pool)

        (file,) = write_files(arriving(), [(LOG, RANGE)], target, WIDE)
        found = 0
        for batch in object_batches(target.store, file.key, SCHEMA.names) or ():
            found += batch.num_rows
            highest = max(highest, pa.total_allocated_bytes() - pool)
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == 100
    # For 200 MB of values: a few row groups of 16 MB, and one S3 request at a time.
    assert (highest < 80_000_000, python_peak < 100_000_000) == (True, True), (highest, python_peak)
