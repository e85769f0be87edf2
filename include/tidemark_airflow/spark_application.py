"""The SparkApplication of a step: the deployment's file, with what is the step's own."""

from pathlib import Path
from typing import Any

import yaml

from tidemark.core.errors import ConfigError
from tidemark.installation import PROJECT, SPARK_APPS
from tidemark_airflow.spark_job import SparkJob

_SIZES = {  # by Spark's property: the part of the specification, and its field
    "spark.driver.memory": ("driver", "memory"),
    "spark.executor.memory": ("executor", "memory"),
    "spark.executor.cores": ("executor", "cores"),
    "spark.executor.instances": ("executor", "instances"),
}


def spark_application(job: SparkJob) -> dict[str, Any]:
    """The resource for Kubernetes' operator of Spark.

    The file of ``TIDEMARK_SPARK_APPLICATION`` has the image, the accounts, the secrets and whatever else the cluster
    wants. Its ``mainApplicationFile`` says where the image has the project. The step adds its name, its file and
    arguments, the jars, and the sizes that hold for it. Raises ConfigError where the file is missing or no
    SparkApplication.
    """
    from tidemark.spark.conf import jars

    body = _read(job.settings.spark_application)
    spec = body["spec"]
    main = str(spec.get("mainApplicationFile") or f"local://{SPARK_APPS}/any.py")
    conf = job.conf("k8s://")
    for name, (part, field) in _SIZES.items():
        if name in conf:
            text = conf.pop(name)
            spec.setdefault(part, {})[field] = int(text) if text.isdigit() else text
    root, found, _ = main.rpartition("/spark_apps/")
    if not found:
        where = str(job.settings.spark_application)
        raise ConfigError(
            "not a step's file", expected="mainApplicationFile .../spark_apps/...", found=main, where=where
        )
    files = [Path(jar).absolute() for jar in jars(job.settings).split(",")]
    spec.setdefault("deps", {}).setdefault("jars", [_in_image(file, root) for file in files])
    spec |= {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "mainApplicationFile": f"{root}/spark_apps/{job.file}",
        "arguments": [*job.arguments],
        "sparkConf": {**spec.get("sparkConf", {}), **conf},
        # An attempt is one application. Airflow repeats it, so the operator of Spark must not.
        "restartPolicy": {"type": "Never"},
    }
    body.setdefault("metadata", {})["name"] = resource_name(job.name)
    return body


def _in_image(file: Path, root: str) -> str:
    """A file of the project, where the image has the project; another one at the same path."""
    return f"{root}/{file.relative_to(PROJECT)}" if file.is_relative_to(PROJECT) else f"local://{file}"


def resource_name(name: str) -> str:
    """A name as Kubernetes takes it; a stream's may have underscores and capitals."""
    return name.lower().replace("_", "-")


def _read(path: Path | None) -> dict[str, Any]:
    if path is None:
        raise ConfigError(
            "no SparkApplication",
            expected="a YAML file",
            found="no TIDEMARK_SPARK_APPLICATION",
            hint="docs/how-to/choose-how-steps-are-submitted.md has one",
        )
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError("a SparkApplication can't be read", found=error, where=str(path)) from error
    usable = isinstance(found, dict) and found.get("kind") == "SparkApplication" and isinstance(found.get("spec"), dict)
    if not usable:
        kind = found.get("kind") if isinstance(found, dict) else type(found).__name__
        raise ConfigError(
            "not a SparkApplication",
            expected="kind SparkApplication, with a spec",
            found=f"kind {kind}",
            where=str(path),
        )
    body: dict[str, Any] = found
    return body
