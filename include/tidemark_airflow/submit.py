"""spark-submit: with the driver on Airflow's worker, or on YARN or Kubernetes."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from tidemark import installation
from tidemark.connections.config_file import toml_text
from tidemark.connections.sources import CONFIG_VARIABLE
from tidemark.core.errors import ConfigError
from tidemark.installation import SPARK_APPS
from tidemark.spark.packed import PACKAGE, packed
from tidemark_airflow.connections import find
from tidemark_airflow.spark_job import SparkJob
from tidemark_airflow.spark_step import SparkStep

CONNECTION = "spark_default"
_CONNECTION_VARIABLE = "AIRFLOW_CONN_SPARK_DEFAULT"
# What spark-submit would pass on to the driver: keys in Hadoop's configuration, and folders to look for packages before
# the one that was sent.
_NOT_FOR_YARN = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PYTHONPATH")
_STREAMS = "streams"  # the folder where the driver runs


class ClientStep(SparkStep, SparkSubmitOperator):
    """spark-submit in client mode: the driver runs on Airflow's worker, and a worker that dies takes it along.

    The settings, secrets included, reach spark-submit as inherited variables.
    """

    def __init__(self, **kwargs: Any) -> None:
        # Each step can be repeated as it is. There is no application to reconnect to.
        super().__init__(conn_id=CONNECTION, deploy_mode="client", durable=False, **kwargs)

    def prepare(self, job: SparkJob) -> None:
        from tidemark.spark.conf import PRIVATE, jars, spark_home, submit_environment

        os.umask(PRIVATE)  # in this task's own process; spark-submit inherits it
        self.name = job.name
        self.application = str(SPARK_APPS / job.file)
        self.application_args = [*job.arguments]
        self.conf = job.conf(job.settings.spark_master)
        self.jars = jars(job.settings)
        # This task's own process: spark-submit inherits them.
        os.environ.update(job.settings.environment() | submit_environment(job.settings, job.sizes))
        os.environ["PATH"] = os.pathsep.join([str(spark_home() / "bin"), os.environ.get("PATH", os.defpath)])
        if find(CONNECTION) is None:  # else the provider would take YARN
            os.environ[_CONNECTION_VARIABLE] = json.dumps({"conn_type": "spark", "host": job.settings.spark_master})


class ClusterStep(SparkStep, SparkSubmitOperator):
    """spark-submit in cluster mode: the driver runs on YARN or Kubernetes.

    A restarted worker reconnects to the application. On YARN, everything that the driver needs travels with it: the
    settings in a file that only its user can read, the stream definitions, and this package. On Kubernetes, the image
    holds the project in the same folder as the worker, and the settings are a secret mounted in the driver's pod.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(conn_id=CONNECTION, deploy_mode="cluster", durable=True, **kwargs)
        self._folder: TemporaryDirectory[str] | None = None

    def prepare(self, job: SparkJob) -> None:
        from tidemark.spark.conf import jars, spark_home

        master = spark_master()
        self.name = job.name
        self.application_args = [*job.arguments]
        self.conf = job.conf(master)
        os.environ["SPARK_HOME"] = str(spark_home())  # spark-submit's own
        if master == "yarn":
            self.application = str(SPARK_APPS / job.file)
            self.jars = jars(job.settings)
            self._pack_for_yarn(job)
        else:
            self.application = f"local://{SPARK_APPS}/{job.file}"
            self.jars = ",".join(f"local://{Path(jar).absolute()}" for jar in jars(job.settings).split(","))
        self._yarn_track_via_rm_api = master == "yarn"
        self._track_driver_via_k8s_api = master != "yarn"

    def submit_job(self, context: Any) -> Any:
        """Submit, and remove the file of settings, which spark-submit has uploaded then."""
        if self._folder is None:
            return super().submit_job(context)
        self.remember(context)
        with self._folder, _without_variables(*_NOT_FOR_YARN):
            return SparkSubmitOperator.submit_job(self, context)  # not SparkStep's, which may need the keys for S3

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """The status. An application that YARN has forgotten, as after a restart, counts as failed."""
        try:
            return super().get_job_status(external_id, context)
        except RuntimeError as error:
            if "HTTP 404" not in str(error):  # the provider's error has no field for it
                raise
            return "NOT_FOUND"

    def _pack_for_yarn(self, job: SparkJob) -> None:
        self._folder = TemporaryDirectory(prefix="tidemark-submit-")  # of mode 700
        folder = Path(self._folder.name)
        values = job.settings.texts() | {"streams_dir": _STREAMS}
        files = [folder / "tidemark.toml"]
        if bundle := job.settings.s3_ca_bundle:
            values["s3_ca_bundle"] = bundle.name
            files.append(bundle.absolute())
        files[0].touch(mode=0o600)
        files[0].write_text(toml_text(values), encoding="utf-8")
        streams = packed(folder / "streams.zip", job.settings.streams_dir, "*.*")
        package = packed(folder / "tidemark.zip", installation.PACKAGE.parent, PACKAGE)
        self.files = self._with_own("spark.files", *files)
        self._archives = self._with_own("spark.archives", f"{streams}#{_STREAMS}")
        self.py_files = self._with_own("spark.submit.pyFiles", package)
        # Else YARN's driver gets the variables of this worker's own Python.
        python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), job.python)
        self.env_vars = {CONFIG_VARIABLE: files[0].name, **python}
        # An attempt is one application. Airflow repeats it, so YARN must not.
        self.conf = {"spark.yarn.maxAppAttempts": "1", **(self.conf or {})}

    def _with_own(self, name: str, *own: object) -> str:
        """These files and the deployment's: an argument of spark-submit replaces the property."""
        given = (self.conf or {}).pop(name, None)
        return ",".join([*map(str, own), *([given] if given else [])])


@contextmanager
def _without_variables(*names: str) -> Iterator[None]:
    """Inside the block, programs that start do not inherit these variables."""
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def spark_master() -> str:
    """The master of Airflow's connection: ``yarn``, or the URL of Kubernetes.

    Raises ConfigError for another one, and where Airflow could not follow the application there.
    """
    where = f"Airflow connection {CONNECTION}"
    expected = "host yarn, or k8s://https://HOST:PORT"
    try:
        found = Connection.get(CONNECTION)
    except AirflowNotFoundException:
        raise ConfigError("no such Airflow connection", expected=expected, found="none", where=where) from None
    host, extra = found.host or "", found.extra_dejson
    whole = found.conn_type == "spark" and host and ("://" in host or not found.port)  # as the provider reads it
    text = host if whole else f"{found.conn_type}://{host}"
    if "k8s" in text:
        needed, master = "namespace", f"{text}:{found.port}" if found.port else text
    elif "yarn" in text:
        needed, master = "yarn_resourcemanager_webapp_address", "yarn"
    else:
        hint = "Spark's own master can't run a driver in Python: set TIDEMARK_SPARK_SUBMIT to client"
        raise ConfigError("not a master for cluster mode", expected=expected, found=text, where=where, hint=hint)
    if master != "yarn":
        _require_provider(where)
    if not extra.get(needed):
        raise ConfigError("a connection's extra is incomplete", expected=needed, found=", ".join(extra), where=where)
    return master


def _require_provider(where: str) -> None:
    try:
        import_module("airflow.providers.cncf.kubernetes")
    except ImportError as error:
        hint = "Install the package apache-airflow-providers-cncf-kubernetes"
        raise ConfigError("Airflow can't follow a driver on Kubernetes", found=error, where=where, hint=hint) from error
