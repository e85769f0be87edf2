"""Deduplication by key against an oracle in plain Python, whatever the plan, and where it is reported."""

import json
import random
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY, Log, at
from tests.batch.steps import pass_audit
from tests.batch.test_current import pinned, publish, rows, staged
from tests.batch.test_report import page_of
from tests.batch.verifying import check, differences, replaced, verify
from tests.batch.world import TRANSFORM, Record, World, january, moment, value
from tests.conftest import MakeStream, Produce
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import IncompleteError
from tidemark.core.seal import Deduplicated, Difference
from tidemark.current_view.frame import frame
from tidemark.definitions.stream import Stream
from tidemark.inspect.locate import locate
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.results import REBUILD
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings

DAYS = (january(14), january(15))
KEY = {"key": ["id", "name"], "keep": "first"}
Place = tuple[str, int, int]


def place(item: Record) -> Place:
    return item.log.topic_id, item.log.partition, item.offset


def oracle(world: World, keep: str, days: Sequence[date] = DAYS) -> tuple[set[Place], dict[Place, Place]]:
    """Which good records of the days stay, and for each of the others the one that does."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for item in world.records:
        if item.day in days and (event := item.event) is not None:
            key = (item.day, event["id"], event["name"].upper())
            groups.setdefault((*key, item) if event["id"] is None else key, []).append(item)
    stay: set[Place] = set()
    removed: dict[Place, Place] = {}
    for group in groups.values():
        ordered = sorted(group, key=lambda item: (item.timestamp, place(item)), reverse=keep == "last")
        stay.add(place(ordered[0]))
        removed |= {place(item): place(ordered[0]) for item in ordered[1:]}
    return stay, removed


def expected(world: World, keep: str) -> list[tuple[Any, ...]]:
    stay, _ = oracle(world, keep)
    return [row for row in world.expected_rows(*DAYS) if row[1:4] in stay]


def set_aside(world: World) -> dict[Place, Place]:
    """What the quarantine says of duplicates by key."""
    columns = ("_topic_id", "_kafka_partition", "_offset", "kept_topic_id", "kept_partition", "kept_offset")
    found = world.spark.table(f"{world.table}_quarantine").where("kept_offset IS NOT NULL").select(*columns).collect()
    return {tuple(row[:3]): tuple(row[3:]) for row in found}


def events(number: int) -> list[tuple[Any, bytes]]:
    """Two days of few keys; some keys are null, some records refused or broken."""
    chance = random.Random(number)  # noqa: S311 - the same records every time
    found = []
    for _ in range(60):
        name = chance.choice(["a", "A", "b", "refused"])
        body = chance.choice([value(chance.randrange(6), name), value(chance.randrange(6), name), b"broken"])
        if chance.random() < 0.2:
            body = json.dumps({"id": None, "name": name, "delay": 1.0}).encode()
        # Few moments, so that the same one comes in both partitions.
        found.append((moment(chance.choice([14, 15]), 12) + timedelta(seconds=chance.randrange(3)), body))
    return found


@pytest.mark.conformance(50)
def test_one_row_per_key_stays_whatever_the_plan_and_the_others_name_it(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, deduplicate=KEY)
    for partition in (0, 1):
        world.produce(events(partition), partition=partition)
    world.archive(0, 60)
    world.archive(0, 60, partition=1)
    first = publish(world, "first", 14, 15)
    stay, removed = oracle(world, "first")
    assert len(removed) > 20
    assert (world.published(), set_aside(world)) == (expected(world, "first"), removed)
    assert spark.table(world.table).columns[:4] == ["_day", "_topic_id", "_kafka_partition", "_offset"]
    good = {place(item) for item in world.records if item.event is not None}
    assert {row[1:4] for row in world.quarantined()} == {place(item) for item in world.records} - (
        good - removed.keys()
    )
    seals = {item.day: item for item in seal_run(first)}
    for day in DAYS:
        own = [item for item in world.records if item.day == day]
        counts = {item.day: item for item in first.require(REBUILD).days}[day]
        duplicates = sum(place(item) in removed for item in own)
        broken = sum(item.event is None for item in own)
        assert (counts.read, counts.duplicates_removed, counts.quarantined) == (len(own), duplicates, broken)
        assert counts.published == len(own) - duplicates - broken
        assert seals[day].deduplicated == Deduplicated(key=("id", "name"), keep="first", removed=duplicates)
        assert (seals[day].rows_quarantined, seals[day].difference) == (broken, None)
    page = page_of(first, report_run(first))
    assert f"quarantined + {seals[DAYS[0]].rows_removed} removed as duplicates by key" in page.text

    # Other ranges, other objects, other tasks: the same rows.
    for partition in (0, 1):
        for start, end in ((40, 60), (0, 23), (17, 44)):
            world.archive(start, end, partition=partition, writer="again", folder=f"f{start}")
    tasks = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "7")
        second = publish(world, "second", 14, 15)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(tasks))
    assert (world.published(), set_aside(world)) == (expected(world, "first"), removed)
    assert [item.difference for item in seal_run(second)] == [Difference(added=0, removed=0, changed=0)] * 2

    # The other end of each group.
    path = world.settings.streams_dir / f"{world.name}.yaml"
    definition = yaml.safe_load(path.read_text(encoding="utf-8"))
    definition["batch"]["deduplicate"]["keep"] = "last"
    path.write_text(yaml.safe_dump(definition), encoding="utf-8")
    third = seal_run(publish(world, "third", 14, 15))
    last, removed_last = oracle(world, "last")
    assert (world.published(), set_aside(world)) == (expected(world, "last"), removed_last)
    assert sum(item.difference.added for item in third if item.difference) == len(last - stay)
    assert sum(item.difference.removed for item in third if item.difference) == len(stay - last)

    # ``where`` names the record that was kept.
    topic_id, partition, offset = min(removed_last)
    kept = removed_last[topic_id, partition, offset]
    pinned(world)
    found = locate(world.settings, world.name, world.name, partition, offset)
    assert found.seals[-1].status == (
        "removed",
        f"duplicate by key (id, name) of partition {kept[1]}, offset {kept[2]}",
    )


@pytest.mark.conformance(50)
def test_the_current_view_has_a_key_once_that_is_published_and_archived_again(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, deduplicate=KEY)
    world.produce([(moment(14), value(number % 4)) for number in range(6)])
    world.archive(0, 6)
    assert rows(frame(spark, pinned(world))) == expected(world, "first")
    publish(world, "first", 14)
    # Again, later and earlier than what is published; twice in the tail; and something new.
    world.produce([(moment(14, hour), value(number)) for hour, number in ((20, 0), (5, 1), (6, 9), (7, 9), (8, 2))])
    world.produce([(moment(15), value(1)), (moment(15), value(1)), (moment(14), b"broken")])
    world.archive(6, 14)
    assert rows(frame(spark, pinned(world))) == expected(world, "first")


@pytest.mark.conformance(21)
def test_rows_lost_beside_duplicates_are_noticed_with_all_sides_of_the_sum(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    dropping = TRANSFORM.replace("return records", "return records.where('event.id <> 2')")
    world = World.make(spark, settings, tmp_path, transform=dropping, deduplicate=KEY)
    world.produce([(moment(14), value(number)) for number in (1, 1, 2, 3)])
    world.archive(0, 4)
    sides = r"expected 4 rows read, found 2 published \+ 0 quarantined \+ 1 removed as duplicates by key"
    with pytest.raises(IncompleteError, match=sides):
        staged(world, "first", 14)


def test_a_seal_names_the_key_its_rows_were_made_with_not_the_definitions_later_one(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path, deduplicate=KEY)
    world.produce([(moment(14), value(number)) for number in (1, 1, 2)])
    world.archive(0, 3)
    run = staged(world, "first", 14)
    file = tmp_path / f"{world.name}.yaml"
    definition = yaml.safe_load(file.read_text(encoding="utf-8"))
    for then in ({"key": ["id", "name"], "keep": "last"}, {}):
        file.write_text(yaml.safe_dump({**definition, "batch": {"deduplicate": then}}), encoding="utf-8")
        changed = world.run("first")
        assert changed.stream.batch.deduplicate != run.stream.batch.deduplicate
        audit_run(changed, spark)
    publish_run(changed, spark)
    (seal,) = seal_run(changed)
    assert seal.deduplicated == Deduplicated(key=("id", "name"), keep="first", removed=1)


@pytest.mark.conformance(50)
def test_verify_recomputes_the_removed_rows_and_finds_a_seal_that_differs(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession
) -> None:
    stream = make_stream(
        partitions=2,
        time_zone="America/New_York",
        batch={"wait_seconds": 0, "deduplicate": {"key": ["n"]}},
    )
    log = Log(stream=stream, settings=settings, produce_records=produce)
    sent = [(0, b'{"n": 1}'), (0, b'{"n": 2}'), (0, b'{"n": 2}'), (1, b'{"n": 2}'), (1, b'{"n": 3}'), (1, b"broken")]
    produce(stream.topic, [(b"k", body, at(MONDAY, 9 + n), partition, []) for n, (partition, body) in enumerate(sent)])
    archive(spark, stream, settings, available_now=True)
    run = log.run()
    plan_run(run, [MONDAY], False)
    finalize_plan_run(run)
    for step in (rebuild_run, pass_audit, publish_run):
        step(run, spark)
    seal_run(run)
    found = verify(log)
    assert (found.verdict, differences(found)) == ("proven", "")
    summed = "6 archived rows, 6 distinct = 3 published + 1 quarantined + 2 removed as duplicates by key"
    assert check(found, "counts").derived_from == summed

    key = log.layout.seal_key(MONDAY, 1)
    raw = json.loads(log.store.get(key) or b"")
    raw |= {"deduplicated": {**raw["deduplicated"], "removed": 1}, "rows_quarantined": 2}
    with replaced(log, key, json.dumps(raw).encode()):
        lines = differences(verify(log))
    assert "counts: duplicates removed by key: expected 2, found 1" in lines
    assert "counts: rows_quarantined: expected 1, found 2" in lines


@pytest.mark.parametrize(
    ("deduplicate", "message"),
    [({"keep": "last"}, "keep last needs a key"), ({"key": ["id", "id"]}, "the column id is in the key twice")],
    ids=["no key", "twice"],
)
def test_a_key_that_can_not_be_meant_is_refused(deduplicate: dict[str, Any], message: str) -> None:
    raw = {"name": "t", "topic": "t", "value_schema": "id INT", "speed": {"topic": "a", "dead_letter_topic": "b"}}
    with pytest.raises(ValidationError, match=message):
        Stream.model_validate({**raw, "batch": {"deduplicate": deduplicate}})
