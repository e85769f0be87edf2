"""Run as a program: what Airflow's OpenLineage provider gets from a step's operator, and what the step is started with.

Prints JSON: the variables, Spark's properties, and the names of the datasets that the step has read and written.
"""

import json
import os
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

from tidemark.lineage.run_events import PARENT, ROOT
from tidemark_airflow.connections import open_run
from tidemark_airflow.lineage import name_task, spark_properties, task_lineage


def main(stream: str, run: str, step: str) -> None:
    dag_run = SimpleNamespace(
        run_id=run, logical_date=datetime(2026, 1, 1, tzinfo=UTC), run_after=None, clear_number=0, conf={}
    )
    task_instance = SimpleNamespace(
        dag_id=f"reconcile_{stream}",
        task_id=step,
        run_id=run,
        try_number=1,
        map_index=-1,
        logical_date=dag_run.logical_date,
        dag_run=dag_run,
        task=None,
        get_template_context=lambda: {"dag_run": dag_run},
    )
    name_task({"ti": task_instance})
    found = task_lineage(lambda: open_run(stream, run), step)
    answer = {
        "variables": [os.environ.get(PARENT), os.environ.get(ROOT)],
        "properties": spark_properties(),
        "inputs": [[item.namespace, item.name] for item in found.inputs],
        "outputs": [[item.namespace, item.name] for item in found.outputs],
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
