"""Runs under a real Airflow as a test looks at them, strikes at them, and reads beside them."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.dags.days import Days
from tests.dags.kills import strike_task
from tests.waiting import wait_until
from tidemark.core.errors import ServiceError
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.airflow_api import AirflowApi

PATIENCE_S = 3600
ENDED = frozenset({"success", "failed"})


def read_until(ended: Callable[[], bool], days: Days) -> None:
    """Read the table until Airflow says so. On a busy machine it may take longer to answer than its client waits."""
    asked_at = 0.0

    def over() -> bool:
        nonlocal asked_at
        days.read()
        if time.monotonic() < asked_at + 2:
            return False
        with suppress(ServiceError):
            if ended():
                return True
        asked_at = time.monotonic()
        return False

    wait_until(over, "the runs end", PATIENCE_S)


def kill_task(airflow: LocalAirflow, dag: str, run: str, task: str) -> bool:
    """Kill the process of a run's task; whether it was there."""
    (own,) = (item for item in instances(airflow.api, dag, run) if item["task_id"] == task)
    return strike_task(airflow.components["airflow-scheduler"].pid, own["id"])


def run_states(api: AirflowApi, dag: str) -> dict[str, str]:
    """The state of every run of the DAG."""
    found = api._authorised("GET", f"/api/v2/dags/{dag}/dagRuns")["dag_runs"]
    return {item["dag_run_id"]: item["state"] for item in found}


def instances(api: AirflowApi, dag: str, run: str) -> list[dict[str, Any]]:
    """The run's task instances, as Airflow tells them."""
    found = api._authorised("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")
    tasks: list[dict[str, Any]] = found["task_instances"]
    return tasks
