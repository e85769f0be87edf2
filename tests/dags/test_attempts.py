"""What Airflow is told of a Spark step that failed: this attempt's own reason, never an earlier one's."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeStream
from tidemark.stack.local import LocalStack
from tidemark.streams import Stream

ATTEMPTS = Path(__file__).with_name("attempts.py")
KILLED = ("AirflowException", "spark-submit ended with code 137")
Attempt = tuple[str, Mapping[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def stream(make_stream: MakeStream) -> Stream:
    return make_stream()


def ended(stack: LocalStack, stream: Stream, home: Path, *attempts: Attempt) -> list[tuple[str, str]]:
    """How a step's task ended after each of these attempts of one run, by the step and the results that it saved."""
    done = subprocess.run(
        [sys.executable, str(ATTEMPTS), stream.name, home.name, json.dumps(attempts)],
        env={**os.environ, **stack.env, "AIRFLOW_HOME": str(home), "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [(kind, told) for kind, told in json.loads(done.stdout.strip().splitlines()[-1])]


def failed(error: str, attempt: int = 1, **found: Any) -> dict[str, Any]:
    """The result of a step that failed, in its ``attempt``."""
    started = f"2013-01-15T0{attempt}:00:00.000+00:00"
    return {"status": "failed", "error": error, "started_at": started, "seconds": 1.0, **found}


def test_an_audit_that_gave_no_verdict_is_tried_again_whatever_an_earlier_one_had_found(
    stack: LocalStack, stream: Stream, tmp_path: Path
) -> None:
    verdict = "critical checks failed"
    failing: dict[str, Any] = {
        "passed": False,
        "condemned": True,
    }
    broken: dict[str, Any] = {
        "passed": False,
        "condemned": False,
    }
    assert ended(
        stack,
        stream,
        tmp_path,
        ("audit", {"audit": failed(verdict, **failing)}),
        ("audit", {}),
        ("audit", {"audit": failed("S3 is away", 3, passed=False, checks=[])}),
        ("audit", {"audit": failed("a check could not be made", 4, **broken)}),
        ("audit", {"audit": failed(verdict, 5, **failing)}),
    ) == [
        ("AirflowFailException", f"audit: {verdict}"),
        KILLED,
        ("AirflowException", "audit: S3 is away"),
        ("AirflowException", "audit: a check could not be made"),
        ("AirflowFailException", f"audit: {verdict}"),
    ]


def test_a_publication_that_started_over_fails_by_what_stopped_that(
    stack: LocalStack, stream: Stream, tmp_path: Path
) -> None:
    assert ended(
        stack,
        stream,
        tmp_path,
        ("publish", {"publish": failed("a day moved"), "start_over": failed("Kafka is away")}),
        ("publish", {"publish": failed("S3 is away", 2)}),
        ("publish", {}),
    ) == [
        ("AirflowException", "publish: Kafka is away"),
        ("AirflowException", "publish: S3 is away"),
        KILLED,
    ]


def test_a_run_that_holds_a_day_back_fails_in_the_end_and_without_further_tries(
    stack: LocalStack, stream: Stream, tmp_path: Path
) -> None:
    because = "2013-01-14: every record occurs once: failed, observed 7"
    held = {"status": "ok", "passed": True, "held": [{"day": "2013-01-14", "because": because}]}
    (first, told), last = ended(
        stack, stream, tmp_path, ("complete", {"audit": held}), ("complete", {"audit": {**held, "held": []}})
    )
    assert first == "AirflowFailException"
    assert because in told
    assert "batch.reopen_days" in told
    assert last == ("success", "")
