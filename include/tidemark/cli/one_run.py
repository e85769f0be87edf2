"""One reconcile run in this process, without a scheduler: its steps one after the other in one Spark session."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from typing import Any

from rich.console import Console

from tidemark.cli.report import print_report
from tidemark.core.delivery import FAILS_NO_RUN
from tidemark.core.errors import TidemarkError
from tidemark.orchestration import tasks
from tidemark.orchestration.steps import LAST_TASK, LEASE_STEP, STEPS, Step
from tidemark.reconcile.results import REPORT, SEAL
from tidemark.run import Run, run_name
from tidemark.settings import Settings

POLL_S = 1
SparkStep = Callable[[Run, Any], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedDay:
    """A day that the run sealed, and its new version."""

    day: date
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A reconcile run. ``verdict`` is its report's, such as complete, unchanged or failed; ``error`` is null if it
    succeeded.
    """

    stream: str
    run: str
    days: tuple[date, ...]
    verdict: str
    title: str
    sentences: tuple[str, ...]
    sealed: tuple[SealedDay, ...]
    report: str
    seconds: float
    error: str | None


@contextmanager
def lazy_spark(settings: Settings, name: str) -> Iterator[Callable[[], Any]]:
    """Gives the Spark session to those who need it: it starts at the first call, and stops at the end."""
    with ExitStack() as cleanup:

        @cache
        def spark() -> Any:
            from tidemark.cli.spark import command_spark

            return cleanup.enter_context(command_spark(settings, name))

        yield spark


def run_here(
    console: Console, settings: Settings, stream: str, request: tasks.Request, spark: Callable[[], Any]
) -> tuple[RunResult, TidemarkError | None]:
    """Do every step, and print progress and report. The error is why the run failed.

    Raises what the step ``report`` raises: without a report there is no result.
    """
    began = time.monotonic()
    run = Run.open(stream, run_name(f"command-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"), settings)
    console.print(f"Reconciling {stream}, {tasks.days_text(request.days)}: run {run.name}", highlight=False)
    failure: TidemarkError | None = None
    try:
        for step in STEPS:
            if step.name in FAILS_NO_RUN:
                _tolerated(console, step, run, request, spark)
            elif not step.always:
                _step(console, step, run, request, spark)
    except TidemarkError as error:
        failure = error
    finally:
        tasks.report(run)
    report = run.require(REPORT)
    print_report(console, settings, report)
    if failure is None:
        try:
            tasks.STEPS_BY_PLAN[LAST_TASK](run)
        except TidemarkError as error:
            failure = error
    seals = run.outcome(SEAL)
    return RunResult(
        stream=stream,
        run=run.name,
        days=request.days,
        verdict=report["verdict"]["status"],
        title=report["verdict"]["title"],
        sentences=tuple(report["verdict"]["sentences"]),
        sealed=tuple(
            SealedDay(day=item.day, version=item.version)
            for item in (seals.result.seals if seals and seals.result else ())
        ),
        report=report["html_key"],
        seconds=round(time.monotonic() - began, 1),
        error=None if failure is None else f"{type(failure).__name__}: {failure}",
    ), failure


def _tolerated(console: Console, step: Step, run: Run, request: tasks.Request, spark: Callable[[], Any]) -> None:
    """Do a step whose failure fails no run."""
    try:
        _step(console, step, run, request, spark)
    except TidemarkError as error:
        console.print(f"  {step.name:<14} failed: {error}", highlight=False, markup=False)


def _step(console: Console, step: Step, run: Run, request: tasks.Request, spark: Callable[[], Any]) -> None:
    began = time.monotonic()
    with console.status(step.name) as status, tasks.holding(step.name, run):
        outcome = _do(step, run, request, spark, status.update)
    console.print(f"  {step.name:<14} {outcome or f'{time.monotonic() - began:.1f} s'}", highlight=False)


def _do(
    step: Step, run: Run, request: tasks.Request, spark: Callable[[], Any], show_progress: Callable[[str], object]
) -> str:
    """Do one step. The result is the text to show instead of its seconds, if it had nothing to do."""
    match step.kind:
        case "sensor" if step.name == LEASE_STEP:
            while (holder := tasks.take_lease(run, lambda _dag, _run: None)) is not None:
                show_progress(f"waiting for {holder}")
                time.sleep(POLL_S)
        case "sensor":
            began = time.monotonic()
            while not tasks.poll_archive(run, request, waited_seconds=time.monotonic() - began):
                time.sleep(POLL_S)
        case "person":
            return "" if tasks.approve_now(run, request) else "nothing to approve"
        case "python" if step.name == "plan":
            tasks.plan(run, request)
        case "python":
            tasks.STEPS_BY_PLAN[step.name](run)
        case "spark":
            if because := tasks.nothing_to_do(step.name, run):
                return because
            _spark_step(step.name)(run, spark())
    return ""


def _spark_step(name: str) -> SparkStep:
    from tidemark.orchestration.delivery import delivery_run
    from tidemark.reconcile.audit.step import audit_run
    from tidemark.reconcile.publish import publish_run
    from tidemark.reconcile.rebuild.step import rebuild_run
    from tidemark.reconcile.refill import refill_run

    steps: dict[str, SparkStep] = {
        "refill": refill_run,
        "rebuild": rebuild_run,
        "audit": audit_run,
        "publish": publish_run,
        "delivery": delivery_run,
    }
    return steps[name]
