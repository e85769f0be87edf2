"""The note that a reconcile run gets as it begins."""

from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.sdk import DAG
from airflow.sdk.execution_time import task_runner

from tidemark_airflow.approval import ANSWER_FORM, ApproveStep
from tidemark_airflow.notes import on_dag_run_running, run_note

BERLIN = pendulum.timezone("Europe/Berlin")
INTERVAL = (datetime(2024, 3, 30, 23, 30, tzinfo=UTC), datetime(2024, 3, 31, 22, 30, tzinfo=UTC))  # 31 March in Berlin
SPAN = {"from_day": "2024-03-30", "to_day": "2024-04-01"}


def run(run_type: str, **more: Any) -> Any:
    start, end = more.pop("interval", (None, None))
    dag = SimpleNamespace(timetable=SimpleNamespace(_timezone=more.pop("zone", BERLIN)))
    own = {"dag_id": "reconcile_flights", "note": None, "conf": {}, "triggering_user_name": None, **more}
    return SimpleNamespace(dag=dag, run_type=run_type, data_interval_start=start, data_interval_end=end, **own)


@pytest.mark.parametrize(
    ("given", "note"),
    [
        (run("scheduled", interval=INTERVAL), "2024-03-31, Europe/Berlin: by the schedule"),
        (run("backfill", interval=INTERVAL), "2024-03-31, Europe/Berlin: by a backfill of Airflow"),
        (
            run("manual", conf=SPAN, triggering_user_name="ada"),
            "2024-03-30 to 2024-04-01 (3 days), Europe/Berlin: started by ada",
        ),
        (
            run("manual", conf=SPAN, triggering_user_name="ada", note="the clocks were wrong"),
            "2024-03-30 to 2024-04-01 (3 days), Europe/Berlin: started by ada: the clocks were wrong",
        ),
        (
            run("manual", conf=SPAN, note="2024-03-30 to 2024-04-01 (3 days), Europe/Berlin: backfill by run b"),
            "2024-03-30 to 2024-04-01 (3 days), Europe/Berlin: backfill by run b",
        ),
        (run("manual"), None),
        (run("scheduled", interval=INTERVAL, zone=None), None),
        (run("scheduled", interval=INTERVAL, dag_id="tidemark_maintenance"), None),
    ],
    ids=[
        "by schedule",
        "by backfill",
        "by form",
        "with words",
        "with a whole note",
        "without days",
        "broken definition",
        "another DAG",
    ],
)
def test_a_runs_note_names_its_days_and_why(given: Any, note: str | None) -> None:
    on_dag_run_running(given)
    assert given.note == note


@pytest.fixture
def definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a stream in Berlin."""
    stream = SimpleNamespace(time_zone="Europe/Berlin", name="flights")
    monkeypatch.setattr("tidemark.definitions.stream.load_stream", lambda *_: stream)


@pytest.mark.usefixtures("definition")
def test_a_note_of_days_apart_names_them_what_the_run_is_for_and_a_persons_words() -> None:
    days = [date(2024, 3, 30), date(2024, 3, 31), date(2024, 4, 5)]
    of_days = "2024-03-30 to 2024-03-31, 2024-04-05 (3 days), Europe/Berlin: "
    assert run_note("flights", days, "late records") == f"{of_days}late records"
    assert run_note("flights", days, "rebuild", "a late file") == f"{of_days}rebuild: a late file"


@pytest.mark.usefixtures("definition")
def test_a_note_of_many_days_apart_fits_into_airflows_database_with_its_zone() -> None:
    """PostgreSQL refuses one of more than 1,000 characters."""
    days = [date(2023, 1, 1) + timedelta(days=2 * number) for number in range(200)]
    found = run_note("flights", days, "late records", "x" * 900)
    assert len(found) == 1_000
    assert ", Europe/Berlin: late records: xxx" in found


@pytest.mark.usefixtures("definition")
def test_a_run_that_an_answer_starts_has_the_answers_words_in_its_note(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    comms = SimpleNamespace(send=sent.append)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
    planned = SimpleNamespace(requested=(date(2024, 3, 31),), reassigned=False)
    asked: Any = SimpleNamespace(require=lambda _: planned)
    dag = DAG(dag_id="reconcile_flights", schedule=None)
    step = ApproveStep(task_id="approve", stream="flights", params=ANSWER_FORM, dag=dag)
    at = datetime(2024, 4, 1, 8, tzinfo=UTC)
    step._start_again(asked, {"run_id": "run-1"}, "ada", "prices are correct now", at)
    note = "2024-03-31, Europe/Berlin: rebuild instead of run run-1, asked for by ada: prices are correct now"
    assert [(item.run_id, item.note) for item in sent] == [("rebuild__run-1__20240401T080000", note)]
