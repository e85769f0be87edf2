"""Stands in Airflow's DAG folder in place of dags/streams.py: a run of one stream's DAG ends in seconds.

It is still under way while there is a file ``hold-<first day>``, and fails as an audit does where there is one
``fail-<first day>``. Runs of two more streams begin with the task that asks a person. The other streams' DAGs are real.
"""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseSensorOperator

from tidemark.core.errors import QualityError
from tidemark.orchestration.steps import dag_id
from tidemark.reconcile.results import AUDIT
from tidemark.run import Run, run_name
from tidemark_airflow import tidemark_dags
from tidemark_airflow.approval import ANSWER_FORM, ApproveStep
from tidemark_airflow.connections import task_settings
from tidemark_airflow.context import explained
from tidemark_airflow.reconcile_dag import _params

STREAM, FOLDER = os.environ["STUB_STREAM"], Path(os.environ["STUB_FOLDER"])


class StubStep(BaseSensorOperator):
    """The only task of the stream's run."""

    def poke(self, context: Any) -> bool:
        day = context["params"]["from_day"]
        if (FOLDER / f"fail-{day}").exists():
            explained(lambda: self._fail(context["run_id"]))
        return not (FOLDER / f"hold-{day}").exists()

    def _fail(self, run_id: str) -> None:
        with Run.open(STREAM, run_name(run_id), task_settings()).step(AUDIT):
            raise QualityError("critical checks failed")


def stub_dags() -> dict[str, DAG]:
    """Every DAG by its id, with ours in place of the real ones.

    Airflow takes each DAG that is a global of this module, so a real one must not stay there: of two with one id it
    keeps either.
    """
    found = tidemark_dags()
    stub = dag_id(STREAM)
    if found.pop(stub, None):
        with DAG(dag_id=stub, schedule=None, params={"from_day": None, "to_day": None, "force": False}) as found[stub]:
            StubStep(task_id="stub", poke_interval=0.5)
    for asks in os.environ["ASKING_STREAMS"].split():
        real = found.pop(dag_id(asks), None)
        if real is not None:
            found[real.dag_id] = asking_dag(asks, real)
    return found


def asking_dag(stream: str, real: DAG) -> DAG:
    """The task that asks, as the real DAG has it, and one after it."""
    own: Any = real.get_task("approve")
    with DAG(
        dag_id=real.dag_id,
        schedule=None,
        max_active_runs=1,
        params=_params(),
        default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
    ) as dag:
        approve = ApproveStep(
            task_id="approve", stream=stream, params=ANSWER_FORM, response_timeout=own.response_timeout
        )
        approve >> EmptyOperator(task_id="publish", trigger_rule=real.get_task("publish").trigger_rule)
    return dag


globals().update(stub_dags())
