"""Where a day ends in each partition: by timestamps, by values, with fast clocks and open transactions."""

import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from confluent_kafka import Producer

from tests.batch.logs import MONDAY, TUESDAY, Log, at
from tests.conftest import MakeStream, Produce
from tests.core.worlds import span
from tidemark.core.errors import IncompleteError
from tidemark.core.plan import Gap
from tidemark.kafka.positions import watermarks
from tidemark.reconcile.plan import targets
from tidemark.reconcile.plan.step import plan_run
from tidemark.reconcile.plan.targets import wait_ready
from tidemark.settings import Settings


def test_a_target_ends_where_its_day_does_or_as_far_as_was_archived(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.produce(10, at(TUESDAY, 0))
    (short, empty) = plan_run(log.run(), [MONDAY], False).logs
    assert (short.target.end, short.pending) == (10, span(10, 20))
    assert (empty.target.end, empty.gaps, empty.pending) == (0, (), None)
    log.archive(0, 15)
    (ahead, _) = plan_run(log.run(), [MONDAY], False).logs
    assert (ahead.target.end, ahead.pending) == (15, span(15, 20))


@pytest.mark.conformance(33)
@pytest.mark.parametrize("fast", ["a fast clock", "the future"])
def test_a_record_of_a_fast_clock_ends_no_day(log: Log, monkeypatch: pytest.MonkeyPatch, fast: str) -> None:
    soon = int((datetime.now(UTC) + timedelta(minutes=50)).timestamp() * 1000)
    log.produce(4, at(MONDAY, 9))
    log.produce(1, at(TUESDAY, 0) + 5 * 60_000 if fast == "a fast clock" else soon)  # ten minutes fast, at 23:55
    log.produce(3, at(MONDAY, 23))
    log.produce(2, at(TUESDAY, 9))
    (found, _) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.target.end, [gap.range for gap in found.gaps]) == (8, [span(0, 8)])
    # Not waited for: the refill fetches what is after it.
    log.archive(0, 4)
    assert wait_ready(log.stream, log.settings, [MONDAY])
    (found, _) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.gaps, found.pending) == ((Gap(range=span(4, 8), kind="refill"),), span(8, 10))
    # A long tail is not read.
    monkeypatch.setattr(targets, "READ_MAX", 5)
    (found, _) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.gaps, found.pending) == ((Gap(range=span(4, 10), kind="refill"),), None)


@pytest.mark.conformance(33)
def test_a_stream_that_was_stopped_after_the_day_lacks_nothing_of_it(log: Log) -> None:
    log.produce(4, at(MONDAY, 9))
    log.produce(5, at(TUESDAY, 9))
    log.archive(0, 5)
    assert wait_ready(log.stream, log.settings, [MONDAY])
    (found, _) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.gaps, found.pending) == ((), span(5, 9))


def test_kafka_is_not_asked_where_a_day_before_1970_ends(log: Log) -> None:
    log.produce(4, at(MONDAY, 9))
    log.archive(0, 3)
    (found, _) = plan_run(log.run(), [date(1968, 7, 20)], False).logs
    assert (found.target.end, found.gaps) == (3, ())


def test_the_archive_is_ready_once_it_reaches_the_days_end_in_every_partition(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.produce(4, at(MONDAY, 9), partition=1)
    log.produce(5, at(TUESDAY, 9))
    assert wait_ready(log.stream, log.settings, [MONDAY])  # nobody archives yet: the refill fetches all
    log.archive(0, 10)
    assert not wait_ready(log.stream, log.settings, [MONDAY])
    log.archive(0, 4, partition=1)
    assert wait_ready(log.stream, log.settings, [MONDAY])
    assert not wait_ready(log.stream, log.settings, [MONDAY, TUESDAY])


@pytest.fixture
def by_value(settings: Settings, make_stream: MakeStream, produce: Produce) -> Log:
    """A field of the value gives the day of each record."""
    stream = make_stream(
        time_zone="America/New_York",
        event_time={"extractor": "record_field", "field": "$.n", "format": "epoch_ms"},
        batch={"wait_seconds": 0},
    )
    return Log(stream=stream, settings=settings, produce_records=produce)


def test_no_timestamp_ends_the_day_where_values_give_it(by_value: Log, settings: Settings, produce: Produce) -> None:
    log, stream = by_value, by_value.stream
    now = int(time.time() * 1000)
    minute = 60_000
    timestamps = [at(MONDAY, 9), at(TUESDAY, 9), now - 20 * minute, now - 10 * minute, now - minute, now]
    produce(stream.topic, [(b"k", b'{"n": %d}' % at(MONDAY, 9), timestamp, 0, []) for timestamp in timestamps])
    (found,) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.gaps, found.pending) == ((Gap(range=span(0, 4), kind="refill"),), span(4, 6))
    produce(stream.topic, [(b"k", b"{}", now + 60 * minute, 0, [])])
    produce(stream.topic, [(b"k", b"{}", now, 0, [])])
    (found,) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.gaps, found.pending) == ((Gap(range=span(0, 4), kind="refill"),), span(4, 8))
    waits = stream.archive.model_copy(update={"min_offsets_per_trigger": 1_000})  # for 15 minutes more
    (found,) = plan_run(replace(log.run(), stream=stream.model_copy(update={"archive": waits})), [MONDAY], False).logs
    assert found.target.end == 2
    log.produced = {0: dict(enumerate(timestamps))}
    log.archive(0, 3)
    assert not wait_ready(stream, settings, [MONDAY])
    log.archive(3, 5)
    (found,) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.gaps, found.pending) == ((), span(5, 8))
    assert wait_ready(stream, settings, [MONDAY])
    produce(stream.topic, [(b"k", b"{}", now - 30 * minute, 0, [])])  # the clocks of those before it are fast
    (found,) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.gaps, found.pending) == ((Gap(range=span(5, 9), kind="refill"),), None)


def test_an_open_transaction_delays_only_the_days_it_began_in_where_values_give_them(
    by_value: Log, settings: Settings, produce: Produce
) -> None:
    log, stream = by_value, by_value.stream
    log.produced = {0: dict.fromkeys(range(3), at(MONDAY, 9))}
    produce(stream.topic, [(b"k", b'{"n": %d}' % at(MONDAY, 9), at(MONDAY, 9), 0, [])] * 3)
    producer = open_transaction(log, at(TUESDAY, 9), at(TUESDAY, 9))
    produce(stream.topic, [(b"k", b'{"n": %d}' % at(MONDAY, 9), at(TUESDAY, 9), 0, [])])  # nobody is given it yet
    log.archive(0, 3)
    (found,) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.target.end, found.gaps, found.pending) == (3, (), None)
    assert wait_ready(stream, settings, [MONDAY])
    with pytest.raises(IncompleteError, match=rf"{log.owner()} undecided from offset 3 to 6 "):
        plan_run(log.run(), [TUESDAY], False)
    producer.abort_transaction(20)


def open_transaction(log: Log, *timestamps: int, name: str = "") -> Producer:
    """Produce a record for each timestamp in a transaction that stays open. A ``name`` is another producer's."""
    producer = Producer(
        {
            "bootstrap.servers": log.settings.kafka_bootstrap,
            "transactional.id": log.stream.name + name,
            "acks": "all",
        }
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    for timestamp in timestamps:
        producer.produce(log.stream.topic, b"v", b"k", 0, timestamp=timestamp)
    assert producer.flush(20) == 0
    return producer


@pytest.mark.parametrize("hidden", [MONDAY, TUESDAY])
def test_an_open_transaction_after_a_future_timestamp_hides_records_of_the_day(log: Log, hidden: date) -> None:
    log.produce(1, int((datetime.now(UTC) + timedelta(minutes=50)).timestamp() * 1000))
    log.produce(4, at(MONDAY, 9))
    producer = open_transaction(log, at(hidden, 10), at(TUESDAY, 11))
    log.archive(0, 5)
    assert wait_ready(log.stream, log.settings, [MONDAY]) == (hidden == TUESDAY)
    if hidden == MONDAY:
        with pytest.raises(IncompleteError, match=rf"{log.owner()} undecided from offset 5 to 7 "):
            plan_run(log.run(), [MONDAY], False)
    else:
        assert plan_run(log.run(), [MONDAY], False).logs[0].target.end == 5
    producer.abort_transaction(20)


@pytest.mark.conformance(70)
def test_an_acknowledged_record_of_the_day_after_a_later_open_transaction_is_waited_for(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "READ_AT_ONCE", 2)
    monkeypatch.setattr(targets, "PATIENCE_S", 0)
    monkeypatch.setattr(targets, "POLL_PATIENCE_S", 0)
    log.produce(5, at(MONDAY, 9))
    producer = open_transaction(log, at(TUESDAY, 9), at(TUESDAY, 10))
    log.produce(3, at(TUESDAY, 9))
    log.archive(0, 5)
    assert wait_ready(log.stream, log.settings, [MONDAY])
    assert plan_run(log.run(), [MONDAY], False).logs[0].target.end == 5
    log.produce(1, at(MONDAY, 23))  # acknowledged, by a producer without transactions
    log.produce(1, at(TUESDAY, 11))
    assert not wait_ready(log.stream, log.settings, [MONDAY])
    refused = rf"{log.owner()} undecided from offset 5 to 12 \(offset 10 may be of these days\)"
    with pytest.raises(IncompleteError, match=refused):
        plan_run(log.run(), [MONDAY], False)
    # Too many hidden records are not read: then the first of them counts.
    monkeypatch.setattr(targets, "READ_MAX", 6)
    with pytest.raises(IncompleteError, match=r"offset 5 may be of these days"):
        plan_run(log.run(), [MONDAY], False)
    producer.abort_transaction(20)


@pytest.mark.conformance(70)
def test_where_a_transaction_is_always_open_only_what_was_there_at_first_is_waited_for(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.produce(5, at(MONDAY, 9))
    earlier = open_transaction(log, at(TUESDAY, 9))
    log.produce(1, at(MONDAY, 23))  # at offset 6, hidden
    log.archive(0, 5)
    later: list[Producer] = []

    def commit_and_open_another(_seconds: float) -> None:
        if not later:
            later.append(open_transaction(log, at(TUESDAY, 10), name="-later"))
            log.produce(1, at(MONDAY, 22))  # a late record that a later transaction hides
            earlier.commit_transaction(20)

    monkeypatch.setattr(targets, "sleep", commit_and_open_another)
    (planned, _) = plan_run(log.run(), [MONDAY], False).logs
    assert later
    assert planned.target.end == 7
    later[0].abort_transaction(20)


def test_a_day_that_an_open_transaction_hides_a_part_of_is_not_planned(log: Log) -> None:
    log.produce(5, at(MONDAY, 9))
    producer = open_transaction(log, at(MONDAY, 10), at(TUESDAY, 10))
    log.archive(0, 5)
    # Whether its Monday record will ever be read is not decided yet.
    with pytest.raises(IncompleteError, match=rf"{log.owner()} undecided from offset 5 to 7 "):
        plan_run(log.run(), [MONDAY], False)
    assert not wait_ready(log.stream, log.settings, [MONDAY])
    # Undecided offsets after the end of a day do not matter for it.
    (sunday, _) = plan_run(log.run(), [MONDAY - timedelta(days=1)], False).logs
    assert (sunday.target.end, sunday.target.high_watermark) == (5, 5)
    producer.commit_transaction(20)
    deadline = time.monotonic() + 120
    while watermarks(log.settings.kafka, [log.owner()])[0].high_watermark == 5:  # the marker comes afterwards
        assert time.monotonic() < deadline
    after = plan_run(log.run(), [MONDAY], False).logs[0].target
    # Two records and the transaction's marker; the second record is Tuesday's.
    assert (after.end, after.high_watermark) == (6, 8)
