"""PySpark's bridge to Java: the only module that uses its private names.

PySpark has no public way to a Java class, session or frame. tests/spark/test_private_apis.py fails when PySpark's
version changes, and names what to check.
"""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

PROVEN_WITH = "4.0.4"  # the version of PySpark


def jvm(spark: SparkSession) -> Any:
    """Java's packages, as attributes."""
    return spark.sparkContext._jvm


def java_session(spark: SparkSession) -> Any:
    """Java's ``SparkSession``."""
    return spark._jsparkSession


def java_frame(frame: DataFrame) -> Any:
    """Java's ``Dataset``."""
    return frame._jdf
