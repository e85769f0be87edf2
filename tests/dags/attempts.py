"""Run as a program: attempts of runs' steps as their operators make them; prints how each task ended, a line of JSON.

No application of a Spark step runs: each saves the given results and dies. Other steps find those results.
Under ``form``: the arguments that the stream's rollback gives its application, and what it announces of its result.
Under ``beside``: how steps of a run end while another run holds the stream's lease.
Under ``chunk``: the action of a backfill's chunk, by the states of the runs that it has started before.
"""

import json
import sys
from collections.abc import Sequence
from datetime import date
from typing import Any
from unittest.mock import patch

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, DagRunTriggerException, TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessors

from tidemark.core.errors import TidemarkError
from tidemark.core.outcome import Outcome
from tidemark.orchestration.backfill_dag import ChunkStep
from tidemark.orchestration.manual_dags import rollback_dag
from tidemark.orchestration.operators import PythonStep, SparkStep
from tidemark.orchestration.steps import reconciles
from tidemark.orchestration.tasks import STEPS_BY_PLAN
from tidemark.reconcile.lease import release, take
from tidemark.reconcile.results import ROLLBACK as ROLLBACK_STEP
from tidemark.reconcile.results import RollbackResult, SealedVersion
from tidemark.run import Run, run_name
from tidemark.settings import settings

CHUNK_RUNS = ((), ("queued",), ("success",), ("failed",), ("failed", "running"), ("failed", "failed"))


def main(stream: str, attempts: dict[str, list[tuple[str, dict[str, Any]]]]) -> None:
    ended = {}
    for run, own in attempts.items():
        ended[run] = [_attempt(stream, run, *attempt) for attempt in own]
        release(Run.open(stream, run_name(run), settings()))
    chunk = {" ".join(states): _chunk(states) for states in CHUNK_RUNS}
    found = {"form": _rolled_back(stream), "beside": _beside(stream), "chunk": chunk}
    sys.stdout.write(json.dumps({**ended, **found}) + "\n")


def _beside(stream: str) -> list[tuple[str, str]]:
    """How steps of a run end while another run holds the stream's lease."""
    other = Run.open(stream, "other", settings())
    take(other)
    ended = [_attempt(stream, "beside", step, {}) for step in ("finalize_plan", "rebuild", "seal")]
    release(other)
    return ended


class Runs:
    """What Airflow answers about the runs that a chunk has started, from the states of those there are."""

    def __init__(self, states: Sequence[str]) -> None:
        self.states = {f"2013-01-14__by hand__{at}": state for at, state in enumerate(states, 1)}

    def get_dr_count(self, _: str, *, run_ids: Sequence[str]) -> int:
        return len(self.states.keys() & set(run_ids))

    def get_dagrun_state(self, _: str, run: str) -> str:
        return self.states[run]


def _chunk(states: Sequence[str]) -> tuple[str, str, str, Any]:
    form = {"from_day": "2013-01-14", "to_day": "2013-01-15"}
    step = ChunkStep(task_id="chunk", trigger_dag_id="reconcile_x", logical_date=None, conf=form)
    try:
        step.execute({"run_id": "by hand", "ti": Runs(states)})
    except DagRunTriggerException as asked:
        return "start", asked.trigger_dag_id, asked.dag_run_id, asked.conf
    except TaskDeferred as asked:
        return "wait", asked.trigger.dag_id, *asked.trigger.run_ids, asked.trigger.states
    raise AssertionError("it neither starts a run nor waits for one")


def _rolled_back(stream: str) -> tuple[str, list[str], list[Any]]:
    task: Any = rollback_dag(reconciles(settings().streams_dir)).get_task("rollback")
    task.stream = task.render_template(task.stream, {"params": {"stream": stream}})
    events = OutletEventAccessors()
    run = Run.open(stream, run_name("by hand"), settings())
    sealed = SealedVersion(day=date(2013, 1, 14), version=3, key="")
    result = RollbackResult(
        rolled_back_to=1,
        already=False,
        sealed=sealed,
        rows_published=0,
        rows_quarantined=0,
        snapshot_id=None,
        quarantine_snapshot_id=None,
    )
    done = Outcome(started_at="", seconds=0.0, status="ok", error=None, result=result)
    with patch.object(SparkSubmitOperator, "execute", lambda *_: run.save(ROLLBACK_STEP, done)):
        form = {"day": "2013-01-14", "version": 1}
        task.execute({"run_id": "by hand", "params": form, "outlet_events": events})
    (event,) = events[task.outlets[0]].asset_alias_events
    return task.application, task.application_args, [event.dest_asset_key.uri, event.extra]


def _attempt(stream: str, run: str, step: str, results: dict[str, Any]) -> tuple[str, str]:
    def save() -> None:
        for name, result in results.items():
            opened = Run.open(stream, run, settings())
            opened.store.put(opened.key(name), json.dumps({"step": name, **result}).encode())

    def die(*_: object) -> None:
        save()
        raise AirflowException("spark-submit ended with code 137")

    kind = PythonStep if step in STEPS_BY_PLAN else SparkStep
    if kind is PythonStep:
        save()
    with patch.object(SparkSubmitOperator, "execute", die):
        try:
            kind(task_id=step, step=step, stream=stream).execute({"run_id": run, "params": {}})
        except (AirflowException, TidemarkError) as error:
            return type(error).__name__, str(error)
    return "success", ""


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
