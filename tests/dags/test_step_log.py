"""What a step's log says at its begin and at its end, from what the steps have saved."""

from datetime import date
from typing import Any

import pytest

from tests.conftest import MakeStream
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.outcome import Outcome
from tidemark.maintenance.run import MAINTAIN
from tidemark.orchestration.step_log import begin_text, end_lines
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.results import (
    AUDIT,
    REBUILD,
    REFILL,
    REPORT,
    AuditResult,
    DayCounts,
    DeduplicatedBy,
    HeldDay,
    RebuildResult,
    RefilledRange,
    RefillResult,
)
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.speed.replay.replay import REPLAY, Replayed

pytestmark = pytest.mark.services
DAY = date(2013, 1, 14)
LOG = TopicPartition(topic="t", topic_id="AAAAAAAAAAAAAAAAAAAAAA", partition=0)


@pytest.fixture
def run(settings: Settings, make_stream: MakeStream) -> Run:
    return Run.open(make_stream().name, "logged", settings)


def save(run: Run, step: Any, result: Any, error: str | None = None) -> None:
    status: Any = "failed" if error else "ok"
    run.save(step, Outcome(started_at="", seconds=61.25, status=status, error=error, result=result))


def check(expectation: str, *, success: bool | None, severity: Any = "critical", **more: Any) -> CheckOutcome:
    expected = Expected(expectation=expectation, kwargs={"column": "n"}, severity=severity, built_in=False)
    return CheckOutcome(expected=expected, success=success, **{"observed": 3, "day": DAY, **more})


def test_a_failed_audit_names_every_check_the_failed_ones_first(run: Run) -> None:
    checks = (
        check("expect_a", success=True),
        check("expect_b", success=False, observed={"unexpected_count": 7, "element_count": 1200}),
        check("expect_c", success=False, severity="warning", day=None),
    )
    held = (HeldDay(day=DAY, because="2013-01-14: expect_b"),)
    save(run, AUDIT, AuditResult(staged=1, passed=False, held=held, checks=checks), error="critical checks failed")
    assert list(end_lines("audit", run)) == [
        "FAILED  2013-01-14  expect_b(column='n'): 7 of 1,200 unexpected",
        "warning all days  expect_c(column='n'): 3",
        "passed  2013-01-14  expect_a(column='n'): 3",
        "2013-01-14: held back, keeps its version: 2013-01-14: expect_b",
        "3 checks, 2 not passed: the days must not be published",
        f"Step audit took 61.2 s. Its result: s3://{run.store.bucket}/{run.key('audit')}",
    ]


def test_a_rebuild_ends_with_the_rows_of_each_day(run: Run) -> None:
    counts = DayCounts(day=DAY, read=1000, published=950, quarantined=20, duplicates_removed=30, duplicates_trimmed=5)
    by = DeduplicatedBy(key=("n",), keep="last")
    save(run, REBUILD, RebuildResult(plan="p", inputs="i", deduplicated_by=by, days=(counts,)))
    first, *_ = end_lines("rebuild", run)
    assert first == "2013-01-14: 1,000 rows read = 950 to publish + 20 quarantined + 30 duplicates removed"


def test_a_refill_ends_with_what_it_fetched_and_what_was_lost(run: Run) -> None:
    fetched = RefilledRange(log=LOG, range=OffsetRange(start=10, end=30), batch=0)
    save(run, REFILL, RefillResult(ranges=(fetched,), rows=18, files=2, lost=()))
    first, *_ = end_lines("refill", run)
    assert first == "Fetched 20 offsets: 18 rows in 2 objects"


def test_a_step_whose_earlier_steps_saved_nothing_still_says_what_it_does(run: Run) -> None:
    assert begin_text("rebuild", run) == f"Step rebuild of {run.stream.name}, run logged"
    assert begin_text("rollback", run) == f"Step rollback of {run.stream.name}, run logged"
    assert list(end_lines("seal", run)) == list(end_lines("replay", run)) == []


def test_a_replay_ends_with_where_each_dead_letter_is(run: Run) -> None:
    assert begin_text("replay", run).startswith(f"Process the dead letters of {run.stream.name} again")
    found = Replayed(read=1010, published=1000, dead_again=4, duplicates=5, not_ours=1, lost=7)
    save(run, REPLAY, found.to_value())
    assert list(end_lines("replay", run))[:-1] == [
        "1,010 dead letters read = 1,000 to the live topic + 4 dead again + 5 further copies + 1 not of this stream",
        "Retention deleted 7 offsets before any replay",
    ]


def test_a_maintenance_ends_with_what_each_part_did_also_if_a_later_part_failed(run: Run) -> None:
    table = {"snapshots_expired": 3, "snapshots_kept": 2, "files_deleted": 8, "orphans_deleted": ["a"]}
    parts: dict[str, Any] = {
        "tables": {"db.flights": table},
        "uploads_aborted": ["u"],
        "objects_unlisted": [],
        "ledger": {"manifests": 1200, "new": 5, "segments": 2},
        "compacted": {"files": 40, "files_written": 2, "unfit": {"data/x": "it is missing"}},
        "replaced": {"deleted": 6, "waiting": 40},
    }
    save(run, MAINTAIN, parts)
    assert list(end_lines("maintain", run))[:-1] == [
        "1 unfinished uploads aborted, 0 objects in no manifest",
        "db.flights: 3 snapshots expired, 2 kept, 9 files deleted",
        "Ledger: 1,200 manifests, 5 of them new",
        "40 small objects rewritten as 2; 6 replaced objects deleted, 40 wait for their week to end",
        "Not compacted: data/x: it is missing",
    ]
    save(run, MAINTAIN, {"tables": {}}, error="S3 does not answer")
    (line,) = end_lines("maintain", run)
    assert line.startswith("Step maintain took")


def test_the_last_step_ends_with_the_reports_verdict(run: Run) -> None:
    assert list(end_lines("complete", run)) == ["Run logged: it has no report"]
    save(run, REPORT, {"verdict": {"title": "2013-01-14 is complete", "sentences": []}})
    assert list(end_lines("complete", run)) == ["Run logged: 2013-01-14 is complete"]
