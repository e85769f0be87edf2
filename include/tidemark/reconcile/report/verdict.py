"""A report's verdict: whether the days are complete, in a title and a few sentences."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemark.core.plan import Plan
from tidemark.reconcile.report.outcomes import OPTIONAL
from tidemark.reconcile.results import PUBLISH, WAY_OUT, AuditResult

_LOSSES_MAX = 10
_IGNORED_MAX = 10
Entry = Mapping[str, Any]  # of a day, a log or a step, as the report has it


def make_verdict(
    states: Sequence[Entry], days: Sequence[Entry], logs: Sequence[Entry], plan: Plan | None, audit: AuditResult | None
) -> dict[str, Any]:
    """``status``, ``title`` and ``sentences``, from the parts of a report."""
    return _failed(states, days) or _unfinished(states) or _unchanged(days, plan) or _complete(days, logs, plan, audit)


def _failed(states: Sequence[Entry], days: Sequence[Entry]) -> dict[str, Any] | None:
    failed = next((item for item in states if item["status"] == "failed"), None)
    if failed is None:
        return None
    why = {"late": " (reopened by late records)", "unproven": " (published before, and not sealed)"}
    named = ", ".join(f"{item['day']}{why.get(item['reason'], '')}" for item in days) or "The run"
    before = next(item for item in states if item["name"] == PUBLISH.name)["status"] == "not reached"
    stays = ["Nothing was published: readers still see the days as they were before this run."] if before else []
    return {
        "status": "failed",
        "title": f"{named} failed at step {failed['name']}",
        "sentences": [str(failed["error"]), *stays],
    }


def _unfinished(states: Sequence[Entry]) -> dict[str, Any] | None:
    stopped = ("not reached", "earlier attempt")
    missing = next((s for s in states if s["status"] in stopped and s["name"] not in OPTIONAL), None)
    if missing is None:
        return None
    return {
        "status": "unfinished",
        "title": f"The run stopped before step {missing['name']}",
        "sentences": ["No step reported a failure; the steps after this point have not run, or not again."],
    }


def _unchanged(days: Sequence[Entry], plan: Plan | None) -> dict[str, Any] | None:
    if days:
        return None
    return {
        "status": "unchanged",
        "title": f"{_unchanged_days(plan) or 'No day'} stays as it is",
        "sentences": ["The seal already covers everything archived for it: nothing was rebuilt.", *_ignored(plan)],
    }


def _complete(
    days: Sequence[Entry], logs: Sequence[Entry], plan: Plan | None, audit: AuditResult | None
) -> dict[str, Any]:
    held = [item for item in days if item["held"]]
    days = [item for item in days if not item["held"]]
    lost = sum(log["offsets"]["lost"] for log in logs)
    holes = sum(log["causes"]["unexplained"] for log in logs)
    names = ", ".join(item["day"] for item in days)
    verb = "are" if len(days) > 1 else "is"
    status, title = "complete", f"{names} {verb} complete: every offset is accounted for, exactly once"
    sentences = [*_counts(days), *_refilled(logs), *_explained(logs), *_warned(audit)]
    if unchanged := _unchanged_days(plan):
        sentences.append(f"{unchanged} stays as it is: its seal already covers everything archived.")
    sentences += _ignored(plan)
    if lost:
        status, title = "complete with losses", f"{names} {verb} sealed with a known loss"
        sentences = [f"Kafka deleted {lost:,} offsets before they were archived.", *_losses(logs), *sentences]
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


def _counts(days: Sequence[Entry]) -> Iterator[str]:
    for item in days:
        yield (
            f"{item['day']}, version {item['version']}: {item['read']:,} records read, {item['published']:,} published,"
            f" {item['quarantined']:,} quarantined, {item['duplicates_trimmed']:,} duplicates trimmed."
            f"{_removed(item)}{_changed(item)}"
        )


def _refilled(logs: Sequence[Entry]) -> Iterator[str]:
    refilled = sum(log["offsets"]["refilled"] for log in logs)
    if refilled:
        lacked = sum(log["offsets"]["refilled_in_holes"] for log in logs)
        of_it = f", {lacked:,} of them inside ranges that were archived without these records" if lacked else ""
        yield f"{refilled:,} offsets were missing from the archive and refilled from Kafka{of_it}."


def _warned(audit: AuditResult | None) -> Iterator[str]:
    checks = audit.checks if audit else ()
    warned = sum(item.expected.severity == "warning" and item.success is not True for item in checks)
    if warned:
        yield f"{warned} quality {'checks' if warned > 1 else 'check'} of severity warning did not pass."


def _unchanged_days(plan: Plan | None) -> str:
    return ", ".join(day.isoformat() for day in plan.unchanged) if plan else ""


def _ignored(plan: Plan | None) -> Iterator[str]:
    for item in (plan.ignored if plan else ())[:_IGNORED_MAX]:
        yield (
            f"{item.day} was not reopened for {item.records_max:,} late records at most: it is none of the days that"
            " batch.reopen_days lets this run reopen. Request the day to have them."
        )
    if plan and len(plan.ignored) > _IGNORED_MAX:
        yield f"{len(plan.ignored) - _IGNORED_MAX:,} more such days are named with the days."


def _removed(day: Entry) -> str:
    number = day["duplicates_removed"]
    return f" {number:,} more were removed as duplicates by key." if number else ""


def _changed(day: Entry) -> str:
    rows, before = day["difference"], day["version"] - 1
    if rows is None:
        return f" What it changed against version {before} is unknown: those rows are missing." if before else ""
    counts = f"{rows['added']:,} added, {rows['removed']:,} removed, {rows['changed']:,} changed"
    return f" Rows against version {before}: {counts}."


def _explained(logs: Sequence[Entry]) -> Iterator[str]:
    for cause, what in (("transactional", "aborted or transaction markers"), ("compacted", "compacted by Kafka")):
        number = sum(log["causes"][cause] for log in logs)
        if number:
            yield f"{number:,} offsets gave no record because they were {what}."


def _losses(logs: Sequence[Entry]) -> Iterator[str]:
    """A sentence for each of the first losses; the logs' own sections have all of them."""
    lost = [(log, item) for log in logs for item in log["lost"]]
    for log, item in lost[:_LOSSES_MAX]:
        number = item["end"] - item["start"]
        where = f"{log['topic']}-{log['partition']} [{item['start']}, {item['end']})"
        how, most = ("Lost with its deleted topic", "at most ") if item["topic_deleted"] else ("Lost", "")
        yield f"{how}: {where}, {most}{number:,} offsets, {item['time']}."
    if len(lost) > _LOSSES_MAX:
        yield f"{len(lost) - _LOSSES_MAX:,} more lost ranges are named with their logs."
