"""Whether Kafka still holds an archived record, and where a rewritten range starts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.logged_record import (
    AtOffset,
    LoggedRecord,
    RewrittenLog,
    first_different,
    record_digest,
    same_record,
)
from tidemark.core.offsets import OffsetRange, TopicPartition

LOG = TopicPartition(topic="t", topic_id="id", partition=0)


def record(offset: int = 99, timestamp_us: int = 1_000, digest: str = "a", epoch: int | None = 3) -> LoggedRecord:
    return LoggedRecord(log=LOG, offset=offset, timestamp_us=timestamp_us, digest=digest, leader_epoch=epoch)


def kafka(found: LoggedRecord | None, *, log_start: int = 0, end: int = 200, compacted: bool = False) -> AtOffset:
    return AtOffset(record=found, log_start=log_start, end=end, compacted=compacted)


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (kafka(record()), True),
        (kafka(record(epoch=7)), True),  # a new leader has the same record
        (kafka(record(epoch=None)), True),
        (kafka(record(timestamp_us=2_000)), False),
        (kafka(record(digest="b")), False),
        (kafka(record(digest="b"), compacted=True), False),
        (kafka(None, end=99), False),  # the log ends before it
        (kafka(None, end=99, compacted=True), False),
        (kafka(None), False),  # a transaction's marker has its offset
        (kafka(None, compacted=True), None),
        (kafka(None, log_start=100), None),  # retention
        (kafka(None, log_start=100, compacted=True), None),
    ],
)
def test_a_record_is_the_same_rewritten_or_cannot_be_compared(there: AtOffset, expected: bool | None) -> None:
    assert same_record(record(), there) is expected


def test_null_and_empty_and_moved_bytes_have_different_digests() -> None:
    pairs = [
        (None, None),
        (b"", None),
        (None, b""),
        (b"", b""),
        (b"a", b"b"),
        (b"ab", b""),
        (b"", b"ab"),
        (b"null;", b""),
    ]
    assert len({record_digest(*pair) for pair in pairs}) == len(pairs)
    assert record_digest(b"key", b"value") == record_digest(b"key", b"value")


@given(st.integers(1, 300), st.data())
def test_the_first_different_candidate_is_found_in_few_questions(number: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, number - 1))
    asked: list[int] = []

    def same(at: int) -> bool:
        asked.append(at)
        return at < first

    assert first_different(number, same) == (first - 1 if first else None, first)
    assert len(asked) <= 9


@given(st.lists(st.sampled_from([True, None]), max_size=60), st.lists(st.sampled_from([False, None]), max_size=60))
def test_candidates_without_an_answer_widen_the_result_and_never_falsify_it(
    before: list[bool | None], after: list[bool | None]
) -> None:
    answers = [*before, *after, False]
    known, first = first_different(len(answers), lambda at: answers[at])
    assert first == len(answers) - 1 or answers[first] is False
    assert known is None or answers[known] is True
    assert known is None or known < first


def test_retention_below_the_rewritten_offsets_does_not_hide_them() -> None:
    answers = [None] * 500 + [True] * 20 + [False] * 10
    assert first_different(len(answers), lambda at: answers[at]) == (519, 520)


@pytest.mark.parametrize(
    ("found", "end", "expected"),
    [
        (record(digest="b", epoch=5), 105, "t-0 offset 99 of 1970-01-01T00:00:00.001+00:00, digest b, leader epoch 5"),
        (None, 95, "t-0 ends at offset 95"),
        (None, 105, "t-0 no record at offset 99, end offset 105"),
    ],
)
def test_a_rewritten_log_names_both_records(found: LoggedRecord | None, end: int, expected: str) -> None:
    log = RewrittenLog(archived=record(), kafka=found, end=end, range=OffsetRange(start=90, end=100))
    assert log.sides() == (
        "t-0 offset 99 of 1970-01-01T00:00:00.001+00:00, digest a, leader epoch 3",
        expected,
    )
