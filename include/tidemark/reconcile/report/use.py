"""The answer to: may readers use a day as the run leaves it."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo

from tidemark.core.day_summary import may_be_of
from tidemark.core.offsets import count
from tidemark.reconcile.report.outcomes import Outcomes
from tidemark.reconcile.report.values import DayReport, DayUse, Verdict
from tidemark.reconcile.results import AUDIT, PUBLISH, SEAL

_SEALED = {"complete", "complete with losses", "complete with holes", "days held back"}


def day_uses(outcomes: Outcomes, verdict: Verdict, days: Sequence[DayReport], zone: tzinfo) -> tuple[DayUse, ...]:
    """An answer for each day of the run, in order."""
    plan = outcomes.plan
    published, sealed = outcomes.result(PUBLISH), outcomes.result(SEAL)
    on_main = set(published.days) if published else set()
    proven = {item.day for item in sealed.seals} if sealed else set()
    uses = [
        DayUse(day=day, answer="yes", because="Its seal already covers everything that was archived.", version=None)
        for day in (plan.unchanged if plan else ())
    ]
    for item in days:
        if item.day in proven and verdict.status in _SEALED:
            uses.append(_sealed(item, outcomes, zone))
        elif item.day in on_main:
            because = "Its new rows are published, but not sealed: nothing proves them yet."
            uses.append(DayUse(day=item.day, answer="no", because=because, version=item.version))
        else:
            uses.append(_unpublished(item, verdict))
    return tuple(sorted(uses, key=lambda item: item.day))


def _sealed(item: DayReport, outcomes: Outcomes, zone: tzinfo) -> DayUse:
    limits = list(_limits(item, outcomes, zone))
    because = " ".join(limits) or "Every offset is accounted for, exactly once, and every check passed."
    return DayUse(day=item.day, answer="limited" if limits else "yes", because=because, version=item.version)


def _limits(item: DayReport, outcomes: Outcomes, zone: tzinfo) -> Iterator[str]:
    """What a reader of a sealed day should know."""
    logs = outcomes.plan.logs if outcomes.plan else ()
    lost = count(gap.range for log in logs for gap in log.gaps if may_be_of(gap, item.day, zone))
    unexplained = sum(hole.counts["unexplained"] for log in logs for hole in log.holes)
    audit = outcomes.result(AUDIT)
    warned = sum(not found.passes for found in audit.checks if found.day in {None, item.day}) if audit else 0
    if lost:
        yield f"Of the offsets that are lost for good, {lost:,} may be of this day."
    if unexplained:
        yield f"Of the offsets up to its end, {unexplained:,} have no record, and nothing proves why."
    if warned:
        yield f"{warned:,} {'check' if warned == 1 else 'checks'} of severity warning did not pass."


def _unpublished(item: DayReport, verdict: Verdict) -> DayUse:
    """The day's new version is not there: readers see the one before, if there is one."""
    earlier = item.version - 1
    if verdict.status == "waiting":
        why = "A person has to approve the new version first."
    elif item.held:
        why = "Its new version is held back."
    else:
        why = f"The run has not published version {item.version}."
    if not earlier:
        return DayUse(day=item.day, answer="no", because=f"{why} There is no earlier version.", version=None)
    if item.reason == "unproven":
        because = f"{why} Readers see rows that an earlier run published and did not seal."
        return DayUse(day=item.day, answer="no", because=because, version=earlier)
    missing = " It lacks the late records." if item.reason == "late" else ""
    return DayUse(
        day=item.day, answer="limited", because=f"{why} Readers see version {earlier}.{missing}", version=earlier
    )
