"""Step seal: one proof per day and version, written once."""

import hashlib
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from tests.batch.logs import MONDAY, TUESDAY, Log, at
from tidemark.core.errors import ConflictError, IncompleteError, QualityError
from tidemark.core.plan import DayPlan
from tidemark.reconcile.fingerprints import plan_fingerprint
from tidemark.reconcile.plan.step import plan_run, settle_run
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.tables.seals import day_seals, latest_seals, read_seal

PASSED = {"expectation": "expect_a", "kwargs": {}, "severity": "critical", "success": True}
WARNED = {"expectation": "expect_b", "kwargs": {}, "severity": "warning", "success": False}

DUPLICATES = {"duplicates_removed": 0, "duplicates_trimmed": 2}


def settled(log: Log, name: str, *days: date, force: bool = False) -> Run:
    run = log.run(name)
    plan_run(run, days, force)
    settle_run(run)
    return run


def finish(
    run: Run, rows: dict[date, int], *, snapshot_id: int = 77, checks: tuple[dict[str, Any], ...] = (PASSED,)
) -> None:
    """What rebuild, audit and publish leave behind; one row of each day is quarantined."""
    with run.step("rebuild") as out:
        out["plan"] = plan_fingerprint(run.plan())
        out["days"] = {
            day.isoformat(): {"read": n, "published": n - 1, "quarantined": 1, **DUPLICATES} for day, n in rows.items()
        }
        out["differences"] = {}
    with run.step("audit") as out:
        out |= {"checks": list(checks), "passed": all(c["success"] or c["severity"] == "warning" for c in checks)}
    with run.step("publish") as out:
        out |= {"snapshot_id": snapshot_id, "quarantine_snapshot_id": 88, "already": False}
        out["days"] = [item.day.isoformat() for item in run.plan().days]


def two_days(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.produce(5, at(TUESDAY, 9))
    log.archive(0, 15)


def test_every_rebuilt_day_gets_a_seal_with_what_was_proven(log: Log) -> None:
    two_days(log)
    run = settled(log, "run-1", MONDAY, TUESDAY)
    with run.step("refill") as out:
        out["ranges"] = [{"start": 3, "end": 7}, {"start": 9, "end": 10}]
    finish(run, {MONDAY: 10, TUESDAY: 5}, checks=(PASSED, WARNED))
    monday, tuesday = seal_run(run)
    assert (monday.day, tuesday.day) == (MONDAY, TUESDAY)
    assert (monday.rows_read, monday.rows_published, monday.rows_quarantined) == (10, 9, 1)
    assert (monday.refilled_offsets, monday.duplicates_trimmed, monday.quality) == (5, 2, "warnings")
    assert (monday.snapshot_id, monday.quarantine_snapshot_id, monday.run, monday.previous) == (77, 88, "run-1", None)
    plan = run.plan()
    assert [(item.log, item.origin, item.end, item.used) for item in monday.logs] == [
        (item.target.log, item.target.origin, item.target.end, item.used) for item in plan.logs
    ]
    assert latest_seals(log.store, log.layout) == (monday, tuesday)
    assert run.require("seal")["seals"][0] == {
        "day": "2013-01-14",
        "version": 1,
        "key": log.layout.seal_key(MONDAY, 1),
    }


def test_sealing_again_by_the_same_run_changes_nothing(log: Log) -> None:
    two_days(log)
    run = settled(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    first = seal_run(run)
    body = log.store.get(log.layout.seal_key(MONDAY, 1))
    assert seal_run(run) == first
    assert log.store.get(log.layout.seal_key(MONDAY, 1)) == body
    assert len(day_seals(log.store, log.layout, MONDAY)) == 1


def test_sealing_again_takes_a_seal_that_says_nothing_of_its_plan_for_the_same_one(log: Log) -> None:
    """As one from before seals told it; and a plan that is made anew is of another moment."""
    two_days(log)
    run = settled(log, "run-1", MONDAY)
    run.save("settled", {**run.require("settled"), "planned_at": "2013-01-15T00:00:00.000+00:00"})
    finish(run, {MONDAY: 10})
    (seal,) = seal_run(run)
    assert seal.planned_at_us == 1358208000000000
    before = replace(seal, planned_at_us=None)
    log.store.put(log.layout.seal_key(MONDAY, 1), before.to_json())
    assert seal_run(run) == (before,)


def test_a_day_that_another_run_sealed_meanwhile_is_a_conflict_that_names_both(log: Log) -> None:
    two_days(log)
    mine, other = settled(log, "mine", MONDAY), settled(log, "other", MONDAY)
    finish(other, {MONDAY: 10}, snapshot_id=5)
    finish(mine, {MONDAY: 10}, snapshot_id=6)
    seal_run(other)
    with pytest.raises(ConflictError) as caught:
        seal_run(mine)
    assert "expected run mine with 9 rows in snapshot 6, found run other with 9 rows in snapshot 5" in str(caught.value)
    assert log.layout.seal_key(MONDAY, 1) in str(caught.value)


def test_late_rows_seal_a_second_version_that_chains_to_the_first(log: Log) -> None:
    two_days(log)
    run = settled(log, "run-1", MONDAY, TUESDAY)
    finish(run, {MONDAY: 10, TUESDAY: 5})
    seal_run(run)
    assert settled(log, "idle", MONDAY).plan().unchanged == (MONDAY,)
    log.produce(3, at(MONDAY, 23))
    log.archive(15, 18)
    again = settled(log, "run-2", TUESDAY)
    assert again.plan().days == (DayPlan(day=MONDAY, version=2, reason="late", archived_rows=13),)
    assert again.plan().unchanged == (TUESDAY,)
    finish(again, {MONDAY: 13}, snapshot_id=78)
    (second,) = seal_run(again)
    body = log.store.get(log.layout.seal_key(MONDAY, 1))
    assert body is not None
    assert (second.version, second.previous) == (2, hashlib.sha256(body).hexdigest())
    assert [(item.day, item.version) for item in latest_seals(log.store, log.layout)] == [(MONDAY, 2), (TUESDAY, 1)]
    assert [item.version for item in day_seals(log.store, log.layout, MONDAY)] == [1, 2]


def test_a_second_version_without_its_first_is_a_conflict(log: Log) -> None:
    two_days(log)
    run = settled(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    seal_run(run)
    forced = settled(log, "run-2", MONDAY, force=True)
    finish(forced, {MONDAY: 10})
    log.store.delete(log.layout.seal_key(MONDAY, 1))
    with pytest.raises(ConflictError, match=f"expected {log.layout.seal_key(MONDAY, 1)}, found no object"):
        seal_run(forced)


def test_a_run_with_nothing_to_do_seals_nothing_and_needs_no_rebuild(log: Log) -> None:
    two_days(log)
    run = settled(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    seal_run(run)
    idle = settled(log, "idle", MONDAY)
    assert seal_run(idle) == ()
    assert idle.require("seal")["seals"] == []


def test_a_day_is_not_sealed_before_it_is_published(log: Log) -> None:
    two_days(log)
    run = settled(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    log.store.delete(run.key("publish"))
    with pytest.raises(IncompleteError, match="step 'publish'"):
        seal_run(run)
    assert latest_seals(log.store, log.layout) == ()


def test_a_day_that_failed_its_checks_is_not_sealed(log: Log) -> None:
    two_days(log)
    run = settled(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10}, checks=({**PASSED, "success": False},))
    with pytest.raises(QualityError, match="found expect_a"):
        seal_run(run)
    assert latest_seals(log.store, log.layout) == ()


def test_a_stream_without_checks_is_sealed_as_unchecked(log: Log) -> None:
    two_days(log)
    run = settled(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10}, checks=())
    assert [seal.quality for seal in seal_run(run)] == ["unchecked"]


def test_a_planned_day_that_was_not_rebuilt_is_named(log: Log) -> None:
    two_days(log)
    run = settled(log, "run-1", MONDAY, TUESDAY)
    finish(run, {MONDAY: 10})
    with pytest.raises(IncompleteError, match="expected 2013-01-15, found 2013-01-14"):
        seal_run(run)


def test_a_seal_under_another_days_key_is_a_conflict(log: Log) -> None:
    two_days(log)
    run = settled(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    seal_run(run)
    body = log.store.get(log.layout.seal_key(MONDAY, 1))
    assert body is not None
    log.store.put(log.layout.seal_key(TUESDAY, 1), body)
    with pytest.raises(ConflictError, match=r"expected .* 2013-01-15 version 1, found .* 2013-01-14 version 1"):
        latest_seals(log.store, log.layout)


def test_there_is_no_seal_of_a_day_nobody_sealed(log: Log) -> None:
    assert read_seal(log.store, log.layout, MONDAY, 1) is None
