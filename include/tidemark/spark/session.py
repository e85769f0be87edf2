"""The Spark session of every application: the same catalog and S3 access, UTC, small heaps."""

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import tidemark
from tidemark.connections.spark import Layer, SparkSettings, SparkSizes, is_local
from tidemark.core.errors import ConfigError, ServiceError, StackError
from tidemark.settings import Settings
from tidemark.spark import masked_log
from tidemark.spark.conf import (
    AVRO_LIMITS,
    PRIVATE,
    SHUFFLE_PARTITIONS,
    jars,
    loopback,
    session_conf,
    session_secrets,
    spark_home,
    submit_environment,
)
from tidemark.spark.java import hadoop_conf, jvm, submitted_conf
from tidemark.spark.packed import PACKAGE, packed
from tidemark.spark.s3_conf import require_usable, s3a_keys
from tidemark.spark.trust import java_trust

_LOG = logging.getLogger(__name__)
ROWS_PER_TASK = 500_000
_SHUFFLES = "spark.sql.shuffle.partitions"
DAEMON = "tidemark.spark.daemon"
_OPEN_FILES = (
    "other users of this machine may read the records in Spark's local files, because this process has umask %03o."
    " Start spark-submit with umask 077"
)
# They log the stack trace of a failed task again, which TaskSetManager logs, too, wherever the task ran.
_REPEATING = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.sql.execution.streaming.MicroBatchExecution",
)
# Kept until the process ends: the driver sends the file to executors that start later.
_FOLDERS: list[TemporaryDirectory[str]] = []
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
    return _quietly(lambda: _start(name, conf))


def _start(name: str, conf: Mapping[str, str]) -> SparkSession:
    """The session. Its JVM and the tasks' Python inherit a umask that lets only their user read Spark's local files.

    These files contain records: shuffled and cached rows, and files of tables before their upload.
    """
    before = os.umask(PRIVATE)
    try:
        return SparkSession.builder.appName(name).config(map={**conf}).getOrCreate()
    finally:
        os.umask(before)


def _without_python_traces() -> None:
    """Switch off loggers that print pages of Java stack trace for each exception, even a caught one."""
    for logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL + 1)


def quiet_session(settings: Settings, name: str, stream: SparkSettings | None = None) -> SparkSession:
    """``spark_session`` for a command: the JVM's log is dropped. Raises StackError as ``bare_session`` does."""
    return _quietly(lambda: spark_session(settings, name, stream=stream))


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


@contextmanager
def shuffles_for(spark: SparkSession, rows: int, sizes: SparkSizes) -> Iterator[None]:
    """Inside the block, a shuffle has enough parts for the rows. Spark joins small ones; it never splits large ones.

    Does nothing if ``sizes.conf`` gives the number.
    """
    parts = max(SHUFFLE_PARTITIONS, ceil(rows / ROWS_PER_TASK))
    with nullcontext() if _SHUFFLES in sizes.conf else temporary_conf(spark, {_SHUFFLES: str(parts)}):
        yield


def spark_session(
    settings: Settings,
    name: str,
    layer: Layer = "batch",
    stream: SparkSettings | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    personal: bool = False,
) -> SparkSession:
    """The application's session, one per process; with master and jars unless spark-submit started it.

    If its rows have ``personal`` data, no log of it shows values, and Spark writes no event log.
    It has the sizes of the deployment's ``layer``, and before them the ``stream``'s. Raises ConfigError without the
    jars, and for settings that a cluster can't use, ServiceError if the JVM ends during its start.
    """
    _without_python_traces()
    sizes = settings.spark_sizes(layer, stream)
    os.environ.update(submit_environment(settings, sizes))
    try:
        if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has set them, in the JVM that it started
            given = submitted_conf()
            settings = settings.model_copy(update={"spark_master": given.get("spark.master")})
            _warn_of_open_files(given.get("spark.submit.deployMode", "client"))
            own = {}
        else:
            own = {"spark.master": settings.spark_master, "spark.jars": jars(settings)}
        require_usable(settings)
        options = {**session_conf(settings, sizes, layer), **own, **_where_tasks_run(settings), **(conf or {})}
        options |= masked_log.CONF if personal else {}
        session = _start(name, options)
    except (PySparkRuntimeError, Py4JNetworkError, ConnectionError) as error:  # killed, or the machine lacks memory
        raise ServiceError(
            "Spark's JVM did not start",
            found=str(error),
            hint="See its messages in this log. It needs Java 17 or 21, and the memory in spark.driver.memory",
        ) from error
    if not is_local(settings.spark_master):
        _send_package(session)
        if lack := unprotected(dict(session.sparkContext.getConf().getAll())):
            _LOG.warning(
                "Kafka's and S3's secrets travel to the executors in the clear. Set in spark-defaults.conf: %s", lack
            )
    _give_secrets(session, settings)
    # Avro and TLS read them at their first use.
    for key, value in {**AVRO_LIMITS, **java_trust(settings.s3_ca_bundle)}.items():
        jvm(session).java.lang.System.setProperty(key, value)
    _log_less(session, personal=personal)
    return session


def _warn_of_open_files(deploy_mode: str | None) -> None:
    """Warn if the JVM, which spark-submit started with this process's umask, lets others read its files.

    In cluster mode, the cluster sets the umask.
    """
    mask = os.umask(PRIVATE)
    os.umask(mask)  # the umask can't be read without being set
    if deploy_mode == "client" and mask & PRIVATE != PRIVATE:
        _LOG.warning(_OPEN_FILES, mask)


def _where_tasks_run(settings: Settings) -> dict[str, str]:
    """Local tasks use the driver's Python, which has the module. Other executors may not have it."""
    daemon = {"spark.python.daemon.module": DAEMON} if is_local(settings.spark_master) else {}
    return loopback(settings.spark_master) | daemon


def _send_package(session: SparkSession) -> None:
    """Send this package to executors: they run the driver's version of it, whatever they have installed."""
    package = Path(tidemark.__file__).parent
    if not package.is_dir():  # it is a zip that the submission has sent
        return
    _FOLDERS.append(TemporaryDirectory(prefix="tidemark-package-"))
    session.sparkContext.addPyFile(str(packed(Path(_FOLDERS[-1].name) / "tidemark.zip", package.parent, PACKAGE)))


def unprotected(conf: Mapping[str, str]) -> str:
    """The properties that lack, so that only the application's own executors can read what the driver sends them."""
    if conf.get("spark.ssl.rpc.enabled") == "true":
        return ""
    names = ("spark.authenticate", "spark.network.crypto.enabled")
    return ", ".join(f"{name} true" for name in names if conf.get(name) != "true")


def _give_secrets(session: SparkSession, settings: Settings) -> None:
    """Set what the session's start would show. It must come before anything that loads the catalog or opens S3."""
    for key, value in session_secrets(settings).items():
        session.conf.set(key, value)
    hadoop = hadoop_conf(session)
    for key, value in s3a_keys(settings).items():
        hadoop.set(key, value)


def _log_less(session: SparkSession, *, personal: bool) -> None:
    level = jvm(session).java.lang.System.getProperty("tidemark.log.level", "warn")
    if personal:
        masked_log.mask_log(session, level)
    else:
        session.sparkContext.setLogLevel(level.upper())
    log4j = jvm(session).org.apache.logging.log4j
    for logger in _REPEATING:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)
    result = log4j.core.Filter.Result
    repeated = log4j.core.filter.RegexFilter.createFilter(_REPEATED, None, False, result.DENY, result.NEUTRAL)
    repeated.start()
    log4j.core.LoggerContext.getContext(False).getConfiguration().addFilter(repeated)
