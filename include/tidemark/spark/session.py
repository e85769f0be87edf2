"""The Spark session of every application: the same catalog and S3 access, UTC, small heaps."""

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JNetworkError
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tidemark.core.errors import ConfigError, ServiceError, StackError
from tidemark.settings import Settings
from tidemark.spark.conf import AVRO_LIMITS, jars, loopback, session_conf, spark_home, submit_environment
from tidemark.spark.java import jvm
from tidemark.spark.trust import java_trust

DAEMON = "tidemark.spark.daemon"
# They log the stack trace of a failed task again, which TaskSetManager logs, too, wherever the task ran.
_REPEATING = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.sql.execution.streaming.MicroBatchExecution",
)
_REPEATED = "Aborting task.*"  # with the same trace, by a logger that others need


def bare_session(name: str, *, master: str = "local[1]", driver_memory: str = "512m") -> SparkSession:
    """A session for a command, without deployment and jars. By default one core, enough to analyse plans.

    The JVM's log is dropped. Raises StackError with its last line if the session does not start.
    """
    _without_python_traces()
    os.environ["SPARK_HOME"] = str(spark_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.master": master,
        "spark.driver.memory": driver_memory,
        **loopback(master),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return _quietly(SparkSession.builder.appName(name).config(map={**conf}).getOrCreate)


def _without_python_traces() -> None:
    """Switch off loggers that print pages of Java stack trace for each exception, even a caught one."""
    for logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL + 1)


def quiet_session(settings: Settings, name: str) -> SparkSession:
    """``spark_session`` for a command: the JVM's log is dropped. Raises StackError as ``bare_session`` does."""
    return _quietly(lambda: spark_session(settings, name))


def _quietly(start: Callable[[], SparkSession]) -> SparkSession:
    with tempfile.TemporaryFile() as log, _stderr_to(log.fileno()):
        try:
            return start()
        except ConfigError:
            raise
        except Exception as error:  # PySpark raises several types if a JVM can't start
            log.seek(0)
            lines = log.read().decode(errors="replace").strip().splitlines()
            raise StackError(
                "Spark does not start", found=lines[-1] if lines else error, hint="Install Java 17 or 21"
            ) from error


@contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """Redirect the standard error of processes that are started inside; they keep it."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def temporary_conf(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Inside the block, the session has these settings."""
    before = {key: spark.conf.get(key, None) for key in values}
    try:
        for key, value in values.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)


def spark_session(settings: Settings, name: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The application's session, one per process; with master, jars and memory unless spark-submit started it.

    Raises ConfigError without the jars, ServiceError if the JVM ends during its start.
    """
    _without_python_traces()
    os.environ.update(submit_environment(settings))
    defaults = {
        "spark.master": settings.spark_master,
        "spark.jars": jars(settings),
        "spark.driver.memory": settings.spark_driver_memory,
        **loopback(settings.spark_master),
        # Local tasks use the driver's Python, which has the module. Other executors may not have it.
        **({"spark.python.daemon.module": DAEMON} if settings.spark_master.startswith("local") else {}),
    }
    try:
        if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has set them
            defaults = loopback(SparkConf().get("spark.master", ""))
        options = {**session_conf(settings), **defaults, **(conf or {})}
        session = SparkSession.builder.appName(name).config(map={**options}).getOrCreate()
    except (PySparkRuntimeError, Py4JNetworkError, ConnectionError) as error:  # killed, or the machine lacks memory
        raise ServiceError(
            "Spark's JVM did not start",
            found=str(error),
            hint="See its messages in this log. It needs Java 17 or 21, and the memory in spark.driver.memory",
        ) from error
    # Avro and TLS read them at their first use.
    for key, value in {**AVRO_LIMITS, **java_trust(settings.s3_ca_bundle)}.items():
        jvm(session).java.lang.System.setProperty(key, value)
    session.sparkContext.setLogLevel("WARN")
    log4j = jvm(session).org.apache.logging.log4j
    for logger in _REPEATING:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)
    result = log4j.core.Filter.Result
    repeated = log4j.core.filter.RegexFilter.createFilter(_REPEATED, None, False, result.DENY, result.NEUTRAL)
    repeated.start()
    log4j.core.LoggerContext.getContext(False).getConfiguration().addFilter(repeated)
    return session
