"""A secured stack and a Spark cluster: executors get the authority, the users' keys and passwords from the driver."""

import json
from pathlib import Path

import pytest
import yaml

from tests.conftest import TRANSFORM
from tests.faults import FaultProxy
from tests.secured_stack import secured
from tests.spark_cluster.conftest import config
from tests.spark_cluster.deployment import Deployment, Shown, driver_environment, watching
from tests.spark_cluster.nodes import SparkCluster
from tests.test_secured_spine import DAY, GOOD, produce, values

pytestmark = [pytest.mark.services, pytest.mark.soak, pytest.mark.timeout(1800)]
NAME = "rides"


def test_a_day_is_proven_over_tls_and_no_secret_stays_on_the_cluster(cluster: SparkCluster, tmp_path: Path) -> None:
    streams = tmp_path / "streams"
    streams.mkdir()
    outputs = {"topic": f"{NAME}.live", "dead_letter_topic": f"{NAME}.dead", "delivery": "exactly_once"}
    wanted = {"name": NAME, "topic": NAME, "value_schema": "n BIGINT", "speed": outputs, "batch": {"wait_seconds": 0}}
    (streams / f"{NAME}.yaml").write_text(yaml.safe_dump(wanted), encoding="utf-8")
    (streams / f"{NAME}.py").write_text(TRANSFORM, encoding="utf-8")
    with secured(tmp_path, streams) as running:
        produce(running.stack.settings, NAME)
        words = [word.encode() for word in running.planted.texts]
        shown = Shown(cluster=cluster, folders=(tmp_path / "driver" / "events",), words=words)
        folder = tmp_path / "driver"
        folder.mkdir()
        with watching(shown), FaultProxy("http://127.0.0.1:1") as unused:
            files = driver_environment(running.stack, cluster, folder, unused, config(cluster), {})
            del files["TIDEMARK_S3_ENDPOINT"]
            deployment = Deployment(cluster=cluster, folder=folder, proxy=unused, environment=files, shown=shown)
            for user, *command in (
                ("archive", "archive_stream.py", NAME, "--available-now"),
                ("speed", "speed_stream.py", NAME, "--available-now"),
                ("reconcile", "reconcile", NAME, "--from", str(DAY)),
            ):
                deployment.run(*command, changes=running.stack.env_of(user))
            printed = deployment.run("verify", NAME, str(DAY), changes=running.stack.env_of("reader"))
        assert "version 1: proven" in printed
        live = values(running.stack.settings, f"{NAME}.live")
        assert {json.loads(value)["n"]: count for value, count in live.items()} == dict.fromkeys(range(GOOD), 1)
        assert shown.seen["file"] > 10
        assert shown.where == set()
