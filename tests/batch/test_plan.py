"""Steps wait, plan and finalize_plan against a real Kafka log and a real S3 archive."""

from datetime import UTC, date, datetime, timedelta

import pytest

from tests.archive.conftest import grow
from tests.batch.logs import MONDAY, TUESDAY, ZONE, Log, at, drop_below, recreate
from tests.batch.steps import ended
from tests.batch.test_seal import finalized, finish
from tests.conftest import MakeTopic
from tests.core.worlds import span
from tidemark.archive.ledger.ledger import compact, read_archived
from tidemark.core.errors import IncompleteError, RequestError, ServiceError
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import DayPlan, Gap, Neighbours, Target, Used
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.plan.targets import wait_ready
from tidemark.reconcile.results import FINALIZE_PLAN, PLAN, RefillRange, final_plan
from tidemark.reconcile.seal import seal_run


def lose_middle_manifest(log: Log) -> None:
    """30 records of Monday in three batches; the middle one's manifest is missing."""
    log.produce(30, at(MONDAY, 9))
    log.archive(0, 10)
    middle = log.archive(10, 20)
    log.archive(20, 30)
    log.store.delete(middle)


def test_a_whole_archive_needs_nothing_and_its_plan_is_finalized(log: Log) -> None:
    log.produce(30, at(MONDAY, 9))
    log.archive(0, 30)
    run = log.run()
    plan = plan_run(run, [MONDAY], False)
    assert plan.days == (DayPlan(day=MONDAY, version=1, reason="requested", archived_rows=30),)
    assert plan.logs[0].target == Target(log=log.owner(), start=0, end=30, log_start=0, high_watermark=30)
    saved = run.require(PLAN)
    assert (saved.refill, saved.archive.broken_links, saved.requested, saved.force) == ((), (), (MONDAY,), False)
    assert finalize_plan_run(run) == plan
    assert final_plan(run) == run.require(PLAN).plan == plan


def test_a_lost_manifest_opens_a_gap_and_shows_as_a_broken_chain(log: Log) -> None:
    lose_middle_manifest(log)
    run = log.run()
    plan = plan_run(run, [MONDAY], False)
    assert plan.logs[0].gaps == (Gap(range=span(10, 20), kind="refill"),)
    saved = run.require(PLAN)
    assert saved.refill == (RefillRange(log=log.owner(), range=span(10, 20), in_hole=False),)
    (broken,) = saved.archive.broken_links
    assert (broken.writer, broken.batch, broken.after) == ("query-a", 2, 0)
    assert "writer query-a, batch 2 " in str(broken)


def test_finalizing_a_plan_with_gaps_is_refused_with_every_range_and_keeps_the_plan(log: Log) -> None:
    lose_middle_manifest(log)
    log.produce(5, at(MONDAY, 10), partition=1)
    run = log.run()
    plan_run(run, [MONDAY], False)
    topic = log.stream.topic
    with pytest.raises(IncompleteError) as caught:
        finalize_plan_run(run)
    assert f"found {topic}-0 [10, 20) not refilled; {topic}-1 [0, 5) not refilled" in str(caught.value)
    status, saved = ended(run, FINALIZE_PLAN)
    assert status == "failed"
    assert saved.plan.logs[0].gaps == (Gap(range=span(10, 20), kind="refill"),)
    with pytest.raises(IncompleteError, match="step 'finalize_plan'"):
        final_plan(run)


def test_a_closed_gap_is_finalized_against_the_targets_the_run_started_with(log: Log) -> None:
    lose_middle_manifest(log)
    run = log.run()
    planned = plan_run(run, [MONDAY], False)
    log.archive(10, 20, writer="refill-run-1")
    log.produce(7, at(MONDAY, 23))  # after the targets
    final = finalize_plan_run(run)
    assert [item.target for item in final.logs] == [item.target for item in planned.logs]
    assert final.logs[0].gaps == ()
    assert [item.writer for item in final.logs[0].used] == ["query-a", "refill-run-1", "query-a"]


def test_a_plan_is_made_of_the_ledger_and_the_manifests_after_it(log: Log) -> None:
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
    assert (plan.days[0].archived_rows, run.require(PLAN).archive.manifests) == (40, 4)
    assert finalize_plan_run(run) == plan
    assert wait_ready(stream, log.settings, [MONDAY])


def test_what_retention_took_is_lost_and_final_only_where_the_stream_accepts_it(log: Log) -> None:
    log.produce(30, at(MONDAY, 9))
    log.archive(0, 10)
    log.archive(20, 30)
    drop_below(log, 13)
    plan = plan_run(log.run(), [MONDAY], False)
    nine = Neighbours(before_us=at(MONDAY, 9) * 1000, after_us=at(MONDAY, 9) * 1000)
    lost = Gap(range=span(10, 13), kind="lost", neighbours=nine)
    assert plan.logs[0].gaps == (lost, Gap(range=span(13, 20), kind="refill"))
    log.archive(13, 20, writer="refill-run-1")
    with pytest.raises(
        IncompleteError, match=r"-0 \[10, 13\) lost to retention: 3 offsets, .*\[run run-1 .*accept the loss"
    ):
        finalize_plan_run(log.run())
    final = finalize_plan_run(log.run(accept_loss=True))
    assert final.logs[0].gaps == (lost,)


def test_records_older_than_the_archive_and_the_log_are_not_counted_as_lost(log: Log) -> None:
    log.produce(30, at(MONDAY, 9))
    log.produce(10, at(TUESDAY, 9))
    drop_below(log, 12)
    log.archive(20, 30)
    log.produce(10, at(MONDAY, 23), partition=1)
    log.produce(10, at(TUESDAY, 9), partition=1)
    log.archive(4, 15, partition=1)  # the archive's first record is the first one known
    drop_below(log, 8, partition=1)
    (one, other) = plan_run(log.run(), [TUESDAY], False).logs
    assert (one.target.start, other.target.start) == (12, 4)
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
    nine, eight = (Neighbours(before_us=None, after_us=at(MONDAY, hour) * 1000) for hour in (9, 8))
    assert one.gaps == (
        Gap(range=span(0, 12), kind="lost", neighbours=nine),
        Gap(range=span(12, 20), kind="refill"),
    )
    assert other.gaps == (Gap(range=span(0, 4), kind="lost", neighbours=eight),)
    log.archive(12, 20, writer="refill-run-1")
    with pytest.raises(IncompleteError, match=r"\[0, 12\) lost to retention: 12 offsets, before a record of 2013"):
        finalize_plan_run(run)
    assert finalize_plan_run(log.run(accept_loss=True)).logs[1].gaps == other.gaps


def test_records_before_an_earlier_sealed_day_are_not_counted_as_lost(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 10)
    log.produce(5, at(MONDAY, 8), partition=1)
    drop_below(log, 5, partition=1)  # empty, as any partition that nobody wrote to for long
    run = finalized(log, "first", MONDAY)
    finish(run, {MONDAY: 10})
    seal_run(run)
    log.produce(4, at(TUESDAY, 9), partition=1)
    log.archive(5, 9, partition=1)
    (_, other) = plan_run(log.run("second"), [TUESDAY], False).logs
    assert (other.target.start, other.target.end, other.gaps) == (5, 9, ())


def test_a_log_that_ends_before_its_archive_is_an_error_that_names_both_ends(log: Log) -> None:
    log.produce(5, at(MONDAY, 9))
    log.produced[0] |= dict.fromkeys(range(5, 8), at(MONDAY, 9))  # Kafka had them, and has lost them
    log.archive(0, 8)
    with pytest.raises(IncompleteError, match=rf"expected offset 8 at least, found end offset 5 .*{log.owner()}"):
        plan_run(log.run(), [MONDAY], False)
    log.produce(3, at(MONDAY, 9))
    assert plan_run(log.run(), [MONDAY], False).logs[0].target.end == 8


def test_of_a_partition_added_since_the_last_seal_no_record_is_lost_unnoticed(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 10)
    run = finalized(log, "first", MONDAY)
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
        finalize_plan_run(run)


def test_no_record_of_a_topic_recreated_since_the_last_seal_is_lost_unnoticed(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 10)
    run = finalized(log, "first", MONDAY)
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
        finalize_plan_run(run)


def test_a_recreated_topic_keeps_its_old_archive_and_starts_a_new_log(log: Log) -> None:
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
    deleted = by_log[old]
    assert deleted.target == Target(log=old, start=0, end=10, log_start=10, high_watermark=10, deleted=True)
    nine = Neighbours(before_us=at(MONDAY, 9) * 1000, after_us=at(MONDAY, 9) * 1000)
    assert deleted.gaps == (Gap(range=span(4, 6), kind="lost", neighbours=nine, topic_deleted=True),)
    assert by_log[log.owner()].gaps == ()
    assert sorted((item.log == old, item.range.start) for item in plan.slices) == [(False, 0), (True, 0), (True, 6)]
    assert plan.days[0].archived_rows == 11


@pytest.mark.conformance(10)
def test_an_earlier_topic_is_wanted_up_to_the_last_day_archived_of_it(log: Log, make_topic: MakeTopic) -> None:
    log.produce(4, at(MONDAY, 9))
    log.produce(3, at(MONDAY, 20))
    log.produce(2, at(MONDAY, 9), partition=1)  # the stream never came to it
    log.produce(2, at(TUESDAY, 9))  # others continue with the topic
    log.archive(0, 2)
    log.archive(3, 4)
    earlier = log.owner(0), log.owner(1)
    log.stream = log.stream.model_copy(update={"topic": make_topic(1)})

    def planned(name: str, day: date) -> list[tuple[Target, list[tuple[OffsetRange, str]]]]:
        logs = {item.target.log: item for item in plan_run(log.run(name), [day], False).logs}
        return [(logs[own].target, [(gap.range, gap.kind) for gap in logs[own].gaps]) for own in earlier]

    for day in (MONDAY, TUESDAY):
        assert planned(f"of-{day}", day) == [
            (
                Target(log=earlier[0], start=0, end=7, log_start=0, high_watermark=9),
                [(span(2, 3), "refill"), (span(4, 7), "refill")],
            ),
            (Target(log=earlier[1], start=0, end=2, log_start=0, high_watermark=2), [(span(0, 2), "refill")]),
        ]
    topic = log.stream.topic
    log.stream = log.stream.model_copy(update={"topic": earlier[0].topic})
    drop_below(log, 6)
    log.stream = log.stream.model_copy(update={"topic": topic})
    ((_, gaps), _) = planned("cut", TUESDAY)
    assert gaps == [(span(2, 3), "lost"), (span(4, 6), "lost"), (span(6, 7), "refill")]


def test_a_day_that_is_not_over_is_refused_with_its_date_and_the_time(log: Log) -> None:
    today = datetime.now(UTC).astimezone(ZONE).date()
    with pytest.raises(RequestError) as caught:
        plan_run(log.run(), [MONDAY, today], False)
    assert f"a day is not over yet: expected a day up to {today - timedelta(days=1)}, found {today}" in str(
        caught.value
    )
    assert f"now {today.isoformat()}T" in str(caught.value)
    saved = log.run().outcome(PLAN)
    assert saved is not None
    assert saved.status == "failed"


def test_yesterday_can_be_planned(log: Log) -> None:
    yesterday = datetime.now(UTC).astimezone(ZONE).date() - timedelta(days=1)
    assert [item.day for item in plan_run(log.run(), [yesterday], False).days] == [yesterday]


def test_no_day_at_all_is_refused(log: Log) -> None:
    with pytest.raises(RequestError, match="at least one day"):
        plan_run(log.run(), [], False)


def test_a_topic_that_does_not_exist_is_named(log: Log) -> None:
    log.stream = log.stream.model_copy(update={"topic": "no.such.topic"})
    with pytest.raises(ServiceError, match=r"no\.such\.topic"):
        plan_run(log.run(), [date(2013, 1, 14)], False)
