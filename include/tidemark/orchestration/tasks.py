"""What the tasks do. Everything heavy is imported when a task runs, never when its DAG is parsed."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from tidemark.core.errors import IncompleteError, QualityError
from tidemark.core.outcome import RunStep
from tidemark.orchestration.steps import LEASED
from tidemark.reconcile.results import (
    AUDIT,
    PLAN,
    REPORT,
    ROLLBACK,
    STEPS,
    WAIT,
    WAY_OUT,
    HeldDay,
    WaitResult,
    held_text,
)

if TYPE_CHECKING:
    from tidemark.run import Run

NOT_ENDED = frozenset({"failed", "unfinished"})  # a report's verdicts on a run that has not done every step


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a run is asked for: the days, and whether to rebuild those that did not change.

    ``scheduled``: the schedule asks for them, not a person.
    """

    days: tuple[date, ...]
    force: bool
    scheduled: bool = False


def take_lease(stream: str, run_id: str, has_ended: Callable[[str, str], bool | None]) -> str | None:
    """Take the stream's lease for the run. None where the run has it now, else a text that names the run that has it.

    ``has_ended`` says of a DAG and its run whether that has ended, or None where it does not know that run.
    """
    from tidemark.reconcile.lease import take

    holder = take(
        _run(stream, run_id), lambda found: has_ended(found.dag, found.dag_run) if found.dag and found.dag_run else None
    )
    return None if holder is None else str(holder)


def holding(step: str, stream: str, run_id: str) -> AbstractContextManager[None]:
    """Hold the stream's lease while a step works that needs it; raises ConflictError where another run holds it."""
    from tidemark.reconcile import lease

    return lease.holding(_run(stream, run_id)) if step in LEASED else nullcontext()


def poll_archive(stream: str, run_id: str, request: Request, *, waited_seconds: float) -> bool:
    """One poll of step ``wait``: True, and saved, once the archive is ready or ``batch.wait_seconds`` are over."""
    from tidemark.reconcile.plan.targets import wait_ready

    run = _run(stream, run_id)
    ready = wait_ready(run.stream, run.settings, request.days)
    if not ready and waited_seconds < run.stream.batch.wait_seconds:
        return False
    with run.step(WAIT) as attempt:
        attempt.result = WaitResult(ready=ready, waited_seconds=round(waited_seconds, 3))
    return True


def plan(stream: str, run_id: str, request: Request) -> None:
    """Step ``plan``."""
    from tidemark.reconcile.plan.step import plan_run

    plan_run(_run(stream, run_id), request.days, request.force, scheduled=request.scheduled)


def finalize_plan(stream: str, run_id: str) -> None:
    """Step ``finalize_plan``."""
    from tidemark.reconcile.plan.step import finalize_plan_run

    finalize_plan_run(_run(stream, run_id))


def seal(stream: str, run_id: str) -> dict[str, Any]:
    """Step ``seal``: the sealed days and their versions, which go into the event of the stream's asset."""
    from tidemark.reconcile.seal import seal_run

    return {"days": {item.day.isoformat(): item.version for item in seal_run(_run(stream, run_id))}}


def report(stream: str, run_id: str) -> None:
    """Step ``report``, which also releases the stream's lease: it runs last, and after a failure too."""
    from tidemark.reconcile.lease import release
    from tidemark.reconcile.report.report import report_run

    run = _run(stream, run_id)
    try:
        report_run(run)
    finally:
        release(run)


def complete(stream: str, run_id: str) -> None:
    """The last step. Raises IncompleteError where a step failed or was not reached, QualityError where the run has held
    back days."""
    run = _run(stream, run_id)
    verdict = run.require(REPORT)["verdict"]
    if verdict["status"] in NOT_ENDED:
        raise IncompleteError(verdict["title"], found=verdict["sentences"][0], where=run.key(REPORT.name))
    audit = run.require(AUDIT)
    if audit.held:
        days = tuple(item.day for item in audit.held)
        raise QualityError(held_text(audit.held), where=run.key(AUDIT.name), hint=WAY_OUT, days=days)


# Only wait and plan need the request: the others read the plan, so that a wrong request has a report, too.
STEPS_BY_PLAN: dict[str, Callable[[str, str], Any]] = {
    "finalize_plan": finalize_plan,
    "seal": seal,
    "report": report,
    "complete": complete,
}


def nothing_to_refill(stream: str, run_id: str) -> bool:
    """Whether the archive lacks nothing that Kafka has."""
    return not _run(stream, run_id).require(PLAN).refill


def submission(stream: str, run_id: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What spark-submit needs for a step: its arguments, and the variables it inherits.

    The variables give the application exactly this task's settings, with what Airflow's connections added. Secrets are
    in the variables only: they never pass through a template, the command line or the scheduler.
    """
    from tidemark.orchestration.connections import task_settings
    from tidemark.run import run_name
    from tidemark.spark.conf import jars, submit_environment

    found = task_settings()
    arguments = {
        "jars": jars(found),
        "driver_memory": found.spark_driver_memory,
        "application_args": ["--stream", stream, "--run", run_name(run_id)],
    }
    return arguments, found.environment() | submit_environment(found)


def saved(step: str, stream: str, run_id: str) -> bytes | None:
    """The saved outcome of a step, as bytes; None where there is none."""
    run = _run(stream, run_id)
    return run.store.get(run.key(step))


def failure(step: str, stream: str, run_id: str, before: bytes | None) -> tuple[str, bool] | None:
    """The reason that a failed attempt saved, and whether a retry is pointless; None where it saved no reason.

    ``before`` is what was ``saved`` when the attempt began. An outcome that is still the same is an earlier attempt's:
    a killed attempt saves none.
    """
    if saved(step, stream, run_id) == before:
        return None
    run = _run(stream, run_id)
    found = run.outcome(RunStep(step, dict[str, Any]))
    if found is None or found.status != "failed":
        return None
    audit = run.outcome(AUDIT) if step == AUDIT.name else None
    return str(found.error), bool(audit and audit.result and audit.result.rows_failed)


def reason(stream: str, run_id: str) -> str | None:
    """The first step of the run with a saved failure, and its error; None where no step failed."""
    run = _run(stream, run_id)
    for step in (*STEPS, REPORT):
        found = run.outcome(step)
        if found is not None and found.status == "failed":
            return f"{step.name}: {found.error}"
    return None


def held(stream: str, run_id: str) -> tuple[HeldDay, ...]:
    """The days that the run has held back, also where its audit failed."""
    found = _run(stream, run_id).outcome(AUDIT)
    return found.result.held if found and found.result else ()


def rolled_back(stream: str, run_id: str) -> dict[str, Any]:
    """The day that a rollback has made a version of, as ``seal`` reports its days."""
    sealed = _run(stream, run_id).require(ROLLBACK).sealed
    return {"days": {sealed.day.isoformat(): sealed.version}}


def days_text(days: Sequence[date]) -> str:
    """The days in words, for logs."""
    return f"{days[0]}" if len(days) == 1 else f"{days[0]} to {days[-1]} ({len(days)} days)"


def _run(stream: str, run_id: str) -> "Run":
    from tidemark.orchestration.connections import task_settings
    from tidemark.run import Run, run_name

    return Run.open(stream, run_name(run_id), task_settings())
