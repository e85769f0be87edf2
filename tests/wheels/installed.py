"""Run as a program by a stock Airflow with both wheels: what it finds of Tidemark, as a line of JSON."""

import contextlib
import importlib.util
import io
import json
import os
import sys
from typing import Any

from airflow.__main__ import main as airflow_command
from airflow.dag_processing.dagbag import DagBag
from airflow.providers_manager import ProvidersManager

from tidemark.core.errors import ConfigError
from tidemark_airflow.spark_step import spark_step


def main(folder: str) -> None:
    bag = DagBag(folder)
    found = {
        "dags": {name: sorted(task.task_id for task in dag.tasks) for name, dag in bag.dags.items()},
        "operators": sorted({task.task_type for dag in bag.dags.values() for task in dag.tasks}),
        "errors": {path.rpartition("/")[2]: text.splitlines()[-1] for path, text in bag.import_errors.items()},
        "heavy": sorted({"pyspark", "great_expectations", "pandas", "pyarrow"} & set(sys.modules)),
        "importable": [name for name in ("pyspark", "great_expectations") if importlib.util.find_spec(name)],
        "providers": _printed("providers", "list", "--output", "json"),
        "plugins": _printed("plugins", "--output", "json"),
        "hooks": _hooks(),
        "client": _client(),
    }
    sys.stdout.write(json.dumps(found) + "\n")


def _printed(*arguments: str) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        sys.argv = ["airflow", *arguments]
        airflow_command()  # type: ignore[no-untyped-call]  # Airflow has no types here
    return json.loads(printed.getvalue())


def _client() -> str:
    """Why the steps can't run on this worker."""
    os.environ["TIDEMARK_SPARK_SUBMIT"] = "client"
    try:
        return spark_step().__name__
    except ConfigError as error:
        return str(error)


def _hooks() -> dict[str, Any]:
    """By connection type: whether its form imported a hook, the fields, and whether the hook can be imported."""
    manager = ProvidersManager()  # type: ignore[no-untyped-call]  # Airflow has no types here
    listed = [item.connection_type for item in manager.iter_connection_type_hook_ui_metadata()]
    imported = "tidemark_airflow.hooks" in sys.modules
    widgets = manager._connection_form_widgets_from_metadata.items()
    return {
        name: [
            imported,
            sorted(info.field_name for key, info in widgets if f"__{name}__" in key),
            bool(manager.hooks[name]),
        ]
        for name in listed
        if name.startswith("tidemark_")
    }


if __name__ == "__main__":
    main(sys.argv[1])
