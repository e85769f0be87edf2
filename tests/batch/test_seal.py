"""Step seal: one proof per day and version, written once."""

import hashlib
from dataclasses import replace
from datetime import date

import pytest

from tests.batch.logs import MONDAY, TUESDAY, Log, at
from tests.core.worlds import span
from tidemark.core.errors import ConflictError, IncompleteError, QualityError
from tidemark.core.plan import DayPlan, LastBatch
from tidemark.reconcile import seal
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.fingerprints import plan_fingerprint
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.results import (
    AUDIT,
    FINALIZE_PLAN,
    PUBLISH,
    REBUILD,
    REFILL,
    SEAL,
    AuditResult,
    DayCounts,
    DeduplicatedBy,
    PublishResult,
    RebuildResult,
    RefilledRange,
    RefillResult,
    SealedVersion,
    final_plan,
)
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.tables.day_publications import DayPublication
from tidemark.tables.main_history import LastPublication
from tidemark.tables.seals import day_seals, latest_seals, read_seal

PASSED = CheckOutcome(
    expected=Expected(expectation="expect_a", kwargs={}, severity="critical", built_in=False),
    success=True,
    observed=None,
)
WARNED = CheckOutcome(
    expected=Expected(expectation="expect_b", kwargs={}, severity="warning", built_in=False),
    success=False,
    observed=None,
)


def finalized(log: Log, name: str, *days: date, force: bool = False) -> Run:
    run = log.run(name)
    plan_run(run, days, force)
    finalize_plan_run(run)
    return run


def finish(
    run: Run, rows: dict[date, int], *, snapshot_id: int = 77, checks: tuple[CheckOutcome, ...] = (PASSED,)
) -> None:
    """The results of rebuild, audit and publish; one row of each day that has any is quarantined."""
    with run.step(REBUILD) as rebuild:
        rebuild.result = RebuildResult(
            plan=plan_fingerprint(final_plan(run)),
            inputs="by hand",
            deduplicated_by=DeduplicatedBy(key=(), keep="first"),
            days=tuple(
                DayCounts(
                    day=day, read=n, published=n - bad, quarantined=bad, duplicates_removed=0, duplicates_trimmed=2
                )
                for day, n in rows.items()
                for bad in [min(n, 1)]
            ),
        )
    with run.step(AUDIT) as audit:
        passed = all(item.success or item.expected.severity == "warning" for item in checks)
        audit.result = AuditResult(staged=None, passed=passed, held=(), checks=checks)
    with run.step(PUBLISH) as publish:
        days = tuple(item.day for item in final_plan(run).days)
        publish.result = PublishResult(days=days, snapshot_id=snapshot_id, quarantine_snapshot_id=88)


def two_days(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.produce(5, at(TUESDAY, 9))
    log.archive(0, 15)


def test_every_rebuilt_day_gets_a_seal_with_what_was_proven(log: Log) -> None:
    two_days(log)
    run = log.run("run-1")
    plan_run(run, [MONDAY, TUESDAY], False)
    log.produce(2, at(MONDAY, 9))
    log.archive(15, 17)  # after the plan: the seals do not name it
    finalize_plan_run(run)
    with run.step(REFILL) as refill:
        ranges = (RefilledRange(log=log.owner(), range=part, batch=0) for part in (span(3, 7), span(9, 10)))
        refill.result = RefillResult(ranges=tuple(ranges), rows=5, files=2, lost=())
    finish(run, {MONDAY: 10, TUESDAY: 5}, checks=(PASSED, WARNED))
    monday, tuesday = seal_run(run)
    assert (monday.day, tuesday.day) == (MONDAY, TUESDAY)
    assert (monday.rows_read, monday.rows_published, monday.rows_quarantined) == (10, 9, 1)
    assert (monday.refilled_offsets, monday.duplicates_trimmed, monday.quality) == (5, 2, "warnings")
    assert (monday.snapshot_id, monday.quarantine_snapshot_id, monday.run, monday.previous) == (77, 88, "run-1", None)
    assert monday.last_batches == tuesday.last_batches == (LastBatch(writer="query-a", batch=0),)
    plan = final_plan(run)
    assert [(item.log, item.start, item.end, item.used) for item in monday.logs] == [
        (item.target.log, item.target.start, item.target.end, item.used) for item in plan.logs
    ]
    assert latest_seals(log.store, log.layout) == (monday, tuesday)
    key = log.layout.seal_key(MONDAY, 1)
    assert run.require(SEAL).seals[0] == SealedVersion(
        day=MONDAY, version=1, key=key, sha256=hashlib.sha256(log.store.get(key) or b"").hexdigest()
    )


@pytest.mark.conformance(69)
@pytest.mark.parametrize("table", ["published", "quarantine"])
def test_no_run_seals_rows_beside_those_of_another_run_in_either_table(
    log: Log, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    both = {
        "published": LastPublication("run-1", 77, "by hand"),
        "quarantine": LastPublication("run-1", 88, "by hand"),
        table: LastPublication("run-2", 99, "others"),
    }
    monkeypatch.setattr(seal, "shown_days", lambda *_: {MONDAY: DayPublication(table_whole=True, **both)})
    with pytest.raises(
        ConflictError, match=r"another run has published the day since: .* found snapshot 99 of run run-2"
    ):
        seal_run(run)
    assert latest_seals(log.store, log.layout) == ()


@pytest.mark.conformance(17)
def test_sealing_again_by_the_same_run_changes_nothing(log: Log) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    first = seal_run(run)
    body = log.store.get(log.layout.seal_key(MONDAY, 1))
    assert seal_run(run) == first
    assert log.store.get(log.layout.seal_key(MONDAY, 1)) == body
    assert len(day_seals(log.store, log.layout, MONDAY)) == 1


def test_sealing_again_with_a_plan_of_another_moment_keeps_the_first_seal(log: Log) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    (seal,) = seal_run(run)
    planned = run.require(FINALIZE_PLAN)
    with run.step(FINALIZE_PLAN) as attempt:
        attempt.result = replace(planned, planned_at="2013-01-15T00:00:00.000+00:00")
    assert seal_run(run) == (seal,)
    assert seal.planned_at_us != 1358208000000000


def test_a_day_that_another_run_sealed_meanwhile_is_a_conflict_that_names_both(log: Log) -> None:
    two_days(log)
    mine, other = finalized(log, "mine", MONDAY), finalized(log, "other", MONDAY)
    finish(other, {MONDAY: 10}, snapshot_id=5)
    finish(mine, {MONDAY: 10}, snapshot_id=6)
    seal_run(other)
    with pytest.raises(ConflictError) as caught:
        seal_run(mine)
    assert "expected run mine with 9 rows in snapshot 6, found run other with 9 rows in snapshot 5" in str(caught.value)
    assert log.layout.seal_key(MONDAY, 1) in str(caught.value)


@pytest.mark.conformance(19)
def test_late_rows_seal_a_second_version_that_chains_to_the_first(log: Log) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY, TUESDAY)
    finish(run, {MONDAY: 10, TUESDAY: 5})
    seal_run(run)
    assert final_plan(finalized(log, "idle", MONDAY)).unchanged == (MONDAY,)
    log.produce(3, at(MONDAY, 23))
    log.archive(15, 18)
    repeated = finalized(log, "run-2", TUESDAY)
    assert final_plan(repeated).days == (DayPlan(day=MONDAY, version=2, reason="late", archived_rows=13),)
    assert final_plan(repeated).unchanged == (TUESDAY,)
    finish(repeated, {MONDAY: 13}, snapshot_id=78)
    (second,) = seal_run(repeated)
    body = log.store.get(log.layout.seal_key(MONDAY, 1))
    assert body is not None
    assert (second.version, second.previous) == (2, hashlib.sha256(body).hexdigest())
    assert [(item.day, item.version) for item in latest_seals(log.store, log.layout)] == [(MONDAY, 2), (TUESDAY, 1)]
    assert [item.version for item in day_seals(log.store, log.layout, MONDAY)] == [1, 2]


def test_a_second_version_without_its_first_is_a_conflict(log: Log) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    seal_run(run)
    forced = finalized(log, "run-2", MONDAY, force=True)
    finish(forced, {MONDAY: 10})
    log.store.delete(log.layout.seal_key(MONDAY, 1))
    with pytest.raises(ConflictError, match=f"expected {log.layout.seal_key(MONDAY, 1)}, found no object"):
        seal_run(forced)


def test_a_run_with_nothing_to_do_seals_nothing_and_needs_no_rebuild(log: Log) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    seal_run(run)
    idle = finalized(log, "idle", MONDAY)
    assert seal_run(idle) == ()
    assert idle.require(SEAL).seals == ()


def test_a_day_is_not_sealed_before_it_is_published(log: Log) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    log.store.delete(run.key(PUBLISH.name))
    with pytest.raises(IncompleteError, match="step 'publish'"):
        seal_run(run)
    assert latest_seals(log.store, log.layout) == ()


def test_a_day_that_failed_its_checks_is_not_sealed(log: Log) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10}, checks=(replace(PASSED, success=False),))
    with pytest.raises(QualityError, match="found expect_a"):
        seal_run(run)
    assert latest_seals(log.store, log.layout) == ()


def test_a_stream_without_checks_is_sealed_as_unchecked(log: Log) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10}, checks=())
    assert [seal.quality for seal in seal_run(run)] == ["unchecked"]


def test_a_planned_day_that_was_not_rebuilt_is_named(log: Log) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY, TUESDAY)
    finish(run, {MONDAY: 10})
    with pytest.raises(IncompleteError, match="expected 2013-01-15, found 2013-01-14"):
        seal_run(run)


def test_a_seal_under_another_days_key_is_a_conflict(log: Log) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    seal_run(run)
    body = log.store.get(log.layout.seal_key(MONDAY, 1))
    assert body is not None
    log.store.put(log.layout.seal_key(TUESDAY, 1), body)
    with pytest.raises(ConflictError, match=r"expected .* 2013-01-15 version 1, found .* 2013-01-14 version 1"):
        latest_seals(log.store, log.layout)


def test_there_is_no_seal_of_a_day_nobody_sealed(log: Log) -> None:
    assert read_seal(log.store, log.layout, MONDAY, 1) is None
