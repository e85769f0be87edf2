"""What a Spark step reports to Airflow: this attempt's own reason, never an earlier one's; its form and its days."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeStream
from tests.core.worlds import seal_of
from tidemark.core.codec import encode
from tidemark.core.errors import IncompleteError
from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT
from tidemark.orchestration.tasks import reason
from tidemark.reconcile.results import (
    FINALIZE_PLAN,
    AuditResult,
    DeduplicatedBy,
    HeldDay,
    RebuildResult,
    StagedRows,
)
from tidemark.run import Run, run_name
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack

ATTEMPTS = Path(__file__).with_name("attempts.py")
KILLED = ("AirflowException", "spark-submit ended with code 137")
VERDICT = "critical checks failed"
BECAUSE = "2013-01-14: every record occurs once: failed, observed 7"


def outcome(
    result: AuditResult | RebuildResult | None, *, error: str | None = None, kind: str | None = None, attempt: int = 1
) -> dict[str, Any]:
    """The saved outcome of an ``attempt``, without its step's name."""
    return {
        "status": "failed" if error else "ok",
        "error": error,
        "kind": kind,
        "started_at": f"2013-01-15T0{attempt}:00:00.000+00:00",
        "seconds": 1.0,
        "result": encode(result),
    }


def failed(kind: str, error: str, attempt: int = 1, *, rows_failed: bool | None = None) -> dict[str, Any]:
    """A failed attempt and the class of its error; with ``rows_failed`` an audit's that came as far as a result."""
    result = None if rows_failed is None else AuditResult(staged=1, passed=False, held=(), rows_failed=rows_failed)
    return outcome(result, error=error, kind=kind, attempt=attempt)


def rebuilt(snapshot: int = 1, *, attempt: int = 1) -> dict[str, Any]:
    """A rebuild that wrote this snapshot."""
    staged = StagedRows(base=0, snapshot=snapshot)
    by = DeduplicatedBy(key=(), keep="first")
    return outcome(RebuildResult(plan="", inputs="", deduplicated_by=by, staged=staged), attempt=attempt)


def held(*days: date) -> dict[str, Any]:
    """An audit that passed, but for days that it holds back."""
    held = tuple(HeldDay(day=day, because=BECAUSE) for day in days)
    return outcome(AuditResult(staged=1, passed=True, held=held))


def reported(status: str) -> dict[str, Any]:
    """A report with this verdict."""
    verdict = {"status": status, "title": "The day failed at step publish", "sentences": ["S3 is away"]}
    return {**outcome(None), "result": {"verdict": verdict}}


# By run, in their order: the step of each attempt, and the results that it saves.
RUNS: dict[str, list[tuple[str, dict[str, dict[str, Any]]]]] = {
    "audited": [
        ("audit", {"audit": failed("QualityError", VERDICT, rows_failed=True)}),
        ("audit", {}),
        ("audit", {"audit": failed("ServiceError", "S3 is away", 3)}),
        ("audit", {"audit": failed("QualityError", "a check could not be made", 4, rows_failed=False)}),
        ("audit", {"audit": failed("QualityError", VERDICT, 5, rows_failed=True)}),
    ],
    "rebuilt": [
        ("rebuild", {"rebuild": rebuilt(), "audit": failed("QualityError", VERDICT, 2, rows_failed=True)}),
        ("audit", {}),
        ("audit", {"audit": held()}),
        ("audit", {}),
    ],
    "rebuilt-later": [
        ("rebuild", {"rebuild": rebuilt(snapshot=2), "audit": failed("QualityError", VERDICT, 2, rows_failed=True)}),
        ("audit", {}),
    ],
    "not-audited": [
        ("rebuild", {"rebuild": rebuilt(), "audit": failed("ServiceError", "S3 is away", 2, rows_failed=False)}),
        ("audit", {}),
    ],
    "damaged": [
        ("rebuild", {"rebuild": rebuilt(), "audit": {**outcome(None), "result": {"passed": "no"}}}),
        ("audit", {}),
        ("audit", {}),
        ("audit", {"audit": held()}),
    ],
    "killed-after": [("rebuild", {"rebuild": rebuilt(attempt=2), "audit": held()}), ("audit", {})],
    "published": [
        ("publish", {"publish": failed("ConflictError", "a day moved")}),
        ("publish", {"publish": failed("Py4JJavaError", "Spark is away", 2)}),
        ("publish", {}),
    ],
    "saved": [("publish", {"publish": outcome(None)})],
    "silent": [
        ("publish", {}),
        ("publish", {"publish": failed("ConflictError", "a day moved")}),
        ("publish", {"publish": outcome(None)}),
    ],
    "held-back": [
        ("complete", {"audit": held(date(2013, 1, 14)), "report": reported("days held back")}),
        ("complete", {"audit": held(), "report": reported("complete")}),
    ],
    "stopped": [
        ("complete", {}),
        ("complete", {"audit": held(), "report": reported("unfinished")}),
        ("complete", {"report": reported("failed")}),
    ],
}
Ended = Mapping[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def stream(make_stream: MakeStream) -> Stream:
    return make_stream()


@pytest.fixture(scope="module")
def printed(stack: LocalStack, stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program of attempts printed. Its rollback finds the seal of the version that it has made."""
    run, sealed = Run.open(stream.name, "rollback", stack.settings), seal_of(date(2013, 1, 14), (), version=3)
    run.store.put(run.layout.seal_key(sealed.day, 3), replace(sealed, stream=stream.name).to_json())
    home = str(tmp_path_factory.mktemp("airflow"))
    done = subprocess.run(
        [sys.executable, str(ATTEMPTS), stream.name, json.dumps(RUNS)],
        env={**os.environ, **stack.env, "AIRFLOW_HOME": home, "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.fixture
def ended(printed: Mapping[str, Any]) -> Ended:
    """How the step's task ended after each attempt, by run."""
    return {run: [(kind, reason) for kind, reason in printed[run]] for run in RUNS}


@pytest.mark.conformance(51)
def test_an_audit_without_a_verdict_is_retried_whatever_an_earlier_one_found(ended: Ended) -> None:
    assert ended["audited"] == [
        ("QualityError", f"audit: {VERDICT}"),
        KILLED,
        ("ServiceError", "audit: S3 is away"),
        ("AirflowException", "audit: a check could not be made"),
        ("QualityError", f"audit: {VERDICT}"),
    ]


def test_the_first_try_of_an_audit_reports_what_the_rebuilds_application_found_of_its_rows(ended: Ended) -> None:
    """Also where it found them wrong. A task that is tried again or cleared checks the rows itself."""
    assert ended["rebuilt"] == [("success", ""), ("QualityError", f"audit: {VERDICT}"), ("success", ""), KILLED]
    assert ended["rebuilt-later"] == [("success", ""), KILLED]
    assert ended["not-audited"] == [("success", ""), KILLED]
    assert ended["killed-after"] == [("success", ""), KILLED]


def test_a_damaged_result_of_an_audit_fails_only_the_first_try(ended: Ended) -> None:
    """A later one runs the audit itself, whatever was saved before."""
    rebuild, (kind, text), killed, audited = ended["damaged"]
    assert (rebuild, killed, audited) == (("success", ""), KILLED, ("success", ""))
    assert kind == "FormatError"
    assert "audit.json" in text


@pytest.mark.conformance(51)
def test_an_attempt_that_was_killed_does_not_give_an_earlier_ones_reason(ended: Ended) -> None:
    assert ended["published"] == [
        ("ConflictError", "publish: a day moved"),
        ("AirflowException", "publish: Spark is away"),
        KILLED,
    ]


def test_the_saved_outcome_decides_and_not_what_spark_submit_reports(ended: Ended) -> None:
    assert ended["saved"] == [("success", "")]
    (kind, text), *others = ended["silent"]
    assert kind == "AirflowException"
    assert "publish: the application has ended and saved no result: expected a new one [s3://" in text
    assert others == [("ConflictError", "publish: a day moved"), ("success", "")]


@pytest.mark.conformance(47)
def test_a_run_that_holds_a_day_back_fails_in_the_end_and_without_further_tries(ended: Ended) -> None:
    (first, reason), last = ended["held-back"]
    assert first == "AirflowFailException"
    assert BECAUSE in reason
    assert "batch.reopen_days" in reason
    assert last == ("success", "")


def test_a_run_whose_report_says_that_a_step_failed_or_is_missing_does_not_succeed(ended: Ended) -> None:
    without, *others = ended["stopped"]
    assert without[0] == "AirflowFailException"
    assert "step 'report' of the run has not succeeded" in without[1]
    assert {kind for kind, _ in others} == {"AirflowFailException"}
    assert all(text.startswith("The day failed at step publish: found S3 is away") for _, text in others)


@pytest.mark.conformance(20)
def test_a_rollback_gives_its_application_its_form_and_announces_the_day(
    printed: Mapping[str, Any], stream: Stream
) -> None:
    application, arguments, announced = printed["form"]
    assert Path(application) == PROJECT / "spark_apps" / "rollback.py"
    own = ["--stream", stream.name, "--run", run_name("by hand")]
    assert arguments == [*own, "--day=2013-01-14", "--version=1"]
    days = {"days": {"2013-01-14": 3}, "quality": {"2013-01-14": "passed"}, "rolled_back_to": 1}
    extra = {"stream": stream.name, "run": "by hand", **days}
    uri = f"tidemark://streams/{stream.name}"
    assert announced == [[f"{uri}/sealed", None, extra], [f"{uri}/day", ["2013-01-14"], extra]]


def test_no_step_works_while_another_run_holds_the_streams_lease(printed: Mapping[str, Any]) -> None:
    assert {kind for kind, _ in printed["beside"]} == {"ConflictError"}
    assert all("found run other, process" in text for _, text in printed["beside"])


@pytest.mark.conformance(51)
def test_a_chunk_starts_a_run_only_where_all_its_earlier_ones_failed(printed: Mapping[str, Any]) -> None:
    note = "2013-01-14 to 2013-01-15 (2 days), UTC: backfill by run by hand: the clocks were wrong"
    form = [{"from_day": "2013-01-14", "to_day": "2013-01-15"}, note]
    ends = ["success", "failed"]
    found = {key: value for key, value in printed["chunk"].items() if "beside" not in key}
    assert found == {
        "": ["start", "reconcile_x", "2013-01-14__by hand__1", form],
        "queued": ["wait", "reconcile_x", "2013-01-14__by hand__1", ends],
        "success": ["wait", "reconcile_x", "2013-01-14__by hand__1", ends],
        "failed": ["start", "reconcile_x", "2013-01-14__by hand__2", form],
        "failed running": ["wait", "reconcile_x", "2013-01-14__by hand__2", ends],
        "failed failed": ["start", "reconcile_x", "2013-01-14__by hand__3", form],
    }


def test_a_chunk_starts_no_run_while_another_run_of_the_stream_is_queued_or_running(
    printed: Mapping[str, Any],
) -> None:
    idle = ["wait until idle", "reconcile_x", "execute", None]
    chunk = printed["chunk"]
    assert [chunk[f"beside {state}"] for state in ("queued", "running")] == [idle, idle]
    assert [chunk[f"failed beside {state}"] for state in ("queued", "running")] == [idle, idle]
    assert (chunk["beside success"], chunk["failed beside success"]) == (chunk[""], chunk["failed"])


def test_the_kind_of_an_error_decides_whether_and_when_a_task_is_tried_again(printed: Mapping[str, Any]) -> None:
    fails = ["fail"] * 7
    assert printed["retries"] == {
        **dict.fromkeys(("ApprovalError", "ConfigError", "IncompleteError", "QualityError", "RequestError"), fails),
        "ServiceError": ["retry 15", "retry 60", "retry 240", "retry 960", *["retry 3600"] * 3],
        "ConflictError": ["default", "default", *["fail"] * 5],
        # A person cleared the task after its fourth try.
        "cleared": ["retry 15", "retry 60"],
    }


def test_a_run_whose_plan_could_not_be_finalized_says_why(settings: Settings, stream: Stream) -> None:
    run = Run.open(stream.name, run_name("not finalized"), settings)
    with pytest.raises(IncompleteError), run.step(FINALIZE_PLAN):
        raise IncompleteError("offsets are lost")
    assert reason(run) == "finalize_plan: offsets are lost"
