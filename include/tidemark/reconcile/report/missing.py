"""What is missing, where, since when, and whose action it needs."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo

from tidemark.core.days import moment_text
from tidemark.core.delivery import FAILS_NO_RUN
from tidemark.core.loss_text import time_text
from tidemark.core.plan import Neighbours
from tidemark.definitions.own_checks import HOURLY_ROW_COUNTS
from tidemark.reconcile.audit.checks import columns_text
from tidemark.reconcile.report.delivered import command
from tidemark.reconcile.report.outcomes import Outcomes
from tidemark.reconcile.report.values import CheckReport, DayReport, LogReport, LostSpan, Missing, StepReport, Verdict
from tidemark.reconcile.results import AUDIT, FINALIZE_PLAN, SEAL, WAY_OUT

ENGINEER, OWNER, PLATFORM = "data engineer", "owner of the stream", "owner of the platform"


def missing(
    outcomes: Outcomes, days: Sequence[DayReport], logs: Sequence[LogReport], zone: tzinfo
) -> tuple[Missing, ...]:
    """Every gap that the run knows of, what needs a person first."""
    found = [*_gaps(outcomes, logs, zone), *_hours(outcomes), *_days(outcomes, days)]
    found += [*_undelivered(outcomes, days), *_waiting(outcomes)]
    return tuple(sorted(found, key=lambda item: item.who is None))


def _gaps(outcomes: Outcomes, logs: Sequence[LogReport], zone: tzinfo) -> Iterator[Missing]:
    sealed = outcomes.result(SEAL) is not None
    planned = outcomes.by_step.get(FINALIZE_PLAN.name)
    since = f"found by the plan of {planned.started_at[:19].replace('T', ' ')} UTC" if planned else "not known"
    for log in logs:
        name = f"{log.topic}, partition {log.partition}"
        for lost in log.lost:
            yield Missing(
                what="offsets lost: deleted with their topic"
                if lost.topic_deleted
                else "offsets lost: Kafka deleted them before they were archived",
                where=f"{name}, {_span(lost.start, lost.end)}",
                number=lost.end - lost.start,
                since=_time(lost, zone),
                who=None if sealed else OWNER,
                action="None: a seal or a person has accepted the loss."
                if sealed
                else "Ask the producer whether the records can be sent again. If not, accept the loss.",
            )
        for gap in log.unfilled:
            yield Missing(
                what="offsets that are not archived, and still in Kafka",
                where=f"{name}, {_span(gap.start, gap.end)}",
                number=gap.end - gap.start,
                since=since,
                who=ENGINEER,
                action="Repeat the step refill before retention deletes the records.",
            )
        for hole in log.holes:
            if hole.counts["unexplained"]:
                yield Missing(
                    what="unexplained offsets: no record and no known cause",
                    where=f"{name}, inside {_span(hole.start, hole.end)}",
                    number=hole.counts["unexplained"],
                    since=since,
                    who=ENGINEER,
                    action="Search for the offsets with 'tidemark where', and ask the producer what they were.",
                )


def _hours(outcomes: Outcomes) -> Iterator[Missing]:
    """The hours with fewer rows than the check of rows per hour expects."""
    audit = outcomes.result(AUDIT)
    for item in audit.checks if audit else ():
        if item.expected.expectation == HOURLY_ROW_COUNTS and item.success is False:
            for hour in item.examples:
                if hour["rows"] < hour["low"]:
                    yield Missing(
                        what=f"rows of an hour: {hour['rows']:,}, usually {hour['usual']:,}",
                        where=f"{item.day}, {hour['hour']:02}:00",
                        number=hour["usual"] - hour["rows"],
                        since="found by the audit",
                        who=OWNER,
                        action="Ask the producer whether the records of this hour were sent.",
                    )


def _time(lost: LostSpan, zone: tzinfo) -> str:
    """When the lost records were written, to the minute, as far as the records around them show it."""
    return time_text(Neighbours(before_us=lost.before_us, after_us=lost.after_us), zone, _minute)


def _minute(time_us: int, zone: tzinfo) -> str:
    return moment_text(time_us, zone)[:16].replace("T", " ")


def _days(outcomes: Outcomes, days: Sequence[DayReport]) -> Iterator[Missing]:
    for day in days:
        if day.held:
            yield Missing(
                what="held-back days: readers keep the earlier version",
                where=str(day.day),
                number=1,
                since="found by this run",
                who=OWNER,
                action=WAY_OUT,
            )
    for item in outcomes.plan.ignored if outcomes.plan else ():
        yield Missing(
            what="late records that are not published (upper bound)",
            where=str(item.day),
            number=item.records_max,
            since="after the day was sealed",
            who=OWNER,
            action="The day is too old for batch.reopen_days, so no run reopens it by itself. Request it if its "
            "readers need the records.",
        )


def _undelivered(outcomes: Outcomes, days: Sequence[DayReport]) -> Iterator[Missing]:
    for day in days:
        if day.delivery is not None and outcomes.plan is not None and (number := day.delivery.total("missing")):
            yield Missing(
                what="archived records that are on neither the live nor the dead-letter topic",
                where=str(day.day),
                number=number,
                since="found by step delivery",
                who=ENGINEER,
                action=command(outcomes.plan.stream, day.day),
            )


def _waiting(outcomes: Outcomes) -> Iterator[Missing]:
    finalized = outcomes.result(FINALIZE_PLAN)
    for link in finalized.archive.broken_links if finalized else ():
        yield Missing(
            what="manifests that were deleted or altered",
            where=f"writer {link.writer}, before batch {link.batch}",
            number=1,
            since="not known",
            who=PLATFORM,
            action="Restore the manifest from a copy of the bucket.",
        )
    for line in finalized.retention.lines if finalized else ():
        yield Missing(
            what="logs with unarchived records that Kafka will delete soon",
            where=line,
            number=1,
            since="found by step finalize_plan",
            who=ENGINEER,
            action="Start the archive stream, or lengthen the topic's retention.",
        )


def _span(start: int, end: int) -> str:
    return f"[{start:,}, {end:,})"


def todo(
    verdict: Verdict,
    steps: Sequence[StepReport],
    found: Sequence[Missing],
    checks: Sequence[CheckReport],
    *,
    delivery: Sequence[str],
) -> tuple[str, ...]:
    """What to do now, the most urgent first; empty if nothing is to be done. ``delivery``: about the live topic."""
    actions: list[str] = []
    if verdict.status == "waiting":
        actions.append("Approve or reject the days, on their page in Airflow or with the task approve.")
    failed = next((step for step in steps if step.status == "failed"), None)
    if failed is not None and failed.name in FAILS_NO_RUN:
        actions.append(f"Correct what stopped step {failed.name}, and clear its task: see the steps below.")
    elif failed is not None:
        actions.append(f"Correct what stopped step {failed.name}, and start a new run: see the steps below.")
    elif verdict.status == "unfinished":
        actions.append("Let the run continue in Airflow, or start a new run of the days.")
    if newly := [item for item in checks if item.newly]:
        actions.append(f"Compare with the day before, which passed: {_names(newly)}.")
    if failing := [item for item in checks if not item.passes]:
        actions.append(f"Correct the records, the transformation or the check: {_names(failing)}.")
    actions += [f"{item.who}: {item.action}" for item in found if item.who is not None]
    actions += [f"{ENGINEER}: {item}" for item in delivery]
    return tuple(dict.fromkeys(actions))


def _names(checks: Sequence[CheckReport]) -> str:
    """The checks, each with its columns."""
    names = []
    for item in checks:
        columns = columns_text(item.kwargs)
        names.append(item.about or (f"{item.expectation} ({columns})" if columns else item.expectation))
    return ", ".join(dict.fromkeys(names))
