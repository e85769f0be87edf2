"""``verify`` on a day that the real steps made: it holds, and whatever is tampered with is found and named."""

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.batch.logs import MONDAY, TUESDAY, Log, at, drop_below
from tests.batch.test_holes import transact
from tests.batch.verifying import NINE, check, differences, replaced, seal, sealed_in_turn, verify
from tests.command_json import valid_result
from tests.conftest import MakeStream, Produce, Record
from tests.faults import FaultProxy, Rule
from tidemark.archive.stream.driver import archive
from tidemark.cli.app import app
from tidemark.core.errors import RequestError, ServiceError
from tidemark.core.offsets import OffsetRange
from tidemark.reconcile.rollback import rollback_day
from tidemark.settings import Settings
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.reader import load_table
from tidemark.tables.seals import read_seal
from tidemark.verify.archive import ArchiveReader, Derived
from tidemark.verify.day import verify_day
from tidemark.verify.lineage import Basis
from tidemark.verify.result import ProofPart

pytestmark = pytest.mark.conformance(48)
EVERYTHING = dict.fromkeys(("query-a", "query-b"), 2**62)  # of both writers


@pytest.fixture(scope="module")
def day(settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession) -> Log:
    """A sealed Monday. Partition 0 has 10 rows, 3 aborted records and 3 markers; partition 1 has 8 rows, one broken."""
    stream = make_stream(partitions=2, time_zone="America/New_York", batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    transact(log, (5, True), (3, False), (5, True), value=b'{"n": 1}')
    good: list[Record] = [(b"k", b'{"n": %d}' % number, NINE, 1, []) for number in range(7)]
    produce(stream.topic, [*good, (b"k", b"broken", NINE, 1, [])])
    archive(spark, stream, settings, available_now=True)
    seal(log, spark, "run-1")
    return log


@pytest.mark.spine
def test_a_sealed_day_is_proven_from_archive_tables_and_kafka(day: Log) -> None:
    found = verify(day)
    assert (found.verdict, differences(found)) == ("proven", "")
    assert {item.name: item.status for item in found.checks} == dict.fromkeys(
        (
            *("seal", "manifests", "objects", "ranges", "copies", "losses", "tables", "counts", "difference"),
            *("readers", "kafka", "holes"),
        ),
        "holds",
    )
    assert check(found, "difference").derived_from == "nothing: the day's first version"
    assert check(found, "objects").notes == []  # every checksum was compared
    assert check(found, "counts").derived_from == "18 archived rows, 18 distinct = 17 published + 1 quarantined"
    # Between the first and the last row of partition 0: 3 aborted records and the first two markers.
    source = "18 records at 23 offsets that Kafka still holds of the day, 18 rows compared by offset and timestamp"
    assert check(found, "kafka").derived_from == source
    assert check(found, "holes").derived_from == "5 offsets without a row among the day's"


def test_the_command_prints_the_verdict_and_ends_with_its_code(day: Log) -> None:
    runner = CliRunner()
    shown = runner.invoke(app, ["verify", day.stream.name, "2013-01-14"])
    assert (shown.exit_code, "2013-01-14, version 1: proven" in shown.stdout) == (0, True), shown.output
    key = day.layout.seal_key(MONDAY, 1)
    with replaced(day, key, b"{}"):
        shown = runner.invoke(app, ["verify", day.stream.name, "2013-01-14", "--json"])
        assert shown.exit_code == 1
        value = valid_result("verify", shown.stdout)
    assert (value["verdict"], value["seal"], value["checks"][0]["total"]) == ("disproven", key, 1)
    assert runner.invoke(app, ["verify", day.stream.name, "2013-01-13"]).exit_code == 2


def test_a_row_removed_from_an_object_is_found_in_the_object_the_table_and_kafka(day: Log) -> None:
    (manifest,) = day.manifests()
    file = next(item for item in manifest.files if item.log.partition == 1)
    body = day.store.get(file.key)
    assert body is not None
    table = pq.read_table(io.BytesIO(body))
    removed = table["offset"][3].as_py()
    without = io.BytesIO()
    pq.write_table(table.filter([offset != removed for offset in table["offset"].to_pylist()]), without)
    with replaced(day, file.key, without.getvalue()):
        found = verify(day)
    assert found.verdict == "disproven"
    lines = differences(found)
    assert f"objects: rows of an object: expected 8, found 7 [{file.key}]" in lines
    assert f"objects: checksum of an object's rows: expected {file.checksum}" in lines
    where = f"{file.log}, offsets [{removed}, {removed + 1})"
    assert f"tables: in a table but not archived: expected an archived row, found none [{where}]" in lines
    assert "kafka: Kafka holds records that the archive lacks" in lines
    assert f"[{where}]" in lines


@pytest.mark.conformance(30)
def test_another_timestamp_in_kafka_at_an_archived_offset_is_a_difference(day: Log) -> None:
    (manifest,) = day.manifests()
    file = next(item for item in manifest.files if item.log.partition == 1)
    body = day.store.get(file.key)
    assert body is not None
    table = pq.read_table(io.BytesIO(body))
    offsets, times = table["offset"].to_pylist(), table["timestamp"].to_pylist()
    wrong = [offsets[3], offsets[4]]
    times = [time + timedelta(milliseconds=offset in wrong) for offset, time in zip(offsets, times, strict=True)]
    at = table.schema.get_field_index("timestamp")
    other = io.BytesIO()
    pq.write_table(table.set_column(at, table.schema.field(at), [times]), other)
    with replaced(day, file.key, other.getvalue()):
        found = verify(day)
    assert found.verdict == "disproven"
    where = f"{file.log}, offsets [{wrong[0]}, {wrong[1] + 1})"
    assert (
        "kafka: Kafka's records have other timestamps than the archive's: the log was rewritten:"
        f" expected the archived timestamps, found other timestamps in Kafka [{where}]"
    ) in differences(found)
    assert check(found, "kafka").total == 1


def test_a_deleted_manifest_is_found_as_a_gap_of_its_ranges(day: Log) -> None:
    (manifest,) = day.manifests()
    key = day.layout.manifest_key(manifest.writer, manifest.batch)
    with replaced(day, key, None):
        found = verify(day)
    assert found.verdict == "disproven"
    lines = differences(found)
    assert f"by {manifest.writer}, batch 0, found no such batches [{key}, {day.owner(1)}]" in lines
    where = f"{day.owner(0)}, offsets [0, 16)"
    assert (
        f"no manifest commits offsets that the seal proves: expected a committed range, found none [{where}]" in lines
    )
    assert "tables: rows published that the archive does not have: expected 0, found 10" in lines


@pytest.mark.parametrize(("since", "counted"), [("plan", (0, 5, 18)), ("seal", (0,))])
def test_a_copy_archived_after_the_plan_does_not_disprove_the_seal(
    day: Log, since: str, counted: tuple[int, ...]
) -> None:
    """After the plan, by a clock that is slow by a second: the run may have counted some of the copies. Or after the
    seal, by an archive that was down: the run has counted none."""
    (manifest,) = day.manifests()
    sealed = read_seal(day.store, day.layout, MONDAY, 1)
    assert sealed is not None
    files = tuple(replace(file, key=f"{file.key}.copy.parquet") for file in manifest.files)
    time_us = sealed.planned_at_us - 1_000_000 if since == "plan" else sealed.sealed_at_us + 3_600_000_000
    copy = replace(manifest, writer="query-slow", previous=None, files=files, committed_at_us=time_us)
    keys = [file.key for file in files]
    bodies = [day.store.get(file.key) or b"" for file in manifest.files]
    written = {**dict(zip(keys, bodies, strict=True)), day.layout.manifest_key("query-slow", 0): copy.to_json()}
    for key, body in written.items():
        day.store.put(key, body)
    found = {}
    seal_key = day.layout.seal_key(MONDAY, 1)
    for number in (0, 5, 18, 19):
        raw = {**json.loads(day.store.get(seal_key) or b""), "duplicates_trimmed": number}
        with replaced(day, seal_key, json.dumps(raw).encode()):
            found[number] = verify(day)
    for key in written:
        day.store.delete(key)
    assert [number for number, item in found.items() if item.verdict == "proven"] == list(counted)
    assert check(found[0], "counts").notes == ["18 archived rows of the day are later copies of archived records"]
    assert differences(found[19]) == ("counts: duplicates_trimmed: expected 0, found 19 [seal of 2013-01-14 version 1]")
    if since == "plan":
        assert "duplicates_trimmed is not compared: 18 archived rows" in check(found[5], "counts").notes[0]


def test_an_altered_manifest_is_found_by_its_objects(day: Log) -> None:
    (manifest,) = day.manifests()
    key = day.layout.manifest_key(manifest.writer, manifest.batch)
    raw = json.loads(manifest.to_json())
    raw["ranges"][0]["rows"] += 1
    with replaced(day, key, json.dumps(raw).encode()):
        lines = differences(verify(day))
    assert f"manifests: rows of a range and of its objects: expected 11, found 10 [{key}]" in lines


def test_an_edited_count_in_the_seal_is_found(day: Log) -> None:
    key = day.layout.seal_key(MONDAY, 1)
    raw = json.loads(day.store.get(key) or b"")
    raw["rows_read"] += 1
    raw["rows_published"] += 1
    with replaced(day, key, json.dumps(raw).encode()):
        found = verify(day)
    assert differences(found).splitlines() == [
        "counts: rows_read: expected 18, found 19 [seal of 2013-01-14 version 1]",
        "counts: rows_published: expected 17, found 18 [seal of 2013-01-14 version 1]",
    ]


def test_an_expired_snapshot_leaves_the_verdict_unknown(day: Log) -> None:
    key = day.layout.seal_key(MONDAY, 1)
    raw = json.loads(day.store.get(key) or b"")
    with replaced(day, key, json.dumps({**raw, "snapshot_id": 1}).encode()):
        found = verify(day)
    assert (found.verdict, differences(found)) == ("unknown", "")
    # No seal names the snapshot that readers see.
    assert {item.name for item in found.checks if item.status == "unknown"} == {"tables", "counts", "readers"}
    assert "snapshot 1 has expired" in check(found, "tables").unknown[0]


def uninflatable(body: bytes) -> bytes:
    """An Avro file whose first block can't be inflated; the mark at its end also precedes the block."""
    start = body.index(body[-16:]) + 20
    return body[:start] + b"\xff" * (len(body) - 16 - start) + body[-16:]


HARM: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda _: None,
    "cut": lambda body: body[: len(body) // 2],
    "other": lambda body: b"something else" * (len(body) // 14),
    "not inflatable": uninflatable,
}
HARMED = [item for item in product(("data", "manifest", "list"), HARM) if item != ("data", "not inflatable")]


def table_files(log: Log) -> dict[str, str]:
    """Keys of a data file of Monday's, of its manifest, and of the list of manifests."""
    sealed = read_seal(log.store, log.layout, MONDAY, 1)
    table = load_table(log.settings, log.stream.table)
    assert sealed
    assert sealed.snapshot_id
    assert table
    snapshot = table.snapshot_by_id(sealed.snapshot_id)
    assert snapshot
    manifest = snapshot.manifests(table.io)[0]
    data = manifest.fetch_manifest_entry(table.io)[0].data_file.file_path
    urls = {"data": data, "manifest": manifest.manifest_path, "list": snapshot.manifest_list}
    return {kind: url.removeprefix(f"s3://{log.settings.bucket}/") for kind, url in urls.items()}


@pytest.mark.parametrize(("file", "harm"), HARMED)
def test_a_missing_or_damaged_file_of_the_table_disproves_the_day(day: Log, file: str, harm: str) -> None:
    key = table_files(day)[file]
    with replaced(day, key, HARM[harm](day.store.get(key) or b"")):
        found = verify(day)
    assert (found.verdict, check(found, "tables").status) == ("disproven", "differs")
    assert "tables: a table does not read: expected its files, found " in differences(found)
    assert file != "data" or key in differences(found)
    assert check(found, "counts").unknown == ["rows_published: the table can't be read"]


@pytest.mark.parametrize("file", ["data", "manifest", "list"])
def test_a_file_of_the_table_that_s3_refuses_is_an_error_and_no_difference(day: Log, file: str) -> None:
    with FaultProxy(str(day.settings.s3_endpoint)) as proxy:
        proxy.add(Rule(method="GET", pattern=table_files(day)[file], times=1000, answer=(500, "InternalError")))
        settings = day.settings.model_copy(update={"s3_endpoint": proxy.url})
        with pytest.raises(ServiceError, match=r"a table can't be read: .*AWS Error INTERNAL_FAILURE"):
            verify_day(settings, day.stream.name, MONDAY)


def test_records_of_the_day_without_a_manifest_are_noted(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession
) -> None:
    log, _ = sealed_in_turn(settings, make_stream, produce, spark, {"run-1": 2})
    assert check(verify(log), "kafka").notes == []
    times = (at(TUESDAY, 0), at(MONDAY, 0), at(MONDAY, 23), at(MONDAY, 0) - 1, at(MONDAY, 9))
    produce(log.stream.topic, [(b"k", b'{"n": 1}', time, 0, []) for time in times])
    found = verify(log)
    (note,) = check(found, "kafka").notes
    assert f"{log.owner()}: 3 records of the day are in Kafka and in no manifest: [3, 5), [6, 7). " in note
    assert found.verdict == "proven"  # of the version: late records make the next one


def test_a_day_of_which_no_object_is_left_is_neither_proven_nor_disproven(day: Log) -> None:
    before = {item.key: day.store.get(item.key) or b"" for item in day.store.list(day.layout.data_prefix)}
    for key in before:
        day.store.delete(key)
    found = verify(day)
    for key, body in before.items():
        day.store.put(key, body)
    assert (found.verdict, differences(found)) == ("unknown", "")
    assert check(found, "objects").unknown == [f"all {len(before)} objects of the day are missing"]
    assert check(found, "kafka").unknown == ["nothing of the day is left in the archive to compare with"]
    assert verify(day).verdict == "proven"


def test_an_unavailable_catalog_is_an_error_and_no_difference(day: Log) -> None:
    unavailable = "jdbc:sqlite:/nowhere/catalog.db"
    with pytest.raises(ServiceError, match=r"the catalog can't be read: .*unable to open database file"):
        verify_day(day.settings.model_copy(update={"catalog_uri": unavailable}), day.stream.name, MONDAY)


def test_a_row_deleted_from_the_table_is_found_where_readers_see_it(day: Log, spark: SparkSession) -> None:
    seal = read_seal(day.store, day.layout, MONDAY, 1)
    assert seal is not None
    table = f"{day.settings.catalog}.{day.settings.namespace}.{day.stream.table}"
    spark.sql(f"DELETE FROM {table} WHERE _kafka_partition = 1 AND _offset = 2")
    found = verify(day)
    assert {item.name for item in found.checks if item.status != "holds"} == {"readers"}
    lines = differences(found)
    assert "readers: rows of the day: expected 17, found 16" in lines
    where = f"{day.owner(1)}, offsets [2, 3)"
    assert f"published in snapshot {seal.snapshot_id} but not there now: expected a row, found none [{where}]" in lines
    row = f"{table} VERSION AS OF {seal.snapshot_id} WHERE _kafka_partition = 1 AND _offset = 2"
    spark.sql(f"INSERT INTO {table} SELECT * FROM {row}")
    assert verify(day).verdict == "proven"


@pytest.mark.conformance(69)
def test_a_row_deleted_from_the_quarantine_is_found_where_readers_see_it(day: Log, spark: SparkSession) -> None:
    seal = read_seal(day.store, day.layout, MONDAY, 1)
    assert seal is not None
    table = f"{day.settings.catalog}.{day.settings.namespace}.{day.stream.quarantine_table}"
    spark.sql(f"DELETE FROM {table} WHERE _kafka_partition = 1 AND _offset = 7")
    found = verify(day)
    assert {item.name for item in found.checks if item.status != "holds"} == {"readers"}
    assert "readers: rows of the day: expected 1, found 0" in differences(found)
    snapshot = seal.quarantine_snapshot_id
    assert f"quarantined in snapshot {snapshot} but not there now: expected a row, found none" in differences(found)
    row = f"{table} VERSION AS OF {snapshot} WHERE _kafka_partition = 1 AND _offset = 7"
    spark.sql(f"INSERT INTO {table} SELECT * FROM {row}")
    found = verify(day)
    assert found.verdict == "proven"
    assert "another writer has rewritten the day's files, so all values were compared" in check(found, "readers").notes


def test_after_retention_the_seals_evidence_on_holes_counts(day: Log) -> None:
    drop_below(day, 16)
    found = verify(day)
    assert found.verdict == "proven"
    source = "8 records at 8 offsets that Kafka still holds of the day, 8 rows compared by offset and timestamp"
    assert check(found, "kafka").derived_from == source
    assert check(found, "holes").notes == ["5 of them are past Kafka's retention: the seal's evidence counts"]
    drop_below(day, 8, partition=1)
    found = verify(day)
    assert (found.verdict, check(found, "kafka").status) == ("proven", "expired")
    key = day.layout.seal_key(MONDAY, 1)
    raw = json.loads(day.store.get(key) or b"")
    for hole in raw["logs"][0]["holes"]:
        hole["evidence"] = None
    with replaced(day, key, json.dumps(raw).encode()):
        found = verify(day)
    assert (found.verdict, check(found, "holes").status) == ("unknown", "unknown")
    # The last one is after the day's last record.
    assert "6 offsets have no row and no proven cause: [5, 10), [15, 16)" in check(found, "holes").unknown[0]


def test_the_rows_that_a_version_added_and_removed_are_recounted(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession
) -> None:
    log, seals = sealed_in_turn(settings, make_stream, produce, spark, {"first": 5, "second": 2})
    stream = log.stream
    seals.append(rollback_day(log.run("undo"), spark, day=MONDAY, version=1))
    derived_from = ["nothing: the day's first version"]
    derived_from += [
        f"{rows} rows of {stream.table}, snapshot {item.snapshot_id}, beside this version's"
        for rows, item in zip((5, 7), seals[:2], strict=True)
    ]
    for version, expected in enumerate(derived_from, start=1):
        found = verify(log, version)
        assert (found.verdict, differences(found), check(found, "difference").derived_from) == ("proven", "", expected)

    key = log.layout.seal_key(MONDAY, 3)
    raw = json.loads(log.store.get(key) or b"")
    assert raw["difference"] == {"added": 0, "removed": 2, "changed": 0}
    with replaced(log, key, json.dumps({**raw, "difference": {"added": 1, "removed": 0, "changed": 6}}).encode()):
        lines = differences(verify(log)).splitlines()
    assert lines == [
        "difference: rows added: expected 0, found 1 [seal of 2013-01-14 version 3]",
        "difference: rows removed: expected 2, found 0 [seal of 2013-01-14 version 3]",
        "difference: rows changed: expected at most the 5 of both, found 6 [seal of 2013-01-14 version 3]",
    ]

    table = IcebergTable(spark, settings, stream.table)
    table._load().expireSnapshots().expireSnapshotId(seals[1].snapshot_id).commit()
    found = verify(log)
    assert (found.verdict, check(found, "difference").status) == ("proven", "expired")


def test_a_day_that_was_never_sealed_is_refused(day: Log) -> None:
    with pytest.raises(
        RequestError, match="there is no such seal: expected one of the versions 1, found 2013-01-14 version 7"
    ):
        verify_day(day.settings, day.stream.name, MONDAY, 7)


def derived(log: Log) -> tuple[Derived, ProofPart, ProofPart]:
    """What the archive alone says of Monday, with the checks of its manifests and objects."""
    chains, files = ProofPart(name="manifests"), ProofPart(name="objects")
    reader = ArchiveReader(log.store, log.layout, MONDAY, log.stream.zone)
    return reader.derive(Basis(planned_at_us=0, last=EVERYTHING), chains, files, lambda _: None), chains, files


def test_copies_of_a_row_count_once_and_rows_of_other_days_not_at_all(log: Log) -> None:
    log.produce(10, NINE)
    log.produce(5, at(TUESDAY, 9))
    log.archive(0, 15, per_file=4)
    log.archive(3, 12, writer="query-b")
    found, chains, files = derived(log)
    owner = log.owner()
    assert list(found.rows[owner].ranges()) == [OffsetRange(start=0, end=10)]
    assert (found.copies, found.manifests, found.objects) == ({owner: 17}, 2, 4)
    assert (chains.status, files.status) == ("holds", "holds")


def test_an_altered_manifest_shows_in_the_chain_and_a_deleted_one_in_the_ranges(log: Log) -> None:
    log.produce(15, NINE)
    _, key, _ = (log.archive(start, start + 5) for start in (0, 5, 10))
    manifest = log.manifests()[1]
    with replaced(log, key, replace(manifest, committed_at_us=1).to_json()):
        _, chains, _ = derived(log)
    (difference,) = chains.differences
    assert (difference.what, difference.where) == ("the manifest before was altered", key)
    assert difference.expected == f"SHA-256 {hashlib.sha256(manifest.to_json()).hexdigest()}"
    with replaced(log, key, None):
        found, chains, _ = derived(log)
    assert (chains.status, len(chains.notes)) == ("holds", 1)
    assert list(found.rows[log.owner()].missing()) == [OffsetRange(start=5, end=10)]
