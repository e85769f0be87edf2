"""A batch's requests to S3, counted by a proxy, are those that ``tidemark.core`` predicts."""

import json
from math import inf

import pytest
from pyspark.sql import SparkSession

from tests.archive.conftest import through
from tests.archive.test_stream import MIDNIGHT_MS
from tests.conftest import MakeStream, Produce
from tests.counted import counted, steady
from tests.faults import FaultProxy
from tidemark.archive.stream.driver import archive
from tidemark.core.capacity import ArchiveSettings, Load, batch_requests
from tidemark.settings import Settings
from tidemark.spark import lease
from tidemark.spark.session import temporary_conf

pytestmark = pytest.mark.services
PARTITIONS, FOLDERS, BATCHES, FIRST = 2, 3, 5, 2


def test_two_batches_send_the_requests_of_the_estimate(
    spark: SparkSession,
    settings: Settings,
    proxy: FaultProxy,
    make_stream: MakeStream,
    produce: Produce,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease, "CHECK_S", inf)  # time decides how many there are
    of_batch = PARTITIONS * FOLDERS
    stream = make_stream(
        partitions=PARTITIONS,
        archive={"partitioner": {"type": "field", "fields": ["$.n"]}, "max_offsets_per_trigger": of_batch},
    )
    numbers = [(partition, n % FOLDERS) for n in range(BATCHES * FOLDERS) for partition in range(PARTITIONS)]
    produce(stream.topic, [(None, json.dumps({"n": n}).encode(), MIDNIGHT_MS, at, ()) for at, n in numbers])

    # Two batches instead of 100, so that the third one deletes old files like all later ones; and on Spark's thread.
    checkpoint = {
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.asyncLogPurge.enabled": "false",
        "fs.s3a.endpoint": proxy.url,
    }
    with temporary_conf(spark, checkpoint):
        archive(spark, stream, through(settings, proxy), available_now=True)

    found = counted(steady(proxy.log, f"{stream.name}/archive", FIRST, BATCHES - 1))
    load = Load(partitions=PARTITIONS, records_per_second=of_batch, folders=FOLDERS)
    wanted = batch_requests(ArchiveSettings(trigger_seconds=1), load)
    assert found == wanted.times(BATCHES - 1 - FIRST)
