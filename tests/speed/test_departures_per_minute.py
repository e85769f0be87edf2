"""The counts per minute and airport, with real Kafka and S3."""

import json
import random
import runpy
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]  # in its docs
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tests.conftest import MakeStream, Produce, Record
from tests.spark.rows import stream as definition
from tests.speed.live import printed_events, read_topic
from tidemark.core.errors import ConfigError
from tidemark.core.heartbeat import parse_heartbeat
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.examples.departures_per_minute import LAYER, departures, figures, run_departures, start, topic_of
from tidemark.installation import PROJECT
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.streaming import bind_checkpoint
from tidemark.speed.exactly_once.preconditions import require_exactly_once

SCHEMA = "origin STRING, departed_at TIMESTAMP"
NOON_MS = 1_358_164_800_000  # 2013-01-14T12:00:00Z
AIRPORTS = ("EWR", "JFK", "LGA", None)


def departure(ms: int, origin: str | None, partition: int, *, departed: bool = True) -> Record:
    """A flight at ``ms`` after noon; a cancelled one has no departure time."""
    at = datetime.fromtimestamp((NOON_MS + ms) / 1000, UTC).isoformat() if departed else None
    return (b"", json.dumps({"origin": origin, "departed_at": at}).encode(), NOON_MS + ms, partition, [])


def flights(first_minute: int, last_minute: int, seed: int) -> list[Record]:
    """A few hundred flights in random order on two partitions, some of them cancelled, and some broken values."""
    chosen = random.Random(seed)  # noqa: S311 - not for secrets
    found = []
    for _ in range(300):
        ms = chosen.randrange(first_minute * 60_000, last_minute * 60_000)
        flight = departure(ms, chosen.choice(AIRPORTS), chosen.randrange(2), departed=chosen.random() > 0.1)
        found.append(flight if chosen.random() > 0.05 else (None, b"{", *flight[2:]))
    return found


def counted(records: Sequence[Record]) -> Counter[tuple[str, str | None]]:
    """Departures by minute and airport, computed in plain Python."""
    found: Counter[tuple[str, str | None]] = Counter()
    for _, value, timestamp_ms, _, _ in records:
        event = {} if value in (None, b"{") else json.loads(value)
        if event.get("departed_at"):
            minute = datetime.fromtimestamp(timestamp_ms // 60_000 * 60, UTC)
            found[minute.strftime("%Y-%m-%dT%H:%M:%SZ"), event["origin"]] += 1
    return found


def written(settings: Settings, stream: Stream) -> list[tuple[tuple[str, str | None], int]]:
    """Every upsert in order: its key and its count."""
    found = []
    for item in read_topic(settings, topic_of(stream)):
        key, value = json.loads(item.key or b""), json.loads(item.value or b"")
        assert value == {**key, "count": value["count"]}
        found.append(((key["window"], key["origin"]), value["count"]))
    return found


def topic_config(settings: Settings, topic: str, name: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return set(str(future.result(60)[name].value).split(","))


def count_all(spark: SparkSession, stream: Stream, settings: Settings, checkpoint: str) -> list[dict[str, Any]]:
    """Count all records. Return the log lines of the batches."""
    query = start(spark, stream, settings, checkpoint, available_now=True)
    assert query.awaitTermination(300)
    return [figures(json.loads(item.json)) for item in query.recentProgress if item["stateOperators"]]


def test_restarts_keep_the_last_count_per_key_right_and_report_late_records(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    produce: Produce,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = make_stream(partitions=2, value_schema=SCHEMA)
    layout = Layout(prefix=settings.prefix, stream=stream.name)
    parts = [flights(0, 25, 1), flights(18, 35, 2), flights(30, 45, 3)]  # by minutes; none is too late
    late = [departure(ms, origin, 1) for ms, origin in ((500, "JFK"), (900, "JFK"), (700, "EWR"), (60_500, "JFK"))]

    produce(stream.topic, parts[0])
    departures(spark, stream, settings, available_now=True)
    events = printed_events(capsys)
    assert [line["event"] for line in events if line["event"] != "batch"] == ["started", "stopped"]
    assert sum(line["rows"] for line in events if line["event"] == "batch") == 300
    heartbeat = parse_heartbeat(store.get(layout.heartbeat_key(LAYER)) or b"", where=LAYER)
    assert (heartbeat.state, sum(end for _, end in heartbeat.positions), heartbeat.lag_records) == ("stopped", 300, 0)
    assert topic_config(settings, topic_of(stream), "cleanup.policy") == {"compact", "delete"}
    first = written(settings, stream)
    assert dict(first) == counted(parts[0])

    produce(stream.topic, [*late, *parts[1]])
    logs = describe_topic(settings.kafka, stream.topic)
    checkpoint = bind_checkpoint(store, layout, LAYER, logs[0])
    lines = count_all(spark, stream, settings, checkpoint)
    second = written(settings, stream)
    assert dict(second) == counted([*parts[0], *parts[1]])
    assert sum(line["too_late"] for line in lines) == 3  # by minute and airport

    # As after a kill between the write of the second part's counts and Spark's commit.
    repeated = next(line["batch"] for line in lines if line["rows"])
    folder = layout.checkpoint_prefix(LAYER)
    for batch in range(repeated, lines[-1]["batch"] + 1):
        store.delete(f"{folder}commits/{batch}")
        if batch > repeated:
            store.delete(f"{folder}offsets/{batch}")
    produce(stream.topic, parts[2])
    lines = count_all(spark, stream, settings, checkpoint)
    third = written(settings, stream)
    assert [line["rows"] for line in lines if line["rows"]] == [304, 300]
    assert {Counter(third)[upsert] for upsert in Counter(second) - Counter(first)} == {2}
    assert dict(third) == counted([*parts[0], *parts[1], *parts[2]])


def test_the_application_counts_departures(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr("tidemark.spark.app.stream_app", lambda run, _about: ran.append(run))
    runpy.run_path(str(PROJECT / "spark_apps" / "departures_per_minute.py"), run_name="__main__")
    assert ran == [run_departures]


def test_a_stream_without_departures_is_refused(
    spark: SparkSession, settings: Settings, make_stream: MakeStream
) -> None:
    with pytest.raises(ConfigError, match=r"columns origin, departed_at, found no departed_at, origin among"):
        start(spark, make_stream(), settings, "s3a://never/used", available_now=True)


def test_a_count_in_a_transformation_is_refused_for_exactly_once_delivery(spark: SparkSession) -> None:
    def transform(records: DataFrame) -> DataFrame:
        minute = Window.partitionBy(F.date_trunc("minute", "event_time"), "event.origin")
        count = F.count("event.departed_at").over(minute).alias("count")
        return records.select("source", "event_time", "event.origin", count)

    with pytest.raises(ConfigError) as caught:
        require_exactly_once(spark, definition(SCHEMA, name="flights"), transform)
    page = (PROJECT / "docs" / "explanation" / "no-two-phase-commit.md").read_text(encoding="utf-8")
    assert f"ConfigError: {caught.value}" in " ".join(page.split())
