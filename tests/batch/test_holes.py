"""Evidence on holes, against a real broker: aborted and compacted records, markers, silence, what retention took."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.archive.test_kafka_logs import consumed
from tests.batch.logs import MONDAY, TUESDAY, Log, at, drop_below
from tests.batch.test_seal import finalized, finish
from tests.conftest import MakeStream, MakeTopic, Produce
from tests.core.worlds import span
from tests.waiting import wait_until
from tidemark.connections.kafka import KafkaConnection
from tidemark.core import hole_evidence
from tidemark.core.errors import ServiceError
from tidemark.core.hole_evidence import KnownEvidence
from tidemark.core.offsets import OffsetRange
from tidemark.core.outcome import RunStep
from tidemark.core.plan import Evidence, Hole
from tidemark.kafka.log_reader import LogReader
from tidemark.kafka.offset_evidence import OffsetClassifier
from tidemark.kafka.positions import watermarks
from tidemark.reconcile.plan import holes as holes_of_plan
from tidemark.reconcile.plan.holes import classify_holes
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.report.outcomes import read_outcomes
from tidemark.reconcile.report.report import make_report
from tidemark.reconcile.results import FINALIZE_PLAN, PLAN, FinalizeResult, HoleSearch, PlanResult, final_plan
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.tables.seals import read_seal

NINE = at(MONDAY, 9)


def transact(
    log: Log, *transactions: tuple[int, bool], value: bytes = b"v", at_ms: int = NINE, partition: int = 0
) -> None:
    """Transactions of so many records into a partition, kept or aborted; those kept are in ``log.produced``."""
    bootstrap, topic = log.settings.kafka_bootstrap, log.stream.topic
    owner = [log.owner(partition)]
    (mark,) = watermarks(KafkaConnection.plain(bootstrap), owner, committed=False)
    end = mark.high_watermark + sum(number + 1 for number, _ in transactions)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for number, kept in transactions:
        offsets: list[int] = []
        producer.begin_transaction()

        def delivered(_: Any, message: Any, offsets: list[int] = offsets) -> None:
            offsets.append(message.offset())

        for _ in range(number):
            producer.produce(topic, value, partition=partition, timestamp=at_ms, on_delivery=delivered)
        assert producer.flush(60) == 0
        producer.commit_transaction(60) if kept else producer.abort_transaction(60)
        if kept:
            log.produced.setdefault(partition, {}).update(dict.fromkeys(offsets, at_ms))
    wait_until(
        lambda: watermarks(KafkaConnection.plain(bootstrap), owner)[0].high_watermark == end,
        "the last marker is written",
        120,
    )


def holes(run: Run) -> tuple[Hole, ...]:
    return final_plan(run).logs[0].holes


def lacked(run: Run) -> list[tuple[int, int]]:
    """What step plan wants refilled, which is all inside holes."""
    ranges = run.require(PLAN).refill
    assert all(item.in_hole for item in ranges)
    return [(item.range.start, item.range.end) for item in ranges]


def search(run: Run, step: RunStep[PlanResult] | RunStep[FinalizeResult] = FINALIZE_PLAN) -> HoleSearch:
    """The step's search for the causes of holes, which it must have made."""
    made = (run.require(PLAN) if step is PLAN else run.require(FINALIZE_PLAN)).holes
    assert made is not None
    return made


def found(transactional: int = 0, compacted: int = 0, unexplained: int = 0, *ranges: OffsetRange) -> Evidence:
    return Evidence(transactional=transactional, compacted=compacted, unexplained=unexplained, ranges=ranges)


@pytest.mark.conformance(11)
def test_aborted_records_and_markers_are_transactional_in_seal_and_report(log: Log) -> None:
    # 0-2 kept, 3 marker | 4-5 aborted, 6 marker | 7-9 kept, 10 marker
    transact(log, (3, True), (2, False), (3, True))
    log.archive(0, 5)
    log.archive(5, 11)
    run = finalized(log, "run-1", MONDAY)
    assert holes(run) == (
        Hole(range=span(0, 5), missing=2, cause="transactional", evidence=found(2)),
        Hole(range=span(5, 11), missing=3, cause="transactional", evidence=found(3)),
    )
    for step in (PLAN, FINALIZE_PLAN):
        causes = search(run, step)
        assert (causes.transactional, causes.compacted, causes.unexplained, causes.notes) == (5, 0, 0, ())
    # Only step plan asks Kafka about a hole.
    assert search(run, PLAN).offsets_read > 0
    assert search(run).offsets_read == 0
    finish(run, {MONDAY: 6})
    (seal,) = seal_run(run)
    assert seal.logs[0].holes == (Hole(range=span(0, 11), missing=5, cause="transactional", evidence=found(5)),)
    assert [(item.range, item.batch, item.last_batch) for item in seal.logs[0].used] == [(span(0, 11), 0, 1)]
    assert read_seal(log.store, log.layout, MONDAY, 1) == seal
    verdict = make_report(run, read_outcomes(run))["verdict"]
    assert verdict["status"] == "complete"
    assert "5 offsets gave no record because they were aborted or transaction markers." in verdict["sentences"]
    # Of a day without rows here the next run sees it as one range, and asks for what is new alone.
    transact(log, (1, True), at_ms=at(TUESDAY, 9))
    log.archive(11, 13)
    after = finalized(log, "run-2", TUESDAY)
    assert holes(after) == (
        Hole(range=span(0, 11), missing=5, cause="transactional", evidence=found(5)),
        Hole(range=span(11, 13), missing=1, cause="transactional", evidence=found(1)),
    )
    assert [item.day for item in final_plan(after).days] == [TUESDAY]
    finish(after, {TUESDAY: 1})
    (seal,) = seal_run(after)
    assert seal.logs[0].holes == (Hole(range=span(0, 13), missing=6, cause="transactional", evidence=found(6)),)


@pytest.mark.parametrize(
    ("how", "reason"), [("damaged", "does not read as Parquet"), ("missing", "an object is missing")]
)
def test_an_object_that_can_not_be_read_leaves_its_hole_unexplained_and_stops_no_run(
    log: Log, how: str, reason: str
) -> None:
    transact(log, (3, True), (2, False), (3, True))
    log.archive(0, 5)
    log.archive(5, 11)
    damaged = min(item.key for item in log.store.list(log.layout.data_prefix))
    log.store.put(damaged, b"PAR1") if how == "damaged" else log.store.delete(damaged)
    run = finalized(log, "run-1", MONDAY)
    assert holes(run) == (
        Hole(range=span(0, 5), missing=2, cause="unexplained"),
        Hole(range=span(5, 11), missing=3, cause="transactional", evidence=found(3)),
    )
    (note,) = search(run).notes
    assert "no longer shows what was committed of [0, 5): " in note
    assert reason in note


def test_markers_alone_are_proven_by_a_search_by_time(log: Log) -> None:
    transact(log, (2, True), (1, True))
    log.archive(0, 5)
    assert holes(finalized(log, "run-1", MONDAY)) == (
        Hole(range=span(0, 5), missing=2, cause="transactional", evidence=found(2)),
    )


def test_a_future_timestamp_hides_no_marker_before_it(log: Log) -> None:
    transact(log, (2, True))
    log.produce(1, int((datetime.now(UTC) + timedelta(minutes=50)).timestamp() * 1000))
    transact(log, (1, True))
    log.archive(0, 6)
    assert holes(finalized(log, "run-1", MONDAY)) == (
        Hole(range=span(0, 6), missing=2, cause="transactional", evidence=found(2)),
    )


@pytest.mark.parametrize("stray", ["of a transaction that was aborted", "of none"])
@pytest.mark.conformance(11)
def test_a_record_with_a_much_later_timestamp_hides_no_marker(log: Log, stray: str) -> None:
    """Some producers give their records an earlier time: a search by time finds the stray record."""
    now = int(datetime.now(UTC).timestamp() * 1000)
    if stray == "of none":
        log.produce(1, now)
    else:
        transact(log, (1, False), at_ms=now)
    log.produce(150, NINE)
    transact(log, (2, True))
    (mark,) = watermarks(log.settings.kafka, [log.owner()])
    with OffsetClassifier(log.settings.kafka, log.owner()) as classifier:
        findings = classifier.classify([span(mark.high_watermark - 1, mark.high_watermark)])
        assert (findings.silent.number, findings.aborted) == (1, 0)
        assert classifier.gap_cause().cause == "transactional"


@pytest.mark.conformance(11)
def test_a_record_that_kafka_still_gives_is_never_explained(log: Log) -> None:
    transact(log, (3, True), (2, False), (3, True))
    del log.produced[0][1], log.produced[0][2]  # the archive lost two committed records
    log.archive(0, 11)
    run = finalized(log, "run-1", MONDAY)  # without its refill
    assert lacked(run) == [(1, 3)]
    assert holes(run) == (Hole(range=span(0, 11), missing=7, cause="unexplained", evidence=found(5, 0, 2, span(1, 3))),)
    (note,) = search(run).notes
    assert "a committed record at 2 offsets that the archive has none of" in note
    finish(run, {MONDAY: 4})
    seal_run(run)
    assert finalized(log, "idle", MONDAY).require(PLAN).refill == ()  # nothing to rebuild: no question
    # As of a day that was sealed without them: the next run that rebuilds one has them fetched, and reopens the day.
    repeated = log.run("run-2")
    log.produce(1, at(TUESDAY, 9))
    log.archive(11, 12)
    plan_run(repeated, [TUESDAY], False)
    assert lacked(repeated) == [(1, 3)]
    log.produced[0] |= {1: NINE, 2: NINE}
    log.archive(1, 3, writer="refill-run-2")
    assert [(item.day, item.version) for item in finalize_plan_run(repeated).days] == [(MONDAY, 2), (TUESDAY, 1)]
    assert holes(repeated) == (
        Hole(range=span(0, 1), missing=1, cause="transactional", exact=False, evidence=found()),
        Hole(range=span(3, 11), missing=7, cause="transactional", exact=False, evidence=found(5)),
    )
    assert search(repeated).notes == ()


@pytest.mark.conformance(10)
def test_what_an_earlier_topic_of_the_stream_still_gives_is_refilled_too(log: Log, make_topic: MakeTopic) -> None:
    log.produce(4, NINE)
    del log.produced[0][1]
    log.archive(0, 4)
    log.stream = log.stream.model_copy(update={"topic": make_topic(1)})
    run = finalized(log, "run-1", MONDAY)
    assert lacked(run) == [(1, 2)]
    assert [hole for item in final_plan(run).logs for hole in item.holes] == [
        Hole(range=span(0, 4), missing=1, cause="unexplained", evidence=found(0, 0, 1, span(1, 2)))
    ]


@pytest.mark.parametrize("named", [2, 3])
@pytest.mark.conformance(44)
def test_more_than_can_be_named_is_left_to_the_next_run_with_a_note(
    log: Log, monkeypatch: pytest.MonkeyPatch, named: int
) -> None:
    log.produce(12, NINE)
    for offset in (1, 3, 7, 9):
        del log.produced[0][offset]
    log.archive(0, 6)
    log.archive(6, 12)
    monkeypatch.setattr(holes_of_plan, "RANGES_MAX", named)
    monkeypatch.setattr(hole_evidence, "RANGES_MAX", named)
    run = log.run()
    plan_run(run, [MONDAY], False)
    missing = [(1, 2), (3, 4), (7, 8), (9, 10)]
    assert lacked(run) == missing[:named]
    for start, end in missing[:named]:
        log.produced[0][start] = NINE
        log.archive(start, end, writer="refill-run-1")
    finalize_plan_run(run)
    assert sum(hole.counts["unexplained"] for hole in holes(run)) == 4 - named
    (note,) = search(run).notes
    assert note == f"{log.owner()}: Kafka has a committed record at {4 - named} offsets that the archive has none of"
    after = log.run("run-2")
    plan_run(after, [MONDAY], False)
    assert lacked(after) == missing[named:]


@pytest.mark.conformance(11)
def test_what_retention_took_is_unexplained_unless_an_earlier_seal_proved_it(log: Log) -> None:
    transact(log, (3, True), (2, False))
    log.archive(0, 7)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 3})
    seal_run(run)
    log.produce(3, NINE)
    transact(log, (2, False), (3, True))  # 10-11 aborted, 12 marker, 13-15 kept, 16 marker
    log.archive(7, 17)
    drop_below(log, 15)
    repeated = finalized(log, "run-2", MONDAY)
    assert holes(repeated) == (
        Hole(range=span(0, 7), missing=4, cause="transactional", evidence=found(4)),
        Hole(range=span(7, 17), missing=4, cause="unexplained", evidence=found(1, 0, 3, span(10, 13))),
    )
    # Nothing of it is asked again once it is in a seal, and the log's start has passed all that is left.
    finish(repeated, {MONDAY: 9})
    seal_run(repeated)
    third = finalized(log, "run-3", MONDAY, force=True)
    assert holes(third) == holes(repeated)
    assert search(third).offsets_read == 0


def test_what_was_proven_once_stays_so_where_the_seal_could_not_name_all_the_rest(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact(log, (3, True), (2, False), (3, True))
    del log.produced[0][0], log.produced[0][2]
    log.archive(0, 11)
    monkeypatch.setattr(holes_of_plan, "RANGES_MAX", 1)
    monkeypatch.setattr(hole_evidence, "RANGES_MAX", 1)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 4})
    seal_run(run)
    drop_below(log, 10)
    assert [item.evidence for item in holes(finalized(log, "run-2", MONDAY, force=True))] == [
        found(5, 0, 2, span(0, 1))
    ]


@pytest.mark.conformance(44)
def test_a_log_without_transactions_explains_no_silence(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    transact(log, (2, True), (1, True))
    log.archive(0, 5)
    # As in a topic that was compacted once and is not any more: offsets are missing, and no marker is there.
    monkeypatch.setattr(LogReader, "first_at", lambda *_: 0)
    run = finalized(log, "run-1", MONDAY)
    assert holes(run) == (
        Hole(range=span(0, 5), missing=2, cause="unexplained", evidence=found(0, 0, 2, span(2, 3), span(4, 5))),
    )
    # Kafka holds these offsets, but was asked a moment ago: the next run asks again.
    assert search(run, PLAN).offsets_read > 0
    assert search(run).offsets_read == 0


def test_a_search_that_is_too_slow_or_refused_leaves_holes_for_the_next_run(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact(log, (2, True))
    log.archive(0, 3)
    run = finalized(log, "run-1", MONDAY)
    seen = run.require(PLAN).plan
    hole = replace(seen.logs[0].holes[0], cause="unexplained", evidence=None)
    bare = replace(seen, logs=(replace(seen.logs[0], holes=(hole,)), *seen.logs[1:]))  # before any search
    plan, causes, _ = classify_holes(run, bare, KnownEvidence.of(()), limit_s=0)
    assert (plan, causes.unexplained) == (bare, 1)
    assert "stopped after 0 s; the next run continues it" in causes.notes[0]

    def refuse(*_: Any) -> Any:
        raise ServiceError("Kafka could not be read", found="_TRANSPORT")

    monkeypatch.setattr(LogReader, "read", refuse)
    plan, causes, _ = classify_holes(run, bare, KnownEvidence.of(()))
    assert (plan, causes.unexplained) == (bare, 1)
    assert causes.notes == (f"{log.owner()}: Kafka could not be read: found _TRANSPORT",)


def test_many_tiny_holes_far_apart_take_one_pass_with_few_seeks(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    transact(log, *itertools.repeat((3, True), 60))
    log.archive(0, 120)
    log.archive(120, 240)
    seeks = []
    seek = LogReader._seek

    def counted(reader: LogReader, offset: int) -> None:
        seeks.append(offset)
        seek(reader, offset)

    monkeypatch.setattr(LogReader, "_seek", counted)
    run = finalized(log, "run-1", MONDAY)
    assert [item.evidence for item in holes(run)] == [found(30), found(30)]
    assert len(seeks) <= 2  # the pass, and one look at the marker found by time
    assert search(run, PLAN).offsets_read < 600


@pytest.mark.usefixtures("_eager_cleaner")
@pytest.mark.conformance(11)
def test_what_a_compacted_log_no_longer_holds_is_compacted(
    settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(
        1, cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.001", delete_retention_ms="0"
    )
    log = Log(stream=make_stream(topic=topic, time_zone="America/New_York"), settings=settings, produce_records=produce)
    # By record time a segment lasts a second; the newest one is never compacted.
    for part in range(3):
        produce(topic, [(b"k%d" % (n % 2), b"v", NINE + part * 10_000, 0, []) for n in range(10)])
    wait_until(lambda: [o for o in consumed(settings, topic) if o < 10] in ([8, 9], []), "the broker compacts", 240)
    log.produced[0] = dict.fromkeys(consumed(settings, topic), NINE)
    missing = 30 - len(log.produced[0])
    log.archive(0, 30)
    (hole,) = holes(finalized(log, "run-1", MONDAY))
    assert (hole.cause, hole.missing, hole.evidence) == ("compacted", missing, found(0, missing))
