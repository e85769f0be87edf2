"""The publish step as the scheduler runs it: a run that was overtaken starts over instead of failing for good."""

from collections.abc import Iterable
from datetime import date
from typing import Any

from pyspark.sql import SparkSession

from tidemark.core.codec import decode
from tidemark.core.errors import ConflictError, IncompleteError, QualityError
from tidemark.core.plan import Plan
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.plan.step import plan_run, refill_ranges, settle_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.reconcile.results import condemns, passed_days
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.tables.reader import load_table
from tidemark.tables.seals import unsealed_publication


def publish_or_start_over(run: Run, spark: SparkSession) -> None:
    """``publish_run``; where that is refused because a day moved, every step from ``plan`` on once more, and then it.

    What the other run published of the days is sealed first, where it did not come to that yet: behind this run's rows
    it no longer could, and its version would be without proof. A run that settled behind such a publication starts over
    as well: it knew of no seal to reach as far as, so its rows may be fewer than those that readers have.
    A scheduler repeats this step alone, which can't succeed over rows that another run published. One run of a stream
    at a time may be in here, so the second rebuild is not overtaken. What it was made for is saved in start_over.json.

    A start-over that was cut off, wherever that was, is begun anew by the repeat, unless all that was left to do was to
    publish. What the audit found wrong with the rows stays: then the repeat raises QualityError as well.
    """
    earlier = run.load("start_over")
    # Only one that ended well says so: one that was killed says that it was begun.
    cut_off = None if earlier is None or earlier.get("status") == "ok" else earlier
    try:
        _require_sealed(run)
        publish_run(run, spark)
    except (ConflictError, IncompleteError, QualityError) as error:
        if isinstance(error, QualityError) and (cut_off is None or _is_judged(run)):
            raise
        _start_over(run, spark, str(error), cut_off)
    else:
        if cut_off is not None:
            run.save("start_over", {**cut_off, "status": "ok", "error": None})


def _start_over(run: Run, spark: SparkSession, because: str, cut_off: dict[str, Any] | None) -> None:
    """Every step from ``plan`` on; start_over.json keeps the reason and the seals of one that was cut off before."""
    with run.step("start_over") as out:
        out |= {"because": because, "sealed_for": {}}
        if cut_off is not None:
            out |= {name: cut_off[name] for name in out if name in cut_off}
        # A process that is killed saves no end, so the beginning is saved: the next one must know of it.
        run.save("start_over", {**out, "step": "start_over", "status": "begun", "error": None})
        # Of a failed attempt too: the step saves what it was asked for before anything can fail.
        planned = run.load("plan") or run.require("plan")
        requested = [date.fromisoformat(day) for day in planned["requested"]]
        out["sealed_for"] = {**out["sealed_for"], **_seal_for_others(run, _days(run, requested))}
        plan_run(run, requested, planned["force"])
        if refill_ranges(run):
            refill_run(run, spark)
        settle_run(run)
        for step in (rebuild_run, audit_run, publish_run):
            step(run, spark)


def _is_judged(run: Run) -> bool:
    """Whether the audit condemns the rows of this very rebuild; that of another one says nothing about them."""
    audit, rebuilt = run.load("audit"), run.load("rebuild")
    if audit is None or rebuilt is None or audit.get("staged_snapshot") != rebuilt.get("staged_snapshot"):
        return False
    return condemns(audit)


def _require_sealed(run: Run) -> None:
    """Raises ConflictError where readers have rows of the run's days that another run published and did not seal."""
    audit, plan = run.load("audit"), run.plan("settled")
    days = plan.days if audit is None else passed_days(plan, audit)
    for name, day in _others(run, {item.day for item in days}).items():
        raise ConflictError(
            "a day was published by another run that has not sealed it yet",
            expected="rows of the day's last seal, or of this run",
            found=f"rows of run {name}",
            where=f"{run.stream.name} {day}",
            hint="The publish step seals for that run and starts over; nothing is to be done",
        )


def _others(run: Run, days: Iterable[date]) -> dict[str, date]:
    """The other runs whose rows of the days readers have without a seal, each with the first such day."""
    found: dict[str, date] = {}
    table = load_table(run.settings, run.stream.table)
    for day in sorted(days):
        seen = unsealed_publication(run, table, day)
        if seen is not None and seen.run != run.name:
            found.setdefault(seen.run, day)
    return found


def _days(run: Run, requested: Iterable[date]) -> set[date]:
    """The days at stake: those that were asked for, and all that the run has planned, in failed attempts too."""
    days = set(requested)
    for step in ("plan", "settled"):
        value = (run.load(step) or {}).get("plan")
        if value is not None:
            days |= {item.day for item in decode(Plan, value, where=run.key(step)).days}
    return days


def _seal_for_others(run: Run, days: Iterable[date]) -> dict[str, str | None]:
    """Seal for each other run what it published of the days: by its name None, or why that can't be done.

    That is no reason to stop: its own step says the same, and the day's next version is this run's.
    """
    found: dict[str, str | None] = {}
    for name in _others(run, days):
        try:
            seal_run(Run.open(run.stream.name, name, run.settings))
        except (ConflictError, IncompleteError, QualityError) as error:
            found[name] = str(error)
        else:
            found[name] = None
    return found
