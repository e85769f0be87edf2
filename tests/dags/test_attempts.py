"""What Airflow is told of a Spark step: this attempt's own reason, never an earlier one's; its form and its days."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeStream
from tidemark.core.errors import IncompleteError
from tidemark.definitions.stream import Stream
from tidemark.orchestration.tasks import reason
from tidemark.run import Run, run_name
from tidemark.settings import Settings
from tidemark.stack.local import PROJECT, LocalStack

ATTEMPTS = Path(__file__).with_name("attempts.py")
KILLED = ("AirflowException", "spark-submit ended with code 137")
VERDICT = "critical checks failed"
BECAUSE = "2013-01-14: every record occurs once: failed, observed 7"


def failed(error: str, attempt: int = 1, **found: Any) -> dict[str, Any]:
    """The result of a step that failed, in its ``attempt``."""
    started = f"2013-01-15T0{attempt}:00:00.000+00:00"
    return {"status": "failed", "error": error, "started_at": started, "seconds": 1.0, **found}


def held(*days: str) -> dict[str, Any]:
    """The result of an audit that passed, but for days that it holds back."""
    return {"status": "ok", "passed": True, "held": [{"day": day, "because": BECAUSE} for day in days]}


# By run, in their order: the step of each attempt, and the results that it saves.
RUNS: dict[str, list[tuple[str, dict[str, dict[str, Any]]]]] = {
    "audited": [
        ("audit", {"audit": failed(VERDICT, passed=False, condemned=True)}),
        ("audit", {}),
        ("audit", {"audit": failed("S3 is away", 3, passed=False, checks=[])}),
        ("audit", {"audit": failed("a check could not be made", 4, passed=False, condemned=False)}),
        ("audit", {"audit": failed(VERDICT, 5, passed=False, condemned=True)}),
    ],
    "published": [
        ("publish", {"publish": failed("a day moved"), "start_over": failed("Kafka is away")}),
        ("publish", {"publish": failed("S3 is away", 2)}),
        ("publish", {}),
    ],
    "held-back": [("complete", {"audit": held("2013-01-14")}), ("complete", {"audit": held()})],
}
Ended = Mapping[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def stream(make_stream: MakeStream) -> Stream:
    return make_stream()


@pytest.fixture(scope="module")
def printed(stack: LocalStack, stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program of attempts printed."""
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
    return {run: [(kind, told) for kind, told in printed[run]] for run in RUNS}


def test_an_audit_that_gave_no_verdict_is_tried_again_whatever_an_earlier_one_had_found(ended: Ended) -> None:
    assert ended["audited"] == [
        ("AirflowFailException", f"audit: {VERDICT}"),
        KILLED,
        ("AirflowException", "audit: S3 is away"),
        ("AirflowException", "audit: a check could not be made"),
        ("AirflowFailException", f"audit: {VERDICT}"),
    ]


def test_a_publication_that_started_over_fails_by_what_stopped_that(ended: Ended) -> None:
    assert ended["published"] == [
        ("AirflowException", "publish: Kafka is away"),
        ("AirflowException", "publish: S3 is away"),
        KILLED,
    ]


def test_a_run_that_holds_a_day_back_fails_in_the_end_and_without_further_tries(ended: Ended) -> None:
    (first, told), last = ended["held-back"]
    assert first == "AirflowFailException"
    assert BECAUSE in told
    assert "batch.reopen_days" in told
    assert last == ("success", "")


def test_a_rollback_gives_its_application_its_form_and_announces_the_day(
    printed: Mapping[str, Any], stream: Stream
) -> None:
    application, arguments, announced = printed["form"]
    assert Path(application) == PROJECT / "spark_apps" / "rollback.py"
    own = ["--stream", stream.name, "--run", run_name("by hand")]
    assert arguments == [*own, "--day=2013-01-14", "--version=1"]
    extra = {"stream": stream.name, "run": "by hand", "days": {"2013-01-14": 3}}
    assert announced == [f"tidemark://streams/{stream.name}/sealed", extra]


def test_a_chunk_starts_a_run_only_where_all_its_earlier_ones_failed(printed: Mapping[str, Any]) -> None:
    form = {"from_day": "2013-01-14", "to_day": "2013-01-15"}
    ends = ["success", "failed"]
    assert printed["chunk"] == {
        "": ["start", "reconcile_x", "2013-01-14__by hand__1", form],
        "queued": ["wait", "reconcile_x", "2013-01-14__by hand__1", ends],
        "success": ["wait", "reconcile_x", "2013-01-14__by hand__1", ends],
        "failed": ["start", "reconcile_x", "2013-01-14__by hand__2", form],
        "failed running": ["wait", "reconcile_x", "2013-01-14__by hand__2", ends],
        "failed failed": ["start", "reconcile_x", "2013-01-14__by hand__3", form],
    }


def test_a_run_whose_plan_could_not_be_settled_says_why(settings: Settings, stream: Stream) -> None:
    with (
        pytest.raises(IncompleteError),
        Run.open(stream.name, run_name("unsettled"), settings).step("settled"),
    ):
        raise IncompleteError("offsets are lost")
    assert reason(stream.name, "unsettled") == "settled: offsets are lost"
