"""Steps of a reconcile run in short, for the tests that are about another one."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TypeVar

from pyspark.sql import SparkSession

from tidemark.core.outcome import RunStep
from tidemark.core.plan import MainSnapshots, Plan
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.results import (
    AUDIT,
    FINALIZE_PLAN,
    PLAN,
    REBUILD,
    REFILL,
    ArchiveState,
    AuditResult,
    FinalizeResult,
    PlanResult,
    RefilledRange,
    RefillResult,
    RetentionNote,
)
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run

T = TypeVar("T")


def pass_audit(run: Run, spark: SparkSession) -> None:
    """The result of a passed audit, without its dozen Spark jobs. ``spark`` makes it a step as any other."""
    rebuilt = run.require(REBUILD)
    staged = rebuilt.staged.snapshot if rebuilt.staged else None
    with run.step(AUDIT) as attempt:
        attempt.result = AuditResult(staged=staged, passed=True, held=rebuilt.held)


def finalize(
    run: Run, plan: Plan, main: MainSnapshots, *, force: bool = False, refilled: tuple[RefilledRange, ...] = ()
) -> None:
    """The results of the steps up to ``finalize_plan``."""
    archive = ArchiveState(manifests=0, broken_links=())
    requested = tuple(item.day for item in plan.days if item.reason == "requested")
    with run.step(PLAN) as planned:
        planned.result = PlanResult(
            requested=requested, force=force, main=main, plan=plan, archive=archive, holes=None, refill=()
        )
    with run.step(REFILL) as refill:
        refill.result = RefillResult(ranges=refilled, rows=0, files=0, lost=())
    with run.step(FINALIZE_PLAN) as finalized:
        finalized.result = FinalizeResult(
            planned_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            force=force,
            plan=plan,
            archive=archive,
            holes=None,
            retention=RetentionNote(summary="nothing waits", alarm=False, lines=()),
        )


def reconcile(run: Run, spark: SparkSession, days: Sequence[date]) -> None:
    """Every step of the run."""
    plan_run(run, days, False)
    refill_run(run, spark)
    finalize_plan_run(run)
    for step in (rebuild_run, audit_run, publish_run):
        step(run, spark)
    seal_run(run)
    report_run(run)


def ended(run: Run, step: RunStep[T]) -> tuple[str, T]:
    """How a step ended, and its result, which must be there."""
    found = run.outcome(step)
    assert found is not None
    assert found.result is not None
    return found.status, found.result
