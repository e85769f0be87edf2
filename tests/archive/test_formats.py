"""JSON Lines objects: what a line holds, what any reader of gzip and zstd sees, and what damage looks like."""

import base64
import gzip
import io
import json
import random
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from tests.archive.conftest import through
from tests.archive.oracle import Oracle
from tests.conftest import unique
from tests.faults import FaultProxy, Rule
from tidemark.archive.file import OpenFile, Target
from tidemark.core.errors import ConflictError, FormatError, PositionError, ServiceError
from tidemark.core.layout import DataName, Layout
from tidemark.core.manifest import DataFile
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.objects.decoders import read_rows
from tidemark.objects.footer import TRAILER_BYTES, Footer, read_footer
from tidemark.objects.jsonl import decode_lines, encode_rows
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.stack.local import PROJECT
from tidemark.stream_keys import Format

LOG = TopicPartition(topic="orders", topic_id="id-one", partition=0)
RANGE = OffsetRange(start=0, end=1_000_000)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FORMS: list[Format] = ["jsonl.gz", "jsonl.zst"]
each_form = pytest.mark.parametrize("form", FORMS)
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
    row(0, None, key=b"gone"),
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


def batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def plain(line: bytes) -> Row:
    """A line as any JSON reader sees it, with bytes made from its two forms."""
    raw = json.loads(line)

    def content(item: Row, name: str) -> bytes | None:
        if f"{name}_base64" in item:
            assert name not in item
            return base64.b64decode(item.pop(f"{name}_base64"))
        text = item.pop(name)
        return None if text is None else text.encode()

    values = {name: content(raw, name) for name in ("key", "value")}
    headers = [{"key": item["key"], "value": content(item, "value")} for item in raw.pop("headers")]
    times = {name: datetime.fromisoformat(raw.pop(name)) for name in ("timestamp", "event_time")}
    return {**raw, **values, **times, "headers": headers}


@pytest.fixture
def target(store: ObjectStore) -> Target:
    return Target(
        store=store,
        layout=Layout(prefix="", stream=unique("formats")),
        part_bytes=5 * 1024 * 1024,
        settings="settings-one",
        format="jsonl.gz",
    )


@pytest.fixture
def oracle(settings: Settings, target: Target) -> Oracle:
    return Oracle(settings, target.layout.stream)


def write(target: Target, rows: list[Row], *, form: Format = "jsonl.gz", size: int = 1000) -> DataFile:
    name = DataName(path="p", topic="orders", partition=0, range=RANGE, seq=0)
    file = OpenFile(replace(target, format=form), LOG, name)
    for start in range(0, len(rows), size):
        some = batch(rows[start : start + size])
        days = some.column("event_time").cast(pa.date32()).cast(pa.int32()).to_numpy()
        payload = sum(len(item["key"] or b"") + len(item["value"] or b"") for item in rows[start : start + size])
        file.add(some, days, payload)
    return file.finish()


def read(store: ObjectStore, key: str, start: int = 0, end: int = 1_000_000) -> list[Row]:
    batches = read_rows(store, key, OffsetRange(start=start, end=end))
    assert batches is not None
    return [item for one in batches for item in one.to_pylist()]


def unpacked(form: Format, body: bytes) -> bytes:
    if form == "jsonl.gz":
        return gzip.decompress(body)
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(body), read_across_frames=True).read()


content = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
moment = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(lambda at: at.replace(tzinfo=UTC))
header = st.fixed_dictionaries({"key": st.text(max_size=5), "value": content})
record = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["a", "a.b-c_d"]),
        "partition": st.integers(0, 2**31 - 1),
        "offset": st.integers(0, 2**63 - 1),
        "timestamp": moment,
        "timestamp_type": st.sampled_from([0, 1]),
        "key": content,
        "value": content,
        "headers": st.lists(header, max_size=4),
        "event_time": moment,
    }
)


@hypothesis(max_examples=100, deadline=None)
@given(st.lists(record, min_size=1, max_size=6))
def test_any_record_is_one_line_of_json_that_holds_all_of_it(rows: list[Row]) -> None:
    lines = list(encode_rows(batch(rows)))
    assert [(line.count(b"\n"), line[-1:]) for line in lines] == [(1, b"\n")] * len(rows)
    assert [plain(line) for line in lines] == rows
    assert decode_lines(lines, where="here").to_pylist() == rows


@pytest.mark.parametrize(
    ("microseconds", "written"),
    [
        (-1, "1969-12-31T23:59:59.999999Z"),
        (-62_135_596_800_000_001, "0000-12-31T23:59:59.999999Z"),
        (-62_167_219_200_000_001, "-0001-12-31T23:59:59.999999Z"),
        (253_402_300_800_000_000, "+10000-01-01T00:00:00.000000Z"),
        (2**63 - 1, "+294247-01-10T04:00:54.775807Z"),
        (None, None),
    ],
)
def test_times_that_no_calendar_holds_survive(microseconds: int | None, written: str | None) -> None:
    rows = batch([row(0, timestamp=microseconds)])
    (line,) = encode_rows(rows)
    assert json.loads(line)["timestamp"] == written
    assert decode_lines([line], where="here") == rows


def test_the_line_that_the_documentation_shows_is_one() -> None:
    text = (PROJECT / "docs" / "archive.md").read_text(encoding="utf-8")
    (line,) = re.findall(r'^\{"topic":.*\}$', text, re.MULTILINE)
    rows = decode_lines([line.encode()], where="docs/archive.md")
    assert list(encode_rows(rows)) == [f"{line}\n".encode()]


@each_form
def test_standard_readers_see_every_record_and_nothing_else(target: Target, oracle: Oracle, form: Format) -> None:
    file = write(target, ODD, form=form)
    body = oracle.body(file.key)
    assert (file.rows, file.bytes) == (len(ODD), len(body))
    text = unpacked(form, body)
    assert [plain(line) for line in text.splitlines(keepends=True)] == ODD
    codec = {"jsonl.gz": "gzip", "jsonl.zst": "zstd"}[form]
    assert pa.CompressedInputStream(pa.BufferReader(body), codec).read() == text
    assert read(target.store, file.key) == ODD
    head = oracle.client.head_object(Bucket=target.store.bucket, Key=file.key)
    assert head["ContentType"] == f"application/{codec}"


@each_form
def test_how_rows_were_batched_does_not_show_in_the_bytes(target: Target, oracle: Oracle, form: Format) -> None:
    rows = [row(number, str(number * 7919).encode() * 100) for number in range(5_000)]
    bodies = []
    for size in (5_000, 1_237):
        key = write(target, rows, form=form, size=size).key
        bodies.append(oracle.body(key))
        target.store.delete(key)
    assert bodies[0] == bodies[1]


@each_form
def test_the_tail_alone_says_what_the_object_holds(target: Target, oracle: Oracle, form: Format) -> None:
    file = write(target, ODD, form=form)
    stored = read_footer(target.store, file.key)
    assert stored is not None
    assert stored.bytes == len(oracle.body(file.key))
    assert stored.footer == Footer(
        rows=len(ODD),
        first_offset=0,
        last_offset=9,
        checksum=file.checksum,
        settings="settings-one",
        topic_id="id-one",
    )


@each_form
def test_the_same_rows_reuse_an_object_and_others_are_a_conflict(target: Target, form: Format) -> None:
    first = write(target, ODD, form=form)
    assert write(target, ODD, form=form, size=2) == first
    with pytest.raises(ConflictError, match=r"expected 1 rows, offsets 0 to 0, .*found 7 rows, offsets 0 to 9"):
        write(target, ODD[:1], form=form)
    assert read(target.store, first.key) == ODD


@each_form
def test_an_object_cut_by_other_settings_is_left_alone(target: Target, form: Format) -> None:
    first = write(target, ODD, form=form)
    second = write(replace(target, settings="settings-two"), ODD[:2], form=form)
    assert (first.key, second.key) == (first.key, first.key.replace("+0000.", "+0001."))


@each_form
@pytest.mark.parametrize("body", [b"", b"short", bytes(5_000), gzip.compress(b"{}\n" * 3_000, 0)])
def test_an_object_of_another_hand_is_in_the_way(target: Target, form: Format, body: bytes) -> None:
    key = f"data/{target.layout.stream}/p/orders+0+{0:020}+{1_000_000:020}+0000.{form}"
    target.store.put(key, body)
    with pytest.raises(ConflictError, match="an object that Tidemark did not write is in the way: .*" + re.escape(key)):
        write(target, ODD, form=form)


@each_form
def test_a_slice_is_cut_to_its_offsets_and_an_absent_object_is_told(target: Target, form: Format) -> None:
    rows = [row(number) for number in range(0, 30_000, 2)]
    key = write(target, rows, form=form).key
    assert [item["offset"] for item in read(target.store, key, 3, 9)] == [4, 6, 8]
    assert [item["offset"] for item in read(target.store, key, 29_995)] == [29_996, 29_998]
    assert read(target.store, key, 30_000) == []
    assert read_rows(target.store, key + ".jsonl.gz", RANGE) is None


def random_rows(number: int) -> list[Row]:
    """Rows that no compression makes small."""
    source = random.Random(number)  # noqa: S311 - any bytes will do
    return [row(offset, source.randbytes(400)) for offset in range(number)]


@each_form
def test_a_connection_that_breaks_while_an_object_is_read_is_taken_up_where_it_broke(
    target: Target, settings: Settings, proxy: FaultProxy, form: Format
) -> None:
    rows = random_rows(4_000)
    key = write(target, rows, form=form).key
    behind = ObjectStore(through(settings, proxy))
    proxy.add(Rule(method="GET", pattern="/orders", times=3, truncate=True))
    assert read(behind, key) == rows
    started = [int(fields.get("range", "bytes=0-")[6:-1]) for _, _, fields in proxy.sent]
    assert (len(started), started) == (4, sorted(set(started)))


def test_a_connection_that_never_holds_is_an_error_that_names_the_object(
    target: Target, settings: Settings, proxy: FaultProxy
) -> None:
    key = write(target, random_rows(1_000)).key
    behind = ObjectStore(through(settings, proxy))
    proxy.add(Rule(method="GET", pattern="/orders", times=99, truncate=True))
    with pytest.raises(ServiceError, match=rf"S3 get failed: found \w+: .*{re.escape(key)}"):
        read(behind, key)


def packed(form: Format, text: bytes, **says: Any) -> bytes:
    """An object of these lines, and a trailer that fits ODD unless it ``says`` otherwise."""
    footer = replace(
        Footer(rows=7, first_offset=0, last_offset=9, checksum="c", settings="s", topic_id="id-one"), **says
    )
    if form == "jsonl.gz":
        return gzip.compress(text) + footer.trailer(".gz")
    return zstandard.ZstdCompressor(write_checksum=True).compress(text) + footer.trailer(".zst")


@each_form
@pytest.mark.parametrize(
    ("damage", "line", "told"),
    [
        (lambda lines: [*lines[:3], b"{\n", *lines[4:]], 4, "expected a JSON object, found b'{"),
        (lambda lines: [*lines[:3], b"[1]\n"], 4, "expected an object with topic, partition, .*, found [1]"),
        (lambda lines: [*lines[:2], b"\xff\n"], 3, "expected a JSON object, found b'\\xff"),
        (lambda lines: [lines[0].replace(b'"offset":0', b'"offset":"0"')], 1, "offset: a whole number .*, found '0'"),
        (lambda lines: [lines[0].replace(b'"partition":0', b'"partition":true')], 1, "partition: a .*, found True"),
        (lambda lines: [lines[0].replace(b'"offset":0', b'"offset":9223372036854775808')], 1, "offset: a whole number"),
        (lambda lines: [lines[0].replace(b"-01-14T", b"-13-14T", 1)], 1, "timestamp: a time .*, found '2013-13-14T"),
        (lambda lines: [lines[0].replace(b'"key":"gone"', b'"key":"\\ud800"')], 1, "key: text or null, found '\\ud800"),
        (lambda lines: [lines[0].replace(b'"value":null', b'"value_base64":"AP8"')], 1, "base64, found 'AP8'"),
        (lambda lines: [lines[0].replace(b'"value":null,', b"")], 1, "an object with topic"),
        (lambda lines: [lines[0].replace(b'"headers":[]', b'"headers":[{}]')], 1, "headers: objects .*, found {}"),
        (lambda lines: [*lines[:6]], 6, "expected 7 rows, offsets 0 to 9, .*found 6 rows, offsets 0 to 8"),
        (lambda lines: [*lines[1:]], 6, "expected 7 rows, offsets 0 to 9, .*found 6 rows, offsets 1 to 9"),
    ],
)
def test_a_damaged_record_is_told_with_key_line_and_both_sides(
    target: Target, form: Format, damage: Callable[[list[bytes]], list[bytes]], line: int, told: str
) -> None:
    key = f"data/{target.layout.stream}/damaged.{form}"
    target.store.put(key, packed(form, b"".join(damage(list(encode_rows(batch(ODD)))))))
    with pytest.raises(FormatError) as error:
        read(target.store, key)
    assert f"[{key}, line {line}]" in str(error.value)
    assert re.search(re.escape(told).replace(r"\.\*", ".*"), str(error.value))


@each_form
def test_damaged_bytes_are_told_with_key_and_line(target: Target, oracle: Oracle, form: Format) -> None:
    rows = random_rows(400)
    whole = oracle.body(write(target, rows, form=form).key)
    key = f"data/{target.layout.stream}/damaged.{form}"
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for body in (flipped, whole[:middle], whole[:-1], whole[:-TRAILER_BYTES], whole[:-TRAILER_BYTES] * 2):
        target.store.put(key, body)
        with pytest.raises((FormatError, PositionError), match=re.escape(key)):
            read(target.store, key)


def test_rows_out_of_offset_order_are_refused(target: Target) -> None:
    key = f"data/{target.layout.stream}/mixed.jsonl.gz"
    target.store.put(key, packed("jsonl.gz", b"".join(encode_rows(batch([row(5), row(4)]))), rows=2))
    with pytest.raises(PositionError, match=rf"expected offsets ascending from 0, found 5 to 4 in 2 rows \[{key}\]"):
        read(target.store, key)


@each_form
def test_memory_stays_bounded_while_a_large_object_is_written_and_read(target: Target, form: Format) -> None:
    value = b"x" * 1_000_000
    name = DataName(path="p", topic="orders", partition=0, range=RANGE, seq=0)
    tracemalloc.start()
    try:
        pool = pa.total_allocated_bytes()
        file = OpenFile(replace(target, format=form), LOG, name)
        highest = 0
        for offset in range(100):
            some = batch([row(offset, value)])
            file.add(some, np.zeros(1, np.int32), len(value))
            highest = max(highest, pa.total_allocated_bytes() - pool)
        key = file.finish().key
        batches = read_rows(target.store, key, RANGE)
        assert batches is not None
        found = 0
        for one in batches:
            found += one.num_rows
            highest = max(highest, pa.total_allocated_bytes() - pool)
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == 100
    # 100 MB of values passed: twice a batch of lines, and its rows.
    assert (highest < 30_000_000, python_peak < 60_000_000) == (True, True), (highest, python_peak)
