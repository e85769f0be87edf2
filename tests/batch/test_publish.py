"""Publication: once per run, neighbours at once, never over a day that moved, readable by others."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.batch.steps import pass_audit
from tests.batch.world import World, january, moment, value
from tidemark.core.errors import ConflictError
from tidemark.core.offsets import TopicPartition
from tidemark.inspect.locate import RecordStatus, record_status
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.lease import release, take
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.results import PUBLISH
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.tables.columns import QUARANTINE_SCHEMA
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.seals import day_seals, latest_seals


@pytest.fixture
def world(spark: SparkSession, settings: Settings, tmp_path: Path) -> World:
    """Three days, ten good records each and one broken one."""
    return three_days(World.make(spark, settings, tmp_path))


def three_days(world: World) -> World:
    for day in (14, 15, 16):
        world.produce([*((moment(day), value(number)) for number in range(10)), (moment(day), b"broken")])
    world.archive(0, 33)
    return world


def staged(world: World, name: str, *days: int) -> Run:
    run = world.plan(name, [january(day) for day in days])
    rebuild_run(run, world.spark)
    pass_audit(run, world.spark)
    return run


def runs_published(world: World) -> list[str | None]:
    """The runs in main's history, oldest first, without the empty first snapshot."""
    history = IcebergTable(world.spark, world.settings, world.name).history()
    return [item["summary"].get("tidemark.run") for item in reversed(history)][1:]


@pytest.mark.conformance(17)
def test_every_step_retried_changes_nothing(world: World) -> None:
    run = staged(world, "first", 14)
    publish_run(run, world.spark)
    first = run.require(PUBLISH)
    rows = world.published()
    for step in (publish_run, rebuild_run, audit_run, publish_run):
        step(run, world.spark)
    repeated = run.require(PUBLISH)
    assert (first.already, repeated.already) == (False, True)
    assert repeated.snapshot_id == first.snapshot_id
    assert repeated.quarantine_snapshot_id == first.quarantine_snapshot_id
    assert world.published() == rows == world.expected_rows(january(14))
    assert runs_published(world) == ["first"]
    for name in (world.name, f"{world.name}_quarantine"):
        assert IcebergTable(world.spark, world.settings, name).branches() == {"main"}


@pytest.mark.conformance(18)
def test_first_rebuilds_at_once_share_one_table(spark: SparkSession, settings: Settings) -> None:
    class Together(IcebergTable):
        """None creates the table before all have seen that it is not there."""

        waited = False

        def _create(self, schema: StructType) -> None:
            if not self.waited:  # at a second attempt nobody else comes
                self.waited = True
                all_looked.wait(300)
            super()._create(schema)

    runs = 4
    all_looked = Barrier(runs)
    new = settings.model_copy(update={"namespace": f"new_{uuid4().hex[:8]}"})
    with ThreadPoolExecutor(runs) as pool:
        tables = [Together(spark, new, "together") for _ in range(runs)]
        assert list(pool.map(lambda table: table.ensure(QUARANTINE_SCHEMA, {}), tables)) == [()] * runs
    assert len(IcebergTable(spark, new, "together").history()) == 1


@pytest.fixture(scope="module")
def sealed(spark: SparkSession, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Run]:
    """The first two days of such a world, published and sealed. Tests only read it."""
    world = three_days(World.make(spark, settings, tmp_path_factory.mktemp("sealed")))
    run = world.reconcile("first", [january(14), january(15)])
    seal_run(run)
    return world, run


def test_the_snapshot_says_what_it_was_made_from(sealed: tuple[World, Run]) -> None:
    world, run = sealed
    newest = IcebergTable(world.spark, world.settings, world.name).history()[0]
    assert newest["id"] == run.require(PUBLISH).snapshot_id
    summary = newest["summary"]
    assert summary["tidemark.run"] == "first"
    assert json.loads(summary["tidemark.days"]) == ["2013-01-14", "2013-01-15"]
    assert json.loads(summary["tidemark.versions"]) == {"2013-01-14": 1, "2013-01-15": 1}
    assert json.loads(summary["tidemark.ranges"]) == {f"topic-id-1/{world.name}-0": [[0, 33]]}


def test_a_record_stands_where_the_snapshots_of_its_seal_have_it(sealed: tuple[World, Run]) -> None:
    world, run = sealed
    seal = day_seals(run.store, run.layout, january(14))[0]
    log = TopicPartition(topic=world.name, topic_id="topic-id-1", partition=0)

    def found(offset: int) -> RecordStatus | None:
        return record_status(world.settings, run.stream, seal, log, offset)

    assert found(9) == ("published", None)
    assert found(10) == ("quarantined", "the value is not one JSON object")
    assert found(11) is None  # of the next day


def test_another_process_reads_whole_days_with_pyiceberg(sealed: tuple[World, Run]) -> None:
    world, _ = sealed
    with world.table_of_another_reader() as table:
        rows = table.scan().to_arrow().to_pylist()
    found = sorted((row["_offset"], row["id"], row["name"]) for row in rows)
    assert found == [(start + at, at, "ROW") for start in (0, 11) for at in range(10)]


def test_a_run_planned_before_another_published_is_refused_even_if_it_rebuilt_after(world: World) -> None:
    stale = world.plan("stale", [january(14)])
    world.reconcile("newer", [january(14)])
    rebuild_run(stale, world.spark)
    pass_audit(stale, world.spark)
    with pytest.raises(ConflictError, match=r"run newer published 2013-01-14 since.*trigger the DAG reconcile_"):
        publish_run(stale, world.spark)
    assert runs_published(world) == ["newer"]


def test_a_plan_finalized_again_after_the_rebuild_is_neither_published_nor_sealed(world: World) -> None:
    run = staged(world, "first", 14)
    world.produce([(moment(14), value(99))])
    world.archive(33, 34)
    world.plan("first", [january(14)])
    for step in (lambda: publish_run(run, world.spark), lambda: seal_run(run)):
        with pytest.raises(ConflictError, match="finalized again after the rebuild"):
            step()
    assert runs_published(world) == []


def test_a_run_publishes_again_after_its_transformation_is_repaired_or_reverted(world: World) -> None:
    run = staged(world, "first", 14)
    publish_run(run, world.spark)
    code = world.settings.streams_dir / f"{world.name}.py"
    good = code.read_text(encoding="utf-8")
    for number, text in enumerate((good + "\n# mended\n", good), start=2):
        code.write_text(text, encoding="utf-8")
        for step in (rebuild_run, pass_audit):
            step(run, world.spark)
        with pytest.raises(ConflictError, match="rebuilt after it had published"):
            seal_run(run)
        publish_run(run, world.spark)
        assert run.require(PUBLISH).already is False
        assert runs_published(world) == ["first"] * number
    assert world.published() == world.expected_rows(january(14))
    (seal,) = seal_run(run)
    assert seal.snapshot_id == run.require(PUBLISH).snapshot_id


@pytest.mark.conformance(17)
def test_a_run_that_has_sealed_a_day_publishes_no_other_rows_under_that_seal(world: World) -> None:
    run = world.reconcile("first", [january(14)])
    (seal,) = seal_run(run)
    for step in (rebuild_run, pass_audit, publish_run):  # cleared in the scheduler
        step(run, world.spark)
    assert run.require(PUBLISH).already is True
    code = world.settings.streams_dir / f"{world.name}.py"
    code.write_text(code.read_text(encoding="utf-8") + "\n# repaired\n", encoding="utf-8")
    for step in (rebuild_run, pass_audit):
        step(run, world.spark)
    with pytest.raises(ConflictError, match=f"sealed the day already, .* of snapshot {seal.snapshot_id}, found inputs"):
        publish_run(run, world.spark)
    assert runs_published(world) == ["first"]


def test_a_run_does_not_seal_a_day_that_another_run_has_published_since(world: World) -> None:
    late = staged(world, "late", 14, 15)
    publish_run(late, world.spark)
    other = world.reconcile("other", [january(14)])
    refused = r"expected snapshot \d+ of run late, found snapshot \d+ of run other .*2013-01-14.*trigger the DAG"
    with pytest.raises(ConflictError, match=refused):
        seal_run(late)
    assert latest_seals(late.store, late.layout) == ()
    seal_run(other)
    new = world.reconcile("new", [january(15)])
    seal_run(new)
    sealed = [(item.day, item.run) for item in latest_seals(new.store, new.layout)]
    assert sealed == [(january(14), "other"), (january(15), "new")]


def test_a_run_that_lost_the_streams_lease_publishes_nothing(world: World) -> None:
    run, other = staged(world, "zombie", 14), world.run("other")
    assert take(other) is None
    with pytest.raises(ConflictError, match=r"another run of the stream is under way: expected .* found run other"):
        publish_run(run, world.spark)
    assert runs_published(world) == []
    release(other)
    publish_run(run, world.spark)
    assert runs_published(world) == ["zombie"]


@pytest.mark.conformance(18)
def test_neighbours_staged_and_published_at_once_both_succeed(world: World) -> None:
    world.reconcile("before", [january(14), january(15)])
    runs = [staged(world, "left", 14), staged(world, "middle", 15), staged(world, "right", 16)]
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(publish_run, run, world.spark) for run in runs]:
            done.result()
    days = [january(day) for day in (14, 15, 16)]
    assert world.published() == world.expected_rows(*days)
    assert world.quarantined() == world.expected_quarantine(*days)
    assert sorted(map(str, runs_published(world))) == ["before", "left", "middle", "right"]
    assert IcebergTable(world.spark, world.settings, world.name).branches() == {"main"}


@pytest.mark.conformance(18)
def test_a_day_that_moved_is_refused_until_the_plan_is_finalized_again(world: World) -> None:
    slow = staged(world, "slow", 14, 15)
    world.reconcile("fast", [january(15)])
    with pytest.raises(ConflictError, match=r"found run fast published 2013-01-15 since"):
        publish_run(slow, world.spark)
    assert world.published() == world.expected_rows(january(15))
    world.plan("slow", [january(14), january(15)])
    rebuild_run(slow, world.spark)
    pass_audit(slow, world.spark)
    publish_run(slow, world.spark)
    assert world.published() == world.expected_rows(january(14), january(15))


def test_another_writer_of_the_same_day_is_refused_by_iceberg(world: World) -> None:
    world.reconcile("first", [january(14)])
    run = staged(world, "second", 14)
    world.spark.sql(f"DELETE FROM {world.table} WHERE _offset = 3")
    with pytest.raises(ConflictError, match="Iceberg refused the commit"):
        publish_run(run, world.spark)
    assert len(world.published()) == 9
