"""Objects that Kafka Connect wrote, adopted: what is taken, what is refused, and days rebuilt from them."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.archive.connect import ConnectSink, Value
from tests.archive.oracle import Oracle
from tests.conftest import MakeStream, Produce, unique
from tidemark.adopt.run import Adoption, adopt
from tidemark.archive.stream.driver import archive
from tidemark.cli import adopt as command
from tidemark.cli.app import app
from tidemark.core.errors import ConfigError, ConflictError
from tidemark.core.offsets import OffsetRange
from tidemark.definitions.stream import Stream
from tidemark.inspect.locate import locate
from tidemark.kafka.topics import describe_topic
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.run import Run
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(56)

ZONE = ZoneInfo("America/New_York")
MONDAY, TUESDAY = date(2013, 1, 14), date(2013, 1, 15)
FIRST = datetime(2013, 1, 14, 12, tzinfo=ZONE).astimezone(UTC)


@dataclass(slots=True, kw_only=True)
class World:
    """A topic, what was produced to it by (partition, offset), and a Connect sink that wrote some of it."""

    spark: SparkSession
    settings: Settings
    stream: Stream
    sink: ConnectSink
    produce_records: Produce
    values: dict[tuple[int, int], Value] = field(default_factory=dict)

    def produce(self, count: int, *, partition: int = 0) -> None:
        """So many records, an hour of event time apart, from Monday noon in New York on."""
        start = sum(place[0] == partition for place in self.values)
        for number in range(start, start + count):
            moment = FIRST + timedelta(hours=number)
            value = {"n": 1000 * partition + number, "at": moment.isoformat().replace("+00:00", "Z")}
            milliseconds = int(moment.timestamp() * 1000)
            # Not Connect's very bytes: it writes values anew.
            body = json.dumps(value, indent=1).encode()
            (offset,) = self.produce_records(self.stream.topic, [(b"k", body, milliseconds, partition, [])])
            self.values[partition, offset] = value

    def some(self, start: int, end: int, *, partition: int = 0) -> list[Value]:
        return [self.values[partition, offset] for offset in range(start, end)]

    def connect(self, start: int, end: int, form: str = "json", *, partition: int = 0) -> str:
        return self.sink.write(partition, start, self.some(start, end, partition=partition), form)

    def adopt(self, **options: Any) -> Adoption:
        return adopt(self.spark, self.settings, self.stream, self.sink.topics_dir, **options)

    def forget(self, before: int, *, partition: int = 0) -> None:
        """Retention takes the log's records below an offset."""
        admin = AdminClient({"bootstrap.servers": self.settings.kafka_bootstrap})
        (deleted,) = admin.delete_records([KafkaPartition(self.stream.topic, partition, before)]).values()
        deleted.result(60)

    def manifests(self) -> list[dict[str, Any]]:
        """In the order of their keys."""
        oracle = Oracle(self.settings, self.stream.name)
        return [json.loads(oracle.body(key)) for key in oracle.keys("manifests")]

    def rebuilt(self, name: str, *days: date) -> list[tuple[Any, ...]]:
        """(day, partition, offset, n, at) of what a run of the days wrote, before anybody could see it."""
        run = Run.open(self.stream.name, name, self.settings)
        plan_run(run, days, False)
        refill_run(run, self.spark)
        finalize_plan_run(run)
        rebuild_run(run, self.spark)
        rows = self.spark.sql(
            f"SELECT _day, _kafka_partition, _offset, n, unix_micros(at), unix_micros(_event_time)"
            f" FROM {self._audited(name)}"
        ).collect()
        return sorted(tuple(row) for row in rows)

    def without_timestamp(self, name: str) -> set[tuple[int, int]]:
        """(partition, offset) of the rows of a run that have none of their own."""
        rows = self.spark.sql(
            f"SELECT _kafka_partition, _offset FROM {self._audited(name)} WHERE _timestamp IS NULL"
        ).collect()
        return {tuple(row) for row in rows}

    def _audited(self, name: str) -> str:
        return f"{self.settings.catalog}.{self.settings.namespace}.{self.stream.name} VERSION AS OF 'audit_{name}'"

    def expected(self, *days: date) -> list[tuple[Any, ...]]:
        rows = []
        for (partition, offset), value in self.values.items():
            moment = datetime.fromisoformat(value["at"])
            micros = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
            if (day := moment.astimezone(ZONE).date()) in days:
                rows.append((day, partition, offset, value["n"], micros, micros))
        return sorted(rows)


@pytest.fixture
def make_world(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> Callable[..., World]:
    def make(partitions: int = 1, **overrides: Any) -> World:
        stream = make_stream(
            partitions=partitions,
            **{
                "time_zone": str(ZONE),
                "value_schema": "n BIGINT, at TIMESTAMP",
                "event_time": {"extractor": "record_field", "field": "$.at"},
                **overrides,
            },
        )
        sink = ConnectSink(settings=settings, topic=stream.topic, topics_dir=unique("connect/topics"))
        return World(spark=spark, settings=settings, stream=stream, sink=sink, produce_records=produce)

    return make


def test_days_are_rebuilt_from_adopted_and_own_objects_after_kafka_lost_the_adopted_offsets(
    make_world: Callable[..., World],
) -> None:
    world = make_world(partitions=2)
    world.produce(30)
    world.produce(14, partition=1)
    keys = [
        world.connect(0, 8, "json"),
        world.connect(8, 14, "json.gz"),
        world.connect(14, 20, "avro"),
        world.connect(0, 6, "snappy.parquet", partition=1),
        world.connect(6, 9, "bin", partition=1),
    ]
    world.forget(17)
    world.forget(8, partition=1)
    archive(world.spark, world.stream, world.settings, available_now=True)
    before = world.sink.objects()

    outcome = world.adopt()

    logs = describe_topic(world.settings.kafka_bootstrap, world.stream.topic)
    # Kafka still holds [17, 20) of partition 0 and offset 8 of partition 1: the last value of either's last object.
    assert outcome.compared == 2
    assert [(item.log, item.new, item.known, item.rows, item.refused) for item in outcome.logs] == [
        (logs[0], 3, 0, 20, ()),
        (logs[1], 2, 0, 9, ()),
    ]
    assert [(item.held, item.gaps) for item in outcome.logs] == [
        ((OffsetRange(start=0, end=20),), ()),
        ((OffsetRange(start=0, end=9),), ()),
    ]
    # At noon and every hour after: eleven more on Monday, so offset 12 is Tuesday's first.
    (manifest,) = [item for item in world.manifests() if item["writer"] == outcome.writer]
    assert [(item["partition"], item["start"], item["end"], item["rows"]) for item in manifest["ranges"]] == [
        (0, 0, 20, 20),
        (1, 0, 9, 9),
    ]
    assert [item["key"] for item in manifest["files"]] == sorted(keys)
    seam = next(item for item in manifest["files"] if item["key"] == keys[1])
    assert seam["days"] == {
        "2013-01-14": {"rows": 4, "first_offset": 8, "last_offset": 11},
        "2013-01-15": {"rows": 2, "first_offset": 12, "last_offset": 13},
    }
    assert (seam["first_offset"], seam["last_offset"], seam["bytes"]) == (8, 13, len(before[keys[1]][2]))

    assert world.rebuilt("seam", MONDAY, TUESDAY) == world.expected(MONDAY, TUESDAY)
    # Our own copies have the record's timestamp too: where there are both, they are taken.
    assert world.without_timestamp("seam") == {(0, offset) for offset in range(17)} | {
        (1, offset) for offset in range(8)
    }
    assert world.sink.objects() == before

    found = locate(world.settings, world.stream.name, world.stream.topic, 0, 15)
    assert [(copy.object, copy.writer) for copy in found.copies] == [(keys[2], outcome.writer)]
    assert (found.day, found.event_time) == (TUESDAY, FIRST + timedelta(hours=15))


def test_adopting_again_finds_what_is_done_and_takes_only_what_is_new(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.produce(10)
    world.connect(0, 4)
    planned = world.adopt(dry_run=True)
    assert (planned.logs[0].new, planned.manifests, world.manifests()) == (1, (), [])
    first = world.adopt()
    again = world.adopt()
    assert (again.logs[0].new, again.logs[0].known, again.manifests) == (0, 1, ())
    assert again.writer == first.writer
    newer = world.connect(4, 10)
    steps: list[tuple[int, int]] = []
    third = world.adopt(progress=lambda done, total: steps.append((done, total)))
    assert (third.logs[0].new, third.logs[0].known, third.logs[0].held) == (1, 1, (OffsetRange(start=0, end=10),))
    assert steps[-1] == (1, 1)
    manifests = world.manifests()
    assert [(item["batch"], [file["key"] for file in item["files"]]) for item in manifests] == [
        (0, [world.sink.key(0, 0)]),
        (1, [newer]),
    ]
    assert manifests[1]["previous"] is not None
    below = adopt(world.spark, world.settings, world.stream, f"s3://{world.settings.bucket}/{world.sink.topics_dir}/")
    assert (below.logs[0].new, below.logs[0].known, below.writer) == (0, 2, first.writer)


def test_what_offsets_or_days_cannot_be_known_of_is_refused_and_the_rest_is_adopted(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    world.produce(60)
    kept = [world.connect(0, 5), world.connect(50, 55)]
    short = world.sink.write(0, 5, world.some(5, 9))
    long = world.sink.write(0, 10, world.some(10, 16))
    undated = world.sink.write(0, 15, [*world.some(15, 17), {"n": 1, "at": "noon"}, *world.some(18, 20)])
    torn = world.sink.key(0, 20, "avro")
    world.sink.write(0, 20, world.some(20, 25), "avro")
    world.sink.put(torn, world.sink.objects()[torn][2][:-5])
    cut = world.sink.key(0, 25, "json.gz")
    world.sink.write(0, 25, world.some(25, 30), "json.gz")
    world.sink.put(cut, world.sink.objects()[cut][2][:-9])
    empty = world.sink.key(0, 30)
    world.sink.put(empty, b"")
    twice = [world.connect(35, 50), world.connect(35, 50, "avro")]
    outcome = world.adopt()
    (log,) = outcome.logs
    reasons = {item.key: item.reason for item in log.refused}
    assert reasons.keys() == {short, long, undated, torn, cut, empty, *twice}
    assert reasons[short].startswith("4 rows for the 5 offsets [5, 10) up to the next object: nobody can tell where")
    assert reasons[long].startswith("6 rows for the 5 offsets [10, 15) up to the next object: it overlaps")
    assert reasons[undated] == "1 row has no time in $.at, line 3 first"
    assert reasons[torn].startswith("does not decode: found ")
    assert reasons[torn].endswith(f"[{torn}, record 6]")
    assert "EOFError" in reasons[cut]
    assert reasons[empty] == "it has no rows"
    assert reasons[twice[0]] == f"another object starts at offset 35 too: {twice[1]}"
    assert reasons[twice[1]] == f"another object starts at offset 35 too: {twice[0]}"
    assert log.held == (OffsetRange(start=0, end=5), OffsetRange(start=50, end=55))
    assert log.gaps == (OffsetRange(start=5, end=50),)
    assert [file["key"] for item in world.manifests() for file in item["files"]] == kept
    # Kafka holds what was refused, so a run refills it.
    assert world.rebuilt("gaps", TUESDAY) == world.expected(TUESDAY)


def test_what_is_not_the_topics_is_counted_and_shown(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.produce(3)
    folder, topic = f"{world.sink.topics_dir}/{world.stream.topic}", world.stream.topic
    strangers = {
        f"{folder}/partition=0/{topic}+0+0000000000.keys.avro": "keys and headers beside the values are not read",
        f"{folder}/partition=0/{topic}+0+0000000000.csv": "format .csv is not one of",
        f"{folder}/partition=1/{topic}+0+0000000000.json": "not in its folder partition=<partition>",
        f"{folder}/year=2013/month=01/{topic}+0+0000000000.json": "not in its folder partition=<partition>",
        f"{folder}/partition=0/other+0+0000000000.json": "of topic other",
        f"{folder}/partition=0/part-0000.json": "not named <topic>+<partition>+<start>.<format>",
    }
    for key in strangers:
        world.sink.put(key, b"{}\n")
    with pytest.raises(ConfigError, match=r"nothing to adopt: expected objects .*\+<start>\.<format>, found .*"):
        world.adopt()
    world.connect(0, 3)
    outcome = world.adopt(dry_run=True)
    assert outcome.logs[0].new == 1
    assert sum(item.count for item in outcome.ignored) == len(strangers)
    shown = {key: item.reason for item in outcome.ignored for key in item.examples}
    assert shown.keys() == strangers.keys()
    assert [key for key in strangers if not shown[key].startswith(strangers[key])] == []
    with pytest.raises(ConfigError, match=r"nothing to adopt: .*found no object \[s3://.*/no/such/folder/\]"):
        adopt(world.spark, world.settings, world.stream, "no/such/folder")
    with pytest.raises(ConfigError, match=r"own bucket can be adopted: expected .*, found elsewhere"):
        adopt(world.spark, world.settings, world.stream, "s3://elsewhere/topics")


def test_objects_of_another_log_are_refused_as_far_as_kafka_can_tell(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.produce(6)
    log = describe_topic(world.settings.kafka_bootstrap, world.stream.topic)[0]
    world.sink.write(0, 0, [*world.some(0, 3), {"n": 99, "at": world.values[0, 3]["at"]}])
    with pytest.raises(
        ConflictError, match=r"(?s)does not hold the topic's records: expected at offset 3 Kafka's .*99"
    ):
        world.adopt()
    world.sink.write(0, 0, world.some(0, 6) + world.some(0, 1))
    with pytest.raises(ConflictError, match=r"beyond the end of its log: expected offsets below 6, found \[0, 7\)"):
        world.adopt()
    world.connect(0, 4)
    behind = world.sink.write(0, 6, world.some(0, 1))
    with pytest.raises(ConflictError, match=r"starts behind the end of its log: expected an offset below 6, found 6"):
        world.adopt()
    world.sink.client.delete_object(Bucket=world.settings.bucket, Key=behind)
    foreign = world.sink.write(7, 0, world.some(0, 1))
    with pytest.raises(ConflictError, match=r"a partition the topic does not have: expected partition 0 to 0, found 7"):
        world.adopt()
    world.sink.client.delete_object(Bucket=world.settings.bucket, Key=foreign)
    world.forget(5)
    with pytest.raises(
        ConflictError, match=rf"can't tell whether they are of this topic.*--topic-id {re.escape(log.topic_id)}"
    ):
        world.adopt()
    with pytest.raises(
        ConflictError, match=rf"not the one vouched for: expected topic id old, found {re.escape(log.topic_id)}"
    ):
        world.adopt(topic_id="old")
    assert world.manifests() == []
    outcome = world.adopt(topic_id=log.topic_id)
    assert (outcome.compared, outcome.logs[0].new) == (0, 1)


def test_an_adopted_object_that_changes_or_turns_out_to_have_holes_stops_the_next_adoption(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    world.produce(20)
    world.connect(0, 4)
    last = world.connect(4, 8)
    world.adopt()
    later = world.connect(9, 12)
    with pytest.raises(
        ConflictError, match=r"does not end where the next one starts: expected \[4, 9\), found \[4, 8\)"
    ):
        world.adopt()
    world.sink.client.delete_object(Bucket=world.settings.bucket, Key=later)
    world.sink.put(last, world.sink.objects()[last][2] + b"\n")
    with pytest.raises(
        ConflictError, match=r"an adopted object was changed: expected \d+ bytes, ETag \w+, found \d+ byt"
    ):
        world.adopt()
    assert len(world.manifests()) == 1


def test_a_stream_that_cannot_tell_the_time_or_value_of_adopted_rows_says_so(make_world: Callable[..., World]) -> None:
    with pytest.raises(ConfigError, match=r"no timestamp of their own: expected .* record_field, found record \["):
        make_world(event_time={"extractor": "record"}).adopt()
    raw = make_world(event_time={"extractor": "record"}, value_format="raw", value_schema=None)
    changed = raw.stream.model_copy(update={"event_time": make_world().stream.event_time})
    with pytest.raises(ConfigError, match=r"adopted values are JSON: expected value_format json, found raw"):
        adopt(raw.spark, raw.settings, changed, "topics")


def test_the_command_shows_a_row_per_partition(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = make_world()
    world.produce(12)
    world.connect(0, 4)
    short = world.sink.write(0, 4, world.some(4, 6))
    world.connect(8, 12)
    stranger = f"{world.sink.topics_dir}/readme.txt"
    world.sink.put(stranger, b"about")
    # The tests' own session instead of one more, which takes ten seconds to start.
    monkeypatch.setattr(command, "bare_session", lambda _name, **_conf: world.spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _self: None)
    monkeypatch.setenv("COLUMNS", "120")
    given = ["adopt", world.stream.name, "--from", world.sink.topics_dir]
    assert CliRunner().invoke(app, [*given, "--dry-run"], standalone_mode=False).exit_code == 0
    assert world.manifests() == []
    monkeypatch.setattr(command, "connect", lambda _stack: world.settings)
    command.adopt_objects(None, world.stream.name, world.sink.topics_dir, dry_run=False, topic_id=None)
    shown = capsys.readouterr().out
    assert "Adopted for stream" in shown
    cells = next(line for line in shown.splitlines() if "[0, 12)" in line).replace("│", " ").split()
    assert cells[:5] == ["0", "2", "0", "1", "8"]
    assert cells[-4:] == ["[0,", "12)", "[4,", "8)"]
    assert f"refused  {short}: 2 rows for the 4 offsets [4, 8)" in shown
    assert f"ignored  1 object, not named <topic>+<partition>+<start>.<format>: {stranger}\n" in shown
    assert "4 values compared with Kafka's: all alike" in shown
    (manifest,) = [item for item in world.manifests() if item["batch"] == 1]
    assert f"000000000000.json, manifests/{world.stream.name}/{manifest['writer']}/000000000001.json\n" in shown
