"""PySpark's bridge to Java: the only module that uses its private names.

PySpark has no public way to a Java class, session or frame. tests/spark/test_private_apis.py fails when PySpark's
version changes, and names what to check.
"""

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import DateTimeException
from pyspark.sql import DataFrame, SparkSession

from tidemark.connections.spark import is_local

PROVEN_WITH = "4.0.4"  # the version of PySpark


def message_of(error: BaseException) -> str:
    """The message of an error, on one line; Java's own, where it comes from there."""
    message = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
    return " ".join(str(message).split())


def jvm(spark: SparkSession) -> Any:
    """Java's packages, as attributes."""
    return spark.sparkContext._jvm


def java_session(spark: SparkSession) -> Any:
    """Java's ``SparkSession``."""
    return spark._jsparkSession


def hadoop_conf(spark: SparkSession) -> Any:
    """Hadoop's ``Configuration``, which the session's readers and writers copy."""
    return spark.sparkContext._jsc.hadoopConfiguration()


def submitted_conf() -> SparkConf:
    """What spark-submit, which started this process, was given: master, deploy mode and every property.

    Before Python is connected to the JVM, PySpark's ``SparkConf`` is empty.
    """
    SparkContext._ensure_initialized()
    return SparkConf()


def set_log_level(spark: SparkSession, level: str) -> None:
    """Set the level of the driver's log, and not that of executors elsewhere."""
    log4j = jvm(spark).org.apache.logging.log4j
    log4j.core.config.Configurator.setRootLevel(log4j.Level.toLevel(level))


def executor_count(spark: SparkSession) -> int:
    """How many executors the application has now. A local one is its own."""
    known = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()  # the driver is one of them
    return int(known) if is_local(str(spark.sparkContext.master)) else int(known) - 1


def java_frame(frame: DataFrame) -> Any:
    """Java's ``Dataset``."""
    return frame._jdf


def java_zone(
    spark: SparkSession, zone: str, start_s: int, end_s: int
) -> tuple[str, str | None, tuple[tuple[int, int], ...]]:
    """Java's release, the version of its time-zone data, and from which second on which offset of the zone holds.

    Seconds are since the epoch, from ``start_s`` to ``end_s``. Without such a zone there is no version and no offset.
    """
    java = jvm(spark).java
    release = str(java.lang.System.getProperty("java.version"))
    try:
        # As Spark finds it: EST, HST and MST are no names of Java's own.
        rules = java.time.ZoneId.of(zone, java.time.ZoneId.SHORT_IDS).getRules()
        version = str(java.time.zone.ZoneRulesProvider.getVersions("UTC").lastKey())
    except DateTimeException:
        return release, None, ()
    at = java.time.Instant.ofEpochSecond(start_s)
    offsets = [(start_s, int(rules.getOffset(at).getTotalSeconds()))]
    while (change := rules.nextTransition(at)) is not None:
        at = change.getInstant()
        if at.getEpochSecond() >= end_s:
            break
        offsets.append((int(at.getEpochSecond()), int(change.getOffsetAfter().getTotalSeconds())))
    return release, version, tuple(offsets)
