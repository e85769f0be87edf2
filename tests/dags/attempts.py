"""Run as a program: attempts of Spark steps as their operator makes them; prints how each task ended, a line of JSON.

No application runs: each leaves the results that it is told and dies.
"""

import json
import sys
from typing import Any
from unittest.mock import patch

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from tidemark.batch.run import Run
from tidemark.orchestration.operators import SparkStep
from tidemark.settings import settings


def main(stream: str, run: str, attempts: list[tuple[str, dict[str, Any]]]) -> None:
    ended = [_attempt(stream, run, step, results) for step, results in attempts]
    sys.stdout.write(json.dumps(ended) + "\n")


def _attempt(stream: str, run: str, step: str, results: dict[str, Any]) -> tuple[str, str]:
    def die(*_: object) -> None:
        for name, result in results.items():
            Run.open(stream, run, settings()).save(name, result)
        raise AirflowException("spark-submit ended with code 137")

    with patch.object(SparkSubmitOperator, "execute", die):
        try:
            SparkStep(task_id=step, step=step, stream=stream).execute({"run_id": run, "params": {}})
        except AirflowException as error:
            return type(error).__name__, str(error)
    raise AssertionError("the attempt did not fail")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
