"""Runs that ask a person: what their steps have saved when the task ``approve`` begins, and a person's answers."""

from dataclasses import replace
from datetime import date

from tests.batch.steps import finalize
from tests.waiting import wait_until
from tidemark.core.plan import DayPlan, MainSnapshots, Plan
from tidemark.definitions.stream import Stream
from tidemark.orchestration.steps import dag_id
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.results import AUDIT, FINALIZE_PLAN, AuditResult
from tidemark.run import Run, run_name
from tidemark.settings import Settings
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.airflow_api import AirflowApi

DAY = date(2024, 3, 30)
ASKED_S = 300
LOSS = "t-0 [3, 5) lost to retention: 2 offsets"
_WARNED = CheckOutcome(
    expected=Expected(expectation="expect_a", kwargs={}, severity="warning", built_in=False),
    day=DAY,
    success=False,
    observed=7,
)


def saved_run(settings: Settings, stream: Stream, run_id: str, *, asks: bool = True) -> Run:
    """A run of one day, up to its audit. It has a failed warning and a loss if it ``asks``."""
    run = Run.open(stream.name, run_name(run_id), settings)
    day = DayPlan(day=DAY, version=1, reason="requested", archived_rows=9)
    plan = Plan(stream=stream.name, run=run.name, days=(day,), unchanged=(), logs=(), slices=())
    finalize(run, plan, MainSnapshots(published=None, quarantine=None))
    if asks:
        with run.step(FINALIZE_PLAN) as finalized:
            finalized.result = replace(run.require(FINALIZE_PLAN), losses=(LOSS,))
    with run.step(AUDIT) as audit:
        audit.result = AuditResult(staged=1, passed=True, held=(), checks=(_WARNED,) if asks else ())
    return run


def start(api: AirflowApi, stream: Stream, run_id: str) -> None:
    """Start the stream's run of this id."""
    body: dict[str, object] = {"logical_date": None, "dag_run_id": run_id, "conf": {}}
    api._authorised("POST", f"/api/v2/dags/{dag_id(stream.name)}/dagRuns", json=body)


def answer(airflow: LocalAirflow, stream: Stream, run_id: str, choice: str, words: str) -> dict[str, str]:
    """Answer as the person who is logged in, once the run has asked. The question: subject and body.

    An answer within the second in which Airflow's scheduler has not yet seen the end of the asking process makes it
    believe that somebody killed the task: it asks again. So this waits until the scheduler has seen that.
    """
    api, dag = airflow.api, dag_id(stream.name)
    path = f"/api/v2/dags/{dag}/dagRuns/{run_id}/taskInstances/approve"
    log = airflow.stack.logs / "airflow-scheduler.log"

    def has_asked() -> bool:
        task = api._authorised("GET", path)
        key = f"dag_id='{dag}', task_id='approve', run_id='{run_id}', try_number={task['try_number']}"
        seen = f"Received executor event with state success for task instance TaskInstanceKey({key}"
        return task["state"] == "awaiting_input" and seen in log.read_text(encoding="utf-8")

    wait_until(has_asked, "it asks", ASKED_S, every_s=1)
    asked = api._authorised("GET", f"{path}/-1/hitlDetails")
    body = {"chosen_options": [choice], "params_input": {"words": words}}
    api._authorised("PATCH", f"{path}/-1/hitlDetails", json=body)
    return {"subject": asked["subject"], "body": asked["body"]}


def clear(api: AirflowApi, stream: Stream, run_id: str) -> None:
    """Clear the task ``approve`` and what follows it."""
    asked = {
        "dag_run_id": run_id,
        "task_ids": ["approve"],
        "include_downstream": True,
        "only_failed": False,
        "dry_run": False,
    }
    api._authorised("POST", f"/api/v2/dags/{dag_id(stream.name)}/clearTaskInstances", json=asked)
