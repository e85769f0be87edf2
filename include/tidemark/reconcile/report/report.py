"""The report of a run: everything its steps left behind, as one JSON object and one self-contained page.

It is made after a failure as well, so it takes nothing for granted: a step that was not reached is shown as that.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any

from tidemark.core.codec import decode, encode
from tidemark.core.errors import FormatError
from tidemark.core.loss_text import time_text
from tidemark.core.offsets import OffsetRange, TopicPartition, count, subtract
from tidemark.core.plan import LogPlan, Neighbours, Plan
from tidemark.reconcile.report.page import render
from tidemark.reconcile.results import WAY_OUT, held_days
from tidemark.run import Run

STEPS = ("wait", "plan", "refill", "settled", "rebuild", "audit", "publish", "seal")
CAUSES = ("transactional", "compacted", "unexplained")
OPTIONAL = frozenset({"wait", "refill"})
_LOSSES_MAX = 10
_IGNORED_MAX = 10
Steps = Mapping[str, dict[str, Any] | None]


def report_run(run: Run) -> str:
    """Write ``report.json`` and ``report.html`` into the run's folder; the page's key."""
    with run.step("report") as out:
        key = run.layout.run_key(run.name, "report.html")
        out.update(make_report(run, {name: _load(run, name) for name in STEPS}))
        out |= {"html_key": key, "html_url": f"s3://{run.settings.bucket}/{key}"}
        run.store.put(key, render(out).encode(), content_type="text/html; charset=utf-8")
        return key


def make_report(run: Run, steps: Steps) -> dict[str, Any]:
    """The report's JSON object from the steps' results; None stands for a step without one."""
    plan = _plan(run, steps)
    days = _days(plan, steps)
    logs = [_log(item, steps, run.stream.zone) for item in plan.logs] if plan else []
    states = _states(run, steps)
    published = steps["publish"] or {}
    audit = steps["audit"] or {}
    return {
        "stream": run.stream.name,
        "topic": run.stream.topic,
        "run": run.name,
        "time_zone": run.stream.time_zone,
        "generated_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": _verdict(states, days, logs, plan, audit),
        "days": days,
        "unchanged": [day.isoformat() for day in plan.unchanged] if plan else [],
        "ignored": [encode(item) for item in plan.ignored] if plan else [],
        "logs": logs,
        "broken_chains": (steps["settled"] or steps["plan"] or {}).get("broken_chains", []),
        "retention": (steps["settled"] or {}).get("retention"),
        "hole_notes": ((steps["settled"] or {}).get("holes") or {}).get("notes", []),
        "quality": {"passed": audit.get("passed"), "note": audit.get("note"), "checks": audit.get("checks", [])},
        "steps": states,
        "snapshots": {name: published.get(name) for name in ("snapshot_id", "quarantine_snapshot_id")},
    }


def _load(run: Run, step: str) -> dict[str, Any] | None:
    try:
        return run.load(step)
    except FormatError as error:
        return {"status": "failed", "error": str(error)}


def _plan(run: Run, steps: Steps) -> Plan | None:
    """The settled plan, else the first one."""
    for name in ("settled", "plan"):
        value = (steps[name] or {}).get("plan")
        if value is not None:
            try:
                return decode(Plan, value, where=run.key(name))
            except FormatError:
                continue
    return None


def _states(run: Run, steps: Steps) -> list[dict[str, Any]]:
    """How each step ended. A result older than an earlier step's is of an attempt before, and said to be so."""
    reached = [name for name in STEPS if steps[name] is not None]
    states = []
    newest = ""
    for name in STEPS:
        step = steps[name]
        if step is None:
            skipped = name in OPTIONAL and any(STEPS.index(other) > STEPS.index(name) for other in reached)
            status = "not needed" if skipped else "not reached"
            states.append({"name": name, "status": status, "seconds": None, "error": None, "key": None})
            continue
        started = str(step.get("started_at") or "")
        status = "earlier attempt" if started < newest else step.get("status", "failed")
        newest = max(newest, started)
        states.append(
            {
                "name": name,
                "status": status,
                "seconds": step.get("seconds"),
                "error": step.get("error"),
                "started_at": started or None,
                "key": run.key(name),
            }
        )
    return states


def _days(plan: Plan | None, steps: Steps) -> list[dict[str, Any]]:
    counts = (steps["rebuild"] or {}).get("days", {})
    seals = {item["day"]: item["key"] for item in (steps["seal"] or {}).get("seals", [])}
    held = held_days(steps["audit"] or {})
    days = []
    for item in plan.days if plan else ():
        day = item.day.isoformat()
        rows = counts.get(day)
        days.append(
            {
                "day": day,
                "version": item.version,
                "reason": item.reason,
                "archived": item.archived_rows,
                **{name: rows[name] if rows else None for name in ("read", "published", "quarantined")},
                "duplicates_removed": rows["duplicates_removed"] if rows else None,
                "duplicates_trimmed": rows["duplicates_trimmed"] if rows else None,
                "conserved": rows["read"] == rows["published"] + rows["quarantined"] + rows["duplicates_removed"]
                if rows
                else None,
                "difference": ((steps["rebuild"] or {}).get("differences") or {}).get(day),
                "held": held.get(item.day),
                "seal": seals.get(day),
            }
        )
    return days


def _log(item: LogPlan, steps: Steps, zone: tzinfo) -> dict[str, Any]:
    target = item.target
    refilled = _parts((steps["refill"] or {}).get("ranges", []), target.log)
    planned = (steps["plan"] or {}).get("refill", [])
    elsewhere = subtract(refilled, _parts((part for part in planned if part.get("in_hole")), target.log))
    lost = [gap for gap in item.gaps if gap.kind == "lost"]
    unfilled = [gap.range for gap in item.gaps if gap.kind == "refill"]
    pending = [item.pending] if item.pending else []
    return {
        "topic": target.log.topic,
        "topic_id": target.log.topic_id,
        "partition": target.log.partition,
        "origin": target.origin,
        "end": target.end,
        "log_start": target.log_start,
        "high_watermark": target.high_watermark,
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
            {**_span(gap.range), "time": time_text(gap.neighbours, zone), **encode(gap.neighbours or Neighbours())}
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
            "target": target.end - target.origin,
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


def _parts(saved: Iterable[Mapping[str, Any]], log: TopicPartition) -> list[OffsetRange]:
    """Those of a step's saved ranges that are the log's."""
    return [
        OffsetRange(start=part["start"], end=part["end"])
        for part in saved
        if (part["topic_id"], part["partition"]) == (log.topic_id, log.partition)
    ]


def _span(item: OffsetRange) -> dict[str, int]:
    return {"start": item.start, "end": item.end}


def _spans(items: Iterable[OffsetRange]) -> list[dict[str, int]]:
    return [_span(item) for item in items]


def _verdict(
    states: list[dict[str, Any]],
    days: list[dict[str, Any]],
    logs: list[dict[str, Any]],
    plan: Plan | None,
    audit: Mapping[str, Any],
) -> dict[str, Any]:
    """``status`` and what to say: a title, and sentences below it."""
    failed = next((item for item in states if item["status"] == "failed"), None)
    if failed is not None:
        named = ", ".join(f"{item['day']}{_reopened(item)}" for item in days) or "The run"
        before = next(item for item in states if item["name"] == "publish")["status"] == "not reached"
        stays = ["Nothing was published: readers still see the days as they were before this run."] if before else []
        return {
            "status": "failed",
            "title": f"{named} failed at step {failed['name']}",
            "sentences": [str(failed["error"]), *stays],
        }
    stopped = ("not reached", "earlier attempt")
    missing = next((s for s in states if s["status"] in stopped and s["name"] not in OPTIONAL), None)
    if missing is not None:
        return {
            "status": "unfinished",
            "title": f"The run stopped before step {missing['name']}",
            "sentences": ["No step reported a failure; the steps after this point have not run, or not again."],
        }
    unchanged = ", ".join(day.isoformat() for day in plan.unchanged) if plan else ""
    if not days:
        return {
            "status": "unchanged",
            "title": f"{unchanged or 'No day'} stays as it is",
            "sentences": ["The seal already covers everything archived for it: nothing was rebuilt.", *_ignored(plan)],
        }
    held = [item for item in days if item["held"]]
    days = [item for item in days if not item["held"]]
    lost = sum(log["offsets"]["lost"] for log in logs)
    holes = sum(log["causes"]["unexplained"] for log in logs)
    names = ", ".join(item["day"] for item in days)
    verb = "are" if len(days) > 1 else "is"
    status, title = "complete", f"{names} {verb} complete: every offset is accounted for, exactly once"
    sentences = [
        f"{item['day']}, version {item['version']}: {item['read']:,} records read, {item['published']:,} published, "
        f"{item['quarantined']:,} quarantined, {item['duplicates_trimmed']:,} duplicates trimmed."
        f"{_removed(item)}{_changed(item)}"
        for item in days
    ]
    refilled = sum(log["offsets"]["refilled"] for log in logs)
    if refilled:
        lacked = sum(log["offsets"]["refilled_in_holes"] for log in logs)
        of_it = f", {lacked:,} of them inside ranges that were archived without these records" if lacked else ""
        sentences.append(f"{refilled:,} offsets were missing from the archive and refilled from Kafka{of_it}.")
    sentences += _explained(logs)
    warned = sum(item["severity"] == "warning" and item["success"] is not True for item in audit.get("checks", []))
    if warned:
        sentences.append(f"{warned} quality {'checks' if warned > 1 else 'check'} of severity warning did not pass.")
    if unchanged:
        sentences.append(f"{unchanged} stays as it is: its seal already covers everything archived.")
    sentences += _ignored(plan)
    if lost:
        status, title = "complete with losses", f"{names} {verb} sealed with a known loss"
        sentences = [f"Retention took {lost:,} offsets before they were archived.", *_losses(logs), *sentences]
    elif holes:
        status, title = "complete with holes", f"{names} {verb} published, with {holes:,} unexplained offsets"
        sentences.insert(0, f"{holes:,} offsets inside archived ranges gave no record, and nothing proves why.")
    if held:
        others = ", ".join(item["day"] for item in held)
        status, title = "days held back", f"{title}; {others} {'keeps its' if len(held) == 1 else 'keep their'} version"
        sentences = [
            *(f"{item['day']} keeps the version that it has: {item['held']}. {WAY_OUT}" for item in held),
            *sentences,
        ]
    return {"status": status, "title": title, "sentences": sentences}


def _ignored(plan: Plan | None) -> Iterator[str]:
    for item in (plan.ignored if plan else ())[:_IGNORED_MAX]:
        yield (
            f"{item.day} was not reopened for {item.records_max:,} late records at most: it is none of the days that"
            " batch.reopen_days lets this run reopen. Request the day to have them."
        )
    if plan and len(plan.ignored) > _IGNORED_MAX:
        yield f"{len(plan.ignored) - _IGNORED_MAX:,} more such days are named with the days."


def _reopened(day: dict[str, Any]) -> str:
    return " (reopened by late records)" if day["reason"] == "late" else ""


def _removed(day: dict[str, Any]) -> str:
    number = day["duplicates_removed"]
    return f" {number:,} more were removed as duplicates by key." if number else ""


def _changed(day: dict[str, Any]) -> str:
    """What a later version changed for readers."""
    told, before = day["difference"], day["version"] - 1
    if told is None:
        return f" What it changed against version {before} can't be told: those rows are gone." if before else ""
    counts = f"{told['added']:,} added, {told['removed']:,} removed, {told['changed']:,} changed"
    return f" Rows against version {before}: {counts}."


def _explained(logs: list[dict[str, Any]]) -> Iterator[str]:
    for cause, what in (("transactional", "aborted or transaction markers"), ("compacted", "compacted by Kafka")):
        number = sum(log["causes"][cause] for log in logs)
        if number:
            yield f"{number:,} offsets gave no record because they were {what}."


def _losses(logs: list[dict[str, Any]]) -> Iterator[str]:
    """A sentence for each of the first losses; the logs' own sections have all of them."""
    lost = [(log, item) for log in logs for item in log["lost"]]
    for log, item in lost[:_LOSSES_MAX]:
        number = item["end"] - item["start"]
        where = f"{log['topic']}-{log['partition']} [{item['start']}, {item['end']})"
        yield f"Lost: {where}, {number:,} offsets, {item['time']}."
    if len(lost) > _LOSSES_MAX:
        yield f"{len(lost) - _LOSSES_MAX:,} more lost ranges are named with their logs."
