"""Step approve: what a person is asked, what an answer does, and where it stays."""

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from tests.batch.logs import MONDAY, TUESDAY, Log, at, drop_below
from tests.batch.test_seal import WARNED, finalized, finish, two_days
from tidemark.core.approval import Approval
from tidemark.core.errors import ApprovalError, IncompleteError
from tidemark.inspect.last_run import read_last_run
from tidemark.orchestration.tasks import Request, approve_now, complete
from tidemark.reconcile.approval import WITH_REQUEST, ApprovalQuestion, decide, open_question, require_approval
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.report.outcomes import read_outcomes
from tidemark.reconcile.report.report import make_report, report_run
from tidemark.reconcile.results import APPROVE, AUDIT, PUBLISH, REPORT, ApprovalFinding, HeldDay
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.tables.seals import read_seal

NOON = datetime(2013, 1, 16, 12, tzinfo=UTC)
NOON_US = 1_358_337_600_000_000
ANNA = Approval(by="anna", at_us=NOON_US, words="the airport was closed")


def warned(day: date) -> ApprovalFinding:
    return ApprovalFinding(kind="warning", day=day, text=f"{day}: expect_b: failed, observed –")


def with_warning(log: Log, *approval: str) -> Run:
    """A run of two days. Monday failed a warning."""
    two_days(log)
    finalized(log, "run-1", MONDAY, TUESDAY)
    run = log.run("run-1", approval=approval)
    finish(run, {MONDAY: 10, TUESDAY: 5}, checks=(replace(WARNED, day=MONDAY),))
    return run


def with_loss(log: Log, *, loss_accepted_by: str | None = None, **batch: object) -> Run:
    """A run of Monday, of which retention took the offsets 10 to 19."""
    for hour in (9, 10, 11):
        log.produce(10, at(MONDAY, hour))
    log.archive(0, 10)
    log.archive(20, 30)
    drop_below(log, 20)
    run = log.run("run-1", **batch)
    plan_run(run, [MONDAY], False, loss_accepted_by=loss_accepted_by)
    finalize_plan_run(run)
    finish(run, {MONDAY: 20})
    return run


def audited(run: Run, **changes: Any) -> None:
    """Another audit, with the same checks."""
    before = run.require(AUDIT)
    with run.step(AUDIT) as audit:
        audit.result = replace(before, **changes)


def question(run: Run) -> ApprovalQuestion:
    found = open_question(run)
    assert found is not None
    return found


def sealed(log: Log, run: Run, day: date) -> Approval | None:
    """What the seals name after the run has published and sealed its days."""
    with run.step(PUBLISH) as published:
        published.result = run.require(PUBLISH)
    seal_run(run)
    seal = read_seal(log.store, log.layout, day, 1)
    assert seal is not None
    return seal.approval


def test_nothing_is_asked_about_a_failed_warning_unless_the_stream_wants_it(log: Log) -> None:
    run = with_warning(log, "losses")
    assert open_question(run) is None
    require_approval(run)
    assert sealed(log, run, MONDAY) is None
    assert run.outcome(APPROVE) is None


def test_an_approved_warning_is_named_by_the_seal_of_its_day_and_by_the_report(log: Log) -> None:
    run = with_warning(log, "warnings", "losses")
    asked = question(run)
    assert asked.findings == (warned(MONDAY),)
    assert asked.subject == f"Publish {MONDAY}, {TUESDAY} of stream {log.stream.name} in spite of 1 failed check?"
    with pytest.raises(ApprovalError, match="expected an approval of these rows, found none"):
        require_approval(run)

    decide(run, "approved", by="anna", words=" the airport was closed ", at=NOON)

    require_approval(run)
    assert open_question(run) is None
    assert sealed(log, run, MONDAY) == ANNA
    assert sealed(log, run, TUESDAY) is None
    report = make_report(run, read_outcomes(run))
    assert report["approval"] == {
        "decision": "approved",
        "by": "anna",
        "at": "2013-01-16T12:00:00+00:00",
        "words": "the airport was closed",
        "findings": [{"kind": "warning", "day": str(MONDAY), "text": warned(MONDAY).text}],
    }
    assert "Approved by anna, 2013-01-16 12:00:00 UTC: the airport was closed." in report["verdict"]["sentences"]


@pytest.mark.parametrize("words", ["a holiday", "A holiday."])
def test_an_approval_is_one_sentence(words: str) -> None:
    said = replace(ANNA, words=words).sentence
    assert said == f"Approved by anna, 2013-01-16 12:00:00 UTC: {words.rstrip('.')}."


def test_a_rejected_day_is_not_published_and_a_person_can_decide_again(log: Log) -> None:
    run = with_warning(log, "warnings")
    with pytest.raises(ApprovalError, match=r"a person has rejected the days: found anna, .*: the airport was closed"):
        decide(run, "rejected", by="anna", words=ANNA.words, at=NOON)
    with pytest.raises(ApprovalError, match="found a person has rejected the days"):
        require_approval(run)
    verdict = make_report(run, read_outcomes(run))["verdict"]
    assert (verdict["status"], verdict["title"]) == ("failed", f"{MONDAY}, {TUESDAY} failed at step approve")
    assert question(run).findings == (warned(MONDAY),)


def test_an_approval_is_valid_for_the_audited_rows_only(log: Log) -> None:
    run = with_warning(log, "warnings")
    decide(run, "approved", by="anna", words="", at=NOON)
    audited(run, staged=7)
    assert question(run).findings == (warned(MONDAY),)
    with pytest.raises(ApprovalError, match="found one of other rows"):
        require_approval(run)


@pytest.mark.parametrize("changes", [{"staged": 7}, {"checks": (replace(WARNED, day=TUESDAY),)}])
def test_an_approval_of_another_question_than_the_present_one_is_refused(log: Log, changes: dict[str, Any]) -> None:
    run = with_warning(log, "warnings")
    asked = question(run).digest
    audited(run, **changes)
    with pytest.raises(ApprovalError, match="audited its days again after it asked for approval"):
        decide(run, "approved", by="anna", words="", asked=asked)
    with pytest.raises(ApprovalError, match="before they are published"):
        require_approval(run)
    decide(run, "approved", by="anna", words="", asked=question(run).digest)
    require_approval(run)


def test_a_day_that_is_held_back_asks_nothing_because_it_is_not_published(log: Log) -> None:
    run = with_warning(log, "warnings")
    audited(run, held=(HeldDay(day=MONDAY, because="its object is damaged"),))
    assert open_question(run) is None


def test_a_loss_waits_for_a_person_where_the_stream_wants_that(log: Log) -> None:
    run = with_loss(log, approval=("losses",))
    asked = question(run)
    (finding,) = asked.findings
    assert (finding.kind, finding.day) == ("loss", None)
    assert finding.text.startswith(f"{log.stream.topic}-0 [10, 20) lost to retention: 10 offsets, between records of")
    assert asked.subject == f"Publish {MONDAY} of stream {log.stream.name} in spite of 1 loss?"
    assert f"- Loss: {finding.text}" in asked.body("s3://bucket/report.html")

    decide(run, "approved", by="anna", words=ANNA.words, at=NOON)

    assert sealed(log, run, MONDAY) == ANNA
    assert open_question(log.run("run-1")) is None


def test_a_loss_that_the_request_accepts_is_approved_in_the_name_of_who_asked(log: Log) -> None:
    run = with_loss(log, loss_accepted_by="berta")
    with pytest.raises(ApprovalError, match="found none"):
        require_approval(run)
    assert open_question(run) is None
    found = sealed(log, run, MONDAY)
    assert found is not None
    assert (found.by, found.words) == ("berta", WITH_REQUEST)


def test_a_loss_that_the_definition_accepts_names_nobody(log: Log) -> None:
    run = with_loss(log, accept_loss=True, approval=("losses",))
    assert open_question(run) is None
    assert sealed(log, run, MONDAY) is None


def test_a_run_that_waits_has_a_report_that_says_so(log: Log) -> None:
    run = with_loss(log, approval=("losses",))
    asked = question(run)
    assert report_run(run, waiting=asked.sentences) == log.layout.run_key("run-1", "report.html")
    verdict = run.require(REPORT)["verdict"]
    title = f"{MONDAY}: a person has to approve"
    assert verdict == {"status": "waiting", "title": title, "sentences": asked.sentences}
    last = read_last_run(log.store, log.layout)
    assert last is not None
    assert (last.verdict, last.failed) == ("waiting", False)
    with pytest.raises(IncompleteError, match="a person has to approve"):
        complete(run)


def test_outside_airflow_the_error_says_how_to_approve_and_the_words_of_the_command_do(log: Log) -> None:
    run = with_warning(log, "warnings")
    request = Request(days=(MONDAY, TUESDAY), force=False, by="berta")
    command = f"tidemark reconcile {log.stream.name} --from {MONDAY} --to {TUESDAY} --approve 'your reason'"
    with pytest.raises(ApprovalError, match=command) as refused:
        approve_now(run, request)
    assert warned(MONDAY).text in str(refused.value)
    assert approve_now(run, replace(request, approve="it was a holiday"))
    found = sealed(log, run, MONDAY)
    assert found is not None
    assert (found.by, found.words) == ("berta", "it was a holiday")


def test_a_long_list_of_findings_is_cut_and_its_text_is_on_one_line_each() -> None:
    findings = tuple(ApprovalFinding(kind="loss", day=None, text=f"a\n# {number}") for number in range(25))
    asked = ApprovalQuestion(stream="s", days=(MONDAY,), findings=findings, staged=1)
    assert asked.subject == f"Publish {MONDAY} of stream s in spite of 25 losses?"
    assert asked.sentences[0] == "Loss: a\\n# 0"
    assert asked.sentences[20:] == ["5 more, which the report names"]
