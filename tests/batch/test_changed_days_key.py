"""A key that decides days changes between two copies of the same offsets, on the real stack, from Kafka to readers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.archive.oracle import Oracle
from tests.batch.logs import TUESDAY, ZONE
from tests.batch.steps import pass_audit
from tests.catalog import another_catalog
from tests.conftest import MakeStream, Produce
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import ConflictError
from tidemark.definitions.stream import Stream
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.reconcile.results import PLAN
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.verify.day import verify_day
from tidemark.verify.day_copies import verify_stream

pytestmark = pytest.mark.conformance(68)

THURSDAY = TUESDAY + timedelta(days=2)


@dataclass(slots=True, kw_only=True)
class World:
    """A stream with its event time from a field: ten records that Kafka got on Tuesday, five of them of Thursday."""

    spark: SparkSession
    settings: Settings
    make: MakeStream
    stream: Stream
    runs: int = 0
    wanted: dict[str, Any] = field(default_factory=dict)

    def change(self, max_distance_days: int) -> None:
        """The definition gets another key."""
        time = {**self.wanted["event_time"], "max_distance_days": max_distance_days}
        self.stream = self.make(**{**self.wanted, "event_time": time})

    def archive(self) -> None:
        archive(self.spark, self.stream, self.settings, available_now=True)

    def reconcile(self, *days: date, reassign: bool = False) -> Run:
        self.runs += 1
        run = Run.open(self.stream.name, f"run-{self.runs}", self.settings)
        plan_run(run, days, False, reassign_days=reassign)
        if run.require(PLAN).refill:
            refill_run(run, self.spark)
        finalize_plan_run(run)
        rebuild_run(run, self.spark)
        pass_audit(run, self.spark)
        publish_run(run, self.spark)
        seal_run(run)
        return run

    def published(self) -> list[tuple[int, date]]:
        """Offset and day of every row that readers see."""
        with another_catalog(self.settings) as catalog:
            table = catalog.load_table((self.settings.namespace, self.stream.table))
            rows = table.scan(selected_fields=("_offset", "_day")).to_arrow().to_pylist()
        return sorted((row["_offset"], row["_day"]) for row in rows)

    def proven(self, *days: date) -> bool:
        """Whether all days together are proven, and each of them for itself."""
        one = [verify_day(self.settings, self.stream.name, day).verdict for day in days]
        return {verify_stream(self.settings, self.stream.name).verdict, *one} == {"proven"}


@pytest.fixture
def world(spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce) -> World:
    wanted: dict[str, Any] = {
        "time_zone": str(ZONE),
        "value_schema": "n BIGINT, at TIMESTAMP",
        "transform": "def transform(records):\n    return records.select('source', 'event_time', 'event.*')\n",
        "event_time": {"extractor": "record_field", "field": "$.at", "max_distance_days": 1},
    }
    stream = make_stream(**wanted)
    noon = datetime(TUESDAY.year, TUESDAY.month, TUESDAY.day, 12, tzinfo=ZONE).astimezone(UTC)
    moments = [noon + timedelta(days=2 * (number >= 5)) for number in range(10)]
    produce(
        stream.topic,
        [
            (b"k", f'{{"n": {number}, "at": "{moment.isoformat()}"}}'.encode(), int(noon.timestamp() * 1000), 0, [])
            for number, moment in enumerate(moments)
        ],
    )
    fixed = {"name": stream.name, "topic": stream.topic, "speed": stream.speed.model_dump(exclude_none=True)}
    return World(spark=spark, settings=settings, make=make_stream, stream=stream, wanted={**wanted, **fixed})


ALL_ON_TUESDAY = [(offset, TUESDAY) for offset in range(10)]
FIVE_ON_EACH = [(offset, TUESDAY if offset < 5 else THURSDAY) for offset in range(10)]


@pytest.mark.parametrize(
    ("keys", "first", "then"),
    [((1, 30), ALL_ON_TUESDAY, FIVE_ON_EACH), ((30, 1), FIVE_ON_EACH, ALL_ON_TUESDAY)],
    ids=["a larger distance", "a smaller distance"],
)
def test_each_record_stays_in_one_day_though_the_stream_archives_what_a_run_refilled_with_another_key(
    world: World, keys: tuple[int, int], first: Sequence[tuple[int, date]], then: Sequence[tuple[int, date]]
) -> None:
    world.change(keys[0])
    world.reconcile(TUESDAY)  # the archive is down: the run refills
    assert world.published() == [row for row in first if row[1] == TUESDAY]
    assert verify_stream(world.settings, world.stream.name).verdict == "proven"
    world.change(keys[1])
    world.archive()  # it returns, and archives the same offsets again
    with pytest.raises(ConflictError, match=r"5 records of .* the first at offset 5"):
        world.reconcile(THURSDAY)
    assert world.published() == [row for row in first if row[1] == TUESDAY]
    moved = world.reconcile(THURSDAY, reassign=True)
    assert {item.day for item in moved.require(PLAN).plan.days} == {TUESDAY, THURSDAY}
    assert world.published() == then
    assert world.proven(TUESDAY, THURSDAY)
    world.change(400)
    quiet = Run.open(world.stream.name, "quiet", world.settings)
    assert plan_run(quiet, [TUESDAY, THURSDAY], False).days == ()


def test_a_lost_checkpoint_after_a_changed_key_is_refused_and_one_before_is_not(world: World) -> None:
    world.archive()
    world.reconcile(TUESDAY)
    _lose_checkpoint(world)
    world.archive()  # the same key: the copies agree
    same = plan_run(Run.open(world.stream.name, "same", world.settings), [THURSDAY], False)
    assert [(item.day, item.archived_rows) for item in same.days] == [(THURSDAY, 0)]
    assert world.proven(TUESDAY)
    _lose_checkpoint(world)
    world.change(30)
    world.archive()
    with pytest.raises(ConflictError, match=r"5 records of .* in several sealed days"):
        world.reconcile(THURSDAY)
    world.reconcile(THURSDAY, reassign=True)
    assert world.published() == FIVE_ON_EACH
    assert world.proven(TUESDAY, THURSDAY)


def test_a_live_checkpoint_archives_no_second_copy_and_a_changed_key_counts_from_then_on(
    world: World, produce: Produce
) -> None:
    world.archive()
    world.reconcile(TUESDAY)
    world.change(30)
    produce(world.stream.topic, [(b"k", *_thursday(), 0, [])])
    world.archive()
    world.reconcile(THURSDAY)
    assert world.published() == [*ALL_ON_TUESDAY, (10, THURSDAY)]
    assert world.proven(TUESDAY, THURSDAY)


def _thursday() -> tuple[bytes, int]:
    noon = datetime(TUESDAY.year, TUESDAY.month, TUESDAY.day, 12, tzinfo=ZONE)
    return f'{{"n": 10, "at": "{(noon + timedelta(days=2)).isoformat()}"}}'.encode(), int(noon.timestamp() * 1000)


def _lose_checkpoint(world: World) -> None:
    assert Oracle(world.settings, world.stream.name).delete("checkpoints") > 0
