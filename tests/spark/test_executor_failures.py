"""Spark's texts of executors that lack something become errors that say what to do. The texts are real ones, cut."""

import sys
from pathlib import Path

import pytest

from tidemark.core.errors import ConfigError, ServiceError, TidemarkError
from tidemark.spark.failures import task_error

LOST = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage"
    " 3.0 (TID 9) (10.0.0.7 executor 5): {}\nDriver stacktrace:"
)
PYTHON = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1972, in main
    check_python_version(infile)
{}
"""
VERSION = (
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different"
    " version: 3.10 than that in driver: 3.11, PySpark cannot run with different minor versions."
)
ENDED = "ExecutorLostFailure (executor 5 exited caused by one of the running tasks) Reason: {}"


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            LOST.format(
                'java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory\n\tat java.…'
            ),
            ConfigError,
            ["no such Python on the executors", "/opt/python: No such file or directory", "spark.executor_python"],
        ),
        (
            PYTHON.format(VERSION),
            ConfigError,
            ["another version", "expected {}.{}".format(*sys.version_info), "found 3.10"],
        ),
        (
            PYTHON.format("ModuleNotFoundError: No module named 'confluent_kafka'"),
            ConfigError,
            ["lacks a package", "expected confluent_kafka", "requirements-executors.txt"],
        ),
        (
            LOST.format(ENDED.format("Command exited with code 52")),
            ConfigError,
            ["ran out of memory", "found Command exited with code 52", "spark.executor_memory"],
        ),
        (
            LOST.format("java.lang.OutOfMemoryError: Java heap space\n\tat org.apache.spark"),
            ConfigError,
            ["an executor ran out of memory", "found java.lang.OutOfMemoryError: Java heap space [", "executor_memory"],
        ),
        (
            LOST.format("java.lang.OutOfMemoryError: Java heap space").replace("executor 5", "executor driver"),
            ConfigError,
            ["Spark's driver ran out of memory", "spark.driver_memory"],
        ),
        (
            LOST.format(ENDED.format("Remote RPC client disassociated. Likely due to network issues.")),
            ServiceError,
            ["executors were lost", "Remote RPC client disassociated"],
        ),
        (
            LOST.format("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
            ServiceError,
            ["Python on an executor was ended", "lower it"],
        ),
    ],
    ids=["no Python", "other version", "no package", "exit code", "heap", "local heap", "lost", "Python ended"],
)
def test_what_executors_lack_is_named(text: str, kind: type[TidemarkError], words: list[str]) -> None:
    for code in (None, Path("/etc/streams/rides.py")):
        error = task_error(RuntimeError(text), where="archive of rides", personal=False, code=code)
        assert type(error) is kind
        assert error.where == "archive of rides"
        assert [word for word in words if word not in str(error)] == []
