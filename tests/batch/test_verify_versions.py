"""``verify`` where versions, copies and partitions come while another thing is under way: what is late, what is not."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.archive.conftest import grow
from tests.batch.logs import MONDAY, Log
from tests.batch.steps import pass_audit
from tests.batch.verifying import GOOD, NINE, check, differences, replaced, sealed_in_turn, verify
from tests.conftest import MakeStream, Produce
from tests.waiting import wait_until
from tidemark.archive.stream.driver import archive
from tidemark.core.days import micros
from tidemark.kafka.topics import logs_of
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.reader import load_table
from tidemark.verify import day as verify_module

pytestmark = pytest.mark.conformance(48)


def expire(spark: SparkSession, settings: Settings, table: IcebergTable, snapshot: int | None) -> None:
    options = f"older_than => TIMESTAMP '1970-01-01 00:00:00', snapshot_ids => array({snapshot})"
    spark.sql(f"CALL {settings.catalog}.system.expire_snapshots(table => '{table.identifier}', {options})")


def test_a_table_that_was_put_back_to_an_earlier_version_disproves_the_latest_one(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession
) -> None:
    log, seals = sealed_in_turn(settings, make_stream, produce, spark, {"first": 5, "second": 2})
    table = IcebergTable(spark, settings, log.stream.table)
    table._load().manageSnapshots().rollbackTo(seals[0].snapshot_id).commit()
    found = verify(log)
    assert (found.verdict, check(found, "readers").notes) == ("disproven", [])
    assert {item.name for item in found.checks if item.status != "holds"} == {"readers"}
    second, first = seals[1].snapshot_id, seals[0].snapshot_id
    assert f"readers: the snapshot of the day's rows: expected {second}, found {first} [" in differences(found)
    assert "readers: rows of the day: expected 7, found 5" in differences(found)
    assert verify(log, 1).verdict == "proven"


def test_a_value_that_somebody_changed_is_found_where_readers_see_it(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession
) -> None:
    log, (sealed,) = sealed_in_turn(settings, make_stream, produce, spark, {"run-1": 9})
    table = f"{settings.catalog}.{settings.namespace}.{log.stream.table}"
    spark.sql(f"UPDATE {table} SET n = n + 1 WHERE _offset IN (2, 3, 7)")
    found = verify(log)
    assert {item.name for item in found.checks if item.status != "holds"} == {"readers"}
    assert [(item.what, item.where) for item in check(found, "readers").differences] == [
        (f"not what snapshot {sealed.snapshot_id} published", f"{log.owner()}, offsets {offsets}")
        for offsets in ("[2, 4)", "[7, 8)")
    ]
    spark.sql(f"UPDATE {table} SET n = n - 1 WHERE _offset IN (2, 3, 7)")
    # The values are compared by the current schema: a new column is null in both snapshots.
    spark.sql(f"ALTER TABLE {table} ADD COLUMN share DOUBLE")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN n TO number")
    found = verify(log)
    assert (found.verdict, differences(found)) == ("proven", "")
    (note,) = check(found, "readers").notes
    assert note == "another writer has rewritten the day's files, so all values were compared"
    spark.sql(f"UPDATE {table} SET share = 0.5 WHERE _offset = 8")
    assert "offsets [8, 9)" in differences(verify(log))


def test_a_day_of_a_deleted_topic_is_proven_by_archive_and_tables(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession
) -> None:
    log, _ = sealed_in_turn(settings, make_stream, produce, spark, {"run-1": 3})
    assert check(verify(log), "kafka").status == "holds"
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    admin.delete_topics([log.stream.topic])[log.stream.topic].result(timeout=60)
    wait_until(lambda: not logs_of(settings.kafka, log.stream.topic), "the topic is deleted")
    found = verify(log)
    assert (found.verdict, differences(found)) == ("proven", "")
    assert {item.name: item.status for item in found.checks if item.status != "holds"} == {"kafka": "expired"}


def test_what_is_archived_during_a_run_is_late_and_before_its_plan_a_difference(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession
) -> None:
    """Second copies by a stream that starts again, and a first record in a partition that the run did not know."""
    stream = make_stream(time_zone="America/New_York", batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    produce(stream.topic, [GOOD] * 10)
    archive(spark, stream, settings, available_now=True)
    run = log.run("run-1")
    plan_run(run, [MONDAY], False)
    finalize_plan_run(run)
    log.produced[0] = dict.fromkeys(range(10), NINE)
    now = micros(datetime.now(UTC))
    log.archive(3, 10, writer="query-b", committed_at_us=now)
    grow(settings, stream.topic, 2)
    log.produce(1, NINE, partition=1)
    log.archive(0, 1, writer="query-b", partition=1, committed_at_us=now)
    for step in (rebuild_run, pass_audit, publish_run):
        step(run, spark)
    (sealed,) = seal_run(run)
    assert (sealed.rows_read, sealed.duplicates_trimmed, [item.log.partition for item in sealed.logs]) == (10, 0, [0])
    found = verify(log)
    assert (found.verdict, differences(found)) == ("proven", "")
    assert check(found, "counts").notes == [
        "7 archived rows of the day are later copies of archived records",
        "1 archived records of the day are not part of this version: they came later, or a rollback left them out",
    ]
    log.produce(5, NINE)
    log.archive(10, 15, writer="query-c", committed_at_us=now - 86_400_000_000)
    assert differences(verify(log)) == (
        "ranges: rows of the day were archived before the plan: expected used offsets of the seal, found none"
        f" [{log.owner()}, offsets [10, 15)]"
    )


def test_after_a_refill_what_the_archive_brings_later_are_copies_and_the_seal_is_compared(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession
) -> None:
    stream = make_stream(time_zone="America/New_York", batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    produce(stream.topic, [GOOD] * 10)
    run = log.run("run-1")
    plan_run(run, [MONDAY], False)
    refill_run(run, spark)
    finalize_plan_run(run)
    for step in (rebuild_run, pass_audit, publish_run):
        step(run, spark)
    seal_run(run)
    assert check(verify(log), "counts").notes == []
    produce(stream.topic, [GOOD] * 2)
    archive(spark, stream, settings, available_now=True)  # it was down, and archives all of them
    found = verify(log)
    assert (found.verdict, differences(found)) == ("proven", "")
    assert check(found, "counts").notes == [
        "10 archived rows of the day are later copies of archived records",
        "2 archived records of the day are not part of this version: they came later, or a rollback left them out",
    ]
    key = log.layout.seal_key(MONDAY, 1)
    raw = {**json.loads(log.store.get(key) or b""), "duplicates_trimmed": 13}
    with replaced(log, key, json.dumps(raw).encode()):
        assert differences(verify(log)) == (
            "counts: duplicates_trimmed: expected 0, found 13 [seal of 2013-01-14 version 1]"
        )


def test_a_snapshot_that_expires_while_a_day_is_verified_says_nothing_against_the_day(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading of the day's rows and the look at what readers see now; and between metadata and files."""
    log, (sealed,) = sealed_in_turn(settings, make_stream, produce, spark, {"first": 5})
    stream = log.stream
    table = IcebergTable(spark, settings, stream.table)
    table._load().newAppend().commit()  # the current snapshot never expires
    whole = verify_module._compare_difference

    def expire_it(*args: Any) -> None:
        whole(*args)
        if sealed.snapshot_id in {item["id"] for item in table.history()}:
            expire(spark, settings, table, sealed.snapshot_id)

    before = load_table(settings, stream.table)
    with monkeypatch.context() as patched:
        patched.setattr(verify_module, "_compare_difference", expire_it)
        found = verify(log)
    assert (found.verdict, differences(found), check(found, "readers").status) == ("proven", "", "holds")
    with monkeypatch.context() as patched:
        stale = iter([before])
        patched.setattr(verify_module, "load_table", lambda *args: next(stale, None) or load_table(*args))
        found = verify(log)
    assert (found.verdict, differences(found)) == ("unknown", "")
    assert check(found, "tables").unknown[0].endswith("expired while it was read: verify again")


def test_a_damaged_file_of_what_stands_in_for_an_expired_snapshot_disproves_the_day(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession
) -> None:
    log, (sealed,) = sealed_in_turn(settings, make_stream, produce, spark, {"first": 5})
    table = IcebergTable(spark, settings, log.stream.table)
    table._load().newAppend().commit()  # the current snapshot never expires
    expire(spark, settings, table, sealed.snapshot_id)
    assert verify(log).verdict == "proven"
    loaded = load_table(settings, log.stream.table)
    assert loaded
    current = loaded.current_snapshot()
    assert current
    key = current.manifests(loaded.io)[0].manifest_path.removeprefix(f"s3://{settings.bucket}/")
    with replaced(log, key, b"damaged"):
        found = verify(log)
    assert (found.verdict, check(found, "tables").status) == ("disproven", "differs")
    assert "tables: a table does not read: expected its files, found " in differences(found)
    assert f"{log.stream.table}, in place of snapshot {sealed.snapshot_id}" in differences(found)


def test_what_stands_in_for_an_expired_snapshot_may_expire_too_while_it_is_read(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, (sealed,) = sealed_in_turn(settings, make_stream, produce, spark, {"first": 5})
    table = IcebergTable(spark, settings, log.stream.table)
    for _ in range(2):
        table._load().newAppend().commit()
    current, between, first = (item["id"] for item in table.history()[:3])
    assert first == sealed.snapshot_id
    expire(spark, settings, table, first)
    before = load_table(settings, log.stream.table)
    expire(spark, settings, table, between)
    stale = iter([before])
    with monkeypatch.context() as patched:
        patched.setattr(verify_module, "load_table", lambda *args: next(stale, None) or load_table(*args))
        found = verify(log)
    assert (found.verdict, differences(found)) == ("unknown", "")
    assert check(found, "tables").unknown[0].endswith("snapshots expired while it was read: verify again")
    assert verify(log).verdict == "proven"
    assert [item["id"] for item in table.history()] == [current]
