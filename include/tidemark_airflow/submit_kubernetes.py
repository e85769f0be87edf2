"""Kubernetes' operator of Spark. Only a deployment that chose it imports this module, and needs the provider."""

from typing import Any

from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator

from tidemark_airflow.spark_application import resource_name, spark_application
from tidemark_airflow.spark_job import SparkJob
from tidemark_airflow.spark_step import SparkStep


class KubernetesStep(SparkStep, SparkKubernetesOperator):  # type: ignore[misc]  # it may not be installed
    """Creates a SparkApplication, and follows its driver. A restarted worker finds the driver by its labels."""

    def prepare(self, job: SparkJob) -> None:
        body = spark_application(job)
        self.name = resource_name(job.name)
        self.namespace = body["metadata"].get("namespace", "default")
        self.template_spec = {"spark": body}

    def reconnects(self, context: Any) -> bool:
        """Whether the driver of an earlier attempt is there."""
        return self.find_spark_job(context) is not None

    def get_or_create_spark_crd(self, launcher: Any, context: Any) -> Any:
        """What the operator calls where it found no driver."""
        self.remember(context)
        return super().get_or_create_spark_crd(launcher, context)
