"""Run as a program: attempts of steps as their operators make them; prints how each task ended, a line of JSON.

No application of a Spark step runs: each leaves the results that it is told and dies. Other steps find those results.
"""

import json
import sys
from typing import Any
from unittest.mock import patch

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from tidemark.batch.run import Run
from tidemark.orchestration.operators import PythonStep, SparkStep
from tidemark.orchestration.work import STEPS_BY_PLAN
from tidemark.settings import settings


def main(stream: str, run: str, attempts: list[tuple[str, dict[str, Any]]]) -> None:
    ended = [_attempt(stream, run, step, results) for step, results in attempts]
    sys.stdout.write(json.dumps(ended) + "\n")


def _attempt(stream: str, run: str, step: str, results: dict[str, Any]) -> tuple[str, str]:
    def save() -> None:
        for name, result in results.items():
            Run.open(stream, run, settings()).save(name, result)

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
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
