"""Dead letters replayed once: real broker, real S3; the dead letters are written here as the headers' page says."""

import json
import os
import runpy
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from rich.console import Console
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from tests.conftest import MakeStream, MakeTopic, Produce
from tests.speed.dead_letters import START_MS, Headers, letter, source_id
from tests.speed.live import Delivered, read_topic
from tests.tables import read_tables
from tests.waiting import wait_until
from tidemark.cli.replay import print_replayed
from tidemark.core.errors import ConflictError, IncompleteError, PositionError, ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT, TIDEMARK
from tidemark.kafka.topics import describe_topic
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.speed.exactly_once.marker import TaskRange
from tidemark.speed.replay.dead_letters import NotOurs
from tidemark.speed.replay.plan import next_range
from tidemark.speed.replay.replay import REPLAY, Replayed, replay
from tidemark.stack.local import LocalStack

pytestmark = pytest.mark.conformance(24)

LOG = TopicPartition(topic="dead", topic_id="an-id", partition=0)
# Rejects an n above 100, and n = 13.
STRICT = """\
from pyspark.sql import functions as F

def transform(records):
    unwanted = F.when(F.col("event.n") == 13, "thirteen").when(F.col("event.n") > 100, "large")
    return records.select("source", "event_time", "event.n", unwanted.alias("reject"))
"""
MILD = STRICT.replace('.when(F.col("event.n") > 100, "large")', "")


def published(settings: Settings, stream: Stream) -> dict[tuple[int, int], Delivered]:
    """The live topic by source coordinates; fails for a duplicate."""
    found = read_topic(settings, stream.speed.topic)
    assert [at for at, copies in Counter(item.source for item in found).items() if copies > 1] == []
    return {item.source: item for item in found}


def sent_back(settings: Settings, stream: Stream) -> list[Delivered]:
    """The dead letters that a replay wrote."""
    found = read_topic(settings, stream.speed.dead_letter_topic)
    return [item for item in found if dict(item.headers).get("tidemark.attempt") not in {None, b"0"}]


def group_of(settings: Settings, stream: Stream) -> str:
    topic_id = describe_topic(settings.kafka, stream.speed.dead_letter_topic)[0].topic_id
    return f"tidemark-{settings.deployment}-replay-{stream.name}-{topic_id}"


def expire_markers(settings: Settings, stream: Stream) -> None:
    group = group_of(settings, stream)
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    admin.delete_consumer_groups([group])[group].result(60)


def moving(error: BaseException) -> bool:
    """Whether Kafka refused because the group's coordinator is starting."""
    refusals = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
    return isinstance(error, KafkaException) and error.args[0].code() in refusals


@contextmanager
def position(settings: Settings, stream: Stream) -> Iterator[Callable[[], int]]:
    """Returns the replay's last committed marker of partition 0; negative without one."""
    # Not read_committed: it would wait up to 60 s for the transaction of a killed replay.
    isolation = {"isolation.level": "read_uncommitted"}
    group = {"group.id": group_of(settings, stream), "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": settings.kafka_bootstrap, **group, **isolation})
    marker = KafkaPartition(f"{stream.speed.dead_letter_topic}.markers", 0)

    @retry(retry=retry_if_exception(moving), stop=stop_after_delay(60), wait=wait_fixed(0.1), reraise=True)
    def tell() -> int:
        (found,) = consumer.committed([marker], timeout=60)
        assert found.error is None, found.error
        return int(found.offset)

    yield tell
    consumer.close()


def retransform(settings: Settings, stream: Stream, text: str) -> None:
    (settings.streams_dir / f"{stream.name}.py").write_text(text, encoding="utf-8")


def test_good_records_are_published_once_and_the_rest_waits_for_the_next_replay(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce
) -> None:
    speed = {"topic": make_topic(3), "dead_letter_topic": make_topic(2), "partitioning": "source"}
    stream = make_stream(partitions=3, transform=STRICT, speed=speed)
    ours, dead_letters = source_id(settings, stream), stream.speed.dead_letter_topic
    # From another stream whose live topic is this source: its coordinates are headers of the source record.
    coordinates: Headers = [("tidemark.source", b"upstream:theirs:0:7"), ("tidemark.stream", b"theirs:1")]
    upstream: Headers = [("trace", b"\x00\xff"), *coordinates, ("e", None)]
    produce(
        dead_letters,
        [
            letter(stream, ours, (0, 10), b'{"n":1}', own=upstream),
            letter(stream, ours, (1, 10), b'{"n":200}', own=upstream, on=1, key=None),
            letter(stream, ours, (1, 10), b'{"n":200}', own=upstream, on=0, attempt="0"),  # a copy in another partition
            letter(stream, ours, (0, 10), b'{"n":1}'),  # a copy in the same partition
            letter(stream, ours, (2, 0), None, on=1),
            (b"k", b'{"n":2}', START_MS, 1, [("tidemark.source", f"{stream.topic}:{ours}:0:2".encode())]),
            (b"k", b'{"n":3}', START_MS, 0, []),
            letter(stream, ours, (0, 11), b'{"n":4}', source=f"{stream.topic}:{ours}:many:11"),
            letter(stream, ours, (0, 11), b'{"n":5}', stream="another:1"),
            letter(stream, "A-topic-of-before", (0, 11), b'{"n":6}'),
            letter(stream, ours, (0, 9), None, key=None, exception="without_value"),
        ],
    )

    kinds = (
        NotOurs(kind="unmarked", count=3, partition=0, offset=3, found="no headers"),
        NotOurs(kind="other_stream", count=1, partition=0, offset=5, found="stream another"),
        NotOurs(
            kind="other_log",
            count=1,
            partition=0,
            offset=6,
            found=f"topic {stream.topic} with id A-topic-of-before",
        ),
        NotOurs(kind="without_value", count=1, partition=0, offset=7, found="source partition 0 offset 9"),
    )
    first = replay(stream, settings, spark)
    assert first == Replayed(
        plans=(1,), read=11, published=1, dead_again=2, duplicates=2, not_ours=6, kinds=kinds, transactions=2
    )
    live = published(settings, stream)
    assert {at: json.loads(item.value or b"") for at, item in live.items()} == {(0, 10): {"n": 1}}
    assert live[0, 10].key == b"k"
    assert live[0, 10].header("source") == f"{stream.topic}:{ours}:0:10"
    assert live[0, 10].header("timestamp") == str(START_MS + 10)
    back = {item.source: item for item in sent_back(settings, stream)}
    assert {at: (item.value, item.header("reason"), item.header("attempt")) for at, item in back.items()} == {
        (1, 10): (b'{"n":200}', "large", "1"),
        (2, 0): (None, "the value is null (a tombstone)", "1"),
    }
    assert back[1, 10].headers[:4] == tuple(upstream)
    assert Counter(name for name, _ in back[1, 10].headers)["tidemark.source"] == 2
    assert back[2, 0].key == b"k"

    expire_markers(settings, stream)  # harmless: the plan also has the replay's end
    # After a fix. Two dead letters that were replayed come again: one that was published, and one that has a next
    # attempt.
    retransform(settings, stream, MILD)
    repeated = [letter(stream, ours, (0, 10), b'{"n":1}', on=1), letter(stream, ours, (2, 0), None)]
    produce(dead_letters, [*repeated, letter(stream, ours, (0, 12), b'{"n":13}')])
    second = replay(stream, settings, spark)
    assert second == Replayed(plans=(2,), read=5, published=1, dead_again=2, duplicates=2, transactions=2)
    live = published(settings, stream)
    assert {at: json.loads(item.value or b"") for at, item in live.items()} == {(0, 10): {"n": 1}, (1, 10): {"n": 200}}
    assert Counter((item.source, item.header("attempt")) for item in sent_back(settings, stream)) == {
        ((1, 10), "1"): 1,
        ((2, 0), "1"): 1,
        ((2, 0), "2"): 1,
        ((0, 12), "1"): 1,
    }


def test_a_replay_that_was_killed_and_fenced_continues_where_it_was(
    spark: SparkSession,
    stack: LocalStack,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # One transaction per dead letter, so that there is much time between the first and the last.
    speed = {"topic": make_topic(), "dead_letter_topic": make_topic(), "transaction_records": 1}
    stream = make_stream(speed=speed)
    number, ours = 400, source_id(settings, stream)
    values = [b"{" if n % 10 == 0 else b'{"n":%d}' % n for n in range(number)]
    produce(stream.speed.dead_letter_topic, [letter(stream, ours, (0, n), value) for n, value in enumerate(values)])
    group = group_of(settings, stream)

    with position(settings, stream) as replayed_until:
        with (tmp_path / "replay.log").open("wb") as log:
            app = subprocess.Popen(
                [*TIDEMARK, "replay", stream.name],
                env={**os.environ, **stack.env, "PYTHONPATH": str(PROJECT / "include")},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            wait_until(lambda: app.poll() is not None or replayed_until() > 0, "dead letters are replayed", 300)
        finally:
            family = [psutil.Process(app.pid), *psutil.Process(app.pid).children(recursive=True)]
            for process in family:
                process.kill()
            app.wait(60)
            psutil.wait_procs(family[1:], timeout=60)
        killed_at = replayed_until()
        assert app.returncode == -signal.SIGKILL, (tmp_path / "replay.log").read_text(encoding="utf-8")
        assert 0 < killed_at < number

        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(replay, stream, settings, spark)
            # By more than a commit that was in progress when the first replay was killed.
            wait_until(lambda: second.done() or replayed_until() > killed_at + 1, "it continues", 300)
            # The first call of another replay.
            other = Producer({"bootstrap.servers": settings.speed_kafka.servers, "transactional.id": f"{group}-0"})
            other.init_transactions(60)
            # To a commit at this very moment, Kafka may answer with its unknown error, -1, before it says "fenced".
            with pytest.raises((ConflictError, ServiceError), match=group):
                second.result(300)
        fenced_at = replayed_until()
    assert killed_at < fenced_at < number

    produce(stream.speed.dead_letter_topic, [letter(stream, ours, (0, number), b'{"n":1}')])
    widened = stream.speed.model_copy(update={"transaction_records": 100_000})
    run = Run.open(stream.name, "a-run", settings)
    run = replace(run, stream=stream.model_copy(update={"speed": widened}))
    capsys.readouterr()
    runpy.run_path(str(PROJECT / "spark_apps" / "replay.py"))["replay_run"](run, spark)

    # Dead letters from before its start are replayed too, those that it writes itself are not.
    dead, before = number // 10, len(range(0, fenced_at, 10))
    wanted = {
        "plans": [1, 2],
        "read": number + before + 1,
        "published": number - dead + 1,
        "dead_again": dead + before,
        "duplicates": 0,
        "not_ours": 0,
        "kinds": [],
        "earlier": fenced_at,
        "lost": 0,
    }
    (line,) = [json.loads(text) for text in capsys.readouterr().out.splitlines() if text.startswith("{")]
    assert {name: line[name] for name in wanted} == wanted
    saved = run.require(REPLAY)
    assert {name: saved[name] for name in wanted} == wanted
    found = published(settings, stream)
    assert {at: json.loads(item.value or b"")["n"] for at, item in found.items()} == {
        **{(0, n): n for n in range(number) if n % 10},
        (0, number): 1,
    }
    assert Counter((item.source, item.header("attempt")) for item in sent_back(settings, stream)) == {
        **{((0, n), "1"): 1 for n in range(0, number, 10)},
        **{((0, n), "2"): 1 for n in range(0, fenced_at, 10)},
    }


def test_an_expired_marker_is_harmless_and_a_moved_one_is_refused(
    spark: SparkSession, settings: Settings, make_stream: MakeStream
) -> None:
    stream = make_stream()
    assert replay(stream, settings, spark) == Replayed(plans=(1,), transactions=1)
    expire_markers(settings, stream)
    assert replay(stream, settings, spark) == Replayed(plans=(2,), transactions=1)

    group, markers = group_of(settings, stream), f"{stream.speed.dead_letter_topic}.markers"
    moved = ConsumerGroupTopicPartitions(group, [KafkaPartition(markers, 0, 1)])
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    admin.alter_consumer_group_offsets([moved])[group].result(60)
    with pytest.raises(PositionError, match="expected offset 0, where the last replay ended, found offset 1"):
        replay(stream, settings, spark)


@pytest.mark.parametrize(
    ("before", "marker", "expected"),
    [
        (None, None, TaskRange(log=LOG, start=0, until=9, batch=3, first=True)),
        (None, 4, TaskRange(log=LOG, start=4, until=9, batch=3, first=False)),
        (4, 4, TaskRange(log=LOG, start=4, until=9, batch=3, first=False)),
        (4, None, TaskRange(log=LOG, start=4, until=9, batch=3, first=True)),
        (9, 9, TaskRange(log=LOG, start=9, until=9, batch=3, first=False)),
    ],
)
def test_a_replay_starts_where_the_last_one_ended(before: int | None, marker: int | None, expected: TaskRange) -> None:
    assert next_range(LOG, number=3, before=before, marker=marker, end=9, where="here") == expected


def test_a_dead_letter_topic_that_ends_before_the_replayed_offset_is_refused() -> None:
    with pytest.raises(PositionError, match=r"expected >= 10, found 9 \[here\]"):
        next_range(LOG, number=3, before=10, marker=10, end=9, where="here")


def test_a_transformation_that_drops_or_multiplies_a_row_stops_the_replay(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce
) -> None:
    speed = {"topic": make_topic(), "dead_letter_topic": make_topic(), "transaction_records": 2}
    dropping = MILD.replace("return records.", 'return records.where("event.n <> 3").')
    stream = make_stream(transform=dropping, speed=speed)
    ours = source_id(settings, stream)
    produce(stream.speed.dead_letter_topic, [letter(stream, ours, (0, n), b'{"n":%d}' % n) for n in range(6)])
    place = "for the dead letter at offset {} of the dead-letter topic's partition 0"
    with pytest.raises(IncompleteError, match="dropped a row: .*found none " + place.format(3)):
        replay(stream, settings, spark)
    copies = 'F.explode(F.sequence(F.lit(1), F.when(F.col("event.n") == 4, 2).otherwise(1))).alias("copy")'
    retransform(settings, stream, MILD.replace('"event.n",', f'"event.n", {copies},'))
    with pytest.raises(IncompleteError, match="multiplied a row: .*found several " + place.format(4)):
        replay(stream, settings, spark)
    assert sent_back(settings, stream) == []

    retransform(settings, stream, MILD)
    progress: list[tuple[int, int]] = []
    done = replay(stream, settings, spark, on_progress=lambda at, total: progress.append((at, total)))
    assert (done.plans, done.read, done.published, done.dead_again) == ((1, 2), 6, 6, 0)
    live = published(settings, stream)
    assert {at: json.loads(item.value or b"")["n"] for at, item in live.items()} == {(0, n): n for n in range(6)}
    # Of the plan that was started before; the plan after it has nothing to do.
    first = [item for item in progress if item != (0, 0)]
    assert first == sorted(first)
    assert (first[0], first[-1]) == ((0, 6), (6, 6))
    assert progress == first + [(0, 0)] * (len(progress) - len(first))
    assert len(progress) >= len(first) + 2


def test_the_table_of_a_replay_adds_up_and_shows_an_example_of_each_skipped_kind(
    settings: Settings, make_stream: MakeStream
) -> None:
    stream = make_stream(topic="unused", speed={"topic": "live", "dead_letter_topic": "dead"})
    run = Run.open(stream.name, "a-run", settings)
    kind = NotOurs(kind="other_stream", count=4, partition=1, offset=7, found="stream [b]another[/b]")
    done = Replayed(
        plans=(3,),
        read=1_246,
        published=1_200,
        dead_again=40,
        duplicates=2,
        not_ours=4,
        kinds=(kind,),
        earlier=9,
        lost=5,
    )
    out = StringIO()
    print_replayed(Console(file=out, width=100, soft_wrap=True), run, done)
    lines = out.getvalue().splitlines()
    assert {row["Result"]: row["Records"] for row in read_tables("\n".join(lines), "Records")} == {
        "published to live": "1,200",
        "dead again, back on dead": "40",
        "duplicate dead letters": "2",
        "not this stream's, skipped": "4",
        "read": "1,246",
    }
    assert lines[0] == f"Dead letters of stream {stream.name} on dead"
    assert lines[-3:] == [
        "skipped 4 of another stream: for example partition 1 offset 7, stream [b]another[/b]",
        "9 of them were delivered by an earlier, interrupted replay.",
        "Retention deleted 5 offsets before any replay.",
    ]
