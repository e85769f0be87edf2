"""Spark's driver with the chart's properties: the pods that it asks for, and a job through the image's entry point."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
from kubernetes_validate.utils import validate

from tests.deploy.chart import Document, documents, named, pods, selects
from tests.deploy.kubernetes_api import Call, Cluster, serve
from tests.deploy.test_documents import VERSIONS
from tidemark.installation import PROJECT
from tidemark.spark.conf import spark_home

pytestmark = pytest.mark.services

AUTHENTICATION, S3_KEY = "planted-authentication-secret", "planted-s3-secret"
# Ports of the pods are not those of this machine.
PORTS = {"spark.driver.port 7078": "spark.driver.port 0", "spark.blockManager.port 7079": "spark.blockManager.port 0"}
JOB = """
from tidemark.settings import settings
from tidemark.spark.session import spark_session


def doubled(batches):
    from tidemark.core.offsets import OffsetRange  # of the package that the driver sent

    for batch in batches:
        yield batch


spark = spark_session(settings(), "chart", "archive")
print("rows:", spark.range(0, 1000, 1, 2).mapInArrow(doubled, "id long").count())
spark.stop()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the driver printed, what it asked of the API, and the logs of the executors."""

    printed: str
    calls: list[Call]
    logs: str

    def created(self, kind: str) -> list[Any]:
        return [call.body for call in self.calls if (call.verb, call.kind) == ("create", kind)]


@pytest.fixture(scope="module")
def chart() -> list[Document]:
    return documents("amazon")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """A job with one executor. The paths of the pods become folders here."""
    folder = tmp_path_factory.mktemp("executors")
    paths = {path: folder / name for path, name in (("/etc/tidemark/spark", "conf"), ("/run/secrets/spark", "secrets"))}
    for path in (*paths.values(), folder / "scratch"):
        path.mkdir()
    (paths["/run/secrets/spark"] / "secret").write_text(AUTHENTICATION, encoding="utf-8")
    here = PORTS | {path: str(real) for path, real in paths.items()}
    data = named(documents("amazon"), "ConfigMap")["prod-tidemark-spark-archive"]["data"]
    for before, after in here.items():
        data["spark-defaults.conf"] = data["spark-defaults.conf"].replace(before, after)
    for name, text in data.items():
        (paths["/etc/tidemark/spark"] / name).write_text(text, encoding="utf-8")
    image = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SPARK_HOME": str(spark_home())}
    cluster = Cluster(
        folder=folder,
        paths={**paths, "/opt/spark/conf": folder, "/scratch": folder / "scratch"},
        environment=image,
        entry_point=[str(PROJECT / "compose" / "spark.sh")],
    )
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    driver = {"name": "driver-0", "uid": "driver-0", "namespace": "data"}
    cluster.objects["pods", "driver-0"] = {"apiVersion": "v1", "kind": "Pod", "metadata": driver, "status": ready}
    server = serve(cluster)
    try:
        done = run(
            [sys.executable, "-c", JOB],
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "AWS_"))},
                "TIDEMARK_ENV_FILE": "",
                "TIDEMARK_KAFKA_BOOTSTRAP": "localhost:1",
                "TIDEMARK_BUCKET": "lake",
                "TIDEMARK_S3_ACCESS_KEY": "key",
                "TIDEMARK_S3_SECRET_KEY": S3_KEY,
                "TIDEMARK_CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
                "TIDEMARK_SPARK": json.dumps({"instances": 1}),
                "TIDEMARK_SPARK_MASTER": f"k8s://http://127.0.0.1:{server.server_port}",
                "SPARK_CONF_DIR": str(paths["/etc/tidemark/spark"]),
                "POD_NAME": "driver-0",
                "POD_IP": "127.0.0.1",
            },
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        logs = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("*.log"))
        yield Outcome(printed=done.stdout + done.stderr, calls=cluster.calls, logs=logs)
    finally:
        server.shutdown()
        cluster.stop()


def test_a_job_runs_in_executors_by_the_images_entry_point(outcome: Outcome) -> None:
    assert "rows: 1000\n" in outcome.printed, outcome.printed[-3000:] + outcome.logs[-3000:]
    assert len(outcome.created("pods")) == 1


def test_the_role_allows_every_call_of_the_driver(outcome: Outcome, chart: list[Document]) -> None:
    (role,) = named(chart, "Role").values()
    (rule,) = role["rules"]
    needed = {(call.kind, call.verb) for call in outcome.calls}
    assert {("pods", "create"), ("pods", "watch"), ("configmaps", "create")} <= needed
    assert needed <= {(kind, verb) for kind in rule["resources"] for verb in rule["verbs"]}


def test_executors_are_pods_that_the_chart_knows_and_the_api_takes(outcome: Outcome, chart: list[Document]) -> None:
    (template,) = (pod for pod in pods(chart) if pod.owner == "ConfigMap prod-tidemark-spark-archive")
    for body in outcome.created("pods"):
        validate({name: value for name, value in body.items() if name != "status"}, VERSIONS[-1], strict=True)
        labels, spec = body["metadata"]["labels"], body["spec"]
        (container,) = spec["containers"]
        policy = named(chart, "NetworkPolicy")["prod-tidemark-executors"]["spec"]
        assert selects(policy["podSelector"], labels)
        assert spec["securityContext"] == template.spec["securityContext"]
        assert spec["serviceAccountName"] == template.spec["serviceAccountName"]
        assert container["securityContext"] == template.container["securityContext"]
        assert container["image"] == template.container["image"]
        assert body["metadata"]["ownerReferences"][0]["name"] == "driver-0"
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert len(set(mounts)) == len(mounts)
        writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert {"/tmp", "/scratch"} <= writable  # noqa: S108 - in the pod


def test_no_object_of_the_driver_has_a_secret(outcome: Outcome) -> None:
    created = json.dumps([call.body for call in outcome.calls if call.verb == "create"])
    assert "planted" not in created
    assert "SPARK_AUTH_SECRET" not in created
    assert AUTHENTICATION not in outcome.logs + outcome.printed
    assert S3_KEY not in outcome.logs + outcome.printed
