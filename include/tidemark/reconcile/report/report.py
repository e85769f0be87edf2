"""The report of a run: the outcomes of its steps as one JSON object and one self-contained page.

It is made after a failure as well: a step that was not reached is shown as not reached.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from typing import Any

from tidemark.core.codec import encode
from tidemark.core.loss_text import time_text
from tidemark.core.offsets import OffsetRange, count, subtract
from tidemark.core.plan import LogPlan, Neighbours
from tidemark.reconcile.audit.checks import CheckOutcome
from tidemark.reconcile.report.outcomes import Outcomes, read_outcomes
from tidemark.reconcile.report.page import render
from tidemark.reconcile.report.verdict import make_verdict
from tidemark.reconcile.results import AUDIT, FINALIZE_PLAN, PLAN, PUBLISH, REBUILD, REFILL, REPORT, SEAL
from tidemark.run import Run

CAUSES = ("transactional", "compacted", "unexplained")
_COUNTS = ("read", "published", "quarantined", "duplicates_removed", "duplicates_trimmed", "conserved")


def report_run(run: Run) -> str:
    """Write ``report.json`` and ``report.html`` into the run's folder; the page's key."""
    with run.step(REPORT) as attempt:
        key = run.layout.run_key(run.name, "report.html")
        report = make_report(run, read_outcomes(run))
        attempt.result = {**report, "html_key": key, "html_url": f"s3://{run.settings.bucket}/{key}"}
        run.store.put(key, render(attempt.result).encode(), content_type="text/html; charset=utf-8")
        return key


def make_report(run: Run, outcomes: Outcomes) -> dict[str, Any]:
    """The report as one JSON object; None stands for a step that never ran."""
    plan = outcomes.plan
    days = _days(outcomes)
    logs = [_log(item, outcomes, run.stream.zone) for item in plan.logs] if plan else []
    states = outcomes.states(run)
    finalized, planned = outcomes.result(FINALIZE_PLAN), outcomes.result(PLAN)
    archive = finalized.archive if finalized else planned.archive if planned else None
    holes = finalized.holes if finalized else None
    published, audit = outcomes.result(PUBLISH), outcomes.result(AUDIT)
    return {
        "stream": run.stream.name,
        "topic": run.stream.topic,
        "run": run.name,
        "time_zone": run.stream.time_zone,
        "generated_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": make_verdict(states, days, logs, plan, audit),
        "days": days,
        "unchanged": [day.isoformat() for day in plan.unchanged] if plan else [],
        "ignored": [encode(item) for item in plan.ignored] if plan else [],
        "logs": logs,
        "broken_links": [{**encode(item), "finding": str(item)} for item in archive.broken_links] if archive else [],
        "retention": encode(finalized.retention) if finalized else None,
        "hole_notes": list(holes.notes) if holes else [],
        "quality": {
            "passed": audit.passed if audit else None,
            "note": audit.note if audit else None,
            "checks": [_check(item) for item in audit.checks] if audit else [],
        },
        "steps": states,
        "snapshots": {
            "snapshot_id": published.snapshot_id if published else None,
            "quarantine_snapshot_id": published.quarantine_snapshot_id if published else None,
        },
    }


def _check(item: CheckOutcome) -> dict[str, Any]:
    value: dict[str, Any] = encode(item)
    return {**value.pop("expected"), **value}


def _days(outcomes: Outcomes) -> list[dict[str, Any]]:
    rebuilt, sealed, audit = outcomes.result(REBUILD), outcomes.result(SEAL), outcomes.result(AUDIT)
    counts = {item.day: item for item in rebuilt.days} if rebuilt else {}
    seals = {item.day: item.key for item in sealed.seals} if sealed else {}
    held = {item.day: item.because for item in audit.held} if audit else {}
    days = []
    for item in outcomes.plan.days if outcomes.plan else ():
        rows = counts.get(item.day)
        difference = rebuilt.difference(item.day) if rebuilt else None
        days.append(
            {
                "day": item.day.isoformat(),
                "version": item.version,
                "reason": item.reason,
                "archived": item.archived_rows,
                **{name: getattr(rows, name) if rows else None for name in _COUNTS},
                "difference": None
                if difference is None
                else {**encode(difference.rows), "examples": encode(difference.examples)},
                "held": held.get(item.day),
                "seal": seals.get(item.day),
            }
        )
    return days


def _log(item: LogPlan, outcomes: Outcomes, zone: tzinfo) -> dict[str, Any]:
    target = item.target
    positions = encode(target)
    log = positions.pop("log")
    refill, planned = outcomes.result(REFILL), outcomes.result(PLAN)
    refilled = [part.range for part in refill.ranges if part.log == target.log] if refill else []
    in_holes = [part.range for part in planned.refill if part.in_hole and part.log == target.log] if planned else []
    elsewhere = subtract(refilled, in_holes)
    lost = [gap for gap in item.gaps if gap.kind == "lost"]
    unfilled = [gap.range for gap in item.gaps if gap.kind == "refill"]
    pending = [item.pending] if item.pending else []
    return {
        **log,
        **positions,
        "used": [
            {
                **_span(used.range),
                "committed": _span(used.committed),
                "writer": used.writer,
                "batch": used.batch,
                "last_batch": used.last_batch,
            }
            for used in item.used
        ],
        "refilled": _spans(refilled),
        "lost": [
            {
                **_span(gap.range),
                "topic_deleted": gap.topic_deleted,
                "time": time_text(gap.neighbours, zone),
                **encode(gap.neighbours or Neighbours()),
            }
            for gap in lost
        ],
        "unfilled": _spans(unfilled),
        "pending": _spans(pending),
        "overlaps": [{**_span(overlap.range), "copies": overlap.copies} for overlap in item.overlaps],
        "holes": [
            {
                **_span(hole.range),
                "missing": sum(hole.counts.values()),
                "cause": hole.cause,
                "counts": hole.counts,
                "unexplained": _spans(hole.evidence.ranges if hole.evidence else ()),
            }
            for hole in item.holes
        ],
        "offsets": {
            "target": target.end - target.start,
            "used": count(used.range for used in item.used),
            "refilled": count(refilled),
            "refilled_in_holes": count(subtract(refilled, elsewhere)),
            "lost": count(gap.range for gap in lost),
            "unfilled": count(unfilled),
            "pending": count(pending),
            "overlapping": count(overlap.range for overlap in item.overlaps),
            "holes": sum(sum(hole.counts.values()) for hole in item.holes),
        },
        "causes": {cause: sum(hole.counts[cause] for hole in item.holes) for cause in CAUSES},
    }


def _span(item: OffsetRange) -> dict[str, int]:
    return {"start": item.start, "end": item.end}


def _spans(items: Iterable[OffsetRange]) -> list[dict[str, int]]:
    return [_span(item) for item in items]
