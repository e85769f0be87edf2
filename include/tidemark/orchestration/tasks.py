"""What the steps of a run do, for Airflow's tasks and for the command line.

Everything heavy is imported when a step runs, never when its DAG is parsed.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from tidemark.core.days import date_ranges
from tidemark.core.delivery import DELIVERY, FAILS_NO_RUN
from tidemark.core.errors import IncompleteError, QualityError
from tidemark.orchestration.compared_days import nothing_to_compare
from tidemark.orchestration.steps import LEASED
from tidemark.reconcile.results import (
    APPROVE,
    AUDIT,
    NOT_ENDED,
    PLAN,
    REBUILD,
    REFILL,
    REPORT,
    STEPS,
    WAIT,
    WAY_OUT,
    HeldDay,
    WaitResult,
    held_text,
)

if TYPE_CHECKING:
    from tidemark.core.seal import Seal
    from tidemark.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a run is asked for: the days, and whether to rebuild those that did not change.

    ``scheduled``: the schedule asks for them, not a person. ``by`` is the name of the person, who accepts losses with
    ``accept_loss`` and, in the words ``approve``, all that the stream wants to have approved. ``reassign_days``: sealed
    days that records move to or from are rebuilt too.
    """

    days: tuple[date, ...]
    force: bool
    scheduled: bool = False
    by: str = ""
    accept_loss: bool = False
    approve: str | None = None
    reassign_days: bool = False


def take_lease(run: "Run", has_ended: Callable[[str, str], bool | None]) -> str | None:
    """Take the stream's lease for the run. None where the run has it now, else a text that names the run that has it.

    ``has_ended`` says of a DAG and its run whether that has ended, or None where it does not know that run.
    """
    from tidemark.reconcile.lease import take

    holder = take(run, lambda found: has_ended(found.dag, found.dag_run) if found.dag and found.dag_run else None)
    return None if holder is None else str(holder)


def holding(step: str, run: "Run") -> AbstractContextManager[None]:
    """Hold the stream's lease while a step works that needs it; raises ConflictError where another run holds it."""
    from tidemark.reconcile import lease

    return lease.holding(run) if step in LEASED else nullcontext()


def poll_archive(run: "Run", request: Request, *, waited_seconds: float) -> bool:
    """One poll of step ``wait``: True, and saved, once the archive is ready or ``batch.wait_seconds`` are over."""
    from tidemark.reconcile.plan.targets import wait_ready

    ready = wait_ready(run.stream, run.settings, request.days)
    if not ready and waited_seconds < run.stream.batch.wait_seconds:
        return False
    with run.step(WAIT) as attempt:
        attempt.result = WaitResult(ready=ready, waited_seconds=round(waited_seconds, 3))
    return True


def plan(run: "Run", request: Request) -> None:
    """Step ``plan``."""
    from tidemark.reconcile.plan.step import plan_run

    accepted_by = request.by if request.accept_loss else None
    plan_run(
        run,
        request.days,
        request.force,
        scheduled=request.scheduled,
        loss_accepted_by=accepted_by,
        reassign_days=request.reassign_days,
    )


def finalize_plan(run: "Run") -> None:
    """Step ``finalize_plan``."""
    from tidemark.reconcile.plan.step import finalize_plan_run

    finalize_plan_run(run)


def approve_now(run: "Run", request: Request) -> bool:
    """Step ``approve`` of a run that can't wait for a person; whether there was something to approve.

    Raises ApprovalError where the request does not approve it.
    """
    from tidemark.reconcile.approval import decide, open_question, refuse

    question = open_question(run)
    if question is None:
        return run.outcome(APPROVE) is not None
    if request.approve is None:
        span = f"--from {min(request.days)} --to {max(request.days)}"
        hint = (
            f"To publish the days in spite of it: tidemark reconcile {run.stream.name} {span} --approve 'your reason'"
        )
        refuse(run, question, hint=hint)
    decide(run, "approved", by=request.by, words=request.approve)
    return True


def seal(run: "Run") -> dict[str, Any]:
    """Step ``seal``: versions and quality verdicts by day, for the events of the stream's assets."""
    from tidemark.reconcile.seal import seal_run

    return announced(seal_run(run))


def announced(seals: Sequence["Seal"]) -> dict[str, dict[str, Any]]:
    """What the events of a stream's assets say about days: version and quality verdict of each."""
    days = {item.day.isoformat(): item for item in seals}
    return {
        "days": {day: item.version for day, item in days.items()},
        "quality": {day: item.quality for day, item in days.items()},
    }


def report(run: "Run") -> None:
    """Step ``report``, which also releases the stream's lease and saves the stream's status: it runs last, and after a
    failure too."""
    from tidemark.inspect.saved_status import save_status
    from tidemark.reconcile.lease import release
    from tidemark.reconcile.report.report import report_run

    try:
        report_run(run)
    finally:
        release(run)
        save_status(run.settings, [run.stream.name], now=datetime.now(UTC))


def complete(run: "Run") -> None:
    """The last step. Raises IncompleteError where a step failed or was not reached, QualityError where the run has held
    back days."""
    verdict = run.require(REPORT)["verdict"]
    if verdict["status"] in NOT_ENDED:
        raise IncompleteError(verdict["title"], found=" ".join(verdict["sentences"]), where=run.key(REPORT.name))
    audit = run.require(AUDIT)
    if audit.held:
        days = tuple(item.day for item in audit.held)
        raise QualityError(held_text(audit.held), where=run.key(AUDIT.name), hint=WAY_OUT, days=days)


# Only wait and plan need the request: the others read the plan, so that a wrong request has a report, too.
STEPS_BY_PLAN: dict[str, Callable[["Run"], Any]] = {
    "finalize_plan": finalize_plan,
    "seal": seal,
    "report": report,
    "complete": complete,
}


def nothing_to_do(step: str, run: "Run") -> str | None:
    """Why a Spark step of the run has nothing to do; None where it has."""
    if step == REFILL.name:
        return None if run.require(PLAN).refill else "the archive lacks nothing that Kafka can give"
    return nothing_to_compare(run) if step == DELIVERY.name else None


def done_before(step: str, run: "Run") -> bool:
    """Whether an earlier step's application has done this one, too: the rebuild's checks the rows that it wrote."""
    if step != AUDIT.name:
        return False
    rebuild, audit = run.outcome(REBUILD), run.outcome(AUDIT)
    if rebuild is None or rebuild.result is None or audit is None or audit.result is None:
        return False
    if audit.status != "ok" and audit.kind != QualityError.__name__:
        return False  # it could not find out whether the rows are right
    written = rebuild.result.staged.snapshot if rebuild.result.staged else None
    return audit.started_at >= rebuild.started_at and audit.result.staged == written


def reason(run: "Run") -> str | None:
    """The first step with a saved failure that fails the run, and its error; None where there is none."""
    for step in (*STEPS, REPORT):
        found = None if step.name in FAILS_NO_RUN else run.outcome(step)
        if found is not None and found.status == "failed":
            return f"{step.name}: {found.error}"
    return None


def held(run: "Run") -> tuple[HeldDay, ...]:
    """The days that the run has held back, also where its audit failed."""
    found = run.outcome(AUDIT)
    return found.result.held if found and found.result else ()


def days_text(days: Sequence[date]) -> str:
    """The days in words, for logs and notes."""
    return date_ranges(days) + (f" ({len(days)} days)" if len(days) > 1 else "")
