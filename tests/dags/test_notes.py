"""The note that a reconcile run gets as it begins."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest

from tidemark_airflow.notes import on_dag_run_running

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
        (run("manual", conf=SPAN, note="mine"), "mine"),
        (run("manual"), None),
        (run("scheduled", interval=INTERVAL, zone=None), None),
        (run("scheduled", interval=INTERVAL, dag_id="tidemark_maintenance"), None),
    ],
    ids=["by schedule", "by backfill", "by form", "with a note", "without days", "broken definition", "another DAG"],
)
def test_a_runs_note_names_its_days_and_why(given: Any, note: str | None) -> None:
    on_dag_run_running(given)
    assert given.note == note
