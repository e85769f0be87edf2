"""Exactly-once delivery of one task with a real broker, without Spark."""

import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tests.conftest import MakeTopic
from tests.speed.delivering import (
    LOG,
    Child,
    MakeSink,
    batch,
    delivered,
    marker,
    messages,
    numbered,
    row,
    span,
    values,
)
from tests.waiting import wait_until
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ConflictError, PositionError, ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.speed.exactly_once import transactions
from tidemark.speed.exactly_once.marker import Marker, Sink, marker_offset, marker_reader, read_marker
from tidemark.speed.exactly_once.transactions import deliver

pytestmark = pytest.mark.conformance(23)


def test_records_arrive_unchanged_and_in_their_partition(make_topic: MakeTopic, make_sink: MakeSink) -> None:
    live, dead, sink = make_topic(3), make_topic(), make_sink()
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "", "value": b""}]
    rows = [
        row(live, 0, partition=2, key=b"k", value=b"v", headers=headers),
        row(live, 1, partition=1, key=None, value=None, headers=None, timestamp=None),
        row(dead, 3, partition=None, key=b"", value=b"", headers=headers[:1], _good=False),
        row(live, 4, partition=2, value="ü".encode(), headers=headers[1:2], timestamp=1_699_999_999_999_999),
        row(live, 5, partition=2, timestamp=0),
        row(live, 6, partition=2, timestamp=-1_000),
    ]
    wanted = span(0, 8, first=True)
    assert deliver([batch(rows)], wanted, sink) == delivered(wanted, good=5, dead=1, transactions=1)
    found = [
        (item.partition(), item.key(), item.value(), item.headers() or [], item.timestamp()[1])
        for topic in (live, dead)
        for item in messages(sink.kafka.servers, topic)
    ]
    assert found == [
        (1, None, None, [], -1),
        (2, b"k", b"v", [("a", b"1"), ("a", None), ("", b"")], 1_700_000_000_000),
        (2, None, "ü".encode(), [("a", None)], 1_699_999_999_999),
        (2, None, b"5", [], 1),
        (2, None, b"6", [], -1),
        (0, b"", b"", [("a", b"1")], 1_700_000_000_000),
    ]
    assert marker(sink, LOG) == Marker(position=8, batch=0)


def test_a_row_without_a_partition_uses_javas_partition_for_its_key(make_topic: MakeTopic, make_sink: MakeSink) -> None:
    # Kafka's own test vectors, clients/src/test/java/org/apache/kafka/common/utils/UtilsTest.java, testMurmur2
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    live, sink = make_topic(7), make_sink()
    rows = [row(live, offset, partition=None, key=key) for offset, key in enumerate(hashes)]
    deliver([batch(rows)], span(0, len(rows), first=True), sink)
    found = {item.key(): item.partition() for item in messages(sink.kafka.servers, live)}
    assert found == {key: (value & 0x7FFFFFFF) % 7 for key, value in hashes.items()}


def test_a_long_range_is_several_transactions_and_the_next_one_continues(
    make_topic: MakeTopic, make_sink: MakeSink
) -> None:
    live, sink = make_topic(), make_sink(records=4)
    first, second = span(10, 30, first=True), span(30, 34, number=1)
    parts = [numbered(live, 10, 11, 13), numbered(live), numbered(live, *range(14, 23)), numbered(live, 29)]
    assert deliver(parts, first, sink) == delivered(first, good=13, transactions=4)
    assert deliver([numbered(live, 30, 31, 32, 33)], second, sink) == delivered(second, good=4, transactions=1)
    assert values(sink.kafka.servers, live) == [10, 11, 13, *range(14, 23), 29, 30, 31, 32, 33]
    # Spark repeats its last batch after a restart.
    repeated = deliver([numbered(live, 30, 31, 32, 33)], second, sink)
    assert repeated == delivered(second, skipped=4, transactions=0)
    assert values(sink.kafka.servers, live) == [10, 11, 13, *range(14, 23), 29, 30, 31, 32, 33]


def test_a_range_without_a_row_moves_the_marker(make_sink: MakeSink) -> None:
    sink = make_sink()
    first, second, third = span(0, 0, first=True), span(0, 5, number=1), span(5, 5, number=2)
    assert marker(sink, LOG) is None
    assert deliver([], first, sink) == delivered(first, transactions=1)
    assert marker(sink, LOG) == Marker(position=0, batch=0)
    assert deliver([], second, sink) == delivered(second, transactions=1)
    assert marker(sink, LOG) == Marker(position=5, batch=1)
    assert deliver([], third, sink) == delivered(third, transactions=0)


def test_a_killed_process_with_an_open_transaction_loses_and_duplicates_nothing(
    make_topic: MakeTopic, make_sink: MakeSink
) -> None:
    live, sink = make_topic(), make_sink(records=4)
    wanted = span(0, 20, first=True)
    child = Child.start(live, [range(7)], wanted, sink)
    assert child.reached() == "0"
    # Four records are committed. The other three are in a transaction that will not be ended.
    wait_until(
        lambda: len(values(sink.kafka.servers, live, isolation="read_uncommitted", wait=False)) == 7,
        "seven are written",
    )
    child.kill()
    wait_until(lambda: values(sink.kafka.servers, live, wait=False) == [0, 1, 2, 3], "the committed ones are seen")
    done = deliver([numbered(live, *range(11)), numbered(live, *range(12, 19))], wanted, sink)
    assert done == delivered(wanted, skipped=4, good=14, transactions=4)
    assert values(sink.kafka.servers, live) == [*range(11), *range(12, 19)]
    assert len(messages(sink.kafka.servers, live, isolation="read_uncommitted")) == 18 + 3


def test_a_process_that_wakes_up_after_its_successor_writes_nothing(make_topic: MakeTopic, make_sink: MakeSink) -> None:
    live, sink = make_topic(), make_sink(records=4)
    wanted = span(0, 20, first=True)
    child = Child.start(live, [range(7), range(7, 20)], wanted, sink)
    assert child.reached() == "0"
    child.process.send_signal(signal.SIGSTOP)
    deliver([numbered(live, *range(20))], wanted, sink)
    child.process.send_signal(signal.SIGCONT)
    output = child.ended()
    assert "ConflictError: another attempt uses the transactional id now" in output
    assert f"{sink.group}-{LOG.partition}" in output
    assert values(sink.kafka.servers, live) == list(range(20))
    assert marker(sink, LOG) == Marker(position=20, batch=0)


def test_an_earlier_attempt_cannot_commit_after_the_marker_is_read(
    make_topic: MakeTopic, make_sink: MakeSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, sink, wanted = make_topic(), make_sink(), span(0, 8, first=True)
    earlier = Producer({"bootstrap.servers": sink.kafka.servers, "transactional.id": sink.transactional_id(LOG)})
    earlier.init_transactions()
    earlier.begin_transaction()
    for offset in range(4):
        earlier.produce(live, b"%d" % offset)
    earlier.flush()

    def read(consumer: Consumer, own: Sink, log: TopicPartition) -> Marker | None:
        found = read_marker(consumer, own, log)
        with marker_reader(own) as reader, suppress(KafkaException):  # it is fenced
            earlier.send_offsets_to_transaction([marker_offset(wanted, own, 4)], reader.consumer_group_metadata())
            earlier.commit_transaction()
        return found

    monkeypatch.setattr(transactions, "read_marker", read)
    deliver([numbered(live, *range(8))], wanted, sink)
    assert values(sink.kafka.servers, live) == list(range(8))


def test_a_commit_that_fails_moves_no_marker(
    make_topic: MakeTopic, make_sink: MakeSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, sink, wanted = make_topic(), make_sink(), span(0, 3, first=True)
    whole = transactions._Task._bounded

    def bounded(task: transactions._Task, name: str, *arguments: Any, **options: Any) -> None:
        if name == "commit_transaction":
            raise ServiceError("killed before the commit")
        whole(task, name, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(transactions._Task, "_bounded", bounded)
        with pytest.raises(ServiceError, match="killed before the commit"):
            deliver([numbered(live, 0, 1, 2)], wanted, sink)
    assert marker(sink, LOG) is None
    assert deliver([numbered(live, 0, 1, 2)], wanted, sink) == delivered(wanted, good=3, transactions=1)
    assert values(sink.kafka.servers, live) == [0, 1, 2]


@pytest.mark.parametrize("before", [0, 3, 4], ids=["nothing", "an-open-transaction", "a-committed-one"])
def test_a_fenced_attempt_says_who_continues(before: int, make_topic: MakeTopic, make_sink: MakeSink) -> None:
    live, sink = make_topic(), make_sink(records=4)
    wanted = span(0, 8, first=True)

    def superseded() -> Iterator[pa.RecordBatch]:
        yield numbered(live, *range(before))
        deliver([numbered(live, *range(8))], wanted, sink)
        yield numbered(live, *range(before, 8))

    with pytest.raises(ConflictError, match=r"The latest attempt continues"):
        deliver(superseded(), wanted, sink)
    assert values(sink.kafka.servers, live) == list(range(8))


def test_an_expired_transaction_is_not_reported_as_a_successor(make_topic: MakeTopic, make_sink: MakeSink) -> None:
    live, sink = make_topic(), make_sink(timeout_s=1)

    def slow() -> Iterator[pa.RecordBatch]:
        yield numbered(live, 0)
        # The broker writes the abort marker after the record.
        wait_until(lambda: _end(sink.kafka.servers, live) == 2, "the broker ends the transaction")
        yield numbered(live, 1)

    # On a busy machine, a call may take longer than one second.
    with pytest.raises(
        (ConflictError, ServiceError), match=r"longer than its time-out of 1 s|did not return|refused a transaction"
    ):
        deliver(slow(), span(0, 2, first=True), sink)
    assert values(sink.kafka.servers, live) == []


def test_a_failing_source_leaves_nothing_visible(make_topic: MakeTopic, make_sink: MakeSink) -> None:
    live, sink = make_topic(), make_sink()

    def failing() -> Iterator[pa.RecordBatch]:
        yield numbered(live, 0, 1)
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        deliver(failing(), span(0, 4, first=True), sink)
    assert values(sink.kafka.servers, live) == []
    assert marker(sink, LOG) is None


def test_a_failed_attempts_dead_letters_are_not_visible(make_topic: MakeTopic, make_sink: MakeSink) -> None:
    live, dead, sink, wanted = make_topic(), make_topic(), make_sink(), span(0, 2, first=True)
    rows = [row(live, 0), row(dead, 1, _good=False)]

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch(rows)
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        deliver(failing(), wanted, sink)
    assert values(sink.kafka.servers, dead) == []
    assert deliver([batch(rows)], wanted, sink) == delivered(wanted, good=1, dead=1, transactions=1)
    assert (values(sink.kafka.servers, live), values(sink.kafka.servers, dead)) == ([0], [1])


def test_rows_outside_the_range_are_refused(make_topic: MakeTopic, make_sink: MakeSink) -> None:
    live, sink = make_topic(), make_sink()
    cases = (
        ([3, 3], 2, r"expected an offset in \[4, 9\).*found 3"),
        ([4, 3], 2, r"expected an offset in \[5, 9\).*found 3"),
        ([1], 2, r"expected an offset in \[2, 9\).*found 1"),
        ([9], 2, r"expected an offset in \[2, 9\).*found 9"),
        ([3], 5, r"rows of other source partitions: expected 2, found \{5\}"),
    )
    for offsets, partition, problem in cases:
        rows = [row(live, offset, source_partition=partition) for offset in offsets]
        with pytest.raises(PositionError, match=problem):
            deliver([numbered(live), batch(rows)], span(2, 9, first=True), sink)
    assert values(sink.kafka.servers, live) == []
    assert marker(sink, LOG) is None


def _end(bootstrap: str, topic: str) -> int:
    (end,) = watermarks(KafkaConnection.plain(bootstrap), describe_topic(KafkaConnection.plain(bootstrap), topic))
    return end.high_watermark
