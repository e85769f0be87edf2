"""An application on a Spark cluster of another user, environment and Python: what its executors need gets there."""

import pytest

from tests.conftest import MakeStream, Produce
from tests.spark_cluster.deployment import Deployment
from tidemark.archive.manifests import read_manifests
from tidemark.core.layout import Layout
from tidemark.s3 import ObjectStore

pytestmark = [pytest.mark.services, pytest.mark.conformance(36), pytest.mark.timeout(1200)]
NOON_MS = 1_358_164_800_000
PARTITIONS, RECORDS = 2, 20


def test_an_archive_stream_writes_every_record_from_the_clusters_executors(
    deployment: Deployment, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(partitions=PARTITIONS)
    values = [b'{"n": %d}' % n for n in range(RECORDS)]
    produce(stream.topic, [(None, value, NOON_MS, n % PARTITIONS, []) for n, value in enumerate(values)])
    before = {app["id"] for app in deployment.cluster.state()["completedapps"]}

    deployment.run("archive_stream.py", stream.name, "--available-now")

    (app,) = (item for item in deployment.cluster.state()["completedapps"] if item["id"] not in before)
    assert (app["state"], stream.name in app["name"]) == ("FINISHED", True)
    layout = Layout(prefix=deployment.settings.prefix, stream=stream.name)
    manifests = read_manifests(ObjectStore(deployment.settings), layout)
    ranges = [(item.log.partition, item.range.start, item.range.end) for one in manifests for item in one.ranges]
    assert sorted(ranges) == [(partition, 0, RECORDS // PARTITIONS) for partition in range(PARTITIONS)]
