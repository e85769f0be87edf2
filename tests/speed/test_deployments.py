"""Two deployments with the same stream on one Kafka cluster, and a deployment that gets another name."""

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.command_json import valid_result
from tests.conftest import MakeStream, MakeTopic, Produce, Record, unique
from tests.speed.dead_letters import START_MS, source_id
from tests.speed.delivering import marker
from tests.speed.live import read_topic
from tidemark.cli.app import app
from tidemark.cli.markers import print_markers
from tidemark.core.errors import PositionError
from tidemark.core.offsets import TopicPartition
from tidemark.settings import Settings
from tidemark.spark.kafka_source import source_options
from tidemark.speed.exactly_once.batches import sink_of
from tidemark.speed.stream import speed

pytestmark = pytest.mark.conformance(32)


def rows(count: int) -> list[Record]:
    return [(None, b'{"n":%d}' % n, START_MS, 0, []) for n in range(count)]


def test_dev_and_prod_on_one_cluster_are_two_and_a_renamed_one_stops(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce
) -> None:
    name, source = unique("shared"), make_topic()
    streams = {
        deployment: make_stream(
            name=name,
            topic=source,
            speed={"topic": make_topic(), "dead_letter_topic": make_topic(), "delivery": "exactly_once"},
        )
        for deployment in ("prod", "dev")
    }
    own = {item: settings.model_copy(update={"deployment": item, "prefix": f"{name}/{item}"}) for item in streams}
    topic_id = source_id(settings, streams["prod"])

    def position(deployment: str) -> int | None:
        sink = sink_of(streams[deployment], own[deployment], topic_id)
        assert sink.group == f"tidemark-{deployment}-speed-{name}-{topic_id}"
        log = TopicPartition(topic=source, topic_id=topic_id, partition=0)
        assert sink.transactional_id(log) == f"{sink.group}-0"
        found = marker(sink, log)
        return None if found is None else found.position

    produce(source, rows(10))
    for deployment, stream in streams.items():
        speed(spark, stream, own[deployment], available_now=True)
    produce(source, rows(10))
    speed(spark, streams["prod"], own["prod"], available_now=True)
    live = {
        item: sorted(record.source[1] for record in read_topic(settings, stream.speed.topic))
        for item, stream in streams.items()
    }
    assert live == {"prod": list(range(20)), "dev": list(range(10))}
    assert (position("prod"), position("dev")) == (20, 10)
    assert source_options(own["dev"])["groupIdPrefix"] == "tidemark-dev"

    renamed = own["prod"].model_copy(update={"deployment": "production"})
    with pytest.raises(
        PositionError,
        match=r"a log has no marker.*or TIDEMARK_DEPLOYMENT was changed. If the name was changed, set it back",
    ):
        speed(spark, streams["prod"], renamed, available_now=True)
    done = CliRunner().invoke(app, ["markers", name, "--copy-from", "dev"])  # the file is dev's
    assert done.output.splitlines()[-1].split() == [source, "0", "[0,", "20)", "10"]
    assert f"group tidemark-{settings.deployment}-speed-{name}-{topic_id}," in done.output

    assert CliRunner().invoke(app, ["markers", name, "--set", "0=15"]).exit_code == 0
    with pytest.raises(
        PositionError, match=r"copied marker is before the present one.*found 10 before 15 in partition 0"
    ):
        print_markers(None, name, (), copy_from="dev")
    assert CliRunner().invoke(app, ["markers", name]).output.split()[-1] == "15"
    (row,) = valid_result("markers", CliRunner().invoke(app, ["markers", name, "--json"]).stdout)["markers"]
    assert (row["log_start"], row["high_watermark"], row["marker"]) == (0, 20, 15)
