"""The answer to: may readers use a day as the run leaves it. ``limits`` decides it for every sealed day."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, tzinfo

from tidemark.core.day_summary import DaySummary, may_be_of
from tidemark.core.offsets import count
from tidemark.core.plan import Gap
from tidemark.reconcile.report.outcomes import Outcomes
from tidemark.reconcile.report.values import DayReport, DayUse, Verdict
from tidemark.reconcile.results import AUDIT, PUBLISH, SEAL

_SEALED = {"complete", "complete with losses", "complete with holes", "days held back"}


def day_uses(
    outcomes: Outcomes,
    verdict: Verdict,
    days: Sequence[DayReport],
    zone: tzinfo,
    unchanged: Mapping[date, DaySummary],
) -> tuple[DayUse, ...]:
    """An answer for each day of the run, in order. ``unchanged`` are the summaries of days that stay as they are."""
    plan = outcomes.plan
    published, sealed = outcomes.result(PUBLISH), outcomes.result(SEAL)
    on_main = set(published.days) if published else set()
    proven = {item.day for item in sealed.seals} if sealed else set()
    uses = [_unchanged(day, unchanged.get(day)) for day in (plan.unchanged if plan else ())]
    for item in days:
        if item.day in proven and verdict.status in _SEALED:
            uses.append(_sealed(item, outcomes, zone))
        elif item.day in on_main:
            because = "Its new rows are published, but not sealed: nothing proves them yet."
            uses.append(DayUse(day=item.day, answer="no", because=because, version=item.version))
        else:
            uses.append(_unpublished(item, verdict))
    return tuple(sorted(uses, key=lambda item: item.day))


def limits(*, lost: int, unexplained: int, warned: int | None) -> tuple[str, ...]:
    """What a reader of a sealed day should know, a sentence each; empty if the day may be used without limits.

    ``lost`` and ``unexplained`` count offsets, ``warned`` checks that did not pass; None if only that there are some is
    known.
    """
    found = []
    if lost:
        found.append(f"Of the offsets that are lost for good, {lost:,} may be of this day.")
    if unexplained:
        found.append(f"Of the offsets up to its end, {unexplained:,} have no record, and nothing proves why.")
    if warned is None:
        found.append("Checks of severity warning did not pass.")
    elif warned:
        found.append(f"{warned:,} {'check' if warned == 1 else 'checks'} of severity warning did not pass.")
    return tuple(found)


def limits_of(summary: DaySummary) -> tuple[str, ...]:
    """The limits of a day, as its seal says."""
    warned = None if summary.quality == "warnings" else 0
    return limits(lost=summary.lost_of_day, unexplained=summary.unexplained, warned=warned)


def _unchanged(day: date, summary: DaySummary | None) -> DayUse:
    covers = "Its seal already covers everything that was archived."
    if summary is None:
        unread = f"{covers} What else the seal says could not be read."
        return DayUse(day=day, answer="limited", because=unread, version=None)
    found = limits_of(summary)
    because = " ".join([covers, *found])
    return DayUse(day=day, answer="limited" if found else "yes", because=because, version=summary.version)


def _sealed(item: DayReport, outcomes: Outcomes, zone: tzinfo) -> DayUse:
    logs = outcomes.plan.logs if outcomes.plan else ()
    audit = outcomes.result(AUDIT)
    checks = [found for found in audit.checks if found.day in {None, item.day}] if audit else []
    gaps = [gap for log in logs for gap in log.gaps]
    # What a log lost from its end is in no gap, and no record bounds its time.
    from_ends = [lost.range for log in logs for lost in log.target.truncated]
    undated = count([*from_ends, *(gap.range for gap in gaps if not _has_time(gap))])
    found = limits(
        lost=count(gap.range for gap in gaps if may_be_of(gap, item.day, zone)),
        unexplained=sum(hole.counts["unexplained"] for log in logs for hole in log.holes),
        warned=sum(not check.passes for check in checks),
    )
    passed, unjudged = sum(check.success is True for check in checks), sum(check.without_history for check in checks)
    because = " ".join(found or _complete(passed, unjudged, losses=bool(gaps), undated=undated))
    return DayUse(day=item.day, answer="limited" if found else "yes", because=because, version=item.version)


def _has_time(gap: Gap) -> bool:
    """Whether records on both sides bound the time of lost offsets."""
    around = gap.neighbours
    return around is not None and around.before_us is not None and around.after_us is not None


def _complete(passed: int, unjudged: int, *, losses: bool, undated: int) -> Iterator[str]:
    """Why a day may be used without limits. ``undated`` counts lost offsets without a record on both sides.

    Nothing bounds their time. They limit no day: each later run names them again, so every later day would be limited.
    """
    if undated:
        yield f"Of {undated:,} lost offsets no record shows the day. Every other offset is accounted for, exactly once."
    elif losses:
        yield "The lost offsets are of other days. Every other offset is accounted for, exactly once."
    else:
        yield "Every offset is accounted for, exactly once."
    if not unjudged:
        yield (
            f"{'Its only check' if passed == 1 else f'All {passed:,} checks'} passed."
            if passed
            else "It has no checks."
        )
    else:
        yield f"{passed:,} {'check' if passed == 1 else 'checks'} passed."
        yield f"{unjudged:,} could not be judged yet, because too few earlier days are sealed."


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
