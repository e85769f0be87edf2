"""Records at and above the output topics' limits, through a whole stream in each delivery mode: none stops it."""

import json
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.conftest import MakeStream, MakeTopic, Produce, Record, unique
from tests.speed.live import read_topic
from tidemark.kafka.topics import topic_config
from tidemark.settings import Settings
from tidemark.speed.stream import speed

pytestmark = [pytest.mark.conformance(72), pytest.mark.services]
DAY_MS = 86_400_000
NO_LIMIT = "9223372036854775807"
MODES = ("at_least_once", "exactly_once")


@pytest.mark.parametrize("delivery", MODES)
def test_no_size_or_number_of_headers_stops_the_stream(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    delivery: str,
) -> None:
    topics = {
        "topic": make_topic(max_message_bytes="20000"),
        "dead_letter_topic": make_topic(max_message_bytes="30000"),
    }
    stream = make_stream(value_schema="n INT, text STRING", speed={**topics, "delivery": delivery})
    now_ms = time.time_ns() // 1_000_000
    value = {0: b'{"n":0}', 1: b"x" * 20_000, 2: b"x" * 50_000, 3: b'{"n":3,"text":"%s"}' % (b"y" * 25_000)}
    value |= {4: b'{"n":4,"text":"%s"}' % (b"y" * 50_000), 5: b"{", 6: b'{"n":6}'}
    records: list[Record] = [(b"k%d" % n, value[n], now_ms + n, 0, []) for n in range(7)]
    many: list[tuple[str, bytes | None]] = [(f"h{n}", b"z") for n in range(5_000)]
    records[5] = (*records[5][:4], many)
    produce(stream.topic, records)
    speed(spark, stream, settings, available_now=True)
    live = {item.source[1]: json.loads(item.value or b"")["n"] for item in read_topic(settings, topics["topic"])}
    assert live == {0: 0, 6: 6}
    dead = {item.source[1]: item for item in read_topic(settings, topics["dead_letter_topic"])}
    assert {number: (item.header("exception"), item.value) for number, item in dead.items()} == {
        1: ("undecodable", value[1]),
        2: ("without_value", None),
        3: ("too_large", value[3]),
        4: ("without_value", None),
        5: ("without_value", None),
    }
    assert {len(dead[number].headers) for number in (2, 4, 5)} == {6}


@pytest.mark.parametrize("delivery", MODES)
def test_a_dead_letter_above_16_mib_is_delivered_whole(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, delivery: str
) -> None:
    source = make_topic(max_message_bytes=str(24 * 1024 * 1024))
    names = {"topic": unique("live"), "dead_letter_topic": unique("dead")}
    stream = make_stream(topic=source, speed={**names, "delivery": delivery})
    large = bytes(20 * 1024 * 1024)
    client = {"bootstrap.servers": settings.kafka_bootstrap, "message.max.bytes": 24 * 1024 * 1024}
    producer = Producer(client)
    producer.produce(source, large, b"k")
    producer.produce(source, b'{"n":1}', b"k")
    assert producer.flush(60) == 0
    speed(spark, stream, settings, available_now=True)
    (dead,) = read_topic(settings, names["dead_letter_topic"])
    assert (dead.source, dead.header("exception"), dead.value) == ((0, 0), "undecodable", large)
    assert [item.source for item in read_topic(settings, names["topic"])] == [(0, 1)]


def test_times_that_only_the_source_accepts_stop_no_exactly_once_stream(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce
) -> None:
    wide: dict[str, Any] = {"message_timestamp_after_max_ms": NO_LIMIT, "message_timestamp_before_max_ms": NO_LIMIT}
    source = make_topic(**wide)
    now_ms = time.time_ns() // 1_000_000
    times = [1, now_ms - 3_000 * DAY_MS, now_ms, now_ms + 3_000 * DAY_MS]
    produce(source, [(b"k", b'{"n":%d}' % number, moment, 0, []) for number, moment in enumerate(times)])
    created = {"topic": unique("live"), "dead_letter_topic": unique("dead")}
    narrow: dict[str, Any] = {
        "message_timestamp_after_max_ms": "3600000",
        "message_timestamp_before_max_ms": str(DAY_MS),
    }
    made = {"topic": make_topic(**narrow), "dead_letter_topic": make_topic(**narrow)}
    for topics in (created, made):
        stream = make_stream(topic=source, speed={**topics, "delivery": "exactly_once"})
        speed(spark, stream, settings, available_now=True)
    for name in created.values():
        config = topic_config(settings.kafka, name)
        assert [config[f"message.timestamp.{side}.max.ms"] for side in ("after", "before")] == [NO_LIMIT, NO_LIMIT]
    kept, clipped = (read_topic(settings, topics["topic"]) for topics in (created, made))
    assert [item.timestamp_ms for item in kept] == times
    assert [int(item.header("timestamp")) for item in clipped] == times
    assert clipped[2].timestamp_ms == now_ms
    assert all(now_ms <= clipped[number].timestamp_ms < now_ms + 600_000 for number in (0, 1, 3))
