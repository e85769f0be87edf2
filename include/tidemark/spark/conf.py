"""Jars, properties and variables for starting a Spark application. Airflow imports this, so it needs no Spark."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from tidemark import installation
from tidemark.connections.shown import SECRET_WORDS, SHOWN, shown
from tidemark.connections.spark import DEFAULT_SIZES, Layer, SparkSizes, is_local, size_properties
from tidemark.core.errors import ConfigError
from tidemark.settings import Settings
from tidemark.spark.s3_conf import file_io_keys, s3_conf, s3_variables
from tidemark.spark.trust import java_trust

# Avro allocates the length that precedes a string, bytes or list: six broken bytes request 2 GB and end the JVM.
AVRO_LIMITS = {
    "org.apache.avro.limits.bytes.maxLength": str(64 << 20),
    "org.apache.avro.limits.string.maxLength": str(64 << 20),
    "org.apache.avro.limits.collectionItems.maxLength": str(16 << 20),
}

SHUFFLE_PARTITIONS = 4
# The umask of each process that writes Spark's local files: only its user may read them.
PRIVATE = 0o077
LOG4J = {form: Path(__file__).with_name(f"log4j2-{form}.properties") for form in ("text", "json")}
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
PLACEHOLDER = "(set after the start)"

# Names whose values Spark never shows, neither in plans and pages nor in event logs: those of catalogs and of Kafka
# that are not on the list. Spark tries the pattern on values, too: the last part fits no host:port.
_CLIENTS = "spark[.]sql[.]catalog[.][^.]+|kafka"
_UNLISTED = f"^({_CLIENTS})[.](?!({SHOWN})$)[A-Za-z0-9_.-]+$"
REDACTED = f"(?i){SECRET_WORDS}|jaas|certificate|keystore[.]key|truststore|[.]pem|{_UNLISTED}"

# In the plan of a stream that was not started, the options of its Kafka source are there a second time, as they are.
REDACTED_TEXT = r"(?s)DataSource\(.*?,None\)(?=, kafka)"


def jars(settings: Settings) -> str:
    """The jars for ``spark.jars``, comma-separated; raises ConfigError if they are not installed."""
    found = sorted(str(path) for path in settings.jars_dir.glob("*.jar"))
    if not found:
        raise ConfigError(
            "no Spark jars", expected="*.jar", where=str(settings.jars_dir), hint=f"{installation.GET_JARS} first"
        )
    return ",".join(found)


def session_conf(settings: Settings, sizes: SparkSizes = DEFAULT_SIZES, layer: Layer = "batch") -> dict[str, str]:
    """Spark properties of a Tidemark application without any secret.

    Raises ConfigError where ``sizes.conf`` has a property of which Tidemark needs another value.
    """
    needed = needed_conf(settings)
    for name in sorted(needed.keys() & sizes.conf.keys()):
        if needed[name] != sizes.conf[name]:
            hidden = needed[name] == PLACEHOLDER
            raise ConfigError(
                "a Spark property that Tidemark sets",
                expected="no value here" if hidden else needed[name],
                found=name if hidden else f"{name}={sizes.conf[name]}",
                where="TIDEMARK_SPARK, or spark in the stream's definition",
                hint="Leave it out; what it says about S3 and catalogs comes from Tidemark's settings",
            )
    return {**_PREFERRED, **size_properties(sizes, layer, settings.spark_master), **needed}


# Values that a deployment may replace.
_PREFERRED = {
    "spark.ui.enabled": "false",
    # Its carriage returns would break the log lines.
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "true",
    # For small queries. Steps that read a day raise it: see shuffles_for.
    "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
    # HotSpot does not compile longer methods: a stage of many columns is interpreted, at a third of the speed.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),  # else 20,000 records of any size
}


def needed_conf(settings: Settings) -> dict[str, str]:
    """The properties without which Tidemark would not work, or would show secrets or lose rows."""
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
        # As everywhere in JSON, the last one counts. Otherwise a whole record that is read with a VARIANT is refused.
        "spark.sql.variant.allowDuplicateKeys": "true",
        "spark.speculation": "false",
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.files.ignoreMissingFiles": "false",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        **_catalog(settings),
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        **s3_conf(settings, catalog),
    }


def session_secrets(settings: Settings) -> dict[str, str]:
    """Properties to set in the session, because a session's start would show them: in SparkConf and its arguments."""
    prefix = f"spark.sql.catalog.{settings.catalog}"
    catalogs = {name: text for name, text in settings.iceberg.spark().items() if not shown(name)}
    return {f"{prefix}.{name}": text for name, text in (catalogs | file_io_keys(settings)).items()}


def _catalog(settings: Settings) -> dict[str, str]:
    """The catalog's properties, with a placeholder for each of ``session_secrets``.

    Spark hides in its event log only properties that SparkConf has, too, and whose names match its pattern.
    """
    prefix = f"spark.sql.catalog.{settings.catalog}"
    plain = {f"{prefix}.{name}": text for name, text in settings.iceberg.spark().items() if shown(name)}
    return plain | dict.fromkeys(session_secrets(settings), PLACEHOLDER)


def loopback(master: str) -> dict[str, str]:
    """Properties that keep a local session on this machine, whatever address its host name has; none for a cluster."""
    if not is_local(master):
        return {}
    return {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}


def submit_environment(settings: Settings, sizes: SparkSizes = DEFAULT_SIZES) -> dict[str, str]:
    """Variables for spark-submit: this Python and its Spark, the executors' Python, and who calls S3."""
    return {
        # PySpark's own search fails on a path with a space; and another Spark would not fit our jars.
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": (None if is_local(settings.spark_master) else sizes.executor_python) or sys.executable,
        **s3_variables(settings),
        **_log_options(settings),
    }


def _log_options(settings: Settings) -> dict[str, str]:
    """The variable that gives the driver's JVM the deployment's form of log lines, before options that are there."""
    forms = {form: f'-Dlog4j2.configurationFile="{path}"' for form, path in LOG4J.items()}
    given = os.environ.get(_JVM_OPTIONS, "")
    for other in forms.values():  # inherited from a process of this deployment; the last one would win
        given = given.replace(other, "").strip()
    return {_JVM_OPTIONS: f"{forms[settings.log_format]} {given}".strip()}


def spark_home() -> Path:
    """The folder of the pyspark package beside this Python, found without importing it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("no PySpark", expected="the package pyspark", where=sys.prefix, hint=installation.GET_SPARK)
    return Path(spec.origin).parent
