"""The checksum is the same for the same rows in any batches, and different for other rows."""

from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark.objects.checksum import RowChecksum
from tidemark.objects.schema import SCHEMA

maybe_bytes = st.none() | st.binary(max_size=5)
header = st.fixed_dictionaries({"key": st.none() | st.text(max_size=3), "value": maybe_bytes})
moment = st.none() | st.integers(-(10**15), 10**15)
row = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["a", "b", ""]),
        "partition": st.integers(0, 2**31 - 1),
        "offset": st.integers(0, 2**63 - 1),
        "timestamp": moment,
        "timestamp_type": st.sampled_from([0, 1, None]),
        "key": maybe_bytes,
        "value": maybe_bytes,
        "headers": st.none() | st.lists(st.none() | header, max_size=3),
        "event_time": moment,
    }
)
many = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def checksum(*batches: pa.RecordBatch) -> str:
    running = RowChecksum(SCHEMA.names)
    for one in batches:
        running.add(one)
    return running.value


@many
@given(st.lists(row, min_size=1, max_size=12), st.data())
def test_slicing_and_copying_change_nothing(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = batch(rows)
    bounds = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    slices = [whole.slice(start, end - start) for start, end in zip([0, *bounds], [*bounds, len(rows)], strict=True)]
    assert checksum(*slices) == checksum(whole)
    assert checksum(*(batch([one]) for one in rows)) == checksum(whole)
    padded = batch([*rows, *rows]).slice(len(rows))  # the same rows at another position of their buffers
    assert checksum(padded) == checksum(whole)
    assert checksum(whole.take(pa.array(range(len(rows))))) == checksum(whole)


@many
@given(st.lists(row, min_size=1, max_size=5), st.lists(row, min_size=1, max_size=5))
def test_different_rows_have_different_checksums(one: list[dict[str, Any]], two: list[dict[str, Any]]) -> None:
    assert (checksum(batch(one)) == checksum(batch(two))) == (one == two)


@many
@given(st.lists(row, min_size=1, max_size=8), st.data())
def test_any_changed_byte_null_offset_or_header_changes_the_checksum(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(SCHEMA.names))
    other = data.draw(row)[name]
    changed = [*rows[:at], rows[at] | {name: other}, *rows[at + 1 :]]
    assert (checksum(batch(changed)) == checksum(batch(rows))) == (changed == rows)


def test_bytes_moved_between_rows_change_the_checksum() -> None:
    def values(*given: bytes | None) -> str:
        empty = dict.fromkeys(SCHEMA.names)
        return checksum(batch([empty | {"value": value} for value in given]))

    checksums = [
        values(b"ab", b"c"),
        values(b"a", b"bc"),
        values(b"abc", b""),
        values(b"abc", None),
        values(b"", b"abc"),
    ]
    assert len(set(checksums)) == len(checksums)


def test_bytes_below_a_null_do_not_count() -> None:
    data = pa.py_buffer(b"abXYcd")
    ends = pa.py_buffer(b"".join(end.to_bytes(4, "little") for end in (0, 2, 4, 6)))
    hidden = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), ends, data])
    plain = pa.array([b"ab", None, b"cd"], pa.binary())
    sums = []
    for array in (hidden, plain):
        running = RowChecksum(["value"])
        running.add(pa.RecordBatch.from_arrays([array], ["value"]))
        sums.append(running.value)
    assert sums[0] == sums[1]


def test_the_value_is_fixed_for_all_time() -> None:
    fixed = {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": 3,
        "timestamp_type": 0,
        "key": None,
        "value": b"v",
        "headers": [{"key": "h", "value": None}],
        "event_time": 4,
    }
    assert (
        checksum(batch([fixed])) == "blake3-columns-1:42b9f33c054237a99467fb8de0d0224c0fe00c40d9c65cd2a04d04949184dd5b"
    )
