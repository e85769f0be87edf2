"""The rebuilt days against an oracle in plain Python: overlaps, seams, malformed rows, neighbours' rows, losses."""

import io
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.batch.world import TRANSFORM, World, january, moment, value
from tidemark.core.errors import ConfigError, FormatError, IncompleteError, QualityError
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.rebuild.step import write_layout
from tidemark.reconcile.results import AUDIT, PUBLISH, REBUILD, DayCounts, final_plan
from tidemark.settings import Settings
from tidemark.tables.iceberg import IcebergTable


@pytest.fixture
def world(spark: SparkSession, settings: Settings, tmp_path: Path) -> World:
    return World.make(spark, settings, tmp_path)


def two_days(world: World) -> None:
    """Two partitions over the 14th and 15th, archived in overlapping ranges that straddle midnight."""
    world.produce([(moment(14, 20), value(number)) for number in range(40)])
    world.produce([(moment(14, 21), value(50, "refused")), (moment(14, 21), b"{broken"), (moment(14, 21), None)])
    world.produce([(moment(15, 1), value(number, "naïve <b>")) for number in range(60, 80)])
    # A late record of the 14th among those of the 15th, and one of the day after.
    world.produce([(moment(14, 23, 59), value(90, "late")), (moment(16, 0), value(91)), (moment(15, 2), b"")])
    world.produce([(moment(15, 0, 0), value(number)) for number in range(30)], partition=1)
    world.archive(0, 25)
    world.archive(30, 50)
    world.archive(50, 66)
    world.archive(10, 45, writer="second")  # other boundaries, as after a lost checkpoint: both seams are trimmed
    world.archive(55, 66, writer="third")
    world.archive(0, 30, partition=1)


def trimmed(world: World, *days: int) -> None:
    """A record of each day; the first five are archived by themselves, all but three once more by a second writer, so
    that its object is trimmed, as after a lost checkpoint."""
    world.produce([(moment(day, 13), value(number)) for number, day in enumerate(days)])
    world.archive(0, 5)
    world.archive(3, len(days), writer="second")


def counts(day: int, *, read: int, published: int, quarantined: int, trimmed: int) -> DayCounts:
    """Of a day without a key."""
    return DayCounts(
        day=january(day),
        read=read,
        published=published,
        quarantined=quarantined,
        duplicates_removed=0,
        duplicates_trimmed=trimmed,
    )


@pytest.mark.conformance(16)
def test_two_days_from_overlapping_ranges_equal_the_log_row_for_row(world: World) -> None:
    two_days(world)
    days = (january(14), january(15))
    run = world.reconcile("first", days)
    assert world.published() == world.expected_rows(*days)
    assert world.quarantined() == world.expected_quarantine(*days)
    assert run.require(REBUILD).days == (
        counts(14, read=44, published=41, quarantined=3, trimmed=29),
        counts(15, read=51, published=50, quarantined=1, trimmed=11),
    )


def test_only_the_planned_day_changes_though_its_files_hold_others(world: World) -> None:
    two_days(world)
    run = world.reconcile("first", [january(14)])
    assert world.published() == world.expected_rows(january(14))
    rebuilt = run.require(REBUILD)
    assert [item.day for item in rebuilt.days] == [january(14)]
    # The 14th's rows of partition 0; partition 1 has none of that day.
    assert [(item.log.partition, item.rows, item.offsets) for item in rebuilt.logs] == [(0, 44, 66), (1, 0, 30)]


def test_both_logs_of_a_recreated_topic_are_kept_apart(world: World) -> None:
    world.produce([(moment(14), value(number)) for number in range(5)])
    world.archive(0, 5)
    world.topic_id = "topic-id-2"
    world.produce([(moment(14), value(number, "new")) for number in range(8)])
    world.archive(0, 8, writer="again")
    run = world.reconcile("first", [january(14)])
    assert world.published() == world.expected_rows(january(14))
    assert [item.rows for item in run.require(REBUILD).logs] == [5, 8]


def test_an_object_in_a_folder_inside_another_one_is_read_once(world: World) -> None:
    world.produce([(moment(14), value(number)) for number in range(9)])
    world.archive(0, 3, folder="a")
    world.archive(3, 6, folder="a/stream/deeper")
    world.archive(6, 9, folder="odd name=é%20+")
    world.reconcile("first", [january(14)])
    assert world.published() == world.expected_rows(january(14))


def test_a_missing_object_stops_the_rebuild_and_is_named(world: World) -> None:
    world.produce([(moment(14), value(number)) for number in range(6)])
    world.archive(0, 3)
    key = world.archive(3, 6)
    run = world.plan("first", [january(14)])
    run.store.delete(key)
    with pytest.raises(IncompleteError, match=r"expected 2 objects, found 1; missing: .*\+00000000000000000003\+"):
        world.rebuild(run)


@pytest.mark.parametrize("damage", ["a byte of a page", "half of it is missing"])
def test_damage_of_a_parquet_object_stops_the_rebuild_and_it_is_named(world: World, damage: str) -> None:
    world.produce([(moment(14), value(number)) for number in range(6)])
    world.archive(0, 5)
    key = world.archive(5, 6)
    run = world.plan("first", [january(14)])
    good, body = run.store.get(key), io.BytesIO()
    assert good is not None
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(pq.read_table(io.BytesIO(good)), body, write_page_checksum=True, **plain)
    assert body.getvalue().count(value(5)) == 1
    bad = body.getvalue()[: len(body.getvalue()) // 2]
    if damage == "a byte of a page":
        bad = body.getvalue().replace(value(5), value(6))  # of the same length, and as good JSON
    run.store.put(key, bad)
    with pytest.raises(FormatError, match=rf"a file is damaged: .*{re.escape(key)}.* Restore it from a copy"):
        world.rebuild(run)


def test_an_object_with_fewer_rows_than_its_manifest_lists_stops_the_rebuild(world: World) -> None:
    world.produce([(moment(14), value(number)) for number in range(6)])
    world.archive(0, 3)
    key = world.archive(3, 6)
    run = world.plan("first", [january(14)])
    shorter = run.store.get(world.archive(3, 5, writer="other"))
    assert shorter is not None
    run.store.put(key, shorter)
    with pytest.raises(IncompleteError, match=r"expected 6 rows read, found 5 published .*'tidemark verify' shows"):
        world.rebuild(run)


@pytest.mark.conformance(21)
def test_an_object_with_rows_of_a_day_its_manifest_does_not_list_stops_the_rebuild(world: World) -> None:
    world.produce([(moment(14), value(number)) for number in range(6)])
    world.produce([(moment(15), value(number)) for number in range(6, 9)])
    world.archive(0, 3)
    key = world.archive(3, 6)
    later = world.archive(6, 9)
    run = world.plan("first", [january(14)])
    another = run.store.get(later)
    assert another is not None
    run.store.put(key, another)
    with pytest.raises(IncompleteError, match=r"rows of 2013-01-14, found rows of 2013-01-15.*'tidemark verify' shows"):
        world.rebuild(run)


@pytest.mark.conformance(21)
def test_rows_a_transformation_drops_are_noticed(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    dropping = TRANSFORM.replace("return records", "return records.where('event.id <> 2')")
    world = World.make(spark, settings, tmp_path, transform=dropping)
    world.produce([(moment(14), value(number)) for number in range(4)])
    world.archive(0, 4)
    run = world.plan("first", [january(14)])
    with pytest.raises(IncompleteError, match=r"expected 4 rows read, found 3 published \+ 0 quarantined"):
        world.rebuild(run)
    assert run.outcome(REBUILD) is not None


@pytest.mark.timeout(180)
@pytest.mark.parametrize("drop", ["where(F.lit(False))", "limit(1)"])
@pytest.mark.parametrize(
    ("days", "counted", "rows"),
    [
        pytest.param([13] * 5 + [14] * 3, False, 3, id="counted-by-the-manifest"),
        # The cut goes through the 14th, which has an offset of another day: no manifest has its row count.
        pytest.param([13] * 4 + [14, 12, 14, 14], True, 3, id="counted"),
    ],
)
@pytest.mark.conformance(21)
def test_rows_of_a_trimmed_object_that_spark_does_not_read_are_noticed(
    spark: SparkSession, settings: Settings, tmp_path: Path, drop: str, days: list[int], counted: bool, rows: int
) -> None:
    dropping = TRANSFORM.replace("return records", f"return records.{drop}")
    world = World.make(spark, settings, tmp_path, transform=dropping)
    trimmed(world, *days)
    run = world.plan("first", [january(14)])
    assert [not item.counted for item in final_plan(run).slices if not item.whole] == [counted]
    with pytest.raises(IncompleteError, match=rf"expected {rows} rows read, found [01] published \+ 0 quarantined"):
        world.rebuild(run)


@pytest.mark.timeout(180)
@pytest.mark.conformance(21)
def test_a_reject_that_is_never_null_quarantines_all_rows_of_a_trimmed_object_too(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    never_null = TRANSFORM.replace('.alias("reject")', '.otherwise("").alias("reject")')
    world = World.make(spark, settings, tmp_path, transform=never_null)
    trimmed(world, 14, 14, 14, 14, 14, 12, 14, 14, 14)
    run = world.plan("first", [january(14)])
    assert world.rebuild(run).days == (counts(14, read=8, published=0, quarantined=8, trimmed=2),)
    with pytest.raises(QualityError, match="observed every record of 2013-01-14 was quarantined"):
        audit_run(run, spark)


@pytest.mark.conformance(21)
def test_rows_a_transformation_moves_to_another_day_are_noticed(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    moving = TRANSFORM.replace('"event_time"', "(F.col('event_time') + F.expr('interval 3 days')).alias('event_time')")
    world = World.make(spark, settings, tmp_path, transform=moving)
    world.produce([(moment(14), value(1))])
    world.archive(0, 1)
    with pytest.raises(IncompleteError, match=r"expected rows of 2013-01-14, found rows of 2013-01-17"):
        world.rebuild(world.plan("first", [january(14)]))


@pytest.mark.conformance(49)
def test_a_transformation_that_changes_a_columns_type_is_refused_with_both_sides(world: World) -> None:
    world.produce([(moment(14), value(1))])
    world.archive(0, 1)
    world.reconcile("first", [january(14)])
    changed = TRANSFORM.replace('"event.delay"', 'F.col("event.delay").cast("string").alias("delay")')
    (world.settings.streams_dir / f"{world.name}.py").write_text(changed, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"column delay: table double, definition string"):
        world.rebuild(world.plan("second", [january(14)]))
    assert IcebergTable(world.spark, world.settings, world.name).branches() == {"main"}
    assert world.published() == world.expected_rows(january(14))


@pytest.mark.conformance(20)
def test_a_day_that_became_empty_is_emptied(world: World) -> None:
    world.produce([(moment(14), value(1)), (moment(14), b"broken"), (moment(15), value(2))])
    world.archive(0, 3)
    world.reconcile("first", [january(14), january(15)])
    # The same log as if its first records had never been of that day: what accepting a loss may leave.
    world.records, world.manifests = [], []
    world.produce([(moment(15), value(1)), (moment(15), value(1)), (moment(15), value(2))])
    world.archive(0, 3, writer="other")
    run = world.reconcile("second", [january(14)], audit=audit_run)
    assert [row[0] for row in world.published()] == [january(15)]
    assert world.quarantined() == []
    assert "empty on purpose" in str(run.require(AUDIT).note)


def test_a_run_without_days_stages_nothing(world: World) -> None:
    world.produce([(moment(14), value(1))])
    world.archive(0, 1)
    run = world.reconcile("first", [], audit=audit_run)
    assert run.require(REBUILD).branch is None
    assert (run.require(PUBLISH).snapshot_id, run.require(AUDIT).passed) == (None, True)


def test_a_repeated_rebuild_leaves_one_commit_on_the_branch(world: World) -> None:
    two_days(world)
    run = world.plan("first", [january(14)])
    once = world.rebuild(run)
    twice = world.rebuild(run)
    assert once.days == twice.days
    assert once.staged is not None
    assert twice.staged is not None
    assert once.staged.base == twice.staged.base
    staged = IcebergTable(world.spark, world.settings, world.name).read(str(twice.branch))
    assert staged.count() == len(world.expected_rows(january(14)))


@pytest.mark.parametrize(
    ("offsets", "days", "layout"),
    [(0, 1, (1, "none")), (500_001, 2, (2, "none")), (20_000_000, 1, (40, "none")), (20_000_000, 2, (40, "hash"))],
)
def test_files_stay_few_without_a_shuffle_or_with_one(offsets: int, days: int, layout: tuple[int, str]) -> None:
    assert write_layout(offsets, days) == layout
