"""``tidemark reconcile``: a reconcile run without a scheduler, its steps one after the other in one Spark session."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, date, datetime
from functools import cache
from typing import Any

from rich.console import Console

from tidemark.cli.connect import connect_s3
from tidemark.cli.report import print_report
from tidemark.core.days import last_ended
from tidemark.definitions.stream import load_stream
from tidemark.orchestration import tasks
from tidemark.orchestration.run_days import form_days, require_over
from tidemark.orchestration.steps import LAST_TASK, LEASE_STEP, SPAN_DAYS_MAX, STEPS, Step
from tidemark.reconcile.results import REPORT
from tidemark.run import Run, run_name
from tidemark.settings import Settings

POLL_S = 1
SparkStep = Callable[[Run, Any], object]


def reconcile(stack: str | None, stream: str, *, from_day: str | None, to_day: str | None, force: bool) -> None:
    """Run every step for the days, by default yesterday. Print the report, even after a failure."""
    settings = connect_s3(stack)
    days = _days(stream, settings, from_day, to_day)
    request = tasks.Request(days=days, force=force)
    run = Run.open(stream, run_name(f"command-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"), settings)
    console = Console(soft_wrap=True)
    console.print(f"Reconciling {stream}, {tasks.days_text(days)}: run {run.name}", highlight=False)
    with ExitStack() as cleanup:

        @cache
        def spark() -> Any:
            from tidemark.cli.spark import command_spark

            return cleanup.enter_context(command_spark(settings, f"tidemark-reconcile-{stream}"))

        try:
            for step in STEPS:
                if not step.always:
                    began = time.monotonic()
                    with console.status(step.name) as status, tasks.holding(step.name, stream, run.name):
                        outcome = _do(step, run, request, spark, status.update)
                        outcome = outcome or f"{time.monotonic() - began:.1f} s"
                        console.print(f"  {step.name:<14} {outcome}", highlight=False)
        finally:
            tasks.report(stream, run.name)
            report = run.outcome(REPORT)
            if report is not None and report.result is not None:
                print_report(console, settings, report.result)
        tasks.STEPS_BY_PLAN[LAST_TASK](stream, run.name)


def _days(stream: str, settings: Settings, from_day: str | None, to_day: str | None) -> tuple[date, ...]:
    zone, now = load_stream(stream, settings.streams_dir).zone, datetime.now(UTC)
    if not (from_day or to_day):
        return (last_ended(now, zone),)
    days = form_days(from_day, to_day or from_day, days_max=SPAN_DAYS_MAX)
    require_over(days, now=now, zone=zone)
    return days


def _do(
    step: Step, run: Run, request: tasks.Request, spark: Callable[[], Any], show_progress: Callable[[str], object]
) -> str:
    """Do one step. The result is the text to show instead of its seconds, if it had nothing to do."""
    name = run.stream.name
    match step.kind:
        case "sensor" if step.name == LEASE_STEP:
            while (holder := tasks.take_lease(name, run.name, lambda _dag, _run: None)) is not None:
                show_progress(f"waiting for {holder}")
                time.sleep(POLL_S)
        case "sensor":
            began = time.monotonic()
            while not tasks.poll_archive(name, run.name, request, waited_seconds=time.monotonic() - began):
                time.sleep(POLL_S)
        case "python" if step.name == "plan":
            tasks.plan(name, run.name, request)
        case "python":
            tasks.STEPS_BY_PLAN[step.name](name, run.name)
        case "spark":
            if step.name == "refill" and tasks.nothing_to_refill(name, run.name):
                return "nothing is missing"
            _spark_step(step.name)(run, spark())
    return ""


def _spark_step(name: str) -> SparkStep:
    from tidemark.reconcile.audit.step import audit_run
    from tidemark.reconcile.publish import publish_run
    from tidemark.reconcile.rebuild.step import rebuild_run
    from tidemark.reconcile.refill import refill_run

    steps: dict[str, SparkStep] = {
        "refill": refill_run,
        "rebuild": rebuild_run,
        "audit": audit_run,
        "publish": publish_run,
    }
    return steps[name]
