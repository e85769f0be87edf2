"""Records at their limits through the archive, both delivery modes, and a day from refill to proof: none stops any."""

import json
import sys
from datetime import date

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.archive.oracle import Oracle
from tests.conftest import MakeStream, MakeTopic, Produce
from tests.hostile import NOON_MS, HostileRecord, hostile_records
from tests.speed.live import read_topic
from tidemark.archive.stream.driver import archive
from tidemark.cli import app as command_line
from tidemark.settings import Settings
from tidemark.speed.stream import speed

pytestmark = [pytest.mark.conformance(72), pytest.mark.services]
NO_LIMIT = "9223372036854775807"
PARTITIONS = 2


@pytest.fixture
def records(make_topic: MakeTopic, produce: Produce) -> tuple[str, dict[tuple[int, int], HostileRecord]]:
    """A topic with all hostile records, by partition and offset."""
    topic = make_topic(PARTITIONS, message_timestamp_after_max_ms=NO_LIMIT)
    records = list(hostile_records())
    rows = [
        (item.key, item.value, item.timestamp_ms, number % PARTITIONS, item.headers)
        for number, item in enumerate(records)
    ]
    offsets = produce(topic, rows)
    return topic, {
        (number % PARTITIONS, offset): item for number, (offset, item) in enumerate(zip(offsets, records, strict=True))
    }


Stored = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def archived(oracle: Oracle) -> dict[tuple[int, int], Stored]:
    """Key, value, timestamp in ms and headers of each archived record. Python's own times end with the year 9999."""
    found: dict[tuple[int, int], Stored] = {}
    manifests = [json.loads(oracle.body(key)) for key in oracle.keys("manifests")]
    for file in (file for manifest in manifests for file in manifest["files"]):
        table = oracle.table(file["key"])
        times = table.column("timestamp").cast(pa.int64()).to_pylist()
        rows = table.select(["partition", "offset", "key", "value", "headers"]).to_pylist()
        for row, time_us in zip(rows, times, strict=True):
            headers = [(header["key"], header["value"]) for header in row["headers"]]
            found[row["partition"], row["offset"]] = (row["key"], row["value"], time_us // 1000, headers)
    return found


def test_the_archive_holds_every_record_as_it_was_sent(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    records: tuple[str, dict[tuple[int, int], HostileRecord]],
) -> None:
    topic, sent = records
    stream = make_stream(topic=topic)
    archive(spark, stream, settings, available_now=True)
    assert archived(Oracle(settings, stream.name)) == {
        place: (item.key, item.value, item.archived_ms, list(item.headers)) for place, item in sent.items()
    }


@pytest.mark.parametrize("last_ms", [-62_135_596_800_000, 2**62])
def test_a_batch_may_end_with_a_time_that_the_archive_has_otherwise(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    last_ms: int,
) -> None:
    topic = make_topic(message_timestamp_after_max_ms=NO_LIMIT)
    stream = make_stream(topic=topic)
    for number in range(2):  # what was archived last is compared with Kafka's record
        produce(topic, [(b"k", b"%d" % number, NOON_MS, 0, []), (b"k", b"last", last_ms, 0, [])])
        archive(spark, stream, settings, available_now=True)
    assert {place: row[1] for place, row in archived(Oracle(settings, stream.name)).items()} == {
        (0, 0): b"0",
        (0, 1): b"last",
        (0, 2): b"1",
        (0, 3): b"last",
    }


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_every_record_is_delivered_or_dead_lettered(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    records: tuple[str, dict[tuple[int, int], HostileRecord]],
    delivery: str,
) -> None:
    topic, sent = records
    names = {
        "topic": make_topic(PARTITIONS, message_timestamp_after_max_ms=NO_LIMIT),
        "dead_letter_topic": make_topic(PARTITIONS, message_timestamp_after_max_ms=NO_LIMIT),
    }
    stream = make_stream(topic=topic, speed={**names, "delivery": delivery})
    speed(spark, stream, settings, available_now=True)
    live, dead = (read_topic(settings, name) for name in names.values())
    assert {item.source for item in live} == {place for place, item in sent.items() if item.good}
    assert {item.source for item in dead} == {place for place, item in sent.items() if not item.good}
    for item in live:
        own = sent[item.source]
        assert json.loads(item.value or b"")["n"] == json.loads(own.value or b"")["n"]
        assert (item.key, item.header("timestamp")) == (own.key, str(own.archived_ms))
    for item in dead:
        own = sent[item.source]
        assert (item.key, item.value) == (own.key, own.value)
        assert list(item.headers[: len(own.headers)]) == list(own.headers)
        assert (item.header("timestamp"), item.header("exception")) == (str(own.archived_ms), "undecodable")
    if delivery == "exactly_once":
        assert len(live) + len(dead) == len(sent)
        assert {item.timestamp_ms - sent[item.source].archived_ms for item in (*live, *dead)} == {0}


def run_command(*arguments: str) -> int:
    sys.argv = ["tidemark", *arguments]
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    return int(ended.value.code or 0)


def test_their_days_are_sealed_and_proven(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    records: tuple[str, dict[tuple[int, int], HostileRecord]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, sent = records
    stream = make_stream(topic=topic, batch={"wait_seconds": 0})
    archive(spark, stream, settings, available_now=True)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr("tidemark.spark.session.quiet_session", lambda *_: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    for day in (date(1970, 1, 1), date(2013, 1, 14)):
        own = [item for item in sent.values() if own_day(item) == day]
        good = sum(item.good for item in own)
        assert run_command("reconcile", stream.name, "--from", str(day)) == 0
        printed = capsys.readouterr().out
        assert f"{len(own)} records read, {good} published, {len(own) - good} quarantined" in printed
        assert run_command("verify", stream.name, str(day)) == 0
        assert "proven" in capsys.readouterr().out


def own_day(item: HostileRecord) -> date | None:
    """The record's day; None for one outside of the years 1 to 9999."""
    days = item.archived_ms // 86_400_000 + date(1970, 1, 1).toordinal()
    return date.fromordinal(days) if 0 < days <= date.max.toordinal() else None
