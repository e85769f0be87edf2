"""A task fails in Java after its Python process has rows of it. The rest of its rows is not taken for delivered."""

import json
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.conftest import MakeStream, MakeTopic, Produce
from tests.speed.dead_letters import START_MS, letter, source_id
from tests.speed.live import read_topic
from tidemark.core.errors import TidemarkError, TransformError
from tidemark.settings import Settings
from tidemark.spark.session import temporary_conf
from tidemark.speed.replay.dead_letters import to_deliver
from tidemark.speed.replay.replay import replay
from tidemark.speed.stream import speed

pytestmark = [pytest.mark.conformance(73), pytest.mark.services]
RECORDS, FAILING = 6_000, 5_500  # the task's first batch of rows has 4,096
MENDED = """\
def transform(records):
    return records.select("source", "event_time", "event.n")
"""
FAILS = f"""\
from pyspark.sql import functions as F


def transform(records):
    n = F.when(F.col("event.n") == {FAILING}, F.raise_error(F.lit("no"))).otherwise(F.col("event.n"))
    return records.select("source", "event_time", n.cast("bigint").alias("n"))
"""


def delivered(settings: Settings, topic: str) -> Counter[int]:
    return Counter(json.loads(item.value or b"")["n"] for item in read_topic(settings, topic))


def test_an_exactly_once_stream_delivers_what_came_after_the_failure(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(transform=FAILS)
    topics = stream.speed.model_dump(exclude_none=True) | {"delivery": "exactly_once"}
    stream = make_stream(name=stream.name, topic=stream.topic, transform=FAILS, speed=topics)
    produce(stream.topic, [(b"k", b'{"n":%d}' % n, START_MS, 0, []) for n in range(RECORDS)])
    with pytest.raises(TransformError):
        speed(spark, stream, settings, available_now=True)
    (settings.streams_dir / f"{stream.name}.py").write_text(MENDED, encoding="utf-8")
    speed(spark, stream, settings, available_now=True)
    assert delivered(settings, stream.speed.topic) == Counter(range(RECORDS))


def test_a_replay_delivers_what_came_after_the_failure(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = make_stream(speed={"topic": make_topic(), "dead_letter_topic": make_topic()})
    ours, numbers = source_id(settings, stream), range(1_500)
    dead_letters = [letter(stream, ours, (0, n), b'{"n":%d}' % n) for n in numbers]
    produce(stream.speed.dead_letter_topic, dead_letters)

    def failing(*arguments: Any) -> DataFrame:
        """As where Spark loses a machine while tasks read from it what earlier tasks wrote there."""
        rows = to_deliver(*arguments)
        lost = F.when(F.col("source_offset") == 1_300, F.raise_error(F.lit("lost"))).otherwise(F.col("value"))
        return rows.withColumn("value", lost.cast("binary"))

    with temporary_conf(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "400"}), monkeypatch.context() as patch:
        patch.setattr("tidemark.speed.replay.replay.to_deliver", failing)
        with pytest.raises(TidemarkError, match="lost"):
            replay(stream, settings, spark)
    replay(stream, settings, spark)
    assert delivered(settings, stream.speed.topic) == Counter(numbers)
