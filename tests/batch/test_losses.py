"""What retention took of a day: its range and time in each report, and its seal only where the stream accepts it."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.batch.logs import MONDAY, TUESDAY, Log, at, drop_below, recreate
from tests.batch.steps import pass_audit
from tests.batch.test_seal import finalized, finish
from tests.conftest import Record
from tests.core.test_heartbeat import EXAMPLE
from tidemark.cli.app import app
from tidemark.core.day_summary import summarise
from tidemark.core.errors import IncompleteError
from tidemark.core.log_extents import SeenLogs, extents_json, parse_extents
from tidemark.core.loss_text import time_text
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Gap, LogRange, Neighbours, Truncation
from tidemark.core.targets import DayEnd
from tidemark.kafka.topics import ensure_topic
from tidemark.reconcile.plan import targets
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.results import REPORT, final_plan
from tidemark.reconcile.seal import seal_run
from tidemark.verify.archive import Derived
from tidemark.verify.day import verify_day
from tidemark.verify.losses import compare_losses
from tidemark.verify.result import ProofPart

pytestmark = pytest.mark.conformance(12)

NINE, TEN, ELEVEN = (at(MONDAY, hour) * 1000 for hour in (9, 10, 11))


def hours(log: Log, partition: int = 0) -> None:
    """Ten records each of nine, ten and eleven o'clock."""
    for hour in (9, 10, 11):
        log.produce(10, at(MONDAY, hour), partition=partition)


def lost(start: int, end: int, before_us: int | None, after_us: int | None) -> Gap:
    neighbours = Neighbours(before_us=before_us, after_us=after_us)
    return Gap(range=OffsetRange(start=start, end=end), kind="lost", neighbours=neighbours)


def heartbeat(log: Log, *, end: int) -> None:
    """The archive stream's, which has seen this end of the first partition."""
    seen = (LogRange(log=log.owner(), range=OffsetRange(start=0, end=end)),)
    beat = replace(EXAMPLE, stream=log.stream.name, time=datetime.now(UTC), positions=(), extents=seen)
    log.store.put(log.layout.heartbeat_key("archive"), beat.to_json())


def refill(start: int, end: int) -> Gap:
    return Gap(range=OffsetRange(start=start, end=end), kind="refill")


def test_a_loss_is_bounded_by_the_records_next_to_it_in_the_archive_or_in_kafka(log: Log) -> None:
    hours(log)
    log.archive(0, 10)
    hours(log, partition=1)
    log.archive(0, 10, partition=1, writer="query-b")
    log.archive(25, 28, partition=1, writer="query-b")
    drop_below(log, 20)
    drop_below(log, 29, partition=1)
    first, second = plan_run(log.run(), [MONDAY], False).logs
    assert first.gaps == (lost(10, 20, NINE, ELEVEN), refill(20, 30))  # Kafka's record
    assert second.gaps == (lost(10, 25, NINE, ELEVEN), lost(28, 29, ELEVEN, ELEVEN), refill(29, 30))
    drop_below(log, 30)
    assert plan_run(log.run(), [MONDAY], False).logs[0].gaps == (lost(10, 30, NINE, None),)


def test_an_open_end_is_said_to_be_one() -> None:
    assert time_text(Neighbours(before_us=NINE, after_us=TEN), UTC) == (
        "between records of 2013-01-14T14:00:00.000+00:00 and 2013-01-14T15:00:00.000+00:00"
    )
    assert time_text(Neighbours(before_us=NINE), UTC) == (
        "after a record of 2013-01-14T14:00:00.000+00:00; no record is known after them"
    )
    assert time_text(Neighbours(after_us=TEN), UTC) == (
        "before a record of 2013-01-14T15:00:00.000+00:00; no record is known before them"
    )
    assert time_text(None, UTC) == "of unknown time: no record is known on either side"
    # A producer that counted in microseconds: Kafka keeps any number.
    assert time_text(Neighbours(before_us=NINE * 1000, after_us=TEN), ZoneInfo("America/New_York")) == (
        f"between records of no year from 1 to 9999 ({NINE * 1000} µs since 1970) and 2013-01-14T10:00:00.000-05:00"
    )


def test_a_loss_stops_the_run_until_it_is_accepted_and_once_sealed_it_is_known(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    hours(log)
    log.archive(0, 10)
    log.archive(20, 30)
    drop_below(log, 20)
    sentence = (
        f"{log.stream.topic}-0 [10, 20) lost to retention: 10 offsets,"
        " between records of 2013-01-14T09:00:00.000-05:00 and 2013-01-14T11:00:00.000-05:00"
    )
    plan_run(log.run(), [MONDAY], False)
    with pytest.raises(IncompleteError) as caught:
        finalize_plan_run(log.run())
    assert f"expected no gap, found {sentence} [run run-1" in str(caught.value)
    assert "run them again and accept the loss" in str(caught.value)
    assert sentence in caplog.messages
    accepted = log.run(accept_loss=True)
    finalize_plan_run(accepted)
    finish(accepted, {MONDAY: 20})
    (seal,) = seal_run(accepted)
    assert seal.logs[0].gaps == (lost(10, 20, NINE, ELEVEN),)
    assert final_plan(finalized(log, "run-2", MONDAY, force=True)).logs[0].gaps == seal.logs[0].gaps
    log.produce(5, at(MONDAY, 12))
    log.produce(5, at(MONDAY, 13))
    log.archive(35, 40)
    drop_below(log, 35)
    with pytest.raises(IncompleteError) as caught:
        finalized(log, "run-3", MONDAY)
    assert "[30, 35) lost to retention: 5 offsets" in str(caught.value)
    assert "[10, 20)" not in str(caught.value)


@pytest.mark.conformance(30)
def test_the_tail_of_a_recreated_topic_is_a_loss_in_plan_seal_report_and_proof(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 4)
    first, second = (log.owner(partition) for partition in (0, 1))
    plan_run(log.run(), [MONDAY], False)  # sees that the first partition ends at 10
    beat = replace(
        EXAMPLE,
        stream=log.stream.name,
        state="failed",
        time=datetime.now(UTC),
        positions=(),
        extents=(LogRange(log=second, range=OffsetRange(start=2, end=5)),),
    )
    log.store.put(log.layout.heartbeat_key("archive"), beat.to_json())
    recreate(log)
    log.produced.clear()
    log.produce(3, at(MONDAY, 20))
    log.archive(0, 3, writer="query-b")
    tails = {first: (replace(lost(4, 10, NINE, None), topic_deleted=True),)}
    tails[second] = (replace(lost(2, 5, None, None), topic_deleted=True),)
    plan = plan_run(log.run("second"), [MONDAY], False)
    assert {item.target.log: item.gaps for item in plan.logs if item.gaps} == tails
    sentence = (
        f"{log.stream.topic}-0 [4, 10) lost with its topic, which was deleted or recreated: at most 6 offsets,"
        " after a record of 2013-01-14T09:00:00.000-05:00; no record is known after them"
    )
    with pytest.raises(IncompleteError, match=re.escape(sentence)):
        finalize_plan_run(log.run("second"))
    accepted = log.run("second", accept_loss=True)
    finalize_plan_run(accepted)
    finish(accepted, {MONDAY: 7})
    (seal,) = seal_run(accepted)
    assert {item.log: item.gaps for item in seal.logs if item.gaps} == tails
    report_run(accepted)
    sentences = accepted.require(REPORT)["verdict"]["sentences"]
    assert sentences[0] == "Kafka deleted 9 offsets before they were archived."
    assert any(item.startswith(f"Lost with its deleted topic: {log.stream.topic}-0 [4, 10), at") for item in sentences)
    check = ProofPart(name="losses")
    compare_losses(log.settings, log.stream, seal, Derived(), check)
    assert (check.status, check.notes[0]) == ("holds", f"known loss: {sentence}")
    finalized(log, "third", TUESDAY)  # the loss is known


@pytest.mark.conformance(71)
def test_a_lost_end_of_a_log_is_named_until_it_is_accepted_and_then_stays_known(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """As after an unclean leader election: the archive stream had seen 15 offsets, and Kafka has 10 in the same log."""
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 4)
    owner = log.owner()
    heartbeat(log, end=15)
    plan_run(log.run(), [MONDAY], False)
    sentence = (
        f"{owner} [10, 15) lost from the end of the log: at most 5 offsets; {owner} [4, 10) may have had other records"
        " before"
    )
    assert sentence in caplog.messages
    log.store.delete(log.layout.heartbeat_key("archive"))
    log.produce(10, at(MONDAY, 10))  # new records take the lost offsets, and others follow
    log.archive(4, 20)
    caplog.clear()
    plan_run(log.run(), [MONDAY], False)
    assert sentence not in caplog.messages  # it is recorded already
    with pytest.raises(IncompleteError) as caught:
        finalize_plan_run(log.run())
    assert f"expected no gap, found {sentence} [run run-1" in str(caught.value)
    assert "A broker that was just restarted may need a moment: run the days again first" in str(caught.value)
    accepted = log.run(accept_loss=True)
    finalize_plan_run(accepted)
    finish(accepted, {MONDAY: 20})
    (seal,) = seal_run(accepted)
    lost_end = Truncation(log=owner, range=OffsetRange(start=10, end=15), archived=4, leader_epoch=0)
    assert (seal.truncated, seal.logs[0].gaps, summarise(seal).lost) == ((lost_end,), (), 5)
    report_run(accepted)
    verdict = accepted.require(REPORT)["verdict"]
    assert (verdict["status"], verdict["sentences"][0]) == ("complete with losses", f"{sentence}.")
    check = ProofPart(name="losses")
    compare_losses(log.settings, log.stream, seal, Derived(), check)
    assert (check.status, check.notes) == ("holds", [f"known loss: {sentence}"])
    finalized(log, "later", TUESDAY)  # the loss is known


@pytest.mark.conformance(71)
def test_an_end_that_the_stream_sees_while_the_run_asks_kafka_is_no_loss(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 4)
    ask = targets._topic_ends

    def ask_and_wait(*args: Any, **more: Any) -> dict[TopicPartition, DayEnd]:
        found = ask(*args, **more)
        log.produce(5, at(MONDAY, 9))
        heartbeat(log, end=15)
        return found

    monkeypatch.setattr(targets, "_topic_ends", ask_and_wait)
    assert plan_run(log.run(), [MONDAY], False).logs[0].target.truncated == ()


@pytest.mark.conformance(71)
def test_what_a_topic_lost_that_the_stream_no_longer_reads_is_named_too(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 4)
    owner = log.owner()
    seen = (LogRange(log=owner, range=OffsetRange(start=0, end=15)),)
    log.store.put(log.layout.log_extents_key, extents_json(SeenLogs(extents=seen)))
    other = f"{log.stream.topic}-2"
    ensure_topic(log.settings.kafka, other, partitions=1, config={"retention.ms": "-1"})
    run = replace(log.run(), stream=log.stream.model_copy(update={"topic": other}))
    plan = plan_run(run, [MONDAY], False)
    truncated = {item.target.log: [lost.range for lost in item.target.truncated] for item in plan.logs}
    assert truncated[owner] == [OffsetRange(start=10, end=15)]
    # Its new records are not the stream's, so its end is not recorded.
    recorded = parse_extents(log.store.get(log.layout.log_extents_key) or b"", where="here")
    assert {item.log: item.range.end for item in recorded.extents}[owner] == 15


@pytest.mark.conformance(71)
def test_an_end_that_was_too_low_for_a_moment_is_no_loss_once_the_records_are_back(log: Log) -> None:
    """A broker that was just restarted: the records at the end are of an earlier leader than the one without them."""
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 10)
    for leader_epoch, lost in ((0, True), (None, True), (1, False)):
        missing = Truncation(log=log.owner(), range=OffsetRange(start=7, end=9), archived=4, leader_epoch=leader_epoch)
        log.store.put(log.layout.log_extents_key, extents_json(SeenLogs(truncated=(missing,))))
        plan = plan_run(log.run(), [MONDAY], False)
        assert plan.logs[0].target.truncated == ((missing,) if lost else ())


def test_a_known_loss_of_a_stream_that_never_ran_is_sealed_reported_and_verified(log: Log, spark: SparkSession) -> None:
    def produce(hour: int) -> None:
        records: list[Record] = [(b"k", b'{"n": %d}' % number, at(MONDAY, hour), 0, []) for number in range(10)]
        log.produce_records(log.stream.topic, records)

    produce(9)
    early = log.run("early")
    plan_run(early, [MONDAY], False)
    refill_run(early, spark)
    produce(10)
    produce(11)
    drop_below(log, 20)
    run = log.run(accept_loss=True)
    plan_run(run, [MONDAY], False)
    refill_run(run, spark)
    finalize_plan_run(run)
    for step in (rebuild_run, pass_audit, publish_run):
        step(run, spark)
    seal_run(run)
    key = report_run(run)
    between = "between records of 2013-01-14T09:00:00.000-05:00 and 2013-01-14T11:00:00.000-05:00"
    report = run.require(REPORT)
    assert report["verdict"]["title"] == "2013-01-14 is sealed with a known loss"
    assert report["verdict"]["sentences"][:2] == [
        "Kafka deleted 10 offsets before they were archived.",
        f"Lost: {log.stream.topic}-0 [10, 20), 10 offsets, {between}.",
    ]
    assert report["logs"][0]["lost"] == [
        {"start": 10, "end": 20, "topic_deleted": False, "time": between, "before_us": NINE, "after_us": ELEVEN}
    ]
    assert report["retention"] == {
        "summary": "nothing waits",
        "alarm": False,
        "lines": [],
        "alarm_hours": log.stream.archive.retention_alarm_hours,
        "runways": [],
    }
    page = (run.store.get(key) or b"").decode()
    assert page.count(between) == 2  # at the top, and with its log
    found = verify_day(log.settings, log.stream.name, MONDAY)
    assert {item.name: item.status for item in found.checks if item.status != "holds"} == {}
    assert (found.verdict, found.lost) == ("proven", 10)
    losses = next(item for item in found.checks if item.name == "losses")
    assert losses.notes == [f"known loss: {log.stream.topic}-0 [10, 20) lost to retention: 10 offsets, {between}"]
    shown = CliRunner().invoke(app, ["verify", log.stream.name, "2013-01-14"])
    assert (shown.exit_code, "with a recorded loss: Kafka deleted 10 offsets" in shown.stdout) == (0, True)
    # A seal that calls more lost than retention took is found out.
    seal_key = log.layout.seal_key(MONDAY, 1)
    raw = json.loads(log.store.get(seal_key) or b"")
    raw["logs"][0]["used"][1]["range"] = [25, 30]
    raw["logs"][0]["gaps"][0]["range"] = [10, 25]
    log.store.put(seal_key, json.dumps(raw).encode())
    found = verify_day(log.settings, log.stream.name, MONDAY)
    (wrong,) = next(item for item in found.checks if item.name == "losses").differences
    assert found.verdict == "disproven"
    assert (wrong.what, wrong.found) == (
        "Kafka still holds offsets that the seal calls lost",
        "a log that starts at 20",
    )
    # One that calls offsets lost which were archived before its plan is found out, although retention took them too.
    raw["logs"][0]["used"][0]["range"] = [0, 8]
    raw["logs"][0]["used"][1]["range"] = [20, 30]
    raw["logs"][0]["gaps"][0]["range"] = [8, 20]
    log.store.put(seal_key, json.dumps(raw).encode())
    (wrong,) = next(
        item for item in verify_day(log.settings, log.stream.name, MONDAY).checks if item.name == "losses"
    ).differences
    manifest = log.layout.manifest_key(raw["logs"][0]["used"][0]["writer"], raw["logs"][0]["used"][0]["batch"])
    assert (wrong.what, wrong.expected, wrong.found, wrong.where) == (
        "offsets that the seal calls lost were archived before its plan",
        f"no manifest with offsets that {seal_key} calls lost",
        manifest,
        f"{log.owner()}, offsets [8, 10)",
    )
