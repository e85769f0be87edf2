"""Step ``approve``: a person decides on days with failed warnings or new losses, between their audit and publication.

The decision is bound to the audited rows: after another rebuild it is asked for again. Nothing is asked where the
stream's ``batch.approval`` does not want it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal, NoReturn

from tidemark.core.approval import Approval
from tidemark.core.codec import encode
from tidemark.core.days import micros
from tidemark.core.errors import ApprovalError
from tidemark.core.manifest import canonical_json, digest
from tidemark.core.text import as_markdown, printable
from tidemark.reconcile.audit.checks import explain
from tidemark.reconcile.results import (
    APPROVE,
    AUDIT,
    FINALIZE_PLAN,
    PLAN,
    ApprovalFinding,
    ApproveResult,
    new_run_hint,
)
from tidemark.run import Run

Decision = Literal["approved", "rejected", "rebuild"]
FINDINGS_MAX = 20
WITH_REQUEST = "accepted the loss with the request of the run"
_KINDS = {"warning": "failed check", "loss": "loss"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalQuestion:
    """What a person is asked before the days of a run are published."""

    stream: str
    days: tuple[date, ...]
    findings: tuple[ApprovalFinding, ...]
    staged: int | None

    @property
    def digest(self) -> str:
        """The same for the same question about the same rows only."""
        return digest(canonical_json(encode(self)))

    @property
    def subject(self) -> str:
        """The question in one line."""
        counts = []
        for kind, name in _KINDS.items():
            number = sum(item.kind == kind for item in self.findings)
            if number:
                counts.append(f"{number} {name}{_plural(name) if number > 1 else ''}")
        return f"Publish {', '.join(map(str, self.days))} of stream {self.stream} in spite of {' and '.join(counts)}?"

    def body(self, report: str) -> str:
        """What was found, and what each answer does, as Markdown."""
        return "\n\n".join(
            [
                "\n".join(f"- {as_markdown(text)}" for text in self.sentences),
                f"[The report of the run, as it is now]({report})",
                "**Approve** publishes and seals the days. Your name, the time and your words go into each seal.",
                "**Reject** ends the run. Readers keep the days as they were.",
                "**Rebuild** ends the run, and starts a new one for the same days. Correct the cause first.",
            ]
        )

    @property
    def sentences(self) -> list[str]:
        """A sentence for each finding, at most ``FINDINGS_MAX``."""
        texts = [f"{_KINDS[item.kind].capitalize()}: {printable(item.text)}" for item in self.findings[:FINDINGS_MAX]]
        more = len(self.findings) - FINDINGS_MAX
        return [*texts, f"{more:,} more, which the report names"] if more > 0 else texts


def open_question(run: Run) -> ApprovalQuestion | None:
    """What a person has to decide now; None where there is nothing, or where it is decided.

    A loss that a person accepted with the run's request is approved here, unless there is more to decide.
    """
    found = _findings(run)
    if not found or _approved(run, found) is not None:
        return None
    by = run.require(PLAN).loss_accepted_by
    if by is not None and all(item.kind == "loss" for item in found):
        decide(run, "approved", by=by, words=WITH_REQUEST)
        return None
    return _question(run, found)


def _question(run: Run, found: tuple[ApprovalFinding, ...]) -> ApprovalQuestion:
    return ApprovalQuestion(stream=run.stream.name, days=_days(run), findings=found, staged=run.require(AUDIT).staged)


def decide(
    run: Run, decision: Decision, *, by: str, words: str, at: datetime | None = None, asked: str | None = None
) -> None:
    """Save a person's decision on what is found now. Raises ApprovalError unless it is an approval.

    ``asked`` is the digest of the question that the person has answered, None if the person was asked nothing.
    An approval of an earlier question is refused.
    """
    with run.step(APPROVE) as attempt:
        if decision == "approved" and asked is not None and asked != _question(run, _findings(run)).digest:
            raise ApprovalError(
                "the run rebuilt or audited its days again after it asked for approval",
                expected="an answer about the current rows",
                found=f"an approval of earlier rows by {by}",
                where=run.key(AUDIT.name),
                hint="In Airflow, clear the task 'approve': it then asks about the current rows",
            )
        approval = Approval(by=by, at_us=micros(at or datetime.now(UTC)), words=words.strip())
        attempt.result = ApproveResult(
            decision=decision, approval=approval, findings=_findings(run), staged=run.require(AUDIT).staged
        )
        if decision == "approved":
            return
        said = {"rejected": "a person has rejected the days", "rebuild": "a person wants the days rebuilt"}
        raise ApprovalError(
            said[decision],
            found=approval,
            where=run.key(APPROVE.name),
            hint="Correct the cause. " + new_run_hint(run.stream.name, _days(run))
            if decision == "rejected"
            else "A new run of the days was started",
        )


def refuse(run: Run, question: ApprovalQuestion, *, hint: str) -> NoReturn:
    """Save that the run can't wait for the person's decision, and raise ApprovalError with what is asked."""
    with run.step(APPROVE):
        raise ApprovalError(
            "a person has to approve the days",
            expected="an approval",
            found="; ".join(question.sentences),
            where=f"run {run.name} of stream {run.stream.name}",
            hint=hint,
        )


def require_approval(run: Run) -> None:
    """Raise ApprovalError where the audited rows need an approval and have none."""
    found = _findings(run)
    if found and _approved(run, found) is None:
        outcome = run.outcome(APPROVE)
        raise ApprovalError(
            "a person has to approve the days before they are published",
            expected="an approval of these rows",
            found="none" if outcome is None else outcome.error or "one of other rows",
            where=run.key(APPROVE.name),
            hint="In Airflow, clear the task 'approve' and answer it",
        )


def approvals(run: Run) -> dict[date, Approval]:
    """The approval of each day that something was asked about."""
    result = _approved(run, ())
    if result is None:
        return {}
    asked = {item.day for item in result.findings}
    return {day: result.approval for day in _days(run) if asked & {None, day}}


def _approved(run: Run, found: Sequence[ApprovalFinding]) -> ApproveResult | None:
    """The approval of the audited rows, if it covers what is found."""
    outcome = run.outcome(APPROVE)
    result = outcome.result if outcome is not None and outcome.status == "ok" else None
    if result is None or result.staged != run.require(AUDIT).staged or not set(found) <= set(result.findings):
        return None
    return result


def _days(run: Run) -> tuple[date, ...]:
    """The days that the run would publish."""
    return tuple(item.day for item in run.require(AUDIT).passed_days(run.require(FINALIZE_PLAN).plan))


def _findings(run: Run) -> tuple[ApprovalFinding, ...]:
    days = set(_days(run))
    return (*_warnings(run, days), *_losses(run)) if days else ()


def _warnings(run: Run, days: set[date]) -> Iterator[ApprovalFinding]:
    if "warnings" not in run.stream.batch.approval:
        return
    for item in run.require(AUDIT).checks:
        if item.expected.severity == "warning" and not item.passes and item.day in days:
            yield ApprovalFinding(kind="warning", day=item.day, text=explain(item))


def _losses(run: Run) -> Iterator[ApprovalFinding]:
    # The time of a loss is only bounded, so every day that is sealed after it names it.
    for text in run.require(FINALIZE_PLAN).losses:
        yield ApprovalFinding(kind="loss", day=None, text=text)


def _plural(name: str) -> str:
    return "es" if name.endswith("s") else "s"
