"""The speed stream with a real broker and real S3; as a process in tests of signals and kills."""

import json
import os
import signal
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.conftest import MakeStream, MakeTopic, Produce, Record
from tests.speed.live import Delivered, printed_events, read_topic, speed_app
from tests.waiting import wait_until
from tidemark.core.errors import ConflictError, DisplacedError, ServiceError
from tidemark.core.heartbeat import Heartbeat, parse_heartbeat
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic, ensure_topic, logs_of
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark import lease
from tidemark.spark.app import stream_app
from tidemark.speed import stream as speed_stream
from tidemark.speed.stream import speed
from tidemark.stack.local import LocalStack

START_MS = 1_700_000_000_000
KEYS = (b"a", b"\xff\x00", b"", None)
SCHEMA = "n BIGINT, name STRING, at TIMESTAMP"
# Doubles n, keeps the rest, and rejects n = 13.
TRANSFORM = """\
from pyspark.sql import functions as F

def transform(records):
    unwanted = F.when(F.col("event.n") == 13, "thirteen")
    twice = (F.col("event.n") * 2).alias("twice")
    return records.select("source", "event_time", twice, "event.name", "event.at", unwanted.alias("reject"))
"""


def value(n: int) -> bytes:
    """A record's JSON; every third has no name."""
    fields = {"n": n, "name": f"name {n} é"} if n % 3 else {"n": n}
    return json.dumps({**fields, "at": f"2024-01-01T00:00:{n % 60:02}.{n:06}+01:00"}).encode()


def live_value(n: int) -> dict[str, object]:
    """The expected output for ``value(n)``, computed in plain Python."""
    return {
        "twice": 2 * n,
        "name": f"name {n} é" if n % 3 else None,
        "at": f"2023-12-31T23:00:{n % 60:02}.{n:06}Z",
    }


def heartbeat(settings: Settings, stream: Stream) -> Heartbeat:
    key = Layout(prefix=settings.prefix, stream=stream.name).heartbeat_key("speed")
    body = ObjectStore(settings).get(key)
    assert body is not None
    return parse_heartbeat(body, where=key)


def coordinates(item: Delivered) -> dict[str, str]:
    return {name: item.header(name) for name in ("source", "timestamp", "stream")}


@pytest.mark.conformance(22, 24)
def test_good_records_arrive_once_and_the_rest_on_the_dead_letter_topic(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speed_stream, "SPEED_OFFSETS", 60)
    stream = make_stream(
        partitions=3,
        transform=TRANSFORM,
        version=4,
        value_schema=SCHEMA,
        speed={"topic": "live_all", "dead_letter_topic": "dead_all", "key": "name"},
    )
    good = [n for n in range(300) if n != 13]
    bad = [
        (b"{", "the value is not one JSON object"),
        (None, "the value is null (a tombstone)"),
        (b'{"n":"four"}', "a field of the value does not fit the stream's value_schema: n is not BIGINT such as 12"),
        (b"\xff\xfe{}", "the value is not UTF-8"),
        (value(13), "thirteen"),
    ]
    headers: list[tuple[str, bytes | None]] = [("trace", b"\x00\x01"), ("trace", b"second"), ("empty", None)]
    records: list[Record] = [(f"key {n}".encode(), value(n), START_MS + n, n % 3, []) for n in good]
    records += [
        (None if n == 0 else f"bad {n}".encode(), raw, START_MS - n, 1, headers) for n, (raw, _) in enumerate(bad)
    ]
    offsets = produce(stream.topic, records)
    topic_id = describe_topic(settings.kafka, stream.topic)[0].topic_id

    speed(spark, stream, settings, available_now=True)
    events = printed_events(capsys)

    def source_of(at: int) -> dict[str, str]:
        _, _, timestamp_ms, partition, _ = records[at]
        return {
            "source": f"{stream.topic}:{topic_id}:{partition}:{offsets[at]}",
            "timestamp": str(timestamp_ms),
            "stream": f"{stream.name}:4",
        }

    found = read_topic(settings, "live_all")
    live = {item.source: item for item in found}
    assert len(found) == len(good)
    for at, n in enumerate(good):
        item = live[n % 3, offsets[at]]
        assert json.loads(item.value or b"") == live_value(n)
        assert item.key == (f"name {n} é".encode() if n % 3 else None)
        assert coordinates(item) == source_of(at)

    found = read_topic(settings, "dead_all")
    dead = {item.source: item for item in found}
    assert len(found) == len(bad)
    for number, (raw, reason) in enumerate(bad):
        at = len(good) + number
        item = dead[1, offsets[at]]
        assert (item.value, item.key) == (raw, records[at][0])
        assert item.headers[:3] == tuple(headers)
        assert coordinates(item) == source_of(at)
        assert item.header("reason") == reason

    started, *batches, stopped = events
    assert (started["event"], {line["event"] for line in batches}, stopped["event"]) == (
        "started",
        {"batch"},
        "stopped",
    )
    assert sum(line["published"] for line in batches) == len(good)
    assert sum(line["dead_lettered"] for line in batches) == len(bad)
    # Without a number in the definition a batch is bounded by the number of partitions.
    assert [line["published"] + line["dead_lettered"] <= 180 for line in batches] == [True, True]

    ends = {partition: sum(record[3] == partition for record in records) for partition in range(3)}
    beat = heartbeat(settings, stream)
    assert (beat.state, beat.version, beat.error) == ("stopped", 4, None)
    assert (beat.positions, beat.batch) == (tuple(ends.items()), batches[-1]["batch"])
    assert (beat.lag_records, beat.lag_seconds, beat.writer) == (0, 0.0, started["query"])


@pytest.mark.conformance(22)
def test_after_a_kill_nothing_is_lost_and_coordinates_show_duplicates(
    stack: LocalStack,
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    produce: Produce,
    tmp_path: Path,
) -> None:
    stream = make_stream(
        partitions=2, speed={"topic": "live_kill", "dead_letter_topic": "dead_kill", "trigger_seconds": 0}
    )
    # All records exist before the start, so that the first batch has all of them: what was delivered before the
    # kill belongs to the one batch that is repeated.
    records: list[Record] = [
        (KEYS[n % 4], b'{"n":%d}' % n if n % 10 else b"{", START_MS, n % 2, []) for n in range(20_000)
    ]
    offsets = produce(stream.topic, records)
    produced = {(n % 2, offset): KEYS[n % 4] for n, offset in enumerate(offsets)}
    checkpoint = Layout(prefix=settings.prefix, stream=stream.name).checkpoint_prefix("speed")

    def delivered_so_far() -> int:
        logs = describe_topic(settings.kafka, "live_kill")
        return sum(mark.high_watermark for mark in watermarks(settings.kafka, logs))

    with speed_app(stack, stream, tmp_path / "app.log") as app:
        app.wait_until(lambda: any(item.key.endswith("/offsets/0") for item in store.list(checkpoint)))
        app.wait_until(lambda: delivered_so_far() > 0)
        app.kill()
        assert app.process.returncode == -signal.SIGKILL
    store.delete(f"{checkpoint}commits/0")  # if the kill came a moment too late

    speed(spark, stream, settings, available_now=True)
    delivered = read_topic(settings, "live_kill") + read_topic(settings, "dead_kill")
    counts = Counter(item.source for item in delivered)
    assert {item.source: item.key for item in delivered} == produced
    assert len(delivered) - len(produced) == sum(copies - 1 for copies in counts.values()) > 0
    assert all(item.header("reason") for item in delivered if item.value == b"{")
    for topic in ("live_kill", "dead_kill"):
        assert len(describe_topic(settings.kafka, topic)) == 2


@pytest.mark.conformance(22)
def test_after_sigterm_the_next_start_continues_and_reports_lost_offsets(
    stack: LocalStack,
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = make_stream(speed={"topic": "live_term", "dead_letter_topic": "dead_term", "trigger_seconds": 0})
    rows: list[Record] = [(None, b'{"n":%d}' % n, START_MS, 0, []) for n in range(30)]
    produce(stream.topic, rows[:10])
    with speed_app(stack, stream, tmp_path / "app.log") as app:
        app.wait_until(lambda: sum(line["rows"] for line in app.events("batch")) == 10)
        os.killpg(app.process.pid, signal.SIGTERM)
        assert app.wait() == 0, app.output
        assert [line["stream"] for line in app.events("stopped")] == [stream.name]
        assert app.events("lost") == []
        assert "Traceback" not in app.output
    produce(stream.topic, rows[10:])
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(stream.topic, 0, 17)]).values()
    assert deleted.result().low_watermark == 17

    speed(spark, stream, settings, available_now=True)
    lost = [line for line in printed_events(capsys) if line["event"] == "lost"]
    assert [(line["partition"], line["start"], line["end"]) for line in lost] == [(0, 10, 17)]
    assert sorted(item.source[1] for item in read_topic(settings, "live_term")) == [*range(10), *range(17, 30)]


@pytest.mark.conformance(6, 22, 23)
@pytest.mark.parametrize(
    ("delivery", "notices"),
    [("at_least_once", "while idle"), ("exactly_once", "while idle"), ("at_least_once", "after a failure")],
)
def test_a_second_writer_displaces_the_first_which_leaves_it_the_heartbeat(
    delivery: str,
    notices: str,
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease, "CHECK_S", 0.5 if notices == "while idle" else 3600)
    speed_section = {"topic": make_topic(), "dead_letter_topic": make_topic(), "delivery": delivery}
    stream = make_stream(speed={**speed_section, "trigger_seconds": 0})
    produce(stream.topic, [(None, b'{"n":%d}' % n, START_MS, 0, []) for n in range(5)])
    prefix = Layout(prefix=settings.prefix, stream=stream.name).checkpoint_prefix("speed")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(speed, spark, stream, settings)
        wait_until(lambda: first.done() or store.get(f"{prefix}commits/0") is not None, "a batch")
        second = lease.Lease.take(store, prefix)
        if notices == "after a failure":  # the second writer has planned the next batch
            store.put(f"{prefix}offsets/1", store.get(f"{prefix}offsets/0") or b"")
            produce(stream.topic, [(None, b'{"n":5}', START_MS, 0, [])])
        try:
            with pytest.raises(DisplacedError, match="another writer has taken the checkpoint"):
                first.result(120)
        finally:
            for query in spark.streams.active:
                query.stop()
    second.check()
    assert heartbeat(settings, stream).state == "running"
    assert sorted(item.source[1] for item in read_topic(settings, stream.speed.topic)) == list(range(5))


def test_a_recreated_topic_is_refused_with_the_checkpoint_to_remove(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(speed={"topic": "live_new", "dead_letter_topic": "dead_new"})
    produce(stream.topic, [(None, b'{"n":1}', START_MS, 0, [])])
    speed(spark, stream, settings, available_now=True)
    old = describe_topic(settings.kafka, stream.topic)[0].topic_id
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    admin.delete_topics([stream.topic])[stream.topic].result()
    wait_until(lambda: not logs_of(settings.kafka, stream.topic), "the old topic is deleted")
    with pytest.raises(ServiceError, match=rf"Kafka has no such topic: found {stream.topic}"):
        speed(spark, stream, settings, available_now=True)
    wait_until(lambda: ensure_topic(settings.kafka, stream.topic, partitions=1), "the new one is there")
    new = describe_topic(settings.kafka, stream.topic)[0].topic_id
    with pytest.raises(ConflictError) as caught:
        speed(spark, stream, settings, available_now=True)
    for text in (old, new, f"checkpoints/{stream.name}/speed/"):
        assert text in str(caught.value)
    beat = heartbeat(settings, stream)
    assert (beat.state, beat.error) == ("failed", f"ConflictError: {caught.value}")


def test_sigterm_during_the_start_stops_the_stream_after_it(
    stack: LocalStack, make_stream: MakeStream, tmp_path: Path
) -> None:
    stream = make_stream(speed={"topic": "live_early", "dead_letter_topic": "dead_early"})
    with speed_app(stack, stream, tmp_path / "app.log") as app:
        app.wait_until(lambda: bool(app.jvms()))
        os.killpg(app.process.pid, signal.SIGTERM)
        assert app.wait() == 0, app.output
        assert app.events("stopped")


@pytest.mark.parametrize(("kind", "code"), [(ConflictError, 1), (DisplacedError, 10)])
def test_an_error_ends_the_application_with_one_line_and_its_exit_code(
    stack: LocalStack,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: type[ConflictError],
    code: int,
) -> None:
    ran = []

    def refuse(stream: Stream, settings: Settings, *, available_now: bool) -> None:
        ran.append((stream.name, settings.kafka_bootstrap, available_now))
        raise kind("a stream is refused", expected="this", found="that")

    monkeypatch.setattr(sys, "argv", ["speed_stream.py", "flights", "--available-now"])
    with pytest.raises(SystemExit) as caught:
        stream_app(refuse, "about")
    assert caught.value.code == code
    assert capsys.readouterr().err == f"{kind.__name__}: a stream is refused: expected this, found that\n"
    assert ran == [("flights", stack.settings.kafka_bootstrap, True)]
