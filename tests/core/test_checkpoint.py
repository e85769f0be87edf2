"""Spark's checkpoint files. The samples are what Spark 4.0.4 wrote for two partitions, with the conf shortened."""

import pytest

from tidemark.core.checkpoint import (
    batch_ranges,
    parse_batch_time_us,
    parse_initial_offsets,
    parse_offsets,
    parse_query_id,
)
from tidemark.core.errors import ConflictError, FormatError, PositionError
from tidemark.core.offsets import OffsetRange

OFFSETS = (
    b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795250743239,"conf":{"spark.sql.shuffle.partitions":"4"}}\n'
    b'{"topic_2":{"0":15,"1":17}}'
)
INITIAL = b'\x00v1\n{"topic_2":{"0":0,"1":3}}'
METADATA = b'{"id":"ef6d364f-2bcd-4c36-a780-13621db5bf9c"}'


def test_the_offsets_of_a_batch() -> None:
    assert parse_offsets(OFFSETS, topic="topic_2", where="offsets/0") == {0: 15, 1: 17}


def test_the_initial_offsets_with_or_without_the_leading_zero_byte() -> None:
    assert parse_initial_offsets(INITIAL, topic="topic_2", where="sources/0/0") == {0: 0, 1: 3}
    assert parse_initial_offsets(INITIAL[1:] + b"\n", topic="topic_2", where="sources/0/0") == {0: 0, 1: 3}


def test_the_time_at_which_a_batch_was_fixed() -> None:
    assert parse_batch_time_us(OFFSETS, where="offsets/0") == 1795250743239 * 1000


@pytest.mark.parametrize("line", [b"{}", b"-", b"[]", b"null", b'{"batchTimestampMs":0}', b'{"batchTimestampMs":"1"}'])
def test_metadata_without_a_time(line: bytes) -> None:
    with pytest.raises(FormatError, match=r"\[offsets/7\]"):
        parse_batch_time_us(b"v1\n" + line + b'\n{"topic_2":{"0":15}}', where="offsets/7")


def test_the_querys_id() -> None:
    assert parse_query_id(METADATA, where="metadata") == "ef6d364f-2bcd-4c36-a780-13621db5bf9c"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"v1",
        b"v2\n{}\n" + OFFSETS.rpartition(b"\n")[2],
        b"v1\n{}\n-",
        b'v1\n{}\n{"topic_2":{"0":15}}\n{"topic_3":{"0":1}}',  # two sources
        b'v1\n{}\n{"topic_2":{"zero":15}}',
        b'v1\n{}\n["topic_2"]',
        b"\xff\xfe",
    ],
)
def test_other_text_is_no_offsets(body: bytes) -> None:
    with pytest.raises(FormatError, match=r"\[offsets/7\]"):
        parse_offsets(body, topic="topic_2", where="offsets/7")


@pytest.mark.parametrize("body", [b"", b"\x00v1", b'\x00v2\n{"topic_2":{"0":0}}', b"\x00v1\nnull"])
def test_other_text_is_no_initial_offsets(body: bytes) -> None:
    with pytest.raises(FormatError):
        parse_initial_offsets(body, topic="topic_2", where="sources/0/0")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"id":7}', b'{"id":""}', b"[]"])
def test_other_text_is_no_metadata(body: bytes) -> None:
    with pytest.raises(FormatError):
        parse_query_id(body, where="metadata")


@pytest.mark.parametrize("line", [b'{"orders":{"0":15}}', b'{"topic_2":{"0":1},"orders":{"0":15}}', b"{}"])
def test_positions_in_another_topic_are_a_conflict(line: bytes) -> None:
    with pytest.raises(ConflictError, match="a checkpoint belongs to another topic: expected topic_2, found"):
        parse_offsets(b"v1\n{}\n" + line, topic="topic_2", where="offsets/0")


def test_a_batch_is_what_lies_between_two_positions() -> None:
    assert batch_ranges({0: 5, 1: 7}, {0: 9, 1: 7, 2: 4, 3: 0}, where="offsets/1") == {
        0: OffsetRange(start=5, end=9),
        2: OffsetRange(start=0, end=4),  # new; 1 was quiet and 3 is new and empty
    }


def test_a_position_never_moves_back_and_a_partition_never_vanishes() -> None:
    with pytest.raises(PositionError, match=r"expected >= 5, found 4 \[offsets/1, partition 0\]"):
        batch_ranges({0: 5}, {0: 4}, where="offsets/1")
    with pytest.raises(PositionError, match=r"expected partitions \[0, 1\], found partitions \[0\]"):
        batch_ranges({0: 5, 1: 5}, {0: 6}, where="offsets/1")
