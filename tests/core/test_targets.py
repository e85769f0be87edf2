"""Where targets end, also of a topic that Kafka no longer has; and what was seen of a log, as JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.worlds import DAYS, log, ranges, seal_of, sealed_log, span
from tidemark.core.errors import FormatError
from tidemark.core.log_extents import LogExtents, extents_json, parse_extents, widen
from tidemark.core.offsets import TopicPartition
from tidemark.core.plan import Gap, LogRange, Target
from tidemark.core.planner import plan_committed
from tidemark.core.targets import DayEnd, decide_targets, first_of_days

NOW = log(0, "id-2")
HERE = {NOW: DayEnd(log_start=0, position=3, high_watermark=5, hidden=None)}


def seen(*extents: tuple[TopicPartition, int, int]) -> LogExtents:
    return tuple(LogRange(log=owner, range=span(start, end)) for owner, start, end in extents)


def deleted(owner: TopicPartition, start: int, end: int) -> Target:
    return Target(log=owner, start=start, end=end, log_start=end, high_watermark=end, deleted=True)


@pytest.mark.conformance(30)
def test_a_deleted_topic_is_lost_from_its_archived_end_to_the_last_one_seen() -> None:
    seals = [seal_of(DAYS[0], [sealed_log(log(1), 2, 7)])]
    targets = decide_targets("flights", HERE, {log(): (4, 10)}, seals, seen((log(), 0, 15), (log(2), 6, 9)))
    live = Target(log=NOW, start=0, end=3, log_start=0, high_watermark=5)
    # Partition 2 was never archived: it is known by what was seen of it alone.
    assert targets == (deleted(log(), 4, 15), deleted(log(1), 2, 7), deleted(log(2), 6, 9), live)
    plan = plan_committed(
        stream="flights", run="r", requested=[DAYS[0]], targets=targets, committed={t.log: [] for t in targets}, seen={}
    )
    assert [item.gaps for item in plan.logs] == [
        (Gap(range=span(4, 15), kind="lost", topic_deleted=True),),
        (Gap(range=span(2, 7), kind="lost", topic_deleted=True),),
        (Gap(range=span(6, 9), kind="lost", topic_deleted=True),),
        (Gap(range=span(0, 3), kind="refill"),),
    ]


@pytest.mark.conformance(30)
def test_what_was_seen_of_a_log_that_kafka_has_or_of_another_stream_loses_nothing() -> None:
    other = TopicPartition(topic="typo", topic_id="id-3", partition=0)
    targets = decide_targets("flights", HERE, {log(): (0, 10)}, [], seen((NOW, 0, 99), (other, 0, 99), (log(), 0, 8)))
    live = Target(log=NOW, start=0, end=3, log_start=0, high_watermark=5)
    assert targets == (deleted(log(), 0, 10), live)


@pytest.mark.conformance(70)
@pytest.mark.parametrize(
    ("timestamps", "read_up_to", "first"),
    [
        ([50, 60, 70], 8, None),  # all are after the days
        ([9, 60, 70], 8, 5),
        ([50, 60, 9], 8, 7),  # of the days, after records that are not
        ([50, 49, 70], 8, 6),  # the last millisecond
        ([50, -1, 70], 8, 6),  # a record without a timestamp
        ([], 8, None),  # transaction markers only
        ([50, 60], 7, 7),  # not read to its end
        ([50, 9], 7, 6),
    ],
)
def test_any_hidden_record_with_a_timestamp_before_the_days_end_may_be_of_them(
    timestamps: list[int], read_up_to: int, first: int | None
) -> None:
    offsets = [5 + number for number in range(len(timestamps))]
    assert first_of_days(offsets, timestamps, read_up_to, span(5, 8), 50) == first


@given(st.lists(st.tuples(st.sampled_from([log(), log(1), NOW]), ranges())))
def test_what_is_seen_of_a_log_only_grows_and_reads_back(items: list[tuple[TopicPartition, object]]) -> None:
    given_ranges = [LogRange(log=owner, range=own) for owner, own in items]  # type: ignore[arg-type]
    found = widen(*([item] for item in given_ranges))
    for owner in {item.log for item in given_ranges}:
        own = [item.range for item in given_ranges if item.log == owner]
        (wide,) = [item.range for item in found if item.log == owner]
        assert (wide.start, wide.end) == (min(item.start for item in own), max(item.end for item in own))
    assert len(found) == len({item.log for item in given_ranges})
    assert parse_extents(extents_json(found), where="here") == found


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "do not parse: expected format 1"),
        (b"[]", "do not parse: expected format 1"),
        (
            json.dumps({"format": 2, "logs": []}).encode(),
            "unknown format of offsets seen in Kafka: expected 1, found 2",
        ),
        (json.dumps({"format": 1, "logs": [{}]}).encode(), "fields differ"),
    ],
)
def test_damaged_extents_are_refused(body: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_extents(body, where="here")
