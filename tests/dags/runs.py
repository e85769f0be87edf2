"""Runs under a real Airflow as a test looks at them, strikes at them, and reads beside them."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.dags.days import Days
from tests.dags.kills import strike_task
from tests.waiting import wait_until
from tidemark.core.errors import ServiceError
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.airflow_api import AirflowApi
from tidemark.stack.local import LocalStack

BACKFILL = "tidemark_backfill"
PATIENCE_S = 3600
RUN_S = 1200  # less than the modules' time-outs, which would not say what Airflow does instead
ENDED = frozenset({"success", "failed"})
# Its API server answers the running tasks too: a test that calls it all the time holds them up.
EVERY_S = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The ids of the runs of ``test_local_airflow``."""

    chunks: str  # a backfill of five days by the stub
    sunday: str  # that another backfill starts
    sunday_backfill: str
    replay: str
    tomorrow: str
    trains: str
    no_days: str
    stopped: str  # that a person marks as failed


def wait_for_dags(api: AirflowApi, dags: Collection[str]) -> None:
    """Return once Airflow knows all of them; they may run then."""
    for dag in dags:
        wait_until(partial(api.dag_known, dag), f"{dag} is known", 600, every_s=EVERY_S)
        api.unpause(dag)


def wait_for_lease(api: AirflowApi, dag: str, run: str) -> None:
    """Return once the run waits for the lease that another one holds."""

    def waits() -> bool:
        tasks = instances(api, dag, run) if run in run_states(api, dag) else []
        return ("wait_for_lease", "up_for_reschedule") in {(item["task_id"], item["state"]) for item in tasks}

    wait_until(waits, "it waits for the lease", 600, every_s=EVERY_S)


def wait_for_end(api: AirflowApi, dag: str, run: str) -> None:
    """Return once the run has ended; fails with what Airflow does instead."""
    try:
        wait_until(lambda: _true(lambda: api.run_state(dag, run) in ENDED), f"{dag} ends", RUN_S, every_s=EVERY_S)
    except AssertionError as error:
        states = run_states(api, dag)
        tasks = {item: [(task["task_id"], task["state"]) for task in instances(api, dag, item)] for item in states}
        raise AssertionError(f"{error}. Health: {api.health()}. Runs: {states}. Tasks: {tasks}") from error


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
    return {item["dag_run_id"]: item["state"] for item in _runs(api, dag)}


def rebuilds_of(api: AirflowApi, dag: str, run: str) -> list[dict[str, Any]]:
    """The runs that a person has started by the answer Rebuild, as Airflow reports them."""
    return [item for item in _runs(api, dag) if item["dag_run_id"].startswith(f"rebuild__{run}__")]


def _runs(api: AirflowApi, dag: str) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = api._authorised("GET", f"/api/v2/dags/{dag}/dagRuns")["dag_runs"]
    return runs


def instances(api: AirflowApi, dag: str, run: str) -> list[dict[str, Any]]:
    """The run's task instances, as Airflow reports them."""
    found = api._authorised("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")
    tasks: list[dict[str, Any]] = found["task_instances"]
    return tasks


@contextmanager
def running_airflow(stack: LocalStack, variables: Mapping[str, str]) -> Iterator[LocalAirflow]:
    """An Airflow with these variables that runs nothing by a schedule."""
    airflow = LocalAirflow(stack, schedules=False, extra_env=variables)
    try:
        airflow.start()
        yield airflow
    finally:
        airflow.stop()


def states_of(api: AirflowApi, dag: str, run: str) -> dict[str, str | None]:
    """The state of each task of the run."""
    return {item.task: item.state for item in api.task_states(dag, run)}


def tries_of(api: AirflowApi, dag: str, run: str) -> dict[str, tuple[str | None, int]]:
    """The state and the number of tries of each task of the run."""
    return {item.task: (item.state, item.tries) for item in api.task_states(dag, run)}


def tries_at_least(
    found: Mapping[str, tuple[str | None, int]], expected: Mapping[str, tuple[str, int]]
) -> dict[str, tuple[str | None, int]]:
    """State and tries of the expected tasks, without tries above the expected number.

    A busy machine may cost a task its heartbeat, and so a try that no test asked for.
    """
    return {task: (found[task][0], min(found[task][1], tries)) for task, (_, tries) in expected.items()}


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
    moments = {item["dag_run_id"]: (item["start_date"], item["end_date"]) for item in _runs(api, dag)}
    return {run: (datetime.fromisoformat(start), datetime.fromisoformat(end)) for run, (start, end) in moments.items()}


def task_log(airflow: LocalAirflow, dag: str, run: str, task: str, *, map_index: int | None = None) -> str:
    """What the attempts of the task logged."""
    folder = airflow.home / "logs" / f"dag_id={dag}" / f"run_id={run}" / f"task_id={task}"
    mapped = folder if map_index is None else folder / f"map_index={map_index}"
    return "".join(path.read_text(encoding="utf-8") for path in sorted(mapped.glob("*.log")))


def chunk_waits(api: AirflowApi, backfill: str, map_index: int, *, tries: int) -> bool:
    """Whether the chunk waits for its run in the triggerer, in this try or a later one."""
    # Until Airflow has made the chunks, there is one task instance without an index.
    chunks = [item for item in instances(api, BACKFILL, backfill) if item["map_index"] == map_index]
    return any(item["state"] == "deferred" and item["try_number"] >= tries for item in chunks)


def is_at_work(api: AirflowApi, dag: str, run: str) -> bool:
    """Whether the only task of the stub's run is running."""
    return [item["state"] for item in instances(api, dag, run)] == ["running"]


def make_partition_runs(airflow: LocalAirflow) -> None:
    """Make the runs of DAGs that follow partitions of assets."""
    program = Path(__file__).with_name("partitions.py")
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **airflow.env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def results(api: AirflowApi, dag: str, task: str) -> list[Any]:
    """What the task returned in the DAG's runs that succeeded, in their order."""
    found = api._authorised("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=run_after&state=success")["dag_runs"]
    path = "/api/v2/dags/{}/dagRuns/{}/taskInstances/{}/xcomEntries/return_value?deserialize=true"
    answers = (api._authorised("GET", path.format(dag, quote(item["dag_run_id"]), task)) for item in found)
    return [answer["value"] for answer in answers]


def announce(api: AirflowApi, stream: str, day: str, version: int) -> None:
    """An event of the stream's asset of days, as for a sealed day."""
    (asset,) = api._authorised("GET", f"/api/v2/assets?name_pattern={stream}_day")["assets"]
    extra = {"stream": stream, "days": {day: version}, "quality": {day: "unchecked"}}
    event = {"asset_id": asset["id"], "partition_key": day, "extra": extra}
    api._authorised("POST", "/api/v2/assets/events", json=event)
