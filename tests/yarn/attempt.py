"""Run as a program: one attempt of a Spark step, as the deployment submits it. Prints how the task ended as JSON."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

from airflow.sdk.exceptions import AirflowException

from tests.dags.state_file import StateFile
from tidemark.core.errors import TidemarkError
from tidemark_airflow.spark_step import spark_step


def main(stream: str, run: str, step: str, state: str) -> None:
    ti = SimpleNamespace(try_number=1)
    context = {"run_id": run, "params": {}, "ti": ti, "task_state_store": StateFile(Path(state))}
    ended = ("success", "")
    try:
        spark_step()(task_id=step, step=step, stream=stream).execute(context)
    except (AirflowException, TidemarkError) as error:
        ended = (type(error).__name__, str(error))
    sys.stdout.write(json.dumps(ended) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
