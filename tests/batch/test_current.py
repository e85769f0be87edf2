"""The current view while days are published, rebuilt, rolled back, emptied: each archived record is in it once."""

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.batch.steps import pass_audit
from tests.batch.world import TRANSFORM, World, january, moment, value
from tests.conftest import TRANSFORM as PLAIN
from tests.faults import FaultProxy, Rule
from tidemark.core.errors import ConfigError, IncompleteError, ServiceError
from tidemark.core.offsets import OffsetRange
from tidemark.core.seal import Difference
from tidemark.current_view.day_states import StoredDays, _shown
from tidemark.current_view.frame import current, frame
from tidemark.current_view.view import View, pin
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.results import PUBLISH
from tidemark.reconcile.rollback import rollback_day
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.seals import latest_seals
from tidemark.tables.snapshots import main_history

COLUMNS = ["_day", "_topic_id", "_kafka_partition", "_offset", "_timestamp", "_event_time", "id", "name", "delay"]


@pytest.fixture
def world(spark: SparkSession, settings: Settings, tmp_path: Path) -> World:
    """Three days in two partitions, each with a broken and a rejected record, archived in overlapping ranges."""
    world = World.make(spark, settings, tmp_path)
    for partition in (0, 1):
        for day in (14, 15, 16):
            good = [(moment(day), value(number)) for number in range(8)]
            world.produce([*good, (moment(day), b"broken"), (moment(day), value(8, "refused"))], partition=partition)
    for start, end, writer in ((0, 12, "a"), (5, 20, "b"), (12, 30, "a"), (12, 18, "b")):
        world.archive(start, end, writer=writer)
    world.archive(0, 30, partition=1)
    return world


def pinned(world: World) -> View:
    """The view of everything archived so far; the quick status of days sees the same."""
    run = world.run("archive")
    for item in world.manifests:
        run.store.put_if_absent(run.layout.manifest_key(item.writer, item.batch), item.to_json())
    view = pin(world.settings, world.name)
    stored = StoredDays.read(world.settings, run.store, view.stream)
    assert stored.history == main_history(view.table)
    plan, not_ours = _shown(world.settings, view.stream, stored)
    assert (plan.archive_parts, not_ours) == (view.plan.archive_parts, view.days_not_ours)
    return view


def rows(found: DataFrame) -> list[tuple[Any, ...]]:
    """In the form of ``World.expected_rows``."""
    times = ("unix_micros(_timestamp)", "unix_micros(_event_time)")
    taken = found.selectExpr(*COLUMNS[:4], *times, *COLUMNS[6:]).collect()
    return sorted((tuple(row) for row in taken), key=lambda row: row[:4])


def archived(world: World) -> list[tuple[Any, ...]]:
    """The oracle: every good record in any committed range, once."""
    held = {
        (item.log.topic_id, item.log.partition, offset)
        for manifest in world.manifests
        for item in manifest.ranges
        for offset in range(item.range.start, item.range.end)
    }
    return [row for row in world.expected_rows(*{item.day for item in world.records}) if row[1:4] in held]


def staged(world: World, name: str, *days: int) -> Run:
    """A run over everything so far, up to its audit, which is not tested here."""
    run = world.run(name)
    seals = latest_seals(run.store, run.layout)
    world.plan(name, [january(day) for day in days], seals=seals, force=True)
    world.rebuild(run)
    pass_audit(run, world.spark)
    return run


def publish(world: World, name: str, *days: int) -> Run:
    run = staged(world, name, *days)
    publish_run(run, world.spark)
    return run


def from_archive(view: View) -> dict[int, list[tuple[int, Sequence[OffsetRange]]]]:
    """Day of January → partitions and offsets that come from the archive."""
    found: dict[int, list[tuple[int, Sequence[OffsetRange]]]] = {}
    for part in view.plan.archive_parts:
        found.setdefault(part.day.day, []).append((part.log.partition, part.ranges))
    return found


def span(start: int, end: int) -> tuple[OffsetRange, ...]:
    return (OffsetRange(start=start, end=end),)


@pytest.mark.conformance(26)
def test_every_record_is_in_the_view_once_after_publish_rebuild_and_rollback(world: World) -> None:
    # Nothing is published: everything comes from the archive.
    before = frame(world.spark, pinned(world))
    assert rows(before) == archived(world)
    assert before.columns == COLUMNS

    # One day is published and not sealed yet; then late records of it arrive.
    first = publish(world, "first", 14)
    assert from_archive(pinned(world)).keys() == {15, 16}
    seal_run(first)
    world.produce([(moment(14, 5), value(20)), (moment(17), value(21)), (moment(15), value(22))])
    world.archive(28, 33, writer="late")
    view = pinned(world)
    assert from_archive(view)[14] == [(0, span(30, 31))]
    found = frame(world.spark, view)
    assert rows(found) == archived(world)
    assert found.schema == world.spark.table(world.table).schema

    # A staged rebuild changes nothing. Its publication and new archived records do not change a pinned view.
    second = staged(world, "second", 14, 15)
    view, then = pinned(world), archived(world)
    publish_run(second, world.spark)
    seal_run(second)
    world.produce([(moment(14), value(30)), (moment(18), value(31))], partition=1)
    world.archive(30, 32, partition=1, writer="later")
    now = pinned(world)
    assert from_archive(now).keys() == {14, 16, 17, 18}
    assert from_archive(now)[14] == [(1, span(30, 31))]
    assert rows(frame(world.spark, view)) == then
    assert rows(current(world.spark, world.settings, world.name)) == archived(world)

    # Rolled back: the first version's rows, and from the archive what that version had not read.
    rollback_day(world.run("back"), world.spark, day=january(14), version=1)
    view = pinned(world)
    assert from_archive(view).keys() == {14, 16, 17, 18}
    assert from_archive(view)[14] == [(0, span(30, 31)), (1, span(30, 31))]
    assert rows(frame(world.spark, view)) == archived(world)


@pytest.mark.conformance(26)
def test_an_emptied_day_an_expired_snapshot_or_another_writer_loses_nothing(world: World) -> None:
    first = publish(world, "first", 14, 15)
    seal_run(first)
    seal_run(publish(world, "second", 16))
    # Without the snapshot's summary, the seal describes the day; without both, the day comes from the archive.
    table = IcebergTable(world.spark, world.settings, world.name)._load()
    table.expireSnapshots().expireSnapshotId(first.require(PUBLISH).snapshot_id).commit()
    view = pinned(world)
    assert (view.days_not_ours, view.plan.archive_parts) == ((), ())
    assert rows(frame(world.spark, view)) == archived(world)
    first.store.delete(first.layout.seal_key(january(15), 1))
    world.spark.sql(f"DELETE FROM {world.table} WHERE _offset = 21")
    view = pinned(world)
    assert view.days_not_ours == (january(15), january(16))
    assert from_archive(view).keys() == {15, 16}
    assert rows(frame(world.spark, view)) == archived(world)

    refused = """F.expr("event.name = 'refused' OR day(event_time) = 14")"""
    code = TRANSFORM.replace('F.col("event.name") == "refused"', refused)
    (world.settings.streams_dir / f"{world.name}.py").write_text(code, encoding="utf-8")
    publish(world, "third", 14, 15, 16)
    assert {row[0] for row in world.published()} == {january(15), january(16)}
    assert rows(frame(world.spark, pinned(world))) == [row for row in archived(world) if row[0] != january(14)]


@pytest.mark.conformance(26)
def test_a_day_with_deleted_rows_comes_from_the_archive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One day lost a row of a file, the other one a file of several."""
    monkeypatch.setattr("tidemark.reconcile.rebuild.step.ROWS_PER_TASK", 5)
    seal_run(publish(world, "first", 14, 15, 16))
    world.spark.sql(f"ALTER TABLE {world.table} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    world.spark.sql(f"DELETE FROM {world.table} WHERE _day = DATE'2013-01-14' AND _offset = 3")
    view = pinned(world)
    assert view.days_not_ours == (january(14),)
    table = IcebergTable(world.spark, world.settings, world.name)._load()
    own = table.snapshot(table.currentSnapshot().parentId())
    files = [item for item in own.addedDataFiles(table.io()) if "01-15" in item.location()]
    assert len(files) > 1
    change = table.newDelete()
    change.deleteFile(files[0])
    change.commit()
    by_day = Counter(row[0] for row in world.published())
    assert by_day[january(14)] == 14  # one of each partition is missing
    assert 0 < by_day[january(15)] < 16 == by_day[january(16)]
    view = pinned(world)
    assert view.days_not_ours == (january(14), january(15))
    assert rows(frame(world.spark, view)) == archived(world)


@pytest.mark.conformance(26)
def test_the_better_of_two_copies_counts_and_a_recreated_topic_is_another_log(world: World) -> None:
    world.produce([(moment(17), value(number)) for number in range(6)], partition=2)
    everything = list(world.records)
    world.records = [item for item in everything if (item.log.partition, item.offset) not in {(2, 1), (2, 4)}]
    world.archive(0, 6, partition=2, writer="poor")
    publish(world, "first", 17)
    assert [row[3] for row in world.published()] == [0, 2, 3, 5]
    world.records = everything
    world.archive(1, 4, partition=2, writer="whole")
    view = pinned(world)
    assert from_archive(view)[17] == [(2, span(1, 4))]
    assert [row[3] for row in rows(frame(world.spark, view)) if row[2] == 2] == [0, 1, 2, 3, 5]
    world.topic_id = "topic-id-2"
    world.produce([(moment(17), value(number)) for number in range(4)], partition=2)
    world.archive(0, 3, partition=2, writer="again")
    found = [(row[1], row[3]) for row in rows(frame(world.spark, pinned(world))) if row[2] == 2]
    assert found == [("topic-id-1", at) for at in (0, 1, 2, 3, 5)] + [("topic-id-2", at) for at in (0, 1, 2)]


@pytest.mark.conformance(26)
def test_without_spark_a_pinned_view_reads_the_table_and_counts_unpublished_records(world: World) -> None:
    with pytest.raises(IncompleteError, match=f"nothing of the stream is published yet.*{world.name}"):
        pinned(world).published()
    publish(world, "first", 14)
    view, then = pinned(world), world.expected_rows(january(14))
    publish(world, "second", 14, 15)
    for moment_of, days in ((view, 1), (pinned(world), 2)):
        table = moment_of.published().select("_kafka_partition", "_offset", "id").to_arrow_batch_reader().read_all()
        assert table.num_rows == 2 * days * 8
    found = view.published().filter("_kafka_partition = 1").to_arrow_batch_reader().read_all()
    assert sorted(found["_offset"].to_pylist()) == [row[3] for row in then if row[2] == 1]
    published = view.published().to_arrow_batch_reader()  # noqa: F841  # DuckDB finds it by name
    counts = duckdb.execute("SELECT _kafka_partition, count(*), max(_offset) FROM published GROUP BY 1 ORDER BY 1")
    assert counts.fetchall() == [(number, 8, max(row[3] for row in then if row[2] == number)) for number in (0, 1)]
    assert [
        (item.log.partition, item.published_to, item.archived_to, item.unpublished_max, item.gaps)
        for item in view.plan.positions
    ] == [(0, 10, 30, 20, ()), (1, 10, 30, 20, ())]
    assert [(item.day, item.log.partition, item.records_max) for item in view.plan.archive_parts] == [
        (january(day), partition, 10) for day in (15, 16) for partition in (0, 1)
    ]
    check = "import sys, tidemark.current_view.view; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


@pytest.fixture(scope="module")
def sealed(spark: SparkSession, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A sealed day, and one that is not published."""
    world = World.make(spark, settings, tmp_path_factory.mktemp("sealed"))
    world.produce([(moment(14), value(0)), (moment(14), value(1)), (moment(15), value(2))])
    world.archive(0, 3)
    seal_run(publish(world, "first", 14))
    return world


@pytest.mark.parametrize("metadata", [r"\.metadata\.json", r"/snap-.*\.avro", r"-m0\.avro"])
def test_a_failing_read_of_the_tables_metadata_is_an_explained_error(sealed: World, metadata: str) -> None:
    with FaultProxy(str(sealed.settings.s3_endpoint)) as proxy:
        proxy.add(Rule(method="GET", pattern=metadata, times=1000, answer=(500, "InternalError")))
        settings = sealed.settings.model_copy(update={"s3_endpoint": proxy.url})
        with pytest.raises(
            ServiceError, match=rf"a table can't be read: .*AWS Error INTERNAL_FAILURE.*\[table {sealed.name}\]"
        ):
            pin(settings, sealed.name)


@pytest.mark.conformance(49)
def test_a_transformation_with_incompatible_columns_is_refused_with_both_sides(sealed: World) -> None:
    code = sealed.settings.streams_dir / f"{sealed.name}.py"
    before = code.read_text(encoding="utf-8")
    code.write_text(before.replace('"event.delay"', 'F.col("event.delay").cast("string").alias("delay")'))
    with pytest.raises(ConfigError, match=r"column delay: table double, definition string"):
        frame(sealed.spark, pinned(sealed))
    code.write_text(before)


def test_a_column_with_a_dot_in_its_name_works_in_every_step(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(
        spark,
        settings,
        tmp_path,
        transform=PLAIN,
        value_schema="id INT, `trip.at` STRING",
        deduplicate={"key": ["trip.at"]},
    )
    trips = [(14, "JFK"), (14, "LGA"), (14, "JFK"), (15, "EWR")]
    world.produce((moment(day), b'{"id":%d,"trip.at":"%s"}' % (n, at.encode())) for n, (day, at) in enumerate(trips))
    world.archive(0, 4)
    seal_run(world.reconcile("first", [january(14)]))
    # One row of the second version is new, the other one has an existing key.
    world.produce((moment(14, 13), b'{"id":%d,"trip.at":"%s"}' % (n, at)) for n, at in ((4, b"BOS"), (5, b"LGA")))
    world.archive(4, 6)
    run = world.run("second")
    world.plan("second", [january(14)], seals=latest_seals(run.store, run.layout))

    view = pinned(world)
    before = frame(spark, view)
    rebuilt = world.rebuild(run)
    audit_run(run, spark)
    publish_run(run, spark)

    every = [(14, 0, 0, "JFK"), (14, 1, 1, "LGA"), (14, 4, 4, "BOS"), (15, 3, 3, "EWR")]
    (difference,) = rebuilt.differences
    assert (difference.day, difference.rows) == (january(14), Difference(added=1, removed=0, changed=0))
    for found, expected in (
        (spark.table(world.table), every[:3]),
        (before, every),
        (frame(spark, pinned(world)), every),
    ):
        assert found.columns[6:] == ["id", "trip.at"]
        taken = found.selectExpr("day(_day)", "_offset", "id", "`trip.at`").collect()
        assert sorted(tuple(row) for row in taken) == expected


def test_a_session_in_another_time_zone_is_refused(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    world, key = World.make(spark, settings, tmp_path), "spark.sql.session.timeZone"
    assert current(spark, world.settings, world.name).columns == COLUMNS
    spark.conf.set(key, "America/New_York")
    try:
        with pytest.raises(ConfigError, match=rf"(?s)expected UTC, found America/New_York.*{key}.*from_utc_timestamp"):
            current(spark, world.settings, world.name)
    finally:
        spark.conf.set(key, "UTC")
