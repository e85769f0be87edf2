"""Run as a program: what the operators of other services get from the classes of a page, as a line of JSON.

The services are not there: each call ends with the request, or with an answer that the work is done.
"""

import json
import os
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import boto3
from airflow.sdk.exceptions import AirflowException
from botocore.stub import ANY, Stubber

from tidemark_airflow.connections import open_run
from tidemark_airflow.spark_application import spark_application
from tidemark_airflow.spark_job import spark_job
from tidemark_airflow.submit import ClusterStep

ARN = "arn:aws:emr-serverless:eu-central-1:111122223333:/applications/00f1example"
TI = SimpleNamespace(try_number=1, stats_tags={}, xcom_push=lambda **_: None)
CONTEXT = {"run_id": "by hand", "params": {}, "ti": TI}


def main(stream: str) -> None:
    found: Any
    match os.environ["TIDEMARK_SPARK_SUBMIT"]:
        case "cluster":
            found = _command(stream)
        case "kubernetes":
            found = spark_application(spark_job("maintain", open_run(stream, "by hand"), {}))
        case _:
            found = {"emr": _emr(stream), "databricks": _databricks(stream), "livy": _livy(stream)}
    sys.stdout.write(json.dumps(found) + "\n")


def _command(stream: str) -> list[str]:
    step = ClusterStep(task_id="maintain", step="maintain", stream=stream)
    step.prepare(spark_job("maintain", open_run(stream, "by hand"), {}))
    command: list[str] = step._get_hook()._build_spark_submit_command(step.application)
    return command


def _ended(stream: str, name: str) -> str:
    module, _, kind = name.partition(":")
    step = getattr(import_module(module), kind)(task_id="maintain", step="maintain", stream=stream)
    step.wait_for_completion = step.wait_for_termination = False
    try:
        step.execute(CONTEXT)
    except AirflowException as error:
        return str(error)
    return "success"


def _emr(stream: str) -> Any:
    from airflow.providers.amazon.aws.hooks.emr import EmrServerlessHook

    client = boto3.client("emr-serverless", region_name="eu-central-1")
    asked: dict[str, Any] = {}
    client.meta.events.register("before-parameter-build.*.StartJobRun", lambda params, **_: asked.update(params))
    with Stubber(client) as stub, patch.object(EmrServerlessHook, "conn", client):
        stub.add_response("get_application", {"application": _application()}, {"applicationId": ANY})
        started = {"applicationId": "00f1example", "jobRunId": "00f2example", "arn": f"{ARN}/jobruns/00f2example"}
        stub.add_response("start_job_run", {**started, "ResponseMetadata": {"HTTPStatusCode": 200}})
        return [_ended(stream, "emr_steps:EmrServerlessStep"), asked]


def _application() -> dict[str, Any]:
    words = {"applicationId": "00f1example", "arn": ARN, "releaseLabel": "emr-8.0.0", "type": "SPARK"}
    return {**words, "state": "STARTED", "createdAt": 0, "updatedAt": 0}


def _databricks(stream: str) -> Any:
    from airflow.providers.databricks.hooks.databricks import DatabricksHook

    asked: list[Any] = []

    def submit(_: Any, body: Any) -> int:
        asked.append(body)
        return 7

    with (
        patch.object(DatabricksHook, "submit_run", submit),
        patch.object(DatabricksHook, "get_job_id", lambda *_: 1),
        patch.object(DatabricksHook, "get_run_page_url", lambda *_: ""),
    ):
        return [_ended(stream, "databricks_steps:DatabricksStep"), asked[0]]


def _livy(stream: str) -> Any:
    from airflow.providers.apache.livy.hooks.livy import BatchState, LivyHook

    asked: list[Any] = []

    def post(hook: Any, **fields: Any) -> int:
        asked.append(hook.build_post_batch_body(**fields))
        return 7

    with (
        patch.object(LivyHook, "post_batch", post),
        patch.object(LivyHook, "get_batch_state", lambda *_, **__: BatchState.SUCCESS),
        patch.object(LivyHook, "dump_batch_logs", lambda *_: None),
        patch.object(LivyHook, "get_batch", lambda *_: {"appId": "application_1_1"}),
    ):
        return [_ended(stream, "livy_steps:LivyStep"), asked[0]]


if __name__ == "__main__":
    main(sys.argv[1])
