"""Run as a program: attempts of runs' steps as their operators make them; prints how each task ended, a line of JSON.

No application of a Spark step runs: each leaves the results that it is told and dies. Other steps find those results.
Under ``form``: the arguments that the stream's rollback gives its application, and what it announces of its result.
"""

import json
import sys
from datetime import date
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from tidemark.core.outcome import Outcome
from tidemark.orchestration.manual_dags import ROLLBACK
from tidemark.orchestration.operators import PythonStep, SparkStep
from tidemark.orchestration.steps import reconciles
from tidemark.orchestration.tasks import STEPS_BY_PLAN
from tidemark.reconcile.results import ROLLBACK as ROLLBACK_STEP
from tidemark.reconcile.results import RollbackResult, SealedVersion
from tidemark.run import Run, run_name
from tidemark.settings import settings


def main(stream: str, attempts: dict[str, list[tuple[str, dict[str, Any]]]]) -> None:
    ended = {run: [_attempt(stream, run, *attempt) for attempt in own] for run, own in attempts.items()}
    sys.stdout.write(json.dumps({**ended, "form": _rolled_back(stream)}) + "\n")


def _rolled_back(stream: str) -> tuple[str, list[str], dict[str, Any]]:
    item = next(item for item in reconciles(settings().streams_dir) if item.name == stream)
    task: Any = ROLLBACK.dag(item).get_task("rollback")
    announced = {task.outlets[0]: SimpleNamespace(extra=None)}
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
        task.execute({"run_id": "by hand", "params": form, "outlet_events": announced})
    return task.application, task.application_args, announced[task.outlets[0]].extra


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
        except AirflowException as error:
            return type(error).__name__, str(error)
    return "success", ""


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
