"""Run as a program: the priority of each task of stored DAGs, by DAG and id of a run, as one line of JSON.

The arguments are the DAG folder and the ids. Each DAG is read from its stored form, as the scheduler does it.
"""

import json
import sys
from typing import Any
from uuid import uuid4

from airflow.dag_processing.dagbag import DagBag
from airflow.models.taskinstance import TaskInstance
from airflow.serialization.serialized_objects import DagSerialization


def main(folder: str, *runs: str) -> None:
    weights = {name: {run: _weights(dag, run) for run in runs} for name, dag in DagBag(folder).dags.items()}
    sys.stdout.write(json.dumps(weights) + "\n")


def _weights(dag: Any, run: str) -> dict[str, int | None]:
    stored = json.dumps(DagSerialization.to_dict(dag))
    tasks = DagSerialization.from_dict(json.loads(stored)).tasks
    return {task.task_id: TaskInstance(task, uuid4(), run_id=run).priority_weight for task in tasks}


if __name__ == "__main__":
    main(*sys.argv[1:])
