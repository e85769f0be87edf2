"""A session that can't start."""

import os
import subprocess
import sys

from tidemark.stack.local import PROJECT, LocalStack

PROGRAM = """\
from tidemark.core.errors import ServiceError
from tidemark.settings import settings
from tidemark.spark.session import spark_session
try:
    spark_session(settings(), "too small")
except ServiceError as error:
    print(error)
"""


def test_a_jvm_that_ends_before_it_is_up_is_told_in_a_sentence(stack: LocalStack) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=PROJECT,
        env={**os.environ, **stack.env, "TIDEMARK_SPARK_DRIVER_MEMORY": "1k"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "Spark's JVM did not start: found [JAVA_GATEWAY_EXITED]" in found.stdout, found
    assert "the memory it is given" in found.stdout
