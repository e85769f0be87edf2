"""The errors of exactly-once delivery for wrong positions, records, topics and brokers."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.conftest import MakeTopic, unique
from tests.speed.delivering import (
    LOG,
    MakeSink,
    batch,
    delivered,
    marker,
    messages,
    numbered,
    row,
    set_marker,
    span,
    values,
)
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ConfigError, ConflictError, FormatError, PositionError, ServiceError
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.settings import Settings
from tidemark.speed.exactly_once.marker import Marker, ensure_markers
from tidemark.speed.exactly_once.transactions import deliver
from tidemark.stack.local import LocalStack

DAY_US = 86_400_000_000


def test_a_marker_outside_the_batch_stops_delivery_until_it_is_set(make_topic: MakeTopic, make_sink: MakeSink) -> None:
    live, sink, wanted = make_topic(), make_sink(), span(5, 9, number=3)
    before = "the marker is before the batch: .*found marker 4.*"
    problems = {
        None: "there is no marker, but earlier batches were delivered",
        4: before + r"The checkpoint is after source offsets \[4, 5\), which are not delivered",
        10: "the marker is after the batch: .*found marker 10",
    }
    for position, problem in problems.items():
        if position is not None:
            set_marker(sink, position)
        with pytest.raises(PositionError, match=problem):
            deliver([numbered(live, 5, 6, 7, 8)], wanted, sink)
    assert values(sink.kafka.servers, live) == []
    set_marker(sink, 6)  # as the message says
    assert marker(sink, LOG) == Marker(position=6, batch=None)
    assert deliver([numbered(live, 5, 6, 7, 8)], wanted, sink) == delivered(wanted, skipped=1, good=3, transactions=1)
    assert values(sink.kafka.servers, live) == [6, 7, 8]


def test_a_marker_that_is_not_ours_stops_delivery(make_sink: MakeSink) -> None:
    sink = make_sink()
    cases: tuple[tuple[str, type[Exception], str], ...] = (
        ("elsewhere", FormatError, "a marker does not parse: found elsewhere"),
        ('{"batch": 1}', FormatError, "a marker does not parse"),
        (
            '{"batch": 1, "topic_id": "other"}',
            ConflictError,
            "the marker belongs to another log: .*found topic id other",
        ),
    )
    for metadata, error, problem in cases:
        set_marker(sink, 5, metadata=metadata)
        with pytest.raises(error, match=problem):
            deliver([], span(5, 9, number=3), sink)


def test_marker_topics_grow_with_the_source_and_never_shrink(settings: Settings) -> None:
    bootstrap, topic = settings.kafka_bootstrap, unique("markers")
    sizes = []
    for partitions in (1, 3, 3, 2):
        ensure_markers(KafkaConnection.plain(bootstrap), topic, partitions)
        sizes.append(len(describe_topic(KafkaConnection.plain(bootstrap), topic)))
    assert sizes == [1, 3, 3, 3]


def test_a_marker_topic_that_lacks_the_partition_is_refused(make_topic: MakeTopic, make_sink: MakeSink) -> None:
    live = make_topic()
    sink = replace(make_sink(timeout_s=4), marker_topic=make_topic(LOG.partition))
    with pytest.raises(ServiceError, match="UNKNOWN_TOPIC_OR_PART"):
        deliver([numbered(live, 0)], span(0, 1, first=True), sink)
    assert values(sink.kafka.servers, live) == []


def test_a_missing_topic_is_named_and_the_next_attempt_finds_it(make_sink: MakeSink) -> None:
    live, sink, wanted = unique("missing"), make_sink(timeout_s=12), span(0, 1, first=True)
    with pytest.raises(ServiceError, match=rf"{live}.*UNKNOWN_TOPIC|UNKNOWN_TOPIC.*{live}"):
        deliver([numbered(live, 0)], wanted, sink)
    ensure_topic(sink.kafka, live, partitions=1)
    assert deliver([numbered(live, 0)], wanted, sink) == delivered(wanted, good=1, transactions=1)


@pytest.mark.parametrize(
    ("size", "limit"), [(20_000, "max.message.bytes of topic"), (17 << 20, "16777216 bytes at most")]
)
def test_a_too_large_record_is_named_and_its_transaction_is_not_visible(
    size: int, limit: str, make_topic: MakeTopic, make_sink: MakeSink
) -> None:
    live, sink = make_topic(max_message_bytes="10000"), make_sink(records=2, batch_bytes=10_000)
    rows = [row(live, offset, value=b"0" if offset != 7 else bytes(size)) for offset in range(5, 9)]
    with pytest.raises(ConfigError, match=rf"expected {limit}.*found {size} bytes.*source-2 offset 7\]"):
        deliver([batch(rows)], span(5, 9, first=True), sink)
    assert values(sink.kafka.servers, live) == [0, 0]
    assert marker(sink, LOG) == Marker(position=7, batch=0)


def test_a_too_large_record_is_named_with_many_records_in_flight_after_it(
    make_topic: MakeTopic, make_sink: MakeSink
) -> None:
    live, sink = make_topic(max_message_bytes="10000"), make_sink(batch_bytes=10_000)
    rows = [row(live, offset, value=bytes(6_000 if offset != 20 else 20_000)) for offset in range(100)]
    with pytest.raises(ConfigError, match=r"found 20000 bytes.*source-2 offset 20\]"):
        deliver([batch(rows)], span(0, 100, first=True), sink)
    assert values(sink.kafka.servers, live) == []


@pytest.mark.conformance(72)
def test_a_record_whose_time_the_topic_refuses_gets_that_of_its_delivery(
    make_topic: MakeTopic, make_sink: MakeSink
) -> None:
    live = make_topic(message_timestamp_before_max_ms="86400000", message_timestamp_after_max_ms="3600000")
    sink = make_sink()
    now_us = time.time_ns() // 1000
    times = [now_us - 2 * DAY_US, now_us - 3600 * 1_000_000, now_us + 3500 * 1_000_000, now_us + 2 * DAY_US]
    rows = [row(live, offset, timestamp=moment) for offset, moment in enumerate(times)]
    with pytest.raises(ConfigError, match=r"refuses the timestamp of a record: .*source-2 offset [03]\]"):
        deliver([batch(rows)], span(0, 4, first=True), sink)
    limited = replace(sink, before_ms=86_400_000, after_ms=3_600_000)
    deliver([batch(rows)], span(0, 4, first=True), limited)
    found = [item.timestamp()[1] for item in messages(sink.kafka.servers, live)]
    assert found[1:3] == [moment // 1000 for moment in times[1:3]]
    assert all(now_us // 1000 <= found[number] < now_us // 1000 + 600_000 for number in (0, 3))


def test_small_records_are_not_refused_for_the_size_of_their_batch(make_topic: MakeTopic, make_sink: MakeSink) -> None:
    live, sink = make_topic(max_message_bytes="10000"), make_sink(batch_bytes=10_000)
    rows = [row(live, offset, value=b"%04000d" % offset) for offset in range(50)]
    deliver([batch(rows)], span(0, 50, first=True), sink)
    assert values(sink.kafka.servers, live) == list(range(50))


def test_a_time_out_above_the_brokers_limit_is_a_config_error(make_sink: MakeSink) -> None:
    with pytest.raises(ConfigError, match=r"transaction\.max\.timeout\.ms, found 901 s"):
        deliver([], span(0, 1, first=True), make_sink(timeout_s=901))


@pytest.mark.conformance(23)
def test_a_broker_restart_during_delivery_costs_at_most_one_attempt(
    stack: LocalStack, make_topic: MakeTopic, make_sink: MakeSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.speed.exactly_once.transactions._ABORT_S", 3)
    live, sink, wanted = make_topic(), make_sink(records=4), span(0, 20, first=True)
    (broker,) = (item for item in stack.processes if item.name == "kafka")
    restarts = 0

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal restarts
        yield numbered(live, *range(10))
        if not restarts:
            restarts += 1
            broker.kill()
            broker.launch()
        yield numbered(live, *range(10, 20))

    try:
        deliver(rows(), wanted, replace(sink, timeout_s=120))
    except (ServiceError, ConflictError):  # a transaction that expired meanwhile is fenced
        deliver(rows(), wanted, sink)
    assert values(sink.kafka.servers, live) == list(range(20))
    assert marker(sink, LOG) == Marker(position=20, batch=0)


def test_a_silent_broker_costs_the_time_out_and_the_next_attempt_continues(
    stack: LocalStack, make_topic: MakeTopic, make_sink: MakeSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.speed.exactly_once.transactions._ABORT_S", 3)
    live, sink, wanted = make_topic(), make_sink(records=4), span(0, 20, first=True)
    (broker,) = (item for item in stack.processes if item.name == "kafka")

    def rows() -> Iterator[pa.RecordBatch]:
        yield numbered(live, *range(10))
        os.kill(broker.pid, signal.SIGSTOP)
        yield numbered(live, *range(10, 20))

    try:
        with pytest.raises(ServiceError, match="Kafka refused a transaction"):
            deliver(rows(), wanted, replace(sink, timeout_s=4))
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    deliver([numbered(live, *range(20))], wanted, sink)
    assert values(sink.kafka.servers, live) == list(range(20))
