"""The sink inside Spark: Kafka records become objects, and a task's failure reaches the driver."""

import json
import os
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.archive.oracle import Oracle
from tests.conftest import MakeStream, MakeTopic, Produce
from tidemark.archive.write.sink import write_range
from tidemark.core.errors import ConflictError, PositionError, ServiceError
from tidemark.core.layout import Layout
from tidemark.core.manifest import COMPACTION
from tidemark.core.offsets import OffsetRange
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.records import records
from tidemark.stack.local import LocalStack


def kafka(spark: SparkSession, settings: Settings, stream: Stream) -> DataFrame:
    return records(
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka_bootstrap)
        .option("subscribe", stream.topic)
        .option("includeHeaders", "true")
        .load(),
        stream,
    )


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.conformance(9)
def test_bytes_nulls_headers_tombstones_and_a_5_mb_value_survive_the_round_trip(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, make_topic: Any, produce: Produce
) -> None:
    large = bytes(range(256)) * 20_480
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"k", b"plain", []),
        (None, b"no key", [("h", b"1"), ("h", b"2"), ("null", None), ("empty", b"")]),
        (b"", b"", []),
        (b"deleted", None, [("why", "gelöscht".encode())]),
        (b"\x00\xff", b"\xff\xfe\x00 not UTF-8", [("bin", b"\xc3\x28")]),
        (b"large", large, []),
    ]
    stream = make_stream(topic=make_topic(1, max_message_bytes="8000000"))
    times = [at("2013-01-14T12:00:00.123+00:00") + number for number in range(len(sent))]
    produce(
        stream.topic, [(key, value, time, 0, headers) for (key, value, headers), time in zip(sent, times, strict=True)]
    )
    (log,) = describe_topic(settings.kafka, stream.topic)
    ranges = {log: OffsetRange(start=0, end=len(sent))}
    (file,) = write_range(kafka(spark, settings, stream), ranges, stream, settings, clock_us=0).files
    assert file.key.endswith("+0000.parquet")
    assert Oracle(settings, stream.name).rows(file.key) == [
        {
            "topic": stream.topic,
            "partition": 0,
            "offset": offset,
            "timestamp": datetime.fromtimestamp(time / 1000, UTC),
            "timestamp_type": 0,
            "key": key,
            "value": value,
            "headers": [{"key": name, "value": content} for name, content in headers],
            "event_time": datetime.fromtimestamp(time / 1000, UTC),
        }
        for offset, ((key, value, headers), time) in enumerate(zip(sent, times, strict=True))
    ]


@pytest.mark.conformance(73)
def test_a_source_that_fails_in_the_middle_leaves_no_object_with_a_part_of_the_rows(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream()
    number, failing = 6_000, 5_500  # the task's first batch of rows has 4,096
    produce(stream.topic, [(b"k", b"%d" % n, at("2013-01-14T12:00:00+00:00"), 0, []) for n in range(number)])
    (log,) = describe_topic(settings.kafka, stream.topic)
    ranges, rows = {log: OffsetRange(start=0, end=number)}, kafka(spark, settings, stream)
    value = F.when(F.col("offset") == failing, F.raise_error(F.lit("no"))).otherwise(F.col("value")).cast("binary")
    with pytest.raises(ServiceError, match="a Spark job failed"):
        write_range(rows.withColumn("value", value), ranges, stream, settings, clock_us=0)
    (file,) = write_range(rows, ranges, stream, settings, clock_us=0).files
    assert [row["value"] for row in Oracle(settings, stream.name).rows(file.key)] == [b"%d" % n for n in range(number)]


@pytest.mark.conformance(8)
def test_time_paths_and_days_follow_the_streams_zone_and_the_records_field(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(
        time_zone="America/New_York",
        value_schema="at STRING",
        event_time={"extractor": "record_field", "field": "$.at", "max_distance_days": 100},
        archive={"partitioner": {"type": "time", "path_format": "'day='yyyy-MM-dd/'hour='HH"}},
    )
    values = [
        b'{"at": "2013-01-15T04:59:59.999Z"}',  # the last moment of the 14th in New York
        b'{"at": "2013-01-15T05:00:00Z"}',
        b'{"at": "2013-03-10T07:00:00Z"}',  # 03:00, the hour after the one that daylight saving skips
        b'{"at": "nonsense"}',  # keeps its record timestamp
        b"not json",
        None,
    ]
    timestamp_ms = at("2013-01-14T12:00:00+00:00")  # 07:00 in New York
    produce(stream.topic, [(None, value, timestamp_ms, 0, []) for value in values])
    (log,) = describe_topic(settings.kafka, stream.topic)
    ranges = {log: OffsetRange(start=0, end=6)}
    files = write_range(kafka(spark, settings, stream), ranges, stream, settings, clock_us=0).files
    found = {
        file.key.removeprefix(f"data/{stream.name}/").rpartition("/")[0]: (
            file.first_offset,
            file.last_offset,
            [(item.day, item.rows) for item in file.days],
        )
        for file in files
    }
    assert found == {
        "day=2013-01-14/hour=23": (0, 0, [(date(2013, 1, 14), 1)]),
        "day=2013-01-15/hour=00": (1, 1, [(date(2013, 1, 15), 1)]),
        "day=2013-03-10/hour=03": (2, 2, [(date(2013, 3, 10), 1)]),
        "day=2013-01-14/hour=07": (3, 5, [(date(2013, 1, 14), 3)]),
    }


@pytest.mark.conformance(34)
def test_a_thousand_days_in_one_batch_open_two_months(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    """Records of one moment say that they are of 500 days before and after it."""
    stream = make_stream(
        value_schema="at STRING",
        event_time={"extractor": "record_field", "field": "$.at"},
        archive={"partitioner": {"type": "time", "path_format": "daily"}, "max_folders": 60},
    )
    noon = datetime(2013, 1, 14, 12, tzinfo=UTC)
    times = [noon + timedelta(days=distance) for distance in range(-500, 501)]
    values = [b'{"at": "%s"}' % time.isoformat().encode() for time in times]
    produce(stream.topic, [(None, value, int(noon.timestamp()) * 1000, 0, []) for value in values])
    (log,) = describe_topic(settings.kafka, stream.topic)
    ranges = {log: OffsetRange(start=0, end=len(times))}
    files = write_range(kafka(spark, settings, stream), ranges, stream, settings, clock_us=0).files

    near = [time for time in times if abs(time - noon) <= timedelta(days=31)]
    expected = Counter([time.date() for time in near] + [noon.date()] * (len(times) - len(near)))
    days: Counter[date] = Counter()
    for file in files:
        days.update({item.day: item.rows for item in file.days})
    assert days == expected
    oracle = Oracle(settings, stream.name)
    found = {row["offset"]: row["event_time"] for file in files for row in oracle.rows(file.key)}
    assert found == {offset: time if time in near else noon for offset, time in enumerate(times)}
    assert sum(file.out_of_bounds_rows for file in files) == len(times) - len(near)
    # 63 days, of which the first 60 have folders of their own.
    folders = {file.key.removeprefix(f"data/{stream.name}/").rpartition("/")[0]: file.rows for file in files}
    assert (len(folders), folders["~overflow"]) == (61, 3)


def test_a_wall_clock_chooses_the_folder_and_never_the_day(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(time_zone="America/New_York", archive={"partitioner": {"type": "time", "clock": "wall_clock"}})
    produce(stream.topic, [(None, b"{}", at("2013-01-14T12:00:00+00:00"), 0, [])])
    (log,) = describe_topic(settings.kafka, stream.topic)
    ranges = {log: OffsetRange(start=0, end=1)}
    clock = at("2013-02-01T04:59:00+00:00") * 1000  # 23:59 of January 31st in New York
    (file,) = write_range(kafka(spark, settings, stream), ranges, stream, settings, clock_us=clock).files
    folder = file.key.removeprefix(f"data/{stream.name}/").rpartition("/")[0]
    assert folder == "year=2013/month=01/day=31/hour=23"
    assert [(item.day, item.rows) for item in file.days] == [(date(2013, 1, 14), 1)]
    # A retry of the batch finds its own object; the same rows in a later batch are another one.
    assert write_range(kafka(spark, settings, stream), ranges, stream, settings, clock_us=clock).files == (file,)
    (copy,) = write_range(kafka(spark, settings, stream), ranges, stream, settings, clock_us=clock + 60_000_000).files
    assert "/year=2013/month=02/day=01/hour=00/" in copy.key
    assert copy.days == file.days


@pytest.mark.conformance(28)
def test_a_path_format_cannot_lead_out_of_the_streams_folder(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(archive={"partitioner": {"type": "time", "path_format": "'/../../x//./a b?'yyyy'/..'"}})
    produce(stream.topic, [(None, b"{}", at("2013-01-14T12:00:00+00:00"), 0, [])])
    (log,) = describe_topic(settings.kafka, stream.topic)
    (file,) = write_range(
        kafka(spark, settings, stream), {log: OffsetRange(start=0, end=1)}, stream, settings, clock_us=0
    ).files
    assert file.key.startswith(f"data/{stream.name}/-./-./x/-/a-b-2013/-./{stream.topic}+0+")


def test_a_tasks_refusal_reaches_the_driver_as_the_same_error(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream()
    produce(stream.topic, [(None, json.dumps({"n": n}).encode(), 1000, 0, []) for n in range(5)])
    (log,) = describe_topic(settings.kafka, stream.topic)
    frame = kafka(spark, settings, stream)
    with pytest.raises(PositionError) as caught:
        write_range(frame, {log: OffsetRange(start=0, end=4)}, stream, settings, clock_us=0)
    assert str(caught.value) == (
        f"rows outside the range to be committed: expected [0, 4), found offsets 0 to 4 [{stream.topic}-0]"
    )
    whole = {log: OffsetRange(start=0, end=5)}
    write_range(frame, whole, stream, settings, clock_us=0)
    with pytest.raises(ConflictError, match=r"expected 4 rows, offsets 1 to 4, .* found 5 rows, offsets 0 to 4"):
        write_range(frame.where("offset > 0"), whole, stream, settings, clock_us=0)


def test_fewer_rows_of_a_compacted_topic_get_new_names(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce
) -> None:
    stream = make_stream(topic=make_topic(1, cleanup_policy="compact"))
    produce(stream.topic, [(b"k%d" % n, b"%d" % n, 1000, 0, []) for n in range(5)])
    (log,) = describe_topic(settings.kafka, stream.topic)
    frame, ranges = kafka(spark, settings, stream), {log: OffsetRange(start=0, end=5)}
    (first,) = write_range(frame, ranges, stream, settings, clock_us=0).files
    # Nothing was removed: the earlier attempt's object is reused.
    assert write_range(frame, ranges, stream, settings, clock_us=0).files == (first,)
    fewer = frame.where("offset not in (1, 2)")  # as if Kafka had compacted the topic between two attempts
    (second,) = write_range(fewer, ranges, stream, settings, clock_us=0).files
    assert (first.key[-12:], second.key[-12:]) == ("0000.parquet", "0001.parquet")
    oracle = Oracle(settings, stream.name)
    assert [row["offset"] for row in oracle.rows(first.key)] == [0, 1, 2, 3, 4]
    assert [row["offset"] for row in oracle.rows(second.key)] == [0, 3, 4]
    (third,) = write_range(fewer, ranges, stream, settings, clock_us=0).files
    assert third == replace(second, key=second.key.replace("+0001.", "+0002."))


def test_an_object_that_maintenance_could_delete_is_not_reused(
    stack: LocalStack,
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
) -> None:
    """A writer without a checkpoint reads the log again much later."""
    stream = make_stream(topic=make_topic(1))
    produce(stream.topic, [(None, b"%d" % n, 1000, 0, []) for n in range(5)])
    (log,) = describe_topic(settings.kafka, stream.topic)
    frame, ranges = kafka(spark, settings, stream), {log: OffsetRange(start=0, end=5)}
    (first,) = write_range(frame, ranges, stream, settings, clock_us=0).files
    path = stack.folder / "s3" / "data" / settings.bucket / first.key  # where the S3 server keeps objects
    days = timedelta(days=1).total_seconds()
    os.utime(path, (time.time() - 6.1 * days,) * 2)
    assert write_range(frame, ranges, stream, settings, clock_us=0).files == (first,)  # the archive was never compacted
    layout = Layout(prefix=settings.prefix, stream=stream.name)
    ObjectStore(settings).put(layout.manifest_key(COMPACTION, 0), b"")
    os.utime(path, (time.time() - 5.9 * days,) * 2)
    assert write_range(frame, ranges, stream, settings, clock_us=0).files == (first,)
    os.utime(path, (time.time() - 6.1 * days,) * 2)
    (second,) = write_range(frame, ranges, stream, settings, clock_us=0).files
    assert second == replace(first, key=first.key.replace("+0000.", "+0001."))
    oracle = Oracle(settings, stream.name)
    assert oracle.rows(second.key) == oracle.rows(first.key)
