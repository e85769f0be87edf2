"""Exactly-once delivery of the speed stream: its query in this process, and a killed application."""

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

from tests.cluster import Cluster
from tests.conftest import MakeStream, MakeTopic, Produce, Record, unique
from tests.speed.delivering import marker
from tests.speed.live import Delivered, printed_events, read_topic, speed_app
from tidemark.core.errors import ConfigError, PositionError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.speed.exactly_once.batches import sink_of
from tidemark.speed.exactly_once.marker import Marker
from tidemark.speed.exactly_once.preconditions import require_exactly_once
from tidemark.speed.record_limits import RecordLimits
from tidemark.speed.stream import speed
from tidemark.stack.local import LocalStack

pytestmark = pytest.mark.conformance(23)

START_MS = 1_700_000_000_000
LIMITS = RecordLimits(live=1_000_000, dead_letter=1_000_000)
REJECTING_13 = """\
from pyspark.sql import functions as F

def transform(records):
    unwanted = F.when(F.col("event.n") == 13, "thirteen")
    return records.select("source", "event_time", "event.n", unwanted.alias("reject"))
"""


def rows(numbers: range, partitions: int = 1) -> list[Record]:
    """Every tenth is not JSON."""
    return [(b"k%d" % n, b'{"n":%d}' % n if n % 10 else b"{", START_MS + n, n % partitions, []) for n in numbers]


def definition(make_topic: MakeTopic, partitions: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "topic": make_topic(partitions),
        "dead_letter_topic": make_topic(partitions),
        "delivery": "exactly_once",
        **more,
    }


def delivered(settings: Settings, stream: Stream) -> tuple[list[Delivered], list[Delivered]]:
    """The committed records of the live topic and of the dead-letter topic."""
    live, dead = (stream.speed.topic, stream.speed.dead_letter_topic)
    return read_topic(settings, live), read_topic(settings, dead)


def markers(settings: Settings, stream: Stream) -> dict[int, Marker | None]:
    logs = describe_topic(settings.kafka, stream.topic)
    sink = sink_of(stream, settings, logs[0].topic_id, LIMITS)
    return {log.partition: marker(sink, log) for log in logs}


def events(capsys: pytest.CaptureFixture[str], kind: str) -> list[dict[str, Any]]:
    return [line for line in printed_events(capsys) if line["event"] == kind]


def test_each_record_comes_once_with_its_timestamp_and_the_marker_follows(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = definition(make_topic, 3, partitioning="source", transaction_records=7, max_offsets_per_trigger=60)
    stream = make_stream(partitions=3, transform=REJECTING_13, speed=wanted)
    first, second = rows(range(100), 2), rows(range(100, 130), 2)  # the third partition stays empty
    produced = first + second
    places: list[tuple[int, int]] = []
    for part in (first, second):
        offsets = produce(stream.topic, part)
        places += [(record[3], offset) for record, offset in zip(part, offsets, strict=True)]
        speed(spark, stream, settings, available_now=True)
    live, dead = delivered(settings, stream)
    refused = [n for n in range(130) if n % 10 == 0 or n == 13]
    assert sorted((item.source, json.loads(item.value or b"")["n"]) for item in live) == sorted(
        (places[n], n) for n in range(130) if n not in refused
    )
    assert sorted((item.source, item.value, item.header("exception")) for item in dead) == sorted(
        (places[n], produced[n][1], "rejected" if n == 13 else "undecodable") for n in refused
    )
    for item in live:
        assert (item.partition, item.timestamp_ms) == (item.source[0], int(item.header("timestamp")))
    found = {number: None if item is None else item.position for number, item in markers(settings, stream).items()}
    assert found == {0: 65, 1: 65, 2: 0}
    batches = events(capsys, "batch")
    assert len(batches) > 2
    counts = [sum(line[name] for line in batches) for name in ("rows", "published", "dead_lettered")]
    assert counts == [130, 130 - len(refused), len(refused)]


def test_a_repeated_batch_adds_nothing_and_a_contradicting_marker_stops_the_stream(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = make_stream(speed=definition(make_topic))
    checkpoint = Layout(prefix=settings.prefix, stream=stream.name).checkpoint_prefix("speed")
    produce(stream.topic, rows(range(20)))
    speed(spark, stream, settings, available_now=True)
    store.delete(f"{checkpoint}commits/0")
    speed(spark, stream, settings, available_now=True)
    live, dead = delivered(settings, stream)
    assert sorted(item.source[1] for item in live + dead) == list(range(20))
    first, second = events(capsys, "batch")
    assert [(line["rows"], line["published"], line["dead_lettered"]) for line in (first, second)] == [
        (20, 18, 2),
        (20, 0, 0),
    ]

    produce(stream.topic, rows(range(20, 30)))
    (topic_id,) = {log.topic_id for log in describe_topic(settings.kafka, stream.topic)}
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    group = sink_of(stream, settings, topic_id, LIMITS).group
    admin.delete_consumer_groups([group])[group].result()
    with pytest.raises(
        PositionError, match=rf"a log has no marker.*at 20 of partition 0.*at none of partition 0.*{group}"
    ):
        speed(spark, stream, settings, available_now=True)
    assert len(read_topic(settings, stream.speed.topic)) == len(live)


def test_changing_the_delivery_mode_both_ways_loses_and_duplicates_nothing(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, topic, wanted = unique("changing"), make_topic(1), definition(make_topic)
    runs = ["at_least_once", "exactly_once", "at_least_once", "exactly_once"]
    for number, delivery in enumerate(runs):
        stream = make_stream(name=name, topic=topic, speed={**wanted, "delivery": delivery})
        produce(topic, rows(range(10 * number, 10 * number + 10)))
        speed(spark, stream, settings, available_now=True)
    live, dead = delivered(settings, stream)
    assert sorted(item.source[1] for item in live + dead) == list(range(40))
    changes = [(line["before"], line["after"], line["positions"]) for line in events(capsys, "delivery changed")]
    assert changes == [(*runs[:2], {"0": 10}), (*runs[1:3], {"0": 20}), (*runs[2:], {"0": 30})]


def test_without_its_checkpoint_the_stream_continues_at_the_markers(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = make_stream(partitions=2, speed=definition(make_topic, max_offsets_per_trigger=10))
    checkpoint = Layout(prefix=settings.prefix, stream=stream.name).checkpoint_prefix("speed")

    def run_stream() -> None:
        for item in store.list(checkpoint):
            store.delete(item.key)
        speed(spark, stream, settings, available_now=True)

    produce(stream.topic, rows(range(20)))
    speed(spark, stream, settings, available_now=True)
    run_stream()  # with nothing to deliver
    more = [(key, value, ms, n % 2, headers) for n, (key, value, ms, _, headers) in enumerate(rows(range(20, 32)))]
    produce(stream.topic, more)
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    (deleted,) = admin.delete_records([KafkaPartition(stream.topic, 0, 22)]).values()
    assert deleted.result(60).low_watermark == 22
    capsys.readouterr()
    run_stream()

    live, dead = delivered(settings, stream)
    assert sorted(item.source for item in live + dead) == [
        *((0, n) for n in range(20)),
        *((0, n) for n in range(22, 26)),
        *((1, n) for n in range(6)),
    ]
    found = {number: None if item is None else item.position for number, item in markers(settings, stream).items()}
    assert found == {0: 26, 1: 6}
    lines = printed_events(capsys)
    assert sum(line["rows"] for line in lines if line["event"] == "batch") == 10  # no record is read again
    lost = [(line["partition"], line["start"], line["end"]) for line in lines if line["event"] == "lost"]
    assert (min(start for _, start, _ in lost), max(end for _, _, end in lost)) == (20, 22)
    assert {partition for partition, _, _ in lost} == {0}


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ("records.groupBy('source', 'event_time').agg(F.count('*').alias('n'))", "Aggregate, which sees only"),
        ("rows.dropDuplicates(['n'])", "Aggregate, which sees only"),
        ("rows.repartition(3)", "Exchange, which moves rows"),
        ("rows.coalesce(1)", "Coalesce, which moves rows"),
        ("rows.orderBy('n')", "Sort, which changes"),
        ("rows.join(rows.select('n', F.lit(1).alias('one')), 'n', how='left')", "Join, which can drop"),
        (
            "rows.withColumn('at', F.row_number().over(Window.partitionBy('n').orderBy('event_time')))",
            "Window, which sees only",
        ),
        ("rows.where('n > 3')", "Filter, which drops rows: mark them"),
        ("rows.withColumn('each', F.explode(F.array('n', 'n')))", "Generate, which multiplies"),
        ("rows.union(rows)", "Union, which adds"),
        ("rows.limit(5)", "Limit, which drops"),
        ("rows.cache()", "InMemoryTableScan, which is not known"),
    ],
)
def test_a_transformation_with_a_shuffle_is_refused_with_operator_and_reason(
    spark: SparkSession, make_stream: MakeStream, make_topic: MakeTopic, what: str, problem: str
) -> None:
    stream = make_stream(topic="unused", speed={"topic": "a", "dead_letter_topic": "b", "delivery": "exactly_once"})
    scope: dict[str, Any] = {}
    exec(  # noqa: S102 - the transformation of a stream is a user's code
        "from pyspark.sql import Window, functions as F\n"
        "def transform(records):\n"
        "    rows = records.select('source', 'event_time', 'event.n')\n"
        f"    return {what}\n",
        scope,
    )
    with pytest.raises(ConfigError, match=r"does not work with this transformation.*at_least_once") as caught:
        require_exactly_once(spark, stream, scope["transform"])
    assert problem in str(caught.value)
    spark.catalog.clearCache()


def test_columns_and_vectorised_functions_are_allowed_but_speculation_is_not(
    spark: SparkSession, make_stream: MakeStream
) -> None:
    stream = make_stream(topic="unused", speed={"topic": "a", "dead_letter_topic": "b", "delivery": "exactly_once"})
    plus = pandas_udf(lambda numbers: numbers + 1, "long")  # type: ignore[call-overload]
    require_exactly_once(
        spark, stream, lambda rows: rows.select("source", "event_time", plus("event.n").alias("n"), F.rand())
    )
    spark.sparkContext._conf.set("spark.speculation", "true")
    try:
        with pytest.raises(ConfigError, match=r"speculation.*expected spark\.speculation false"):
            require_exactly_once(spark, stream, lambda rows: rows.select("source", "event_time", "event.n"))
    finally:
        spark.sparkContext._conf.set("spark.speculation", "false")


def test_after_a_kill_and_a_restart_each_record_comes_once_in_both_topics(
    spark: SparkSession,
    stack: LocalStack,
    settings: Settings,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    wanted = definition(make_topic, 2, transaction_records=1_000, max_offsets_per_trigger=10_000, trigger_seconds=0)
    stream = make_stream(partitions=2, speed=wanted)
    produced = rows(range(20_000), 2)
    offsets = produce(stream.topic, produced)
    sources = {(record[3], offset): record[0] for record, offset in zip(produced, offsets, strict=True)}

    with speed_app(stack, stream, tmp_path / "app.log") as app:
        app.wait_until(lambda: any(item is not None for item in markers(settings, stream).values()))
        app.kill()
        assert app.process.returncode == -signal.SIGKILL
    speed(spark, stream, settings, available_now=True)

    live, dead = delivered(settings, stream)
    assert Counter(item.source for item in live + dead) == Counter(sources.keys())
    assert {item.source: item.key for item in live + dead} == sources
    assert {item.value for item in dead} == {b"{"}
    assert all(item.value != b"{" for item in live)


def test_source_and_live_topic_may_be_on_different_clusters(
    spark: SparkSession,
    settings: Settings,
    brokers: Cluster,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
) -> None:
    elsewhere = settings.model_copy(update={"speed_kafka_bootstrap": brokers.bootstrap})
    source, live_topic = make_topic(2), unique("elsewhere")
    names = {"topic": live_topic, "dead_letter_topic": f"{live_topic}.dead"}
    stream = make_stream(topic=source, speed={**names, "delivery": "exactly_once"})
    produce(source, rows(range(30), 2))
    speed(spark, stream, elsewhere, available_now=True)
    produce(source, rows(range(30, 50), 2))
    speed(spark, stream, elsewhere, available_now=True)
    live, dead = delivered(elsewhere, stream)
    assert sorted(item.source for item in live + dead) == sorted(
        (number, offset) for number in (0, 1) for offset in range(25)
    )
    assert [item.value for item in dead] == [b"{"] * 5
    found = AdminClient({"bootstrap.servers": settings.kafka_bootstrap}).list_topics(timeout=20).topics
    assert not {live_topic, f"{live_topic}.dead", f"{live_topic}.markers"} & found.keys()
