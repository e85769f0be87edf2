"""The stream's lease: one run at a time holds it, a dead one's is taken over, and a run that lost it writes nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from functools import partial
from threading import Event
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY, TUESDAY, Log, at
from tests.batch.test_killed import readers
from tests.batch.test_seal import finalized, finish, two_days
from tests.batch.test_table_maintenance import reconcile, verdict
from tests.conftest import MakeStream, Produce
from tests.waiting import wait_until
from tidemark.core.errors import ConflictError, FormatError, RequestError
from tidemark.reconcile import lease
from tidemark.reconcile.lease import EXPIRES_AFTER, Holder, check_lease, holding, release, renewing, take
from tidemark.reconcile.rollback import rollback_day
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.seals import latest_seals

WEDNESDAY = date(2013, 1, 16)
NO_SPARK = cast("SparkSession", None)


def taken(run: Run) -> None:
    assert take(run) is None


def never_renewed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run takes the lease and dies; nobody has renewed it since, for longer than it is valid."""
    ago = int((EXPIRES_AFTER + timedelta(seconds=1)).total_seconds() * 1_000_000)
    now = lease._now
    with monkeypatch.context() as patch:
        patch.setattr(lease, "_now", lambda: now() - ago)
        taken(run)


def test_of_many_that_take_the_lease_at_once_one_has_it_and_the_others_know_which(log: Log) -> None:
    runs = {f"run-{number}": log.run(f"run-{number}") for number in range(6)}
    with ThreadPoolExecutor(len(runs)) as pool:
        found = dict(zip(runs, pool.map(take, runs.values()), strict=True))
    (name,) = (name for name, run in runs.items() if take(run) is None)
    assert found[name] is None
    for other in runs.keys() - {name}:
        with pytest.raises(ConflictError, match=rf"expected .* by run {other}, found run {name}, process \d+ on "):
            check_lease(runs[other])
    check_lease(runs[name])


def test_a_run_renews_its_lease_and_gives_it_back_only_if_it_has_it(log: Log) -> None:
    run, other = log.run("run"), log.run("other")
    release(run)  # nobody has it
    taken(run)
    taken(run)
    release(other)
    holder = take(other)
    assert holder is not None
    assert holder.run == "run"
    assert holder.taken_at_us < holder.renewed_at_us
    for _ in range(2):  # as a repeated task does
        release(run)
    taken(other)
    release(run)
    check_lease(other)


@pytest.mark.parametrize(("ended", "is_taken_over"), [(True, True), (False, False), (None, False)])
def test_the_lease_of_a_run_that_airflow_says_has_ended_is_taken_over_at_once(
    log: Log, monkeypatch: pytest.MonkeyPatch, ended: bool | None, is_taken_over: bool
) -> None:
    with monkeypatch.context() as airflow:
        airflow.setenv("AIRFLOW_CTX_DAG_ID", "reconcile_flights")
        airflow.setenv("AIRFLOW_CTX_DAG_RUN_ID", "manual__1")
        taken(log.run("first"))
    asked: list[tuple[str | None, str | None]] = []

    def has_ended(holder: Holder) -> bool | None:
        asked.append((holder.dag, holder.dag_run))
        return ended

    holder = take(log.run("second"), has_ended)
    assert asked == [("reconcile_flights", "manual__1")]
    assert (holder is None) is is_taken_over
    assert holder is None or str(holder).startswith("run manual__1 of DAG reconcile_flights, since 20")


def test_an_expired_lease_is_free_unless_airflow_says_that_its_run_is_under_way(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_renewed(log.run("dead"), monkeypatch)
    assert take(log.run("second"), lambda _: False) is not None
    with pytest.raises(ConflictError, match="found run dead"), holding(log.run("repeated step")):
        pass
    taken(log.run("second"))


def test_a_step_renews_the_lease_while_it_works_and_then_keeps_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    run, other = log.run("run"), log.run("other")
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.02)

    def renewed() -> int:
        holder = take(other)
        assert holder is not None
        return holder.renewed_at_us

    with holding(run):
        first = renewed()
        wait_until(lambda: renewed() > first, "it is renewed")
    check_lease(run)
    assert take(other) is not None


def test_an_application_renews_only_the_lease_that_its_run_has(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    run, other = log.run("run"), log.run("other")
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.02)
    taken(run)
    with renewing(run):
        first = holder_seen_by(other).renewed_at_us
        wait_until(lambda: holder_seen_by(other).renewed_at_us > first, "it is renewed")
        release(run)  # as the report of a failed run does, while its application still works
        taken(other)
        body, update, rounds = run.store.get(run.layout.lease_key), ObjectStore.update, list[str]()

        def counted(*arguments: Any) -> bytes | None:
            rounds.append("once more")
            return update(*arguments)

        monkeypatch.setattr(ObjectStore, "update", counted)
        wait_until(lambda: len(rounds) >= 3, "it has tried again")
        assert run.store.get(run.layout.lease_key) == body


def holder_seen_by(run: Run) -> Holder:
    holder = take(run)
    assert holder is not None
    return holder


def test_a_run_that_lost_its_lease_seals_nothing_until_that_is_free_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_days(log)
    zombie, other = finalized(log, "zombie", MONDAY), log.run("other")
    finish(zombie, {MONDAY: 10})
    never_renewed(zombie, monkeypatch)
    taken(other)
    for step in (lambda: seal_run(zombie), lambda: holding(zombie).__enter__()):
        with pytest.raises(ConflictError, match=r"found run other, .* clear this run from its first task on"):
            step()
    assert latest_seals(log.store, log.layout) == ()
    release(other)
    with holding(zombie):
        (seal,) = seal_run(zombie)
    assert (seal.run, seal.day) == ("zombie", MONDAY)


def test_a_rollback_beside_a_run_is_refused_and_leaves_no_lease(log: Log) -> None:
    run = log.run("run")
    taken(run)
    with pytest.raises(ConflictError, match="found run run, process"):
        rollback_day(log.run("back"), NO_SPARK, day=MONDAY, version=1)
    release(run)
    with pytest.raises(RequestError, match="no such version"):
        rollback_day(log.run("back"), NO_SPARK, day=MONDAY, version=1)
    taken(run)


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"holder":{"run":"x"}}'])
def test_a_lease_that_does_not_parse_is_named_and_not_taken(log: Log, body: bytes) -> None:
    log.store.put(log.layout.lease_key, body)
    with pytest.raises(FormatError, match=r"leases/.*/reconcile\.json"):
        take(log.run())
    assert log.store.get(log.layout.lease_key) == body


@pytest.fixture
def raw(settings: Settings, make_stream: MakeStream, produce: Produce) -> Log:
    stream = make_stream(time_zone="America/New_York", value_format="raw", value_schema=None, batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    log.produce(4, at(MONDAY, 9))
    log.produce(3, at(TUESDAY, 9))
    log.produce(2, at(WEDNESDAY, 9))
    return log


def test_the_second_of_two_runs_waits_and_readers_see_whole_days(spark: SparkSession, raw: Log) -> None:
    reconcile(raw, spark, "before", MONDAY)
    waited, both = Event(), [("first", TUESDAY), ("second", WEDNESDAY)]

    def work(name: str, run: Run, step: Callable[[], None]) -> str:
        while take(run) is not None:  # as the first task of a run does
            waited.set()
        with holding(run, then_release=True):
            if name == "first":
                assert waited.wait(60)
            step()
        return name

    taken(raw.run("first"))
    with readers(raw) as seen, ThreadPoolExecutor(2) as pool:
        done = [pool.submit(work, name, raw.run(name), partial(reconcile, raw, spark, name, day)) for name, day in both]
        assert [item.result() for item in done] == ["first", "second"]
    whole = {MONDAY: [0, 1, 2, 3], TUESDAY: [4, 5, 6], WEDNESDAY: [7, 8]}
    assert seen == [dict(list(whole.items())[:days]) for days in (1, 2, 3)]
    sealed = [(seal.day, seal.version, seal.run) for seal in latest_seals(raw.store, raw.layout)]
    assert sealed == [(MONDAY, 1, "before"), (TUESDAY, 1, "first"), (WEDNESDAY, 1, "second")]
    assert {verdict(raw, day) for day in whole} == {"proven []"}
