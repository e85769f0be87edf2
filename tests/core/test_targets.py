"""Where targets end, also of a topic that Kafka no longer has; and what was seen of a log, as JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.worlds import DAYS, log, ranges, seal_of, sealed_log, span
from tidemark.core.errors import FormatError
from tidemark.core.log_extents import SeenLogs, extents_json, lost_ends, parse_extents, widen
from tidemark.core.loss_text import truncation_text
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Gap, LogRange, Target, Truncation
from tidemark.core.planner import plan_committed
from tidemark.core.targets import DayEnd, decide_targets, first_of_days

NOW = log(0, "id-2")
HERE = {NOW: DayEnd(log_start=0, position=3, high_watermark=5, hidden=None)}


def seen(*extents: tuple[TopicPartition, int, int], truncated: tuple[Truncation, ...] = ()) -> SeenLogs:
    found = tuple(LogRange(log=owner, range=span(start, end)) for owner, start, end in extents)
    return SeenLogs(extents=found, truncated=truncated)


def truncation(start: int, end: int, *, archived: int = 0, owner: TopicPartition | None = None) -> Truncation:
    return Truncation(log=owner or log(), range=span(start, end), archived=archived, leader_epoch=4)


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
    lost = tuple(
        Truncation(log=item.log, range=item.range, archived=3, leader_epoch=epoch)
        for item, epoch in zip(found, (None, 7, 0), strict=False)
    )
    whole = SeenLogs(extents=found, truncated=lost)
    assert parse_extents(extents_json(whole), where="here") == whole
    before = json.dumps({"format": 1, "logs": json.loads(extents_json(whole))["logs"]}).encode()
    assert parse_extents(before, where="here") == SeenLogs(extents=found)


@pytest.mark.conformance(71)
@pytest.mark.parametrize(
    ("end", "archived", "known", "lost"),
    [
        (950, 900, [], [span(950, 1000)]),
        (1000, 900, [], []),
        (1200, 900, [], []),
        (950, 970, [], [span(970, 1000)]),  # archived before they were lost
        (950, 1000, [], []),
        (950, 0, [], [span(950, 1000)]),
        (950, 900, [span(950, 1000)], []),  # an earlier run has recorded it
        (970, 900, [span(950, 1000)], []),
        (940, 900, [span(950, 1000)], [span(940, 950)]),  # once more
        (0, 0, [], [span(5, 1000)]),  # a lost disk; offsets below the first seen one are not known
    ],
)
def test_what_was_seen_of_a_log_at_or_after_its_end_is_lost_unless_it_is_archived_or_known(
    end: int, archived: int, known: list[OffsetRange], lost: list[OffsetRange]
) -> None:
    before = seen((log(), 5, 1000), (log(1), 0, 9), truncated=tuple(truncation(k.start, k.end) for k in known))
    found = lost_ends(before, {log(): end, NOW: 3}, {log(): archived})
    assert found == tuple(LogRange(log=log(), range=part) for part in lost)


@pytest.mark.conformance(71)
def test_a_target_has_what_its_log_lost_also_if_its_topic_was_deleted_since() -> None:
    own, other = truncation(950, 1000, owner=NOW), truncation(7, 9, archived=4)
    live, missing = decide_targets(
        "flights",
        HERE,
        {log(): (0, 10)},
        [],
        seen((log(), 0, 10), truncated=(other, own, truncation(1, 2, owner=log(5)))),
    )[::-1]
    assert (live.log, live.end, live.truncated) == (NOW, 3, (own,))
    assert (missing.log, missing.deleted, missing.truncated) == (log(), True, (other,))


def test_a_lost_end_is_named_with_the_offsets_that_may_be_rewritten() -> None:
    assert truncation_text(truncation(950, 1000, archived=900)) == (
        "flights-0 [950, 1000) lost from the end of the log: at most 50 offsets;"
        " flights-0 [900, 950) may have had other records before"
    )
    assert truncation_text(truncation(950, 951, archived=950)) == (
        "flights-0 [950, 951) lost from the end of the log: at most 1 offset"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "do not parse: expected format 2"),
        (b"[]", "do not parse: expected format 2"),
        (
            json.dumps({"format": 3, "logs": []}).encode(),
            "unknown format of offsets seen in Kafka: expected 2, found 3",
        ),
        (json.dumps({"format": 2, "logs": []}).encode(), "expected a list, found None"),
        (json.dumps({"format": 1, "logs": [{}]}).encode(), "fields differ"),
    ],
)
def test_damaged_extents_are_refused(body: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_extents(body, where="here")
