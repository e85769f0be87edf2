"""A topic whose cleanup.policy goes from compact to delete: Kafka no longer names what took the records."""

import pytest
from pyspark.sql import SparkSession

from tests.archive.test_kafka_logs import consumed
from tests.batch.logs import Log, set_topic
from tests.batch.verifying import NINE, differences, seal, verify
from tests.conftest import MakeStream, MakeTopic, Produce
from tests.waiting import wait_until
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import PositionError
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(11)

LACKS_ROWS = "the archive has rows that Kafka has no record of"


@pytest.mark.usefixtures("_eager_cleaner")
def test_records_that_compaction_took_are_explained_while_the_policy_names_it(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
) -> None:
    # By record time a segment lasts a second; the newest one is never compacted. Retention takes nothing of 2013.
    eager = {"segment_ms": "1000", "min_cleanable_dirty_ratio": "0.001", "delete_retention_ms": "0"}
    topic = make_topic(1, cleanup_policy="compact", retention_ms="-1", **eager)
    stream = make_stream(topic=topic, time_zone="America/New_York", batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    produce(topic, [(b"k", b'{"n": 1}', NINE, 0, [])] * 10)
    archive(spark, stream, settings, available_now=True)
    produce(topic, [(b"k", b'{"n": 2}', NINE + 10_000, 0, [])])
    produce(topic, [(b"k", b'{"n": 3}', NINE + 20_000, 0, [])])
    wait_until(lambda: not set(consumed(settings, topic)) & set(range(10)), "the broker compacts", 240)

    set_topic(log, "cleanup.policy", "delete")
    with pytest.raises(PositionError, match="no longer holds") as refused:
        archive(spark, stream, settings, available_now=True)
    assert "no record at offset 9" in str(refused.value.found)
    assert "compact,delete" in (refused.value.hint or "")

    set_topic(log, "cleanup.policy", "compact,delete")
    archive(spark, stream, settings, available_now=True)
    seal(log, spark, "run-1")
    assert verify(log).verdict == "proven", differences(verify(log))

    set_topic(log, "cleanup.policy", "delete")
    found = verify(log)
    assert found.verdict == "disproven"
    assert LACKS_ROWS in differences(found)
    assert "does not name compact" in differences(found)

    set_topic(log, "cleanup.policy", "compact,delete")
    assert verify(log).verdict == "proven"
