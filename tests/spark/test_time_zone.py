"""Java's and Python's time-zone data, compared for a stream's zone before a Spark session works for the stream."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import MakeStream
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import ConfigError
from tidemark.core.zone_rules import compared_time, zone_offsets
from tidemark.definitions.stream import Stream
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.spark import time_zone
from tidemark.spark.java import java_zone
from tidemark.spark.time_zone import require_same_clocks
from tidemark.speed.stream import speed

ZONES = ("UTC", "America/New_York", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kolkata")


def of_zone(name: str) -> Stream:
    return Stream.model_validate(
        {
            "name": "sample",
            "topic": "sample",
            "value_schema": "n BIGINT",
            "time_zone": name,
            "speed": {"topic": "live", "dead_letter_topic": "dead"},
        }
    )


def test_zones_are_compared_once_in_a_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(*arguments: Any) -> Any:
        asked.append(arguments[1])
        return java_zone(*arguments)

    monkeypatch.setattr(time_zone, "java_zone", counted)
    monkeypatch.setattr(time_zone, "_checked", set())
    for _ in range(2):
        for name in ZONES:
            require_same_clocks(spark, of_zone(name))
    assert asked == list(ZONES)


@pytest.mark.conformance(60)
def test_java_knows_the_changes_of_2010_to_the_second_and_no_zone_that_is_none(spark: SparkSession) -> None:
    start, end = compared_time(datetime(2010, 6, 1, tzinfo=UTC))
    seconds = int(start.timestamp()), int(end.timestamp())
    release, version, offsets = java_zone(spark, "America/St_Johns", *seconds)
    assert (int(datetime(2010, 11, 7, 2, 31, tzinfo=UTC).timestamp()), -12_600) in offsets
    assert offsets == zone_offsets(of_zone("America/St_Johns").zone, start, end)
    assert version is not None
    assert java_zone(spark, "Mars/Olympus", *seconds) == (release, None, ())


def test_java_knows_the_zones_that_only_spark_has_a_name_for(spark: SparkSession) -> None:
    for name in ("EST", "HST", "MST"):
        require_same_clocks(spark, of_zone(name))


STARTS: dict[str, Callable[[SparkSession, Stream, Settings], object]] = {
    "archive": lambda spark, stream, settings: archive(spark, stream, settings, available_now=True),
    "speed": lambda spark, stream, settings: speed(spark, stream, settings, available_now=True),
    "refill": lambda spark, stream, settings: refill_run(Run.open(stream.name, "zones", settings), spark),
    "rebuild": lambda spark, stream, settings: rebuild_run(Run.open(stream.name, "zones", settings), spark),
}


@pytest.fixture(scope="module")
def stream(make_stream: MakeStream) -> Stream:
    return make_stream(time_zone="Pacific/Chatham")


@pytest.mark.conformance(60)
@pytest.mark.parametrize("start", STARTS)
def test_a_stream_or_run_does_not_start_where_java_has_other_clocks(
    spark: SparkSession, stream: Stream, settings: Settings, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def older(*arguments: Any) -> tuple[str, str, Any]:
        release, _, offsets = java_zone(*arguments)
        return release, "2009a", offsets[:1]

    monkeypatch.setattr(time_zone, "java_zone", older)
    with pytest.raises(ConfigError) as caught:
        STARTS[start](spark, stream, settings)
    assert caught.value.where == "time zone Pacific/Chatham"
    assert str(caught.value.found).endswith(", data 2009a: no further change")
    assert str(caught.value.hint).startswith("Update the data of Java ")
