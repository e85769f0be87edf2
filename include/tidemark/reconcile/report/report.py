"""The report of a run: the outcomes of its steps as values, and one self-contained page.

It is made after a failure as well: a step that was not reached is shown as not reached. The same outcomes give the same
bytes, because nothing of the present goes in.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tidemark.core.codec import encode
from tidemark.core.layout import data_docs_name
from tidemark.core.plan import DayPlan
from tidemark.reconcile.lineage import run_ended
from tidemark.reconcile.report.checks import check_rows, newly_failing
from tidemark.reconcile.report.days import day_reports
from tidemark.reconcile.report.delivered import command, delivery_sentences, differs, not_compared
from tidemark.reconcile.report.history import CHECKED_DAYS, DaysBefore, read_history
from tidemark.reconcile.report.index import write_index
from tidemark.reconcile.report.logs import log_report
from tidemark.reconcile.report.missing import missing, todo
from tidemark.reconcile.report.outcomes import Outcomes, read_outcomes
from tidemark.reconcile.report.page import render
from tidemark.reconcile.report.use import day_uses
from tidemark.reconcile.report.values import (
    FORMAT,
    ApprovalReport,
    BrokenChain,
    CheckReport,
    DayDocument,
    Quality,
    Report,
    Snapshots,
)
from tidemark.reconcile.report.verdict import make_verdict
from tidemark.reconcile.results import (
    APPROVE,
    AUDIT,
    FINALIZE_PLAN,
    NOT_ENDED,
    PLAN,
    PUBLISH,
    REBUILD,
    REPORT,
    SEAL,
    ApproveResult,
    AuditResult,
)
from tidemark.run import Run


def report_run(run: Run, *, waiting: Sequence[str] = ()) -> str:
    """Write ``report.json`` and ``report.html`` into the run's folder, and the stream's index; the page's key.

    ``waiting`` is what a person has to approve: the run has not ended then.
    """
    with run.step(REPORT) as attempt:
        run.store.put(run.layout.last_run_key, run.name.encode(), content_type="text/plain")
        outcomes = read_outcomes(run)
        plan = outcomes.plan
        history = read_history(
            run,
            [item.day for item in plan.days] if plan else (),
            outcomes.ended_at,
            unchanged=plan.unchanged if plan else (),
        )
        report = attempt.result = make_report(run, outcomes, history=history, waiting=waiting)
        key: str = report["html_key"]
        run.store.put(key, render(report).encode(), content_type="text/html; charset=utf-8")
        write_index(run, report)
        if not waiting:
            _send_end(run, outcomes, report["verdict"])
        return key


def _send_end(run: Run, outcomes: Outcomes, verdict: Mapping[str, Any]) -> None:
    planned, sealed = outcomes.result(PLAN), outcomes.result(SEAL)
    run_ended(
        run,
        planned.requested if planned else (),
        error=f"{verdict['title']}: {' '.join(verdict['sentences'])}" if verdict["status"] in NOT_ENDED else None,
        rebuilt=outcomes.result(REBUILD),
        versions={item.day: item.version for item in sealed.seals} if sealed else None,
    )


def make_report(
    run: Run, outcomes: Outcomes, *, history: DaysBefore | None = None, waiting: Sequence[str] = ()
) -> dict[str, Any]:
    """The report as one JSON object; its schema is that of ``Report``. None stands for a step that never ran."""
    known = history or DaysBefore()
    plan, audit, approved = outcomes.plan, outcomes.result(AUDIT), outcomes.result(APPROVE)
    days = day_reports(outcomes, known, run.layout, run.stream.zone)
    logs = tuple(log_report(item, outcomes, run.stream.zone) for item in plan.logs) if plan else ()
    states = outcomes.states(run)
    finalized, planned = outcomes.result(FINALIZE_PLAN), outcomes.result(PLAN)
    archive = finalized.archive if finalized else planned.archive if planned else None
    published = outcomes.result(PUBLISH)
    verdict = make_verdict(
        *(states, days, logs, plan, audit),
        approved=approved,
        waiting=waiting,
        delivery=tuple(delivery_sentences(outcomes, days)),
    )
    found = missing(outcomes, days, logs, run.stream.zone)
    quality = _quality(audit, plan.days if plan else (), known)
    return encode(  # type: ignore[no-any-return]  # of a dataclass it is an object
        Report(
            format=FORMAT,
            stream=run.stream.name,
            topic=run.stream.topic,
            run=run.name,
            time_zone=run.stream.time_zone,
            ended_at=None if outcomes.ended_at is None else outcomes.ended_at.isoformat(timespec="seconds"),
            verdict=verdict,
            use=day_uses(outcomes, verdict, days, run.stream.zone, known.unchanged),
            days=days,
            unchanged=plan.unchanged if plan else (),
            ignored=plan.ignored if plan else (),
            missing=found,
            not_compared=not_compared(outcomes),
            reopen_days=run.stream.batch.reopen_days,
            todo=todo(
                *(verdict, states, found, quality.checks),
                delivery=[command(run.stream.name, item.day) for item in days if differs(item)],
            ),
            logs=logs,
            broken_links=tuple(
                BrokenChain(**encode(item), finding=str(item)) for item in (archive.broken_links if archive else ())
            ),
            retention=finalized.retention if finalized else None,
            hole_notes=finalized.holes.notes if finalized and finalized.holes else (),
            quality=quality,
            approval=_approval(approved) if approved else None,
            steps=states,
            snapshots=Snapshots(
                snapshot_id=published.snapshot_id if published else None,
                quarantine_snapshot_id=published.quarantine_snapshot_id if published else None,
            ),
            notes=known.notes,
            html_key=run.layout.run_key(run.name, "report.html"),
        )
    )


def _quality(audit: AuditResult | None, days: Sequence[DayPlan], history: DaysBefore) -> Quality:
    """The checks of the run, with the results that those of its newest day had before."""
    if audit is None or not days:
        return Quality(
            passed=audit.passed if audit else None,
            note=audit.note if audit else None,
            checks=(),
            history=(),
            data_docs=(),
        )
    own = {item.day: audit for item in days}
    audits = {**history.audits, **own}
    return Quality(
        passed=audit.passed,
        note=audit.note,
        checks=tuple(
            CheckReport(
                day=item.day,
                expectation=item.expected.expectation,
                kwargs=item.expected.kwargs,
                severity=item.expected.severity,
                built_in=item.expected.built_in,
                about=item.expected.about,
                success=item.success,
                passes=item.passes,
                observed=item.observed,
                exception=item.exception,
                examples=item.examples,
                newly=newly_failing(item, audits if item.day else history.audits),
            )
            for item in audit.checks
        ),
        data_docs=tuple(DayDocument(day=day, name=data_docs_name(day)) for day in audit.data_docs),
        history=check_rows(dict(sorted(audits.items(), reverse=True)[:CHECKED_DAYS])),
    )


def _approval(found: ApproveResult) -> ApprovalReport:
    return ApprovalReport(
        decision=found.decision,
        by=found.approval.by,
        at=datetime.fromtimestamp(found.approval.at_us // 1_000_000, UTC).isoformat(),
        words=found.approval.words,
        findings=found.findings,
    )
