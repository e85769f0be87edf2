"""Runs under a real Airflow as a test looks at them, strikes at them, and reads beside them."""

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from tests.dags.days import Days
from tests.dags.kills import strike_task
from tests.waiting import wait_until
from tidemark.core.errors import ServiceError
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.airflow_api import AirflowApi

BACKFILL = "tidemark_backfill"
PATIENCE_S = 3600
ENDED = frozenset({"success", "failed"})
# Its API server answers the running tasks too: a test that calls it all the time holds them up.
EVERY_S = 1


def wait_for_dags(api: AirflowApi, dags: Collection[str]) -> None:
    """Return once Airflow knows all of them; they may run then."""
    for dag in dags:
        wait_until(partial(api.dag_known, dag), f"{dag} is known", 600, every_s=EVERY_S)
        api.unpause(dag)


def wait_for_end(api: AirflowApi, dag: str, run: str) -> None:
    """Return once the run has ended."""
    wait_until(lambda: _true(lambda: api.run_state(dag, run) in ENDED), f"{dag} ends", PATIENCE_S, every_s=EVERY_S)


def read_until(ended: Callable[[], bool], days: Days) -> None:
    """Read the table every second until Airflow says so."""

    def over() -> bool:
        days.read()
        return _true(ended)

    wait_until(over, "the runs end", PATIENCE_S, every_s=EVERY_S)


def wait_for_kill(airflow: LocalAirflow, dag: str, run: str, task: str) -> None:
    """Kill the process of a run's task as soon as there is one."""
    killed = partial(kill_task, airflow, dag, run, task)
    wait_until(lambda: _true(killed), f"{task} is killed", PATIENCE_S, every_s=EVERY_S / 2)


def _true(condition: Callable[[], bool]) -> bool:
    """Whether Airflow says so. A busy one may take longer to answer than its client waits."""
    with suppress(ServiceError):
        return condition()
    return False


def kill_task(airflow: LocalAirflow, dag: str, run: str, task: str) -> bool:
    """Kill the process of a run's task; whether it was there."""
    scheduler_pid = airflow.components["airflow-scheduler"].pid
    own = [item["id"] for item in instances(airflow.api, dag, run) if item["task_id"] == task]
    return any(strike_task(scheduler_pid, identity) for identity in own)


def run_states(api: AirflowApi, dag: str) -> dict[str, str]:
    """The state of every run of the DAG."""
    found = api._authorised("GET", f"/api/v2/dags/{dag}/dagRuns")["dag_runs"]
    return {item["dag_run_id"]: item["state"] for item in found}


def instances(api: AirflowApi, dag: str, run: str) -> list[dict[str, Any]]:
    """The run's task instances, as Airflow reports them."""
    found = api._authorised("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")
    tasks: list[dict[str, Any]] = found["task_instances"]
    return tasks


def chunk_states(api: AirflowApi, backfill: str) -> dict[str, str]:
    """The state of each chunk of a backfill, by its label."""
    found = instances(api, BACKFILL, backfill)
    return {item["rendered_map_index"]: item["state"] for item in found if item["task_id"] == "chunk"}


def clear(api: AirflowApi, backfill: str, *, map_index: int) -> None:
    """Clear one chunk of a backfill, as a person does."""
    asked = {"dag_run_id": backfill, "task_ids": [["chunk", map_index]], "only_failed": False, "dry_run": False}
    api._authorised("POST", f"/api/v2/dags/{BACKFILL}/clearTaskInstances", json=asked)


def run_spans(api: AirflowApi, dag: str) -> dict[str, tuple[datetime, datetime]]:
    """When each run of the DAG started and ended."""
    found = api._authorised("GET", f"/api/v2/dags/{dag}/dagRuns")["dag_runs"]
    moments = {item["dag_run_id"]: (item["start_date"], item["end_date"]) for item in found}
    return {run: (datetime.fromisoformat(start), datetime.fromisoformat(end)) for run, (start, end) in moments.items()}


def task_log(airflow: LocalAirflow, dag: str, run: str, task: str, *, map_index: int | None = None) -> str:
    """What the attempts of the task logged."""
    folder = airflow.home / "logs" / f"dag_id={dag}" / f"run_id={run}" / f"task_id={task}"
    mapped = folder if map_index is None else folder / f"map_index={map_index}"
    return "".join(path.read_text(encoding="utf-8") for path in sorted(mapped.glob("*.log")))
