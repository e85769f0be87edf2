"""A class that submits steps, as a deployment may have one: its operator defers, and learns no reason of a failure."""

import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from tidemark.installation import SPARK_APPS
from tidemark_airflow.spark_job import SparkJob
from tidemark_airflow.spark_step import SparkStep


class RemoteOperator(BaseOperator):
    """Runs an application as a process, in place of a service."""

    argv: tuple[str, ...] = ()

    def execute(self, context: Any) -> None:  # noqa: ARG002
        code = subprocess.run([sys.executable, *self.argv], env={**os.environ}, check=False).returncode
        event = {"event": {"code": code}}
        self.defer(trigger=TimeDeltaTrigger(timedelta(0)), method_name="execute_complete", kwargs=event)

    def execute_complete(self, context: Any, event: dict[str, int]) -> None:  # noqa: ARG002
        if event["code"]:
            raise AirflowException("the service reports a failure")


class DeferredStep(SparkStep, RemoteOperator):
    def prepare(self, job: SparkJob) -> None:
        self.argv = (str(SPARK_APPS / job.file), *job.arguments)
