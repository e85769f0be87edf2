"""Steps wait, plan and settled against a real Kafka log and a real S3 archive."""

import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from tests.archive.conftest import grow
from tests.batch.logs import MONDAY, TUESDAY, ZONE, Log, at
from tests.batch.test_seal import finish, settled
from tests.conftest import MakeStream, Produce
from tidemark.archive.ledger import compact, read_archived
from tidemark.batch.plan import plan_run, settle_run
from tidemark.batch.seal import seal_run
from tidemark.batch.targets import wait_ready
from tidemark.core.errors import ConfigError, IncompleteError, ServiceError
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import DayPlan, Gap, Neighbours, Target, Used
from tidemark.kafka import ensure_topic, watermarks
from tidemark.settings import Settings


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(start=start, end=end)


def drop_below(log: Log, offset: int, partition: int = 0) -> None:
    """What retention does: move the log's start."""
    admin = AdminClient({"bootstrap.servers": log.settings.kafka_bootstrap})
    request = admin.delete_records([KafkaPartition(log.stream.topic, partition, offset)])
    for future in request.values():
        future.result(timeout=60)


def lose_middle_manifest(log: Log) -> None:
    """30 records of Monday in three batches; the middle one's manifest is gone."""
    log.produce(30, at(MONDAY, 9))
    log.archive(0, 10)
    middle = log.archive(10, 20)
    log.archive(20, 30)
    log.store.delete(middle)


def test_a_whole_archive_needs_nothing_and_settles(log: Log) -> None:
    log.produce(30, at(MONDAY, 9))
    log.archive(0, 30)
    run = log.run()
    plan = plan_run(run, [MONDAY], False)
    assert plan.days == (DayPlan(day=MONDAY, version=1, reason="requested", archived_rows=30),)
    assert plan.logs[0].target == Target(log=log.owner(), origin=0, end=30, log_start=0, high_watermark=30)
    saved = run.require("plan")
    assert (saved["refill"], saved["broken_chains"], saved["requested"], saved["force"]) == (
        [],
        [],
        ["2013-01-14"],
        False,
    )
    assert settle_run(run) == plan
    assert run.plan() == run.plan("plan") == plan


def test_a_lost_manifest_opens_a_gap_and_shows_as_a_broken_chain(log: Log) -> None:
    lose_middle_manifest(log)
    run = log.run()
    plan = plan_run(run, [MONDAY], False)
    assert plan.logs[0].gaps == (Gap(range=span(10, 20), kind="refill"),)
    saved = run.require("plan")
    owner = {"topic": log.stream.topic, "topic_id": log.owner().topic_id, "partition": 0}
    assert saved["refill"] == [{**owner, "start": 10, "end": 20, "in_hole": False}]
    (broken,) = saved["broken_chains"]
    assert (broken["writer"], broken["batch"], broken["after"]) == ("query-a", 2, 0)
    assert broken["finding"].startswith("broken chain: writer query-a, batch 2 behind batch 0: expected previous ")


def test_settling_with_a_gap_left_is_refused_by_every_range_and_the_plan_is_kept(log: Log) -> None:
    lose_middle_manifest(log)
    log.produce(5, at(MONDAY, 10), partition=1)
    run = log.run()
    plan_run(run, [MONDAY], False)
    topic = log.stream.topic
    with pytest.raises(IncompleteError) as caught:
        settle_run(run)
    assert f"found {topic}-0 [10, 20) not refilled; {topic}-1 [0, 5) not refilled" in str(caught.value)
    saved = run.load("settled")
    assert saved is not None
    assert saved["status"] == "failed"
    assert saved["plan"]["logs"][0]["gaps"] == [{"kind": "refill", "neighbours": None, "range": [10, 20]}]
    with pytest.raises(IncompleteError, match="step 'settled'"):
        run.plan()


def test_a_closed_gap_settles_against_the_targets_the_run_started_with(log: Log) -> None:
    lose_middle_manifest(log)
    run = log.run()
    planned = plan_run(run, [MONDAY], False)
    log.archive(10, 20, writer="refill-run-1")
    log.produce(7, at(MONDAY, 23))  # behind the targets
    settled = settle_run(run)
    assert [item.target for item in settled.logs] == [item.target for item in planned.logs]
    assert settled.logs[0].gaps == ()
    assert [item.writer for item in settled.logs[0].used] == ["query-a", "refill-run-1", "query-a"]


def test_a_plan_is_made_of_the_ledger_and_what_is_behind_it(log: Log) -> None:
    log.produce(40, at(MONDAY, 9))
    log.archive(0, 10)
    log.archive(10, 20)
    store, layout, stream = log.store, log.layout, log.stream
    assert compact(store, layout, stream, read_archived(store, layout, stream)) is not None
    log.archive(20, 30)
    log.archive(30, 40, writer="query-b")
    run = log.run()
    plan = plan_run(run, [MONDAY], False)
    assert plan.logs[0].used == (
        Used(range=span(0, 30), committed=span(0, 30), writer="query-a", batch=0, last_batch=2),
        Used(range=span(30, 40), committed=span(30, 40), writer="query-b", batch=0),
    )
    assert [item.range for item in plan.slices] == [span(0, 10), span(10, 20), span(20, 30), span(30, 40)]
    assert all(item.whole for item in plan.slices)
    assert (plan.days[0].archived_rows, run.require("plan")["manifests"]) == (40, 4)
    assert settle_run(run) == plan
    assert wait_ready(stream, log.settings, [MONDAY])


def test_what_retention_took_is_lost_and_settles_only_where_the_stream_accepts_it(log: Log) -> None:
    log.produce(30, at(MONDAY, 9))
    log.archive(0, 10)
    log.archive(20, 30)
    drop_below(log, 13)
    plan = plan_run(log.run(), [MONDAY], False)
    nine = Neighbours(before_us=at(MONDAY, 9) * 1000, behind_us=at(MONDAY, 9) * 1000)
    lost = Gap(range=span(10, 13), kind="lost", neighbours=nine)
    assert plan.logs[0].gaps == (lost, Gap(range=span(13, 20), kind="refill"))
    log.archive(13, 20, writer="refill-run-1")
    with pytest.raises(
        IncompleteError, match=r"-0 \[10, 13\) lost to retention: 3 offsets, .*\[run run-1 .*accept_loss"
    ):
        settle_run(log.run())
    settled = settle_run(log.run(accept_loss=True))
    assert settled.logs[0].gaps == (lost,)


def test_records_older_than_the_archive_and_the_log_are_nobodys_loss(log: Log) -> None:
    log.produce(30, at(MONDAY, 9))
    log.produce(10, at(TUESDAY, 9))
    drop_below(log, 12)
    log.archive(20, 30)
    log.produce(10, at(MONDAY, 23), partition=1)
    log.produce(10, at(TUESDAY, 9), partition=1)
    log.archive(4, 15, partition=1)  # the archive's first record is the first one known
    drop_below(log, 8, partition=1)
    (one, other) = plan_run(log.run(), [TUESDAY], False).logs
    assert (one.target.origin, other.target.origin) == (12, 4)
    assert one.gaps == (Gap(range=span(12, 20), kind="refill"), Gap(range=span(30, 40), kind="refill"))
    assert other.gaps == (Gap(range=span(15, 20), kind="refill"),)


def test_of_a_day_that_the_first_known_record_is_of_retention_took_what_was_in_front(log: Log) -> None:
    log.produce(30, at(MONDAY, 9))
    drop_below(log, 12)
    log.archive(20, 30)
    log.produce(10, at(MONDAY, 8), partition=1)
    log.archive(4, 10, partition=1)
    drop_below(log, 8, partition=1)
    run = log.run()
    (one, other) = plan_run(run, [MONDAY], False).logs
    nine, eight = (Neighbours(before_us=None, behind_us=at(MONDAY, hour) * 1000) for hour in (9, 8))
    assert one.gaps == (
        Gap(range=span(0, 12), kind="lost", neighbours=nine),
        Gap(range=span(12, 20), kind="refill"),
    )
    assert other.gaps == (Gap(range=span(0, 4), kind="lost", neighbours=eight),)
    log.archive(12, 20, writer="refill-run-1")
    with pytest.raises(IncompleteError, match=r"\[0, 12\) lost to retention: 12 offsets, in front of a record of 2013"):
        settle_run(run)
    assert settle_run(log.run(accept_loss=True)).logs[1].gaps == other.gaps


def test_what_a_partition_had_before_an_earlier_sealed_day_is_nobodys_loss(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 10)
    log.produce(5, at(MONDAY, 8), partition=1)
    drop_below(log, 5, partition=1)  # empty, as any partition that nobody wrote to for long
    run = settled(log, "first", MONDAY)
    finish(run, {MONDAY: 10})
    seal_run(run)
    log.produce(4, at(TUESDAY, 9), partition=1)
    log.archive(5, 9, partition=1)
    (_, other) = plan_run(log.run("second"), [TUESDAY], False).logs
    assert (other.target.origin, other.target.end, other.gaps) == (5, 9, ())


@pytest.fixture
def by_value(settings: Settings, make_stream: MakeStream, produce: Produce) -> Log:
    """A field of the value tells the day of each record."""
    stream = make_stream(
        time_zone="America/New_York",
        event_time={"extractor": "record_field", "field": "$.n", "format": "epoch_ms"},
        batch={"wait_seconds": 0},
    )
    return Log(stream=stream, settings=settings, produce_records=produce)


def test_where_values_tell_the_day_no_stamp_ends_it(by_value: Log, settings: Settings, produce: Produce) -> None:
    log, stream = by_value, by_value.stream
    now = int(time.time() * 1000)
    minute = 60_000
    stamps = [at(MONDAY, 9), at(TUESDAY, 9), now - 20 * minute, now - 10 * minute, now - minute, now]
    produce(stream.topic, [(b"k", b'{"n": %d}' % at(MONDAY, 9), stamp, 0, []) for stamp in stamps])
    (found,) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.gaps, found.pending) == ((Gap(range=span(0, 4), kind="refill"),), span(4, 6))
    produce(stream.topic, [(b"k", b"{}", now + 60 * minute, 0, [])])
    produce(stream.topic, [(b"k", b"{}", now, 0, [])])
    (found,) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.gaps, found.pending) == ((Gap(range=span(0, 4), kind="refill"),), span(4, 8))
    assert not wait_ready(stream, settings, [MONDAY])
    waits = stream.archive.model_copy(update={"min_offsets_per_trigger": 1_000})  # for 15 minutes more
    (found,) = plan_run(replace(log.run(), stream=stream.model_copy(update={"archive": waits})), [MONDAY], False).logs
    assert found.target.end == 2
    log.produced = {0: dict(enumerate(stamps))}
    log.archive(0, 5)
    (found,) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.gaps, found.pending) == ((), span(5, 8))
    assert wait_ready(stream, settings, [MONDAY])


def test_where_values_tell_the_day_an_open_transaction_holds_up_only_the_days_it_began_in(
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


def test_a_log_that_ends_in_front_of_what_is_archived_of_it_is_an_error_with_both_ends(log: Log) -> None:
    log.produce(5, at(MONDAY, 9))
    log.produced[0] |= dict.fromkeys(range(5, 8), at(MONDAY, 9))  # Kafka had them, and has lost them
    log.archive(0, 8)
    with pytest.raises(IncompleteError, match=rf"expected offset 8 at least, found end offset 5 .*{log.owner()}"):
        plan_run(log.run(), [MONDAY], False)
    log.produce(3, at(MONDAY, 9))
    assert plan_run(log.run(), [MONDAY], False).logs[0].target.end == 8


def test_a_target_ends_where_its_day_does_or_as_far_as_was_archived(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.produce(10, at(TUESDAY, 0))
    (behind, empty) = plan_run(log.run(), [MONDAY], False).logs
    assert (behind.target.end, behind.pending) == (10, span(10, 20))
    assert (empty.target.end, empty.gaps, empty.pending) == (0, (), None)
    log.archive(0, 15)
    (ahead, _) = plan_run(log.run(), [MONDAY], False).logs
    assert (ahead.target.end, ahead.pending) == (15, span(15, 20))


def test_a_record_stamped_in_the_future_ends_no_day(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.produce(4, at(MONDAY, 9))
    log.produce(1, int((datetime.now(UTC) + timedelta(minutes=50)).timestamp() * 1000))
    log.produce(3, at(MONDAY, 10))
    log.produce(2, at(TUESDAY, 9))
    (found, _) = plan_run(log.run(), [MONDAY], False).logs
    assert (found.target.end, [gap.range for gap in found.gaps]) == (10, [span(0, 10)])
    assert "offset 4, behind which nothing else of the days is sought, is stamped in the future" in caplog.text
    # Not waited for: on a busy topic the end of the log is never archived.
    log.archive(0, 4)
    assert wait_ready(log.stream, log.settings, [MONDAY])


def test_kafka_is_not_asked_where_a_day_before_1970_ends(log: Log) -> None:
    log.produce(4, at(MONDAY, 9))
    log.archive(0, 3)
    (found, _) = plan_run(log.run(), [date(1968, 7, 20)], False).logs
    assert (found.target.end, found.gaps) == (3, ())


def test_of_a_partition_added_since_the_last_seal_no_record_is_lost_unnoticed(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 10)
    run = settled(log, "first", MONDAY)
    finish(run, {MONDAY: 10})
    seal_run(run)
    grow(log.settings, log.stream.topic, 3)
    log.produce(10, at(TUESDAY, 9), partition=2)
    drop_below(log, 6, partition=2)
    log.archive(6, 10, partition=2)
    run = log.run("second")
    by_partition = {item.target.log.partition: item for item in plan_run(run, [TUESDAY], False).logs}
    assert [(gap.range, gap.kind) for gap in by_partition[2].gaps] == [(span(0, 6), "lost")]
    assert (by_partition[0].gaps, by_partition[1].gaps) == ((), ())
    with pytest.raises(IncompleteError, match=r"\[0, 6\) lost to retention: 6 offsets"):
        settle_run(run)


def test_of_a_topic_made_again_since_the_last_seal_no_record_is_lost_unnoticed(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 10)
    run = settled(log, "first", MONDAY)
    finish(run, {MONDAY: 10})
    seal_run(run)
    recreate(log)
    log.produced.clear()
    log.produce(10, at(TUESDAY, 9))
    drop_below(log, 6)
    log.archive(6, 10, writer="query-b")
    run = log.run("second")
    plan = plan_run(run, [TUESDAY], False)
    assert [(item.target.log, gap.range, gap.kind) for item in plan.logs for gap in item.gaps] == [
        (log.owner(), span(0, 6), "lost")
    ]
    with pytest.raises(IncompleteError, match=r"\[0, 6\) lost to retention: 6 offsets"):
        settle_run(run)


def test_a_topic_made_again_keeps_its_old_archive_and_starts_a_new_log(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 4)
    log.archive(6, 10)
    old = log.owner()
    recreate(log)
    log.produced.clear()
    log.produce(3, at(MONDAY, 20))
    log.archive(0, 3, writer="query-b")
    plan = plan_run(log.run(), [MONDAY], False)
    by_log = {item.target.log: item for item in plan.logs}
    gone = by_log[old]
    assert gone.target == Target(log=old, origin=0, end=10, log_start=10, high_watermark=10)
    nine = Neighbours(before_us=at(MONDAY, 9) * 1000, behind_us=at(MONDAY, 9) * 1000)
    assert gone.gaps == (Gap(range=span(4, 6), kind="lost", neighbours=nine),)
    assert by_log[log.owner()].gaps == ()
    assert sorted((item.log == old, item.range.start) for item in plan.slices) == [(False, 0), (True, 0), (True, 6)]
    assert plan.days[0].archived_rows == 11


def recreate(log: Log) -> None:
    """Delete the topic and make it again; returns once the broker shows the new one."""
    bootstrap, topic = log.settings.kafka_bootstrap, log.stream.topic
    before = log.owner().topic_id
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(timeout=60)
    deadline = time.monotonic() + 120
    # The broker answers before the deletion, and then the creation, is everywhere.
    while not ensure_topic(bootstrap, topic, partitions=2, config={"retention.ms": "-1"}):
        assert time.monotonic() < deadline
    while not _is_new(log, before):
        assert time.monotonic() < deadline


def _is_new(log: Log, before: str) -> bool:
    try:
        return log.owner().topic_id != before
    except ServiceError:
        return False


def test_a_day_that_is_not_over_is_refused_with_its_date_and_the_time(log: Log) -> None:
    today = datetime.now(UTC).astimezone(ZONE).date()
    with pytest.raises(ConfigError) as caught:
        plan_run(log.run(), [MONDAY, today], False)
    assert f"a day is not over yet: expected a day before {today}, found {today}" in str(caught.value)
    assert f"now {today.isoformat()}T" in str(caught.value)
    saved = log.run().load("plan")
    assert saved is not None
    assert saved["status"] == "failed"


def test_yesterday_can_be_planned(log: Log) -> None:
    yesterday = datetime.now(UTC).astimezone(ZONE).date() - timedelta(days=1)
    assert [item.day for item in plan_run(log.run(), [yesterday], False).days] == [yesterday]


def test_no_day_at_all_is_refused(log: Log) -> None:
    with pytest.raises(ConfigError, match="at least one day"):
        plan_run(log.run(), [], False)


def test_a_topic_that_does_not_exist_is_named(log: Log) -> None:
    log.stream = log.stream.model_copy(update={"topic": "no.such.topic"})
    with pytest.raises(ServiceError, match=r"no\.such\.topic"):
        plan_run(log.run(), [date(2013, 1, 14)], False)


def test_the_archive_is_ready_once_it_reaches_the_days_end_in_every_partition(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.produce(4, at(MONDAY, 9), partition=1)
    log.produce(5, at(TUESDAY, 9))
    assert not wait_ready(log.stream, log.settings, [MONDAY])
    log.archive(0, 10)
    assert not wait_ready(log.stream, log.settings, [MONDAY])
    log.archive(0, 4, partition=1)
    assert wait_ready(log.stream, log.settings, [MONDAY])
    assert not wait_ready(log.stream, log.settings, [MONDAY, TUESDAY])


def open_transaction(log: Log, *stamps: int) -> Producer:
    """A record for each of the stamps in a transaction that is left open."""
    producer = Producer(
        {
            "bootstrap.servers": log.settings.kafka_bootstrap,
            "transactional.id": log.stream.name,
            "acks": "all",
        }
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    for stamp in stamps:
        producer.produce(log.stream.topic, b"v", b"k", 0, timestamp=stamp)
    assert producer.flush(20) == 0
    return producer


@pytest.mark.parametrize("hidden", [MONDAY, TUESDAY])
def test_behind_a_record_stamped_in_the_future_an_open_transaction_hides_what_is_of_the_day(
    log: Log, hidden: date
) -> None:
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


def test_a_day_that_an_open_transaction_hides_a_part_of_is_not_planned(log: Log) -> None:
    log.produce(5, at(MONDAY, 9))
    producer = open_transaction(log, at(MONDAY, 10), at(TUESDAY, 10))
    log.archive(0, 5)
    # Whether its Monday record will ever be read is not decided yet.
    with pytest.raises(IncompleteError, match=rf"{log.owner()} undecided from offset 5 to 6 "):
        plan_run(log.run(), [MONDAY], False)
    assert not wait_ready(log.stream, log.settings, [MONDAY])
    # What is undecided behind the end of a day is none of its business.
    (sunday, _) = plan_run(log.run(), [MONDAY - timedelta(days=1)], False).logs
    assert (sunday.target.end, sunday.target.high_watermark) == (5, 5)
    producer.commit_transaction(20)
    deadline = time.monotonic() + 120
    while watermarks(log.settings.kafka_bootstrap, [log.owner()])[0].high_watermark == 5:  # the marker comes afterwards
        assert time.monotonic() < deadline
    after = plan_run(log.run(), [MONDAY], False).logs[0].target
    # Two records and the transaction's marker; the second record is Tuesday's.
    assert (after.end, after.high_watermark) == (6, 8)
