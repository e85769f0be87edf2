"""The Spark session every application uses: same catalog, same S3 access, UTC, small heaps."""

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tidemark.core.errors import ConfigError, ServiceError, StackError
from tidemark.settings import Settings
from tidemark.spark.conf import AVRO_LIMITS, jars, session_conf, spark_home, submit_environment

DAEMON = "tidemark.spark.daemon"


def bare_session(name: str, *, master: str = "local[1]", driver_memory: str = "512m") -> SparkSession:
    """A session for a command: no deployment, no jars, quiet. By default one core, for looking at plans.

    What the JVM logs goes nowhere. Raises StackError, with the last line of it, when the session does not start.
    """
    # They print pages of Java stack trace for each exception, the caught ones too.
    for logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL + 1)
    os.environ["SPARK_HOME"] = str(spark_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    here = {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
    conf = {
        "spark.master": master,
        "spark.driver.memory": driver_memory,
        **(here if master.startswith("local") else {}),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.appName(name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    return _quietly(builder.getOrCreate)


def quiet_session(settings: Settings, name: str) -> SparkSession:
    """``spark_session`` for a command: what the JVM logs goes nowhere. Raises StackError as ``bare_session`` does."""
    return _quietly(lambda: spark_session(settings, name))


def _quietly(start: Callable[[], SparkSession]) -> SparkSession:
    with tempfile.TemporaryFile() as log, _stderr_to(log.fileno()):
        try:
            return start()
        except ConfigError:
            raise
        except Exception as error:  # PySpark has a type of its own for each way in which a JVM can't start
            log.seek(0)
            told = log.read().decode(errors="replace").strip().splitlines()
            raise StackError(
                "Spark does not start", found=told[-1] if told else error, hint="It needs Java 17 or 21"
            ) from error


@contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """Give processes started inside another standard error; they keep it."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def spark_session(settings: Settings, name: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The application's session, made once per process; master, jars and memory too where spark-submit set none.

    Raises ConfigError without the jars, ServiceError where the JVM ends before it is up.
    """
    os.environ.update(submit_environment(settings))
    builder = SparkSession.builder.appName(name)
    defaults = {
        "spark.master": settings.spark_master,
        "spark.jars": jars(settings),
        "spark.driver.memory": settings.spark_driver_memory,
        # Tasks run beside the driver, in the same Python: it has the module. Elsewhere nobody knows.
        **({"spark.python.daemon.module": DAEMON} if settings.spark_master.startswith("local") else {}),
    }
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit, which was given these
        defaults = {}
    for key, value in {**session_conf(settings), **defaults, **(conf or {})}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:  # it was killed meanwhile, or the machine has no memory for it
        raise ServiceError(
            "Spark's JVM did not start",
            found=str(error),
            hint="What it said of itself is in this log; it needs Java 17 or 21, and the memory it is given",
        ) from error
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - PySpark's way to Java classes
    for key, value in AVRO_LIMITS.items():  # read when the JVM first decodes Avro
        jvm.java.lang.System.setProperty(key, value)
    session.sparkContext.setLogLevel("WARN")
    return session
