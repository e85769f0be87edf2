"""A report's verdict: whether the days are complete, in a title and a few sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from tidemark.core.delivery import FAILS_NO_RUN
from tidemark.core.loss_text import truncation_text
from tidemark.core.plan import Plan
from tidemark.reconcile.audit.checks import explain
from tidemark.reconcile.report.outcomes import OPTIONAL
from tidemark.reconcile.report.values import DayReport, LogReport, StepReport, Verdict
from tidemark.reconcile.results import AUDIT, PUBLISH, WAY_OUT, ApproveResult, AuditResult

_LOSSES_MAX = 10
_IGNORED_MAX = 10
_CHECKS_MAX = 10


def make_verdict(
    states: Sequence[StepReport],
    days: Sequence[DayReport],
    logs: Sequence[LogReport],
    plan: Plan | None,
    audit: AuditResult | None,
    *,
    approved: ApproveResult | None = None,
    waiting: Sequence[str] = (),
    delivery: Sequence[str] = (),
) -> Verdict:
    """``status``, ``title`` and ``sentences``, from the parts of a report.

    ``delivery`` is what to say about the live topic, once the days are sealed.
    """
    if waiting:
        names = ", ".join(str(item.day) for item in days if not item.held)
        return Verdict(status="waiting", title=f"{names}: a person has to approve", sentences=tuple(waiting))
    ended = _failed(states, days, audit) or _unfinished(states) or _unchanged(days, plan)
    if ended is not None:
        return ended
    found = _complete(days, logs, plan, audit)
    approval = (approved.approval.sentence,) if approved is not None else ()
    return replace(found, sentences=(*found.sentences, *delivery, *approval))


def _failed(states: Sequence[StepReport], days: Sequence[DayReport], audit: AuditResult | None) -> Verdict | None:
    failed = next((item for item in states if item.status == "failed" and item.name not in FAILS_NO_RUN), None)
    if failed is None:
        return None
    why = {"late": " (reopened by late records)", "unproven": " (published before, and not sealed)"}
    named = ", ".join(f"{item.day}{why.get(item.reason, '')}" for item in days) or "The run"
    before = next(item for item in states if item.name == PUBLISH.name).status == "not reached"
    stays = ["Nothing was published: readers still see the days as they were before this run."] if before else []
    return Verdict(
        status="failed",
        title=f"{named} failed at step {failed.name}",
        sentences=(*_why(failed, audit, days), *stays),
    )


def _why(failed: StepReport, audit: AuditResult | None, days: Sequence[DayReport]) -> Iterator[str]:
    """A sentence for each check that stopped the run, else the step's error. The title names the day if it is one."""
    blocking = [item for item in audit.checks if item.blocks] if audit and failed.name == AUDIT.name else []
    if not blocking:
        yield str(failed.error)
        return
    yield f"{len(blocking):,} critical {'checks' if len(blocking) > 1 else 'check'} did not pass."
    for item in blocking[:_CHECKS_MAX]:
        yield f"{explain(item if len(days) > 1 else replace(item, day=None))}."
    if len(blocking) > _CHECKS_MAX:
        yield f"{len(blocking) - _CHECKS_MAX:,} more are named with the checks."


def _unfinished(states: Sequence[StepReport]) -> Verdict | None:
    stopped = ("not reached", "earlier attempt")
    missing = next((s for s in states if s.status in stopped and s.name not in OPTIONAL), None)
    if missing is None:
        return None
    return Verdict(
        status="unfinished",
        title=f"The run stopped before step {missing.name}",
        sentences=("No step reported a failure; the steps after this point have not run, or have not run again.",),
    )


def _unchanged(days: Sequence[DayReport], plan: Plan | None) -> Verdict | None:
    if days:
        return None
    if unchanged := _unchanged_days(plan):
        title, why = unchanged, "Nothing was rebuilt: a seal already covers everything that is archived."
    else:
        title, why = "No day needs a rebuild", "The plan has no day to rebuild."
    return Verdict(status="unchanged", title=title, sentences=(why, *_ignored(plan)))


def _complete(
    days: Sequence[DayReport], logs: Sequence[LogReport], plan: Plan | None, audit: AuditResult | None
) -> Verdict:
    held = [item for item in days if item.held]
    days = [item for item in days if not item.held]
    lost = sum(log.offsets.lost for log in logs)
    holes = sum(log.causes.unexplained for log in logs)
    names = ", ".join(str(item.day) for item in days)
    verb = "are" if len(days) > 1 else "is"
    status: Literal["complete", "complete with losses", "complete with holes", "days held back"] = "complete"
    title = f"{names} {verb} complete: every offset is accounted for, exactly once"
    sentences = [*_counts(days), *_refilled(logs), *_explained(logs), *_warned(audit)]
    if unchanged := _unchanged_days(plan):
        sentences.append(f"{unchanged}: a seal already covers everything that is archived.")
    sentences += _ignored(plan)
    truncated = [f"{truncation_text(lost)}." for item in plan.logs for lost in item.target.truncated] if plan else []
    if lost or truncated:
        status, title = "complete with losses", f"{names} {verb} sealed with a known loss"
        deleted = [f"Kafka deleted {lost:,} offsets before they were archived.", *_losses(logs)] if lost else []
        sentences = [*deleted, *truncated[:_LOSSES_MAX], *sentences]
    elif holes:
        status, title = "complete with holes", f"{names} {verb} published, with {holes:,} unexplained offsets"
        sentences.insert(0, f"{holes:,} offsets inside archived ranges gave no record, and nothing proves why.")
    if held:
        others = ", ".join(str(item.day) for item in held)
        status, title = "days held back", f"{title}; {others} {'keeps its' if len(held) == 1 else 'keep their'} version"
        sentences = [
            *(f"{item.day} keeps the version that it has: {item.held}. {WAY_OUT}" for item in held),
            *sentences,
        ]
    return Verdict(status=status, title=title, sentences=tuple(sentences))


def _counts(days: Sequence[DayReport]) -> Iterator[str]:
    for item in days:
        yield (
            f"{item.day}, version {item.version}: {item.read:,} records read, {item.published:,} published,"
            f" {item.quarantined:,} quarantined, {item.duplicates_trimmed:,} duplicates trimmed."
            f"{_removed(item)}{_changed(item)}"
        )


def _refilled(logs: Sequence[LogReport]) -> Iterator[str]:
    refilled = sum(log.offsets.refilled for log in logs)
    if refilled:
        lacked = sum(log.offsets.refilled_in_holes for log in logs)
        of_it = f", {lacked:,} of them inside ranges that were archived without these records" if lacked else ""
        yield f"{refilled:,} offsets were missing from the archive and refilled from Kafka{of_it}."


def _warned(audit: AuditResult | None) -> Iterator[str]:
    checks = audit.checks if audit else ()
    warned = sum(item.expected.severity == "warning" and not item.passes for item in checks)
    if warned:
        yield f"{warned} quality {'checks' if warned > 1 else 'check'} of severity warning did not pass."
    if new := sum(item.without_history for item in checks):
        yield f"{new} quality {'checks' if new > 1 else 'check'} had too few earlier days to compare with."


def _unchanged_days(plan: Plan | None) -> str:
    """The days that stay as they are, as the subject and verb of a sentence; empty without any."""
    days = plan.unchanged if plan else ()
    names = ", ".join(day.isoformat() for day in days)
    return f"{names} {'stays as it is' if len(days) == 1 else 'stay as they are'}" if days else ""


def _ignored(plan: Plan | None) -> Iterator[str]:
    for item in (plan.ignored if plan else ())[:_IGNORED_MAX]:
        yield (
            f"{item.day} was not reopened for its late records, at most {item.records_max:,}: it is not among the days"
            " that batch.reopen_days lets this run reopen. To publish them, request the day."
        )
    if plan and len(plan.ignored) > _IGNORED_MAX:
        yield f"{len(plan.ignored) - _IGNORED_MAX:,} more such days are named with the days."


def _removed(day: DayReport) -> str:
    number = day.duplicates_removed
    return f" {number:,} more were removed as duplicates by key." if number else ""


def _changed(day: DayReport) -> str:
    rows, before = day.difference, day.version - 1
    if rows is None:
        return f" What it changed against version {before} is unknown: those rows are missing." if before else ""
    counts = f"{rows.added:,} added, {rows.removed:,} removed, {rows.changed:,} changed"
    return f" Rows against version {before}: {counts}."


def _explained(logs: Sequence[LogReport]) -> Iterator[str]:
    for cause, what in (("transactional", "aborted or transaction markers"), ("compacted", "compacted by Kafka")):
        number = sum(getattr(log.causes, cause) for log in logs)
        if number:
            yield f"{number:,} offsets gave no record because they were {what}."


def _losses(logs: Sequence[LogReport]) -> Iterator[str]:
    """A sentence for each of the first losses; the logs' own sections have all of them."""
    lost = [(log, item) for log in logs for item in log.lost]
    for log, item in lost[:_LOSSES_MAX]:
        number = item.end - item.start
        where = f"{log.topic}-{log.partition} [{item.start}, {item.end})"
        how, most = ("Lost with its deleted topic", "at most ") if item.topic_deleted else ("Lost", "")
        yield f"{how}: {where}, {most}{number:,} offsets, {item.time}."
    if len(lost) > _LOSSES_MAX:
        yield f"{len(lost) - _LOSSES_MAX:,} more lost ranges are named with their logs."
