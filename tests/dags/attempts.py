"""Run as a program: attempts of runs' steps as their operators make them; prints how each task ended, a line of JSON.

No application of a Spark step runs: each saves the given results and dies. Other steps find those results.
Under ``form``: the arguments that the stream's rollback gives its application, and what it announces of its result.
Under ``beside``: how steps of a run end while another run holds the stream's lease.
Under ``chunk``: the action of a backfill's chunk, by the states of the runs that it has started before, and of
another one.
Under ``retries``: by the kind of the error, what Airflow does after each try of a step.
"""

import json
import sys
from collections.abc import Sequence
from datetime import date
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, DagRunTriggerException, TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessors

from tidemark.core.errors import (
    ApprovalError,
    ConfigError,
    ConflictError,
    IncompleteError,
    QualityError,
    RequestError,
    ServiceError,
    TidemarkError,
)
from tidemark.core.outcome import Outcome
from tidemark.orchestration.steps import reconciles
from tidemark.orchestration.tasks import STEPS_BY_PLAN
from tidemark.reconcile.lease import release, take
from tidemark.reconcile.results import ROLLBACK as ROLLBACK_STEP
from tidemark.reconcile.results import RollbackResult, SealedVersion
from tidemark.run import Run, run_name
from tidemark.settings import settings
from tidemark_airflow.backfill_dag import ChunkStep
from tidemark_airflow.manual_dags import rollback_dag
from tidemark_airflow.operators import PythonStep
from tidemark_airflow.reconcile_dag import reconcile_dag
from tidemark_airflow.submit import ClientStep
from tidemark_airflow.triggers import IdleTrigger

SILENT = "silent"  # spark-submit reports no failure of this run's applications
CHUNK_RUNS = ((), ("queued",), ("success",), ("failed",), ("failed", "running"), ("failed", "failed"))
BESIDE = ("queued", "running", "success")


def main(stream: str, attempts: dict[str, list[tuple[str, dict[str, Any]]]]) -> None:
    ended = {}
    for run, own in attempts.items():
        tries = [[step for step, _ in own[:at]].count(step) + 1 for at, (step, _) in enumerate(own)]
        ended[run] = [_attempt(stream, run, *attempt, number) for attempt, number in zip(own, tries, strict=True)]
        release(Run.open(stream, run_name(run), settings()))
    chunk = {" ".join(states): _chunk(stream, states) for states in CHUNK_RUNS}
    chunk |= {f"beside {other}": _chunk(stream, (), other) for other in BESIDE}
    chunk |= {f"failed beside {other}": _chunk(stream, ("failed",), other) for other in BESIDE}
    found = {"form": _rolled_back(stream), "beside": _beside(stream), "chunk": chunk, "retries": _retries()}
    sys.stdout.write(json.dumps({**ended, **found}) + "\n")


def _beside(stream: str) -> list[tuple[str, str]]:
    """How steps of a run end while another run holds the stream's lease."""
    other = Run.open(stream, "other", settings())
    take(other)
    ended = [_attempt(stream, "beside", step, {}) for step in ("finalize_plan", "rebuild", "seal")]
    release(other)
    return ended


def _retries() -> dict[str, list[str]]:
    task: Any = reconcile_dag(reconciles(settings().streams_dir)[0]).get_task("plan")

    def decided(kind: type[Exception], tries: range, max_tries: int = task.retries) -> list[str]:
        found = [task.retry_policy.evaluate(kind("no"), number, max_tries) for number in tries]
        return [f"{item.action.value} {item.retry_delay.seconds if item.retry_delay else ''}".strip() for item in found]

    kinds = (ApprovalError, ConfigError, IncompleteError, QualityError, RequestError, ServiceError, ConflictError)
    return {
        **{kind.__name__: decided(kind, range(1, 8)) for kind in kinds},
        "cleared": decided(ServiceError, range(5, 7), 4 + task.retries),
    }


class Runs:
    """What Airflow answers about a DAG's runs: those that a chunk has started, and another one."""

    def __init__(self, states: Sequence[str], other: str) -> None:
        own = {f"2013-01-14__by hand__{at}": state for at, state in enumerate(states, 1)}
        self.states = {**own, "other": other}

    def get_dr_count(self, _: str, *, run_ids: Sequence[str] | None = None, states: Sequence[str] | None = None) -> int:
        found = {run: state for run, state in self.states.items() if run_ids is None or run in run_ids}
        return sum(states is None or state in states for state in found.values())

    def get_dagrun_state(self, _: str, run: str) -> str:
        return self.states[run]


def _chunk(stream: str, states: Sequence[str], other: str = "success") -> tuple[str, str, str, Any]:
    form = {"from_day": "2013-01-14", "to_day": "2013-01-15"}
    step = ChunkStep(task_id="chunk", trigger_dag_id="reconcile_x", logical_date=None, conf=form)
    try:
        params = {"stream": stream, "reason": "the clocks were wrong"}
        step.execute({"run_id": "by hand", "ti": Runs(states, other), "params": params})
    except DagRunTriggerException as asked:
        return "start", asked.trigger_dag_id, asked.dag_run_id, [asked.conf, asked.note]
    except TaskDeferred as asked:
        if isinstance(asked.trigger, IdleTrigger):
            return "wait until idle", asked.trigger.dag_id, asked.method_name, None
        return "wait", asked.trigger.dag_id, *asked.trigger.run_ids, asked.trigger.states
    raise AssertionError("it neither starts a run nor waits for one")


def _rolled_back(stream: str) -> tuple[str, list[str], list[Any]]:
    task: Any = rollback_dag(reconciles(settings().streams_dir)).get_task("rollback")
    task.stream = task.render_template(task.stream, {"params": {"stream": stream}})
    events = OutletEventAccessors()
    run = Run.open(stream, run_name("by hand"), settings())
    sealed = SealedVersion(day=date(2013, 1, 14), version=3, key="", sha256="")
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
        ti = SimpleNamespace(try_number=1)
        task.execute({"run_id": "by hand", "params": form, "ti": ti, "outlet_events": events})
    alias, day = task.outlets
    (event,) = events[alias].asset_alias_events
    keys = sorted(events[day].partition_keys)
    announced = [(event.dest_asset_key.uri, None, event.extra), (day.uri, keys, events[day].extra)]
    return task.application, task.application_args, announced


def _attempt(stream: str, run: str, step: str, results: dict[str, Any], number: int = 1) -> tuple[str, str]:
    """How the task of a step ends, whose application saves the results and dies; with the ``number`` of its try."""

    def save() -> None:
        for name, result in results.items():
            opened = Run.open(stream, run, settings())
            opened.store.put(opened.key(name), json.dumps({"step": name, **result}).encode())

    def die(*_: object) -> None:
        save()
        if run == SILENT:
            return
        raise AirflowException("spark-submit ended with code 137")

    kind = PythonStep if step in STEPS_BY_PLAN else ClientStep
    if kind is PythonStep:
        save()
    with patch.object(SparkSubmitOperator, "execute", die):
        try:
            context = {"run_id": run, "params": {}, "ti": SimpleNamespace(try_number=number)}
            kind(task_id=step, step=step, stream=stream).execute(context)
        except (AirflowException, TidemarkError) as error:
            return type(error).__name__, str(error)
    return "success", ""


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
