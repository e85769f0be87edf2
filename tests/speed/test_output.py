"""The rows of the speed layer, without a broker."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.spark.rows import kafka_rows, stream
from tests.speed.delivering import LOG, batch, row
from tidemark.core.errors import ConfigError
from tidemark.core.offsets import TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.spark.process import Transform, classify
from tidemark.spark.records import records
from tidemark.speed.headers import add_coordinates
from tidemark.speed.output import output
from tidemark.speed.record_limits import RecordLimits

LIMITS = RecordLimits(live=1_000_000, dead_letter=1_000_000)
TIME = datetime(2024, 1, 1, tzinfo=UTC)
TOPICS = {"topic": "live", "dead_letter_topic": "dead"}


def rejecting_13(rows: DataFrame) -> DataFrame:
    return rows.select("source", "event_time", "event.*", F.when(F.col("event.n") == 13, "unlucky").alias("reject"))


def flat(rows: DataFrame) -> DataFrame:
    return rows.select("source", "event_time", "event.*")


def sent(
    spark: SparkSession,
    wanted: Stream,
    values: list[bytes | None],
    limits: RecordLimits = LIMITS,
    transform: Transform = rejecting_13,
) -> list[Row]:
    rows = classify(records(kafka_rows(spark, values, TIME), wanted), wanted, transform)
    return output(rows, wanted, "an id", record_limits=limits).collect()


def headers(row: Row) -> dict[str, Any]:
    return {item.key.removeprefix("tidemark."): bytes(item.value).decode() for item in row.headers}


def varint(number: int) -> int:
    """Bytes of a number written as a zigzag varint."""
    return -(-max((2 * number).bit_length(), 1) // 7)


def wire_bytes(row: Row) -> int:
    """The size of a batch with this record only, in Kafka's record batch format."""
    parts = [row.key, row.value, *(part for item in row.headers for part in (item.key.encode(), item.value))]
    body = 3 + varint(len(row.headers)) + sum(1 if part is None else varint(len(part)) + len(part) for part in parts)
    return 61 + varint(body) + body


@pytest.mark.parametrize(("key", "usable"), [("nonsense", "n, text"), ("inner", "n, text"), ("event_time", "n, text")])
def test_an_unusable_key_column_is_refused_with_the_usable_ones(spark: SparkSession, key: str, usable: str) -> None:
    keyed = stream("n BIGINT, text STRING, inner STRUCT<a: INT>", speed={**TOPICS, "key": key})
    with pytest.raises(ConfigError, match=rf"speed\.key names no plain column.*one of {usable}, found {key}"):
        sent(spark, keyed, [])


def test_a_numeric_key_is_its_text_and_a_null_key_is_none(spark: SparkSession) -> None:
    keyed = stream("n BIGINT, text STRING", speed={**TOPICS, "key": "n"})
    rows = sent(spark, keyed, [b'{"n":7}', b"{}", b"garbage"])
    assert [(row.topic, row.key) for row in rows] == [("live", b"7"), ("live", None), ("dead", b"k2")]


def test_every_row_has_its_source_and_only_good_ones_keep_their_partition(
    spark: SparkSession,
) -> None:
    values: list[bytes | None] = [b'{"n":7}', b"{", b'{"n":13}']
    by_key = sent(spark, stream(speed=TOPICS), values)
    by_source = sent(spark, stream(speed={**TOPICS, "partitioning": "source"}), values)
    for rows in (by_key, by_source):
        found = [(row.source_partition, row.source_offset, row.timestamp.astimezone(UTC), row._good) for row in rows]
        assert found == [(3, at, TIME, at == 0) for at in range(3)]
    assert [row.partition for row in by_key] == [None, None, None]
    assert [row.partition for row in by_source] == [3, None, None]


def test_a_dead_letter_names_its_kind(spark: SparkSession) -> None:
    rows = sent(spark, stream(speed=TOPICS), [b"{", None, b'{"n":13}'])
    assert [(headers(row)["exception"], headers(row)["reason"], headers(row)["attempt"]) for row in rows] == [
        ("undecodable", "the value is not one JSON object", "0"),
        ("undecodable", "the value is null (a tombstone)", "0"),
        ("rejected", "unlucky", "0"),
    ]


def test_a_record_goes_to_the_live_topic_only_if_it_is_within_the_limit(
    spark: SparkSession,
) -> None:
    plain, room = stream("text STRING", speed=TOPICS), 2_000_000
    values: list[bytes | None] = [b'{"text":"%s"}' % (b"x" * length) for length in (10, 300, 9_000, 1_200_000)]

    def with_limit(limit: int, wanted: list[bytes | None]) -> list[Row]:
        return sent(spark, plain, wanted, RecordLimits(live=limit, dead_letter=room), flat)

    sizes: list[int] = []
    for number, (live, large) in enumerate(zip(with_limit(room, values), with_limit(0, values), strict=True)):
        assert (live.topic, large.topic) == ("live", "dead")
        assert (bytes(large.key), bytes(large.value), large._good) == (b"k%d" % number, values[number], False)
        assert headers(large)["exception"] == "too_large"
        found = re.fullmatch(
            r"a record of up to (\d+) bytes may be larger than max\.message\.bytes 0 of live", headers(large)["reason"]
        )
        assert found is not None
        sizes.append(int(found[1]))
        # Numbers count with their maximum length.
        assert wire_bytes(live) <= sizes[-1] <= wire_bytes(live) + 160
    (fits,), (large,) = (with_limit(limit, values[2:3]) for limit in (sizes[2], sizes[2] - 1))
    assert (fits.topic, large.topic) == ("live", "dead")
    assert f"max.message.bytes {sizes[2] - 1} of live" in headers(large)["reason"]


@pytest.mark.conformance(72)
def test_a_dead_letter_too_large_for_its_topic_has_its_coordinates_and_reason_only(spark: SparkSession) -> None:
    values: list[bytes | None] = [b'{"n":7}', b"x" * 5_000, b'{"n":13}', b'{"n":1, "text":"%s"}' % (b"y" * 5_000)]
    limits = RecordLimits(live=1_000, dead_letter=5_000)
    good, undecodable, rejected, large = sent(spark, stream("n INT, text STRING", speed=TOPICS), values, limits)
    assert (good.topic, headers(rejected)["exception"]) == ("live", "rejected")
    for letter, why in (
        (undecodable, "the value is not one JSON object"),
        (large, r"a record of up to 5\d\d\d bytes may be larger than max\.message\.bytes 1000 of live"),
    ):
        assert (letter.topic, letter.key, letter.value, letter._good) == ("dead", None, None, False)
        found = headers(letter)
        assert list(found) == ["source", "timestamp", "stream", "reason", "exception", "attempt"]
        assert (found["source"], found["exception"]) == (f"source:an id:3:{letter.source_offset}", "without_value")
        left_out = (
            r"without key, value and headers: the dead letter would have up to 5\d\d\d bytes, and max\.message\.bytes"
        )
        assert re.fullmatch(rf"{why}; {left_out} of dead is 5000", found["reason"])
        assert wire_bytes(letter) < 1_000


def test_a_delivered_record_names_its_source_record() -> None:
    rows = batch([row("live", 7), row("live", 12, timestamp=1_700_000_000_999_999)])
    made = add_coordinates(rows, LOG, "orders", 3).column("headers").to_pylist()
    assert [{item["key"]: item["value"].decode() for item in headers} for headers in made] == [
        {
            "tidemark.source": f"source:{LOG.topic_id}:2:{offset}",
            "tidemark.timestamp": timestamp,
            "tidemark.stream": "orders:3",
        }
        for offset, timestamp in ((7, "1700000000000"), (12, "1700000000999"))
    ]


def test_coordinates_of_a_batch_equal_those_of_the_jvm(spark: SparkSession) -> None:
    wanted = stream(speed=TOPICS)
    values: list[bytes | None] = [b'{"n":7}', b"{", b'{"n":13}', b"{}", b"x" * 5_000]
    rows = classify(records(kafka_rows(spark, values, TIME), wanted), wanted, rejecting_13)
    limits = RecordLimits(live=1_000_000, dead_letter=5_000)
    by_jvm, bare = (output(rows, wanted, "an id", record_limits=limits, with_coordinates=one) for one in (True, False))
    log = TopicPartition(topic=wanted.topic, topic_id="an id", partition=3)
    (batch,) = bare.toArrow().combine_chunks().to_batches()
    assert add_coordinates(batch, log, wanted.name, wanted.version).to_pylist() == by_jvm.toArrow().to_pylist()
    assert [len(row.headers) for row in bare.collect()] == [0, 3, 3, 0, 3]
