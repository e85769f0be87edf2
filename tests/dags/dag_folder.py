"""Run as a program: parse the DAG folder as Airflow does and print what came out as one line of JSON."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import airflow.sdk  # its import time is Airflow's, not ours
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowNotFoundException


def main(folder: str) -> None:
    asked, connected = Path(os.environ["ASKED"]), []
    asked.touch()
    sys.addaudithook(lambda event, details: connected.append(str(details[1])) if event == "socket.connect" else None)
    started = time.process_time()
    bag = DagBag(folder)
    seconds = time.process_time() - started
    while_parsing = asked.read_text(encoding="utf-8")
    try:
        airflow.sdk.Connection.get("control")
    except AirflowNotFoundException:
        control = asked.read_text(encoding="utf-8").removeprefix(while_parsing)
    found = {
        "asked": while_parsing.splitlines(),
        "control": control.splitlines(),
        "connected": connected,
        "cpu_seconds": seconds,
        "heavy": sorted({"pyspark", "great_expectations", "pandas", "pyarrow"} & set(sys.modules)),
        "errors": bag.import_errors,
        "dags": {name: _dag(dag) for name, dag in bag.dags.items()},
    }
    sys.stdout.write(json.dumps(found) + "\n")


def _dag(dag: Any) -> dict[str, Any]:
    timetable = dag.timetable
    return {
        "timetable": type(timetable).__name__,
        "cron": [getattr(timetable, "expression", None), str(getattr(timetable, "timezone", None))],
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "paused_at_first": dag.is_paused_upon_creation,
        "params": {name: dag.params.get_param(name).schema for name in dag.params},
        "defaults": [dag.params.get_param(name).value for name in dag.params if dag.params.get_param(name).has_value],
        "undescribed": [name for name in dag.params if not dag.params.get_param(name).description],
        "doc": dag.doc_md,
        "description": dag.description,
        "tags": sorted(dag.tags),
        "owners": sorted({task.owner for task in dag.tasks}),
        "tasks": {task.task_id: _task(task) for task in dag.tasks},
    }


def _task(task: Any) -> dict[str, Any]:
    return {
        "operator": type(task).__name__,
        "downstream": sorted(task.downstream_task_ids),
        "rule": str(task.trigger_rule.value),
        "teardown": task.is_teardown,
        "fails_run": task.on_failure_fail_dagrun,
        "retries": task.retries,
        "at_once_per_run": task.max_active_tis_per_dagrun,
        "mapped": task.is_mapped,
        "depends_on_past": task.depends_on_past,
        "pool": task.pool,
        "bounded": task.execution_timeout is not None or getattr(task, "mode", "") == "reschedule",
        "templates": list(task.template_fields),
        "outlets": [getattr(item, "uri", item.name) for item in task.outlets],
    }


if __name__ == "__main__":
    main(sys.argv[1])
