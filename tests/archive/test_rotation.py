"""Which rows share a file, and how many files are open: any Arrow batching, any number of paths. Real S3 server."""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.archive.conftest import through
from tests.archive.oracle import Oracle
from tests.conftest import unique
from tests.faults import FaultProxy, Rule
from tidemark.archive.write import task
from tidemark.archive.write.file import FileTarget
from tidemark.archive.write.task import FileLimits, write_files
from tidemark.core.errors import ServiceError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(45)

NOON = datetime(2013, 1, 14, 12, tzinfo=UTC)
LOG = TopicPartition(topic="orders", topic_id="id-one", partition=0)
RANGE = OffsetRange(start=0, end=1_000_000)
PART_BYTES = 5 * 1024 * 1024
WIDE = FileLimits(
    flush_size=1_000_000,
    max_bytes=1 << 40,
    rotate_interval_us=None,
    max_open_files=1_000,
    max_folders=1_000,
    overflow="~overflow",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row's offset is its place in the list; its value has so many bytes."""

    path: str = "all"
    seconds: int = 0
    size: int = 0


def target(store: ObjectStore, stream: str = "") -> FileTarget:
    layout = Layout(prefix="", stream=stream or unique("rotation"))
    return FileTarget(store=store, layout=layout, part_bytes=PART_BYTES, settings="settings-one")


def batches(rows: Sequence[Row], sizes: Iterable[int]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([*SCHEMA, ("path", pa.string()), ("day", pa.date32())])
    start = 0
    for size in sizes:
        part = rows[start : start + size]
        moments = [NOON + timedelta(seconds=row.seconds) for row in part]
        columns: dict[str, list[object]] = {
            "topic": ["orders"] * len(part),
            "partition": [0] * len(part),
            "offset": list(range(start, start + len(part))),
            "timestamp": list(moments),
            "timestamp_type": [0] * len(part),
            "key": [None] * len(part),
            "value": [os.urandom(row.size) if row.size > 1000 else b"v" * row.size for row in part],
            "headers": [[]] * len(part),
            "event_time": list(moments),
            "path": [row.path for row in part],
            "day": [date(2013, 1, 14)] * len(part),
        }
        yield pa.RecordBatch.from_pydict(columns, schema=schema)
        start += size


def place(key: str) -> tuple[str, int]:
    """A key's path and sequence number."""
    folder, _, name = key.rpartition("/")
    return folder.split("/", 2)[2], int(name.removesuffix(".parquet").rpartition("+")[2])


def seconds(*spans: int) -> list[Row]:
    return [Row(seconds=span) for span in spans]


def write(store: ObjectStore, rows: Sequence[Row], limits: FileLimits) -> list[tuple[int, int]]:
    """First and last offset of each file of one path, in sequence."""
    files = write_files(batches(rows, [len(rows)]), [(LOG, RANGE)], target(store), limits)
    return [(file.first_offset, file.last_offset) for file in sorted(files, key=lambda file: file.key)]


MINUTE = replace(WIDE, rotate_interval_us=60_000_000)


@pytest.mark.parametrize(
    ("rows", "files"),
    [
        (seconds(0, 59, 60, 119, 120), [(0, 1), (2, 3), (4, 4)]),
        (seconds(30, 89, 90), [(0, 1), (2, 2)]),  # a minute from the first row on, not a minute of the clock
        (seconds(0, 500, 501), [(0, 0), (1, 2)]),
        (seconds(600, 0, 601, 1, 602, 2, 659, 660), [(0, 6), (7, 7)]),  # late rows end no file
        (seconds(600, 600, -86_400 * 365, 601), [(0, 3)]),
    ],
    ids=["full minutes", "from the first row on", "a quiet hour", "late rows between", "a year late"],
)
def test_rows_a_minute_after_their_files_first_row_start_the_next_file(
    store: ObjectStore, rows: list[Row], files: list[tuple[int, int]]
) -> None:
    assert write(store, rows, MINUTE) == files


def naive(rows: Sequence[Row], limits: FileLimits) -> dict[tuple[str, int], list[int]]:
    """The oracle: offsets of every file by path and sequence, row by row, with all paths open."""
    within = list(dict.fromkeys(row.path for row in rows))[: limits.max_folders]
    rows = [row if row.path in within else replace(row, path=limits.overflow) for row in rows]
    files: dict[tuple[str, int], list[int]] = {}
    opened: dict[str, int] = {}
    seq: dict[str, int] = {}
    for offset, row in enumerate(rows):
        if row.path in opened and limits.rotate_interval_us is not None:
            first = rows[files[row.path, opened[row.path]][0]]
            if (row.seconds - first.seconds) * 1_000_000 >= limits.rotate_interval_us:
                del opened[row.path]
        if row.path not in opened:
            opened[row.path] = seq.get(row.path, 0)
            seq[row.path] = opened[row.path] + 1
        file = files.setdefault((row.path, opened[row.path]), [])
        file.append(offset)
        if len(file) >= limits.flush_size or sum(rows[at].size for at in file) >= limits.max_bytes:
            del opened[row.path]
    return files


@examples(max_examples=30, deadline=None, derandomize=True)
@given(
    rows=st.lists(
        st.builds(
            Row,
            path=st.sampled_from(["a", "b", "c/d", "e", "f"]),
            seconds=st.integers(-40, 40),
            size=st.integers(0, 5),
        ),
        min_size=1,
        max_size=40,
    ),
    limits=st.builds(
        FileLimits,
        flush_size=st.integers(2, 12),
        max_bytes=st.integers(3, 40),
        rotate_interval_us=st.none() | st.integers(1, 30).map(lambda number: number * 1_000_000),
        max_open_files=st.integers(1, 5),
        max_folders=st.integers(1, 6),
        overflow=st.just("~overflow"),
    ),
    sizes=st.lists(st.integers(1, 9), min_size=40, max_size=40),
    chunk_rows=st.integers(1, 12),
    bucket_count=st.integers(1, 3),
)
def test_any_batching_gives_the_files_of_a_row_by_row_oracle(
    settings: Settings,
    store: ObjectStore,
    rows: list[Row],
    limits: FileLimits,
    sizes: list[int],
    chunk_rows: int,
    bucket_count: int,
) -> None:
    place_of = target(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "CHUNK_ROWS", chunk_rows)
        patch.setattr(task, "BUCKETS", bucket_count)
        files = write_files(batches(rows, sizes), [(LOG, RANGE)], place_of, limits)
    oracle = Oracle(settings, place_of.layout.stream)
    found = {place(key): oracle.table(key).column("offset").to_pylist() for key in oracle.keys("data")}
    assert found == naive(rows, limits)
    assert {file.key for file in files} == set(oracle.keys("data"))
    # In one batch: the sink would refuse a file with other rows than the existing one.
    whole = write_files(batches(rows, [len(rows)]), [(LOG, RANGE)], place_of, limits)
    assert sorted(whole, key=lambda file: file.key) == sorted(files, key=lambda file: file.key)


@pytest.mark.parametrize("paths", [300, pytest.param(1_050, marks=pytest.mark.soak)])
def test_hundreds_of_paths_make_a_file_each_with_three_open_at_a_time(
    settings: Settings, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, paths: int
) -> None:
    """More paths than buckets, so that some wait for a second pass, and a third. A thousand:
    ``pytest -m soak tests/archive/test_rotation.py``."""
    rows = [Row(path=f"carrier={number % paths}") for number in range(5 * paths)]
    monkeypatch.setattr(task, "CHUNK_ROWS", 4 * paths // 3)
    place_of = target(store)
    sizes = [2 * paths // 3] * 8
    files = write_files(batches(rows, sizes), [(LOG, RANGE)], place_of, replace(WIDE, max_open_files=3))
    assert {place(file.key): (file.rows, file.first_offset, file.last_offset) for file in files} == {
        (f"carrier={number}", 0): (5, number, number + 4 * paths) for number in range(paths)
    }
    oracle = Oracle(settings, place_of.layout.stream)
    assert oracle.keys("data") == {file.key: file.bytes for file in files}
    (last,) = (file.key for file in files if place(file.key)[0] == f"carrier={paths - 1}")
    assert oracle.table(last).column("offset").to_pylist() == [at * paths + paths - 1 for at in range(5)]


@pytest.mark.parametrize(("waiting_bytes", "early"), [(20_000, True), (1_000_000, False)])
def test_open_files_write_row_groups_early_when_together_they_hold_too_much(
    settings: Settings, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, waiting_bytes: int, early: bool
) -> None:
    monkeypatch.setattr(task, "CHUNK_ROWS", 5)
    monkeypatch.setattr(task, "WAITING_BYTES", waiting_bytes)
    rows = [Row(path=f"hour={number % 10}", size=1_000) for number in range(200)]
    place_of = target(store)
    files = write_files(batches(rows, [10] * 20), [(LOG, RANGE)], place_of, WIDE)
    assert len(files) == 10
    oracle = Oracle(settings, place_of.layout.stream)
    for file in files:
        stored = pq.ParquetFile(io.BytesIO(oracle.body(file.key)))
        assert (stored.metadata.num_rows, stored.metadata.num_row_groups > 1) == (20, early)
        first = int(place(file.key)[0].removeprefix("hour="))
        assert stored.read().column("offset").to_pylist() == list(range(first, 200, 10))


def test_waiting_bytes_include_headers(settings: Settings, store: ObjectStore) -> None:
    """Rows with headers only, 40 MB of them, which is more than a row group."""
    place_of = target(store)
    (rows,) = batches([Row() for _ in range(40)], [40])
    headers = pa.array([[{"key": "h", "value": bytes(1_000_000)}]] * 40, SCHEMA.field("headers").type)
    rows = rows.set_column(SCHEMA.get_field_index("headers"), "headers", headers)
    each = [rows.slice(number, 1) for number in range(40)]
    (file,) = write_files(each, [(LOG, RANGE)], place_of, WIDE)
    stored = pq.ParquetFile(io.BytesIO(Oracle(settings, place_of.layout.stream).body(file.key)))
    assert (stored.metadata.num_rows, stored.metadata.num_row_groups) == (40, 2)


def test_a_row_that_waits_after_a_file_boundary_keeps_no_batch_in_memory(store: ObjectStore) -> None:
    """Each path ends with a file of one small row, which came in a batch with a large row of the file before."""
    paths, large = 8, 10_000_000
    held_at: list[int] = []

    def arriving() -> Iterator[pa.RecordBatch]:
        schema = pa.schema([*SCHEMA, ("path", pa.string()), ("day", pa.date32())])
        for number in range(paths):
            held_at.append(pa.total_allocated_bytes())
            (rows,) = batches([Row(path=f"carrier={number}")] * 2, [2])
            offsets = pa.array([2 * number, 2 * number + 1])
            values = pa.array([bytes(large), b"small"])
            columns = {**dict(zip(schema.names, rows.columns, strict=True)), "offset": offsets, "value": values}
            yield pa.RecordBatch.from_pydict(columns, schema=schema)

    files = write_files(arriving(), [(LOG, RANGE)], target(store), replace(WIDE, max_bytes=large))
    assert len(files) == 2 * paths
    assert held_at[-1] - held_at[0] < 4 * large  # one batch and its copy, for any number of paths


def store_through(proxy: FaultProxy, settings: Settings) -> ObjectStore:
    return ObjectStore(through(settings, proxy))


# Of every path more than a row group (16 MB), so that its upload begins, and then a last row.
LARGE = [Row(path=f"carrier={number % 5}", size=9_000_000 if number < 10 else 1) for number in range(15)]


def test_at_most_max_open_files_uploads_are_open_at_the_server(settings: Settings, proxy: FaultProxy) -> None:
    place_of = target(store_through(proxy, settings))
    files = write_files(batches(LARGE, [2] * 8), [(LOG, RANGE)], place_of, replace(WIDE, max_open_files=2))
    assert {place(file.key): file.rows for file in files} == {(f"carrier={number}", 0): 3 for number in range(5)}
    open_now, most = set(), 0
    for method, query, _ in proxy.log:
        key = query.partition("?")[0]
        if method == "POST" and "?uploads" in query:
            open_now.add(key)
            most = max(most, len(open_now))
        elif method == "POST" and "uploadId=" in query:
            open_now.remove(key)
    assert (most, open_now) == (2, set())


def held(folder: Path) -> list[str]:
    """Files below a folder that this process has open, including unnamed ones."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since the listing
            found.append(str(link.readlink()))
    return [name for name in found if name.startswith(str(folder))]


def test_a_failure_leaves_no_upload_and_no_temporary_file(
    settings: Settings, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    during: list[list[str]] = []
    proxy.add(
        Rule(  # while three paths wait
            method="PUT",
            pattern=r"carrier=1/.*partNumber=2",
            action=lambda _: during.append(held(tmp_path)),
            answer=(400, "InvalidRequest"),
        )
    )
    place_of = target(store_through(proxy, settings))
    with pytest.raises(ServiceError, match="InvalidRequest"):
        write_files(batches(LARGE, [2] * 8), [(LOG, RANGE)], place_of, replace(WIDE, max_open_files=2))
    assert [len(names) for names in during] == [3]
    assert (held(tmp_path), list(tmp_path.iterdir())) == ([], [])
    oracle = Oracle(settings, place_of.layout.stream)
    assert (oracle.keys("data"), oracle.open_uploads()) == ({}, [])
