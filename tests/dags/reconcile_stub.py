"""Stands in Airflow's DAG folder in place of dags/reconcile.py: a run of one stream's DAG ends in seconds.

It is still under way while there is a file ``hold-<first day>``, and fails as an audit does where there is one
``fail-<first day>``. The other streams' DAGs are real.
"""

import os
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseSensorOperator

from tidemark.core.errors import QualityError
from tidemark.orchestration.connections import task_settings
from tidemark.orchestration.context import explained
from tidemark.orchestration.reconcile_dag import reconcile_dag
from tidemark.orchestration.steps import reconciles
from tidemark.reconcile.results import AUDIT
from tidemark.run import Run, run_name
from tidemark.settings import streams_dir

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


for item in reconciles(streams_dir()):
    if item.name != STREAM:
        globals()[item.dag_id] = reconcile_dag(item)
        continue
    with DAG(dag_id=item.dag_id, schedule=None, params={"from_day": None, "to_day": None, "force": False}) as dag:
        StubStep(task_id="stub", poke_interval=0.5)
