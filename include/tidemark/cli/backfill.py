"""``tidemark backfill``: many days in several reconcile runs, one after the other, without a scheduler."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from rich.console import Console

from tidemark.cli.connect import connect_s3
from tidemark.cli.json_output import print_result
from tidemark.cli.one_run import RunResult, lazy_spark, run_here
from tidemark.cli.output import counted, plain
from tidemark.cli.root import FINE, WRONG, explain
from tidemark.core.days import date_ranges, days_between
from tidemark.definitions.stream import load_stream
from tidemark.orchestration import tasks
from tidemark.orchestration.backfill import plan_backfill, plan_lines
from tidemark.orchestration.run_days import require_over
from tidemark.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillResult:
    """A backfill. ``already_sealed``: days whose seal had every archived record; ``to_reconcile``: the others.

    ``runs`` is empty for a dry run. ``not_sealed`` are the days of ``to_reconcile`` that are not sealed after it.
    """

    stream: str
    dry_run: bool
    already_sealed: tuple[date, ...]
    to_reconcile: tuple[date, ...]
    planned_runs: int
    runs: tuple[RunResult, ...]
    not_sealed: tuple[date, ...]


def backfill(
    stack: str | None,
    name: str,
    first: date,
    last: date,
    *,
    days_per_run: int,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Reconcile the days that are not sealed, or all of them. Return the exit code: 1 if a day is still not sealed.

    A run that fails does not stop the next one. Repeated after an interruption, it leaves out what is sealed.
    """
    settings, now = connect_s3(stack), datetime.now(UTC)
    stream, days = load_stream(name, settings.streams_dir), days_between(first, last)
    require_over(days, now=now, zone=stream.zone)
    console = Console(stderr=as_json, soft_wrap=True)
    with console.status("reading seals and manifests"):
        plan = plan_backfill(settings, stream, days, days_per_run=days_per_run, force=force, now=now)
    todo = tuple(item.day for item in plan.days)
    chunks = tuple(tuple(item.day for item in run) for run in plan.runs)
    for line in plan_lines(plan):
        console.print(plain(line))
    runs: tuple[RunResult, ...] = ()
    failed: tuple[date, ...] = ()
    if not dry_run:
        with lazy_spark(settings, f"tidemark-backfill-{name}") as spark:
            runs = tuple(_run(console, settings, name, chunks, spark, force=force))
        failed = tuple(day for item in runs for day in _not_sealed(item))
        _summarize(console, name, todo, runs, failed)
    if as_json:
        result = BackfillResult(
            stream=name,
            dry_run=dry_run,
            already_sealed=plan.complete,
            to_reconcile=todo,
            planned_runs=len(chunks),
            runs=runs,
            not_sealed=failed,
        )
        print_result("backfill", result)
    return WRONG if failed else FINE


def _run(
    console: Console,
    settings: Settings,
    name: str,
    chunks: Sequence[tuple[date, ...]],
    spark: Callable[[], Any],
    *,
    force: bool,
) -> Iterator[RunResult]:
    for number, days in enumerate(chunks, start=1):
        console.print(plain(f"Run {number} of {len(chunks)}", style="bold"))
        result, failure = run_here(console, settings, name, tasks.Request(days=days, force=force), spark)
        if failure is not None:
            explain(failure)
        versions = {item.day: item.version for item in result.sealed}
        missing = set(_not_sealed(result))
        for day in days:
            state = "not sealed" if day in missing else f"sealed, v{versions[day]}" if day in versions else "unchanged"
            console.print(plain(f"  {day}  {state}", style="red" if day in missing else "green"))
        yield result


def _not_sealed(item: RunResult) -> tuple[date, ...]:
    """Of a run's days, those without a proof after it. A run that succeeded may have left days as they were."""
    sealed = {found.day for found in item.sealed}
    return tuple(day for day in item.days if item.error is not None and day not in sealed)


def _summarize(
    console: Console, name: str, todo: Sequence[date], runs: Sequence[RunResult], failed: Sequence[date]
) -> None:
    seconds = sum(item.seconds for item in runs)
    done = len(todo) - len(failed)
    text = f"{done} of {_days(len(todo))} reconciled in {counted(len(runs), 'run')}, {seconds:,.0f} s"
    console.print(plain(text, style="red" if failed else "green"))
    if failed:
        hint = (
            f"Correct the cause, and run the same command again: it leaves out what is sealed. 'tidemark status {name}'"
        )
        console.print(plain(f"Not sealed: {date_ranges(failed)}. {hint} shows every day."))


def _days(number: int) -> str:
    return counted(number, "day")
