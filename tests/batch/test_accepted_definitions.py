"""What ``tidemark streams`` accepts runs at night: random definitions, through the check and through a rebuilt day."""

from pathlib import Path
from random import Random

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.batch.definitions import Drawn, draw
from tests.batch.world import World, january, moment
from tests.spark.rows import kafka_rows
from tidemark.cli.streams import _check_stream
from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import load_stream
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.settings import Settings
from tidemark.spark.process import classify, load_transform
from tidemark.spark.records import records
from tidemark.speed.output import output
from tidemark.speed.record_limits import RecordLimits

SEED = 7301
DAY = january(14)


def world_with(spark: SparkSession, settings: Settings, folder: Path, drawn: Drawn, name: str) -> World:
    definition = {
        "name": name,
        "topic": name,
        "time_zone": "America/New_York",
        "speed": {"topic": f"{name}.live", "dead_letter_topic": f"{name}.dead"},
        **drawn.keys,
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(definition, allow_unicode=True), encoding="utf-8")
    if drawn.transform is not None:
        (folder / f"{name}.py").write_text(drawn.transform, encoding="utf-8")
    return World(spark=spark, settings=settings.model_copy(update={"streams_dir": folder}), name=name)


def problems(world: World) -> str:
    """What ``tidemark streams`` says of the definition; empty if it accepts it."""
    folder = world.settings.streams_dir
    try:
        stream = load_stream(world.name, folder)
        _, found = _check_stream(world.spark, stream, folder, None)
    except ConfigError as error:
        return str(error)
    return "" if isinstance(found, str) else "; ".join(map(str, found))


def live(world: World, value: bytes) -> None:
    """Classify and write the values as the speed layer does."""
    stream = load_stream(world.name, world.settings.streams_dir)
    source = records(kafka_rows(world.spark, [value, b"{}", b"broken"]), stream)
    rows = classify(source, stream, load_transform(stream, world.settings.streams_dir))
    made = output(rows, stream, "id", record_limits=RecordLimits(live=1_000_000, dead_letter=1_000_000))
    assert len(made.collect()) == 3


def run_night(world: World, name: str, value: bytes, *, force: bool) -> None:
    """A run of the day after three more records."""
    start = len(world.records)
    world.produce([(moment(14), value), (moment(14), b"{}"), (moment(14), b"broken")])
    world.archive(start, start + 3)
    run = world.plan(name, [DAY], force=force)
    for step in (rebuild_run, audit_run, publish_run):
        step(run, world.spark)


def counted(world: World) -> tuple[int, int]:
    """The rows of the published table as pyiceberg reads them, and those of the quarantine."""
    with world.table_of_another_reader() as table:
        rows = table.scan().to_arrow().num_rows
    return rows, world.spark.table(f"{world.table}_quarantine").count()


def try_definitions(spark: SparkSession, settings: Settings, folder: Path, count: int) -> None:
    accepted, failed = 0, []
    for number in range(count):
        drawn = draw(Random(SEED * 100_000 + number))  # noqa: S311 - no secret
        world = world_with(spark, settings, folder, drawn, f"drawn_{number}")
        if problems(world):
            continue
        accepted += 1
        try:
            live(world, drawn.value)
            run_night(world, "one", drawn.value, force=False)
            run_night(world, "two", drawn.value, force=True)
            assert sum(counted(world)) == len(world.records)
        except Exception as error:  # noqa: BLE001 - all are listed
            failed.append(f"{number}: {drawn.keys} {drawn.transform}: {type(error).__name__}: {error}")
    assert failed == []
    assert count // 5 <= accepted <= count * 4 // 5


@pytest.mark.conformance(78)
def test_an_accepted_definition_feeds_the_live_topic_and_rebuilds_its_day(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    try_definitions(spark, settings, tmp_path, 20)


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_five_hundred_definitions_do_what_their_check_promises(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """``.venv/bin/python -m pytest -m soak tests/batch/test_accepted_definitions.py``: an hour."""
    try_definitions(spark, settings, tmp_path, 500)
