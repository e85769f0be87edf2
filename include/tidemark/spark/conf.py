"""Jars, properties and variables for starting a Spark application. Airflow imports this, so it needs no Spark."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

from tidemark.connections.catalog import HIDDEN_NAMES, secret
from tidemark.core.errors import ConfigError
from tidemark.settings import Settings
from tidemark.spark.s3_conf import s3_conf, s3_variables
from tidemark.spark.trust import java_trust

# Avro allocates the length that precedes a string, bytes or list: six broken bytes request 2 GB and end the JVM.
AVRO_LIMITS = {
    "org.apache.avro.limits.bytes.maxLength": str(64 << 20),
    "org.apache.avro.limits.string.maxLength": str(64 << 20),
    "org.apache.avro.limits.collectionItems.maxLength": str(16 << 20),
}

PLACEHOLDER = "(set after the start)"

# Names whose values Spark never shows, neither in plans and pages nor in event logs: those of catalogs and of Kafka.
REDACTED = f"(?i){HIDDEN_NAMES}|jaas|certificate|keystore[.]key|truststore|[.]pem"

# In the plan of a stream that was not started, the options of its Kafka source are there a second time, as they are.
REDACTED_TEXT = r"(?s)DataSource\(.*?,None\)(?=, kafka)"


def hidden(name: str) -> bool:
    """Whether a property of this name is secret: of a catalog or of Kafka."""
    return secret(name) or re.search("jaas|keystore[.]key|ssl[.]key[.]pem", name, re.IGNORECASE) is not None


def jars(settings: Settings) -> str:
    """The jars for ``spark.jars``, comma-separated; raises ConfigError if they are not installed."""
    found = sorted(str(path) for path in settings.jars_dir.glob("*.jar"))
    if not found:
        raise ConfigError(
            "no Spark jars", expected="*.jar", where=str(settings.jars_dir), hint="Run 'make install' first"
        )
    return ",".join(found)


def session_conf(settings: Settings) -> dict[str, str]:
    """Spark properties of a Tidemark application. S3 credentials are in environment variables, never here."""
    catalog = f"spark.sql.catalog.{settings.catalog}"
    return {
        # Default options: extraJavaOptions belong to the deployment. spark_session sets those of the running driver.
        "spark.executor.defaultJavaOptions": " ".join(
            f"-D{name}={value}"
            for name, value in {**AVRO_LIMITS, **java_trust(settings.s3_ca_bundle, executor=True)}.items()
        ),
        "spark.redaction.regex": REDACTED,
        "spark.sql.redaction.string.regex": REDACTED_TEXT,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        # Its carriage returns would break the log lines.
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        # HotSpot does not compile longer methods: a stage of many columns is interpreted, at a third of the speed.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),  # else 20,000 records of any size
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        **_catalog(settings, secrets=False),
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        **s3_conf(settings, catalog),
    }


def session_secrets(settings: Settings) -> dict[str, str]:
    """Properties to set in the session, because a session's start would show them: in SparkConf and its arguments."""
    return _catalog(settings, secrets=True)


def _catalog(settings: Settings, *, secrets: bool) -> dict[str, str]:
    """The catalog's properties. Without ``secrets``, those have a placeholder.

    Spark hides in its event log only properties that SparkConf has, too, and whose names match its pattern.
    """
    prefix = f"spark.sql.catalog.{settings.catalog}"
    found = settings.iceberg.spark().items()
    if secrets:
        return {f"{prefix}.{name}": text for name, text in found if secret(name)}
    return {f"{prefix}.{name}": PLACEHOLDER if secret(name) else text for name, text in found}


def loopback(master: str) -> dict[str, str]:
    """Properties that keep a local session on this machine, whatever address its host name has; none for a cluster."""
    if not master.startswith("local"):
        return {}
    return {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}


def submit_environment(settings: Settings) -> dict[str, str]:
    """Variables for spark-submit: this Python and its Spark, and who calls S3."""
    return {
        # PySpark's own search fails on a path with a space; and another Spark would not fit our jars.
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        **s3_variables(settings),
    }


def spark_home() -> Path:
    """The folder of the pyspark package beside this Python, found without importing it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "no PySpark", expected="the package pyspark", where=sys.prefix, hint="Run 'make install' first"
        )
    return Path(spec.origin).parent
