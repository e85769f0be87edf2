"""Conformance 16: whatever happened to log, checkpoint and archive, a rebuilt day is what was produced, row for row.

``World.reconcile`` compares every row that a run staged, and then readers see, with what the test itself produced. Of
four cases a second form is longer or simpler: ``pytest -m soak tests/batch/test_rebuilt_in_every_case.py``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import count, product
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.archive.conftest import grow
from tests.archive.oracle import Oracle
from tests.archive.test_kafka_logs import consumed
from tests.archive.test_loss import expire
from tests.archive.test_stream import recreate_topic
from tests.batch.logs import MONDAY, TUESDAY, ZONE
from tests.batch.steps import pass_audit
from tests.catalog import another_catalog
from tests.conftest import MakeStream, MakeTopic
from tests.waiting import wait_until
from tidemark.archive.stream.driver import archive
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ConflictError, IncompleteError
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.reconcile.results import REFILL, final_plan
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.seals import latest_seals
from tidemark.verify.day import verify_day

pytestmark = pytest.mark.conformance(16)

TRANSFORM = """
def transform(records):
    return records.select("source", "event_time", "source.key", "event.*")
"""
COLUMNS = ("_day", "_topic_id", "_kafka_partition", "_offset", "_timestamp", "_event_time", "key", "n", "at")
MakeWorld = Callable[..., "World"]


class Row(NamedTuple):
    day: date
    topic_id: str
    partition: int
    offset: int
    timestamp: datetime
    event_time: datetime
    key: bytes
    n: int
    at: datetime


def hours(day: date, start: float, end: float, every: float = 1) -> list[datetime]:
    """Moments from one to another hour after the day's midnight in New York, by the clock of the world."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=ZONE).astimezone(UTC)
    return [midnight + timedelta(hours=start + every * step) for step in range(round((end - start) / every))]


@dataclass(slots=True, kw_only=True)
class World:
    """A topic and its stream, and every row that the test produced for good."""

    spark: SparkSession
    settings: Settings
    stream: Stream
    produced: list[Row] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def oracle(self) -> Oracle:
        return Oracle(self.settings, self.stream.name)

    def produce(self, moments: Iterable[datetime], *partitions: int, kept: bool | None = None) -> None:
        """A record of each moment in each partition, or in 0; with ``kept`` in a transaction, committed or aborted.

        Where a field of the value gives the event time, the record's timestamp is 30 hours later.
        """
        bootstrap, topic = self.settings.kafka_bootstrap, self.stream.topic
        by_value, logs = (
            self.stream.event_time.extractor == "record_field",
            describe_topic(KafkaConnection.plain(bootstrap), topic),
        )
        transaction = {} if kept is None else {"transactional.id": topic}
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, **transaction})
        if kept is not None:
            producer.init_transactions(60)
            producer.begin_transaction()
        offsets: dict[int, int] = {}
        rows = []
        for moment, partition in product(moments, partitions or (0,)):
            n, at = next(self.numbers), moment + timedelta(microseconds=123)
            key, timestamp = b"k%d" % (n % 3), moment + timedelta(hours=30 if by_value else 0)
            value = f'{{"n": {n}, "at": "{at.isoformat()}"}}'.encode()

            def delivered(error: Any, message: Any, n: int = n) -> None:
                assert error is None, error
                offsets[n] = message.offset()

            timestamp_ms = round(1000 * timestamp.timestamp())
            producer.produce(topic, value, key, partition, timestamp=timestamp_ms, on_delivery=delivered)
            time = at if by_value else timestamp
            rows.append(Row(time.astimezone(ZONE).date(), logs[0].topic_id, partition, -1, timestamp, time, key, n, at))
        assert producer.flush(60) == 0
        if kept is not None:
            producer.commit_transaction(60) if kept else producer.abort_transaction(60)
            ends = partial(watermarks, KafkaConnection.plain(bootstrap), logs)
            wait_until(lambda: ends() == ends(committed=False), "the marker is written")
        if kept is not False:
            self.produced += [row._replace(offset=offsets[row.n]) for row in rows]

    def forget(self, *offsets: int) -> None:
        """Records of partition 0 that nobody has any more."""
        self.produced = [row for row in self.produced if row.partition != 0 or row.offset not in offsets]

    def compacted_to(self, left: range) -> None:
        wait_until(lambda: [*consumed(self.settings, self.stream.topic)] == [*left], "the broker compacts", 240)

    def archive(self, **changes: Any) -> None:
        """The stream until everything there is is archived, with other settings where given."""
        stream = self.stream.model_copy(update={"archive": self.stream.archive.model_copy(update=changes)})
        archive(self.spark, stream, self.settings, available_now=True)

    def reconcile(self, *days: date, accept_loss: bool = False) -> Run:
        """A run of the days from its plan to its seals. What it stages, and then readers see, is what was produced."""
        run = Run.open(self.stream.name, "run-1", self.settings)
        plan_run(run, days, False)
        refill_run(run, self.spark)
        finalize_plan_run(run)
        rebuild_run(run, self.spark)
        expected = sorted(row for row in self.produced if row.day in days)
        assert {row.day for row in expected} == set(days)
        assert self.read(f"audit_{run.name}") == expected
        pass_audit(run, self.spark)
        publish_run(run, self.spark)
        seal_run(run)
        assert self.read("main") == expected
        found = [verify_day(self.settings, self.stream.name, day) for day in days]
        assert [(item.verdict, item.lost > 0) for item in found] == [("proven", accept_loss)] * len(days)
        return run

    def read(self, branch: str) -> list[Row]:
        """The published table's rows on a branch, as a reader without Spark has them."""
        with another_catalog(self.settings) as catalog:
            table = catalog.load_table((self.settings.namespace, self.stream.table))
            rows = table.scan(snapshot_id=table.refs()[branch].snapshot_id).to_arrow().to_pylist()
        return sorted(Row(*(row[name] for name in COLUMNS)) for row in rows)


def refilled(run: Run) -> list[tuple[int, int, int]]:
    """Partition, start and end of what the run fetched from Kafka."""
    return sorted((item.log.partition, item.range.start, item.range.end) for item in run.require(REFILL).ranges)


@pytest.fixture
def make_world(spark: SparkSession, settings: Settings, make_stream: MakeStream) -> MakeWorld:
    def make(partitions: int = 1, **overrides: Any) -> World:
        wanted = {"time_zone": str(ZONE), "value_schema": "n BIGINT, at TIMESTAMP", "transform": TRANSFORM}
        return World(spark=spark, settings=settings, stream=make_stream(partitions=partitions, **wanted, **overrides))

    return make


@pytest.mark.parametrize(
    "put_back", [pytest.param(False, marks=pytest.mark.soak), True], ids=["lost", "put back and then lost"]
)
def test_after_a_checkpoint_was_lost_or_put_back(make_world: MakeWorld, store: ObjectStore, put_back: bool) -> None:
    by_value = {"extractor": "record_field", "field": "$.at"}
    world = make_world(2, archive={"max_offsets_per_trigger": 40}, event_time=by_value)
    oracle = world.oracle
    world.produce(hours(MONDAY, -6, 20), 0, 1)
    world.archive()
    old = {key: oracle.body(key) for key in oracle.keys("checkpoints")}
    world.produce(hours(MONDAY, 20, 28), 0, 1)
    world.archive()
    once = oracle.archive().ranges

    def restore() -> None:
        oracle.delete("checkpoints")
        for key, body in old.items():
            store.put(key, body)

    if put_back:
        restore()
        world.archive()  # Spark plans the very same batch again
        assert oracle.archive().ranges == once
        restore()
        world.produce(hours(MONDAY, 12, 14))
        with pytest.raises(ConflictError, match="a batch is committed with other ranges"):
            world.archive()
    assert oracle.delete("checkpoints") > 0  # as that error's hint says
    world.produce(hours(TUESDAY, 4, 26))
    world.archive(max_offsets_per_trigger=70)

    assert all(item.overlaps for item in final_plan(world.reconcile(MONDAY, TUESDAY)).logs)
    assert len({item["writer"] for item in oracle.archive().manifests}) == 2


def test_of_a_day_in_whose_middle_the_topic_got_more_partitions(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(hours(MONDAY, -3, 12))
    world.archive()
    grow(world.settings, world.stream.topic, 4)  # one of which nobody writes to
    world.produce(hours(MONDAY, 12, 20), 0, 1)
    world.archive()
    world.produce(hours(MONDAY, 18, 27), 0, 1, 3)
    assert refilled(world.reconcile(MONDAY)) == [(0, 23, 29), (1, 8, 14), (3, 0, 6)]


def test_a_day_in_whose_middle_the_topic_was_recreated(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(hours(MONDAY, -3, 12))
    world.archive()
    recreate_topic(world.settings, world.stream.topic)
    world.produce(hours(MONDAY, 11, 20))
    assert world.oracle.delete("checkpoints") > 0
    world.archive()
    world.produce(hours(MONDAY, 20, 27))
    assert refilled(world.reconcile(MONDAY)) == [(0, 9, 13)]
    assert sorted(Counter(row.topic_id for row in world.read("main")).values()) == [12, 13]


@pytest.mark.usefixtures("_eager_cleaner")
@pytest.mark.parametrize("lost", [pytest.param(False, marks=pytest.mark.soak), True], ids=["kept", "lost"])
def test_of_a_compacted_topic_all_that_archive_or_kafka_still_had(
    make_world: MakeWorld, make_topic: MakeTopic, lost: bool
) -> None:
    eager = {"segment_ms": "1000", "min_cleanable_dirty_ratio": "0.001", "delete_retention_ms": "0"}
    world = make_world(topic=make_topic(1, cleanup_policy="compact", **eager), archive={"max_offsets_per_trigger": 7})
    # By record time a segment lasts a second, so that each hour's records are one; the newest is never compacted.
    (nine, ten, eleven, noon, one) = hours(MONDAY, 9, 14)

    world.produce([nine] * 20)
    world.archive()
    world.produce([ten] * 10)
    world.produce([eleven] * 5)
    world.compacted_to(range(27, 35))  # the last of each of three keys, and the newest segment
    if lost:
        assert world.oracle.delete("checkpoints") > 0
    world.archive()
    world.produce([noon] * 6)
    world.produce([one] * 4)
    world.compacted_to(range(38, 45))
    world.forget(*range(20, 27), *range(35, 38))
    run = world.reconcile(MONDAY)
    assert refilled(run) == [(0, 35, 45)]
    assert [row.offset for row in world.read("main")] == [*range(20), *range(27, 35), *range(38, 45)]
    (log,) = final_plan(run).logs
    assert (sum(item.missing for item in log.holes), {item.cause for item in log.holes}) == (10, {"compacted"})


@pytest.mark.parametrize("offsets", [4, pytest.param(13, marks=pytest.mark.soak)])
def test_of_a_topic_with_aborted_transactions(make_world: MakeWorld, offsets: int) -> None:
    world = make_world(archive={"max_offsets_per_trigger": offsets})
    # 0-2 aborted, 3 marker | 4-7 kept, 8 marker | 9-10 aborted, 11 marker | 12-14 kept, 15 marker | 16-20 aborted,
    # 21 marker | 22-23 kept, 24 marker | 25-26 aborted, 27 marker | 28-30 kept without a transaction
    for number, kept in ((3, False), (4, True), (2, False), (3, True), (5, False), (2, True), (2, False), (3, None)):
        world.produce(hours(MONDAY, 22, 22 + number, 1), kept=kept)
    world.archive()
    run = world.reconcile(MONDAY, TUESDAY)
    assert [row.offset for row in world.read("main")] == [4, 5, 12, 13, 22, 23, 28, 29, 6, 7, 14, 30]
    assert sum(item.missing for item in final_plan(run).logs[0].holes) == 19


@pytest.mark.parametrize("on_loss", [pytest.param("stop", marks=pytest.mark.soak), "continue"])
def test_of_a_day_with_an_accepted_loss_all_that_retention_left(make_world: MakeWorld, on_loss: str) -> None:
    world = make_world(archive={"on_loss": on_loss}, batch={"accept_loss": True})
    world.produce(hours(MONDAY, -3, 7))
    world.archive()
    world.produce(hours(MONDAY, 7, 27))
    expire(world.settings, world.stream.topic, 15)
    world.forget(*range(10, 15))
    refused = pytest.raises(IncompleteError, match=r"so \[10, 15\) is lost")
    with refused if on_loss == "stop" else nullcontext():
        world.archive()
    run = world.reconcile(MONDAY, accept_loss=True)
    assert [row.offset for row in world.read("main")] == [*range(3, 10), *range(15, 27)]
    (seal,) = latest_seals(run.store, run.layout)
    assert [(gap.kind, gap.range.start, gap.range.end) for item in seal.logs for gap in item.gaps] == [("lost", 10, 15)]


def test_of_a_day_of_25_hours_that_kafka_ends(make_world: MakeWorld) -> None:
    world = make_world(2, archive={"partitioner": {"type": "time", "path_format": "yyyy-MM-dd-HH"}, "flush_size": 3})
    day, instant = date(2013, 11, 3), timedelta(milliseconds=1)
    (start, end) = (hours(day, hour, hour + 1)[0] for hour in (0, 25))
    early = [*hours(day, -2, 0, 0.5), start - instant, *hours(day, 0, 2.5, 0.5)]  # into the hour that comes twice
    rest = [*hours(day, 2.5, 25, 0.5), end - instant, end, *hours(day, 25.5, 28, 0.5)]
    world.produce(early, 0, 1)
    world.archive()
    world.produce(early[-2:], 1)  # the second partition's target is its own
    world.produce(rest, 0, 1)
    # Kafka is asked where the day ends: nothing after that is fetched.
    assert refilled(world.reconcile(day)) == [(0, 10, 56), (1, 10, 58)]
    timestamps = [row.timestamp for row in world.read("main")]
    assert sorted(timestamps) == sorted([*2 * [*hours(day, 0, 25, 0.5), end - instant], *early[-2:]])
