"""Where a record is: objects, manifests, seals and snapshots."""

from datetime import datetime

import pytest

from tests.batch.logs import MONDAY, TUESDAY, ZONE, Log, at
from tests.batch.test_seal import finalized, finish
from tidemark.archive.ledger.ledger import compact, read_archived
from tidemark.core.errors import ConfigError, ConflictError, FormatError, PositionError, RequestError
from tidemark.core.offsets import OffsetRange
from tidemark.inspect.locate import Located, LocatedVersion, RecordCopy, locate
from tidemark.maintenance.archive import maintain_ledger
from tidemark.reconcile.plan.step import plan_run
from tidemark.reconcile.results import PLAN
from tidemark.reconcile.seal import seal_run


def find(log: Log, offset: int, *, partition: int = 0) -> Located:
    return locate(log.settings, log.stream.name, log.stream.topic, partition, offset)


def object_key(log: Log, writer: str, start: int, end: int, seq: int = 0) -> str:
    return f"{log.layout.data_prefix}{writer}/{log.stream.topic}+0+{start:020}+{end:020}+{seq:04}.parquet"


def test_a_record_archived_twice_has_two_copies_and_each_seal_names_its_own(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    keys = log.stream.day_settings
    log.archive(0, 10, per_file=4, day_settings=keys)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10}, snapshot_id=77)
    seal_run(run)
    log.archive(3, 10, writer="query-b", day_settings=keys)
    log.produce(10, at(MONDAY, 10))
    log.archive(0, 20, writer="query-c", day_settings=keys)
    second = finalized(log, "run-2", MONDAY)
    finish(second, {MONDAY: 20}, snapshot_id=78)
    seal_run(second)
    owner = log.owner()
    assert find(log, 5) == Located(
        stream=log.stream.name,
        topic=log.stream.topic,
        partition=0,
        offset=5,
        day=MONDAY,
        event_time=datetime(2013, 1, 14, 9, tzinfo=ZONE),
        copies=tuple(
            RecordCopy(
                log=owner,
                range=OffsetRange(start=start, end=end),
                writer=writer,
                batch=0,
                manifest=log.layout.manifest_key(writer, 0),
                object=object_key(log, writer, start, end, seq),
            )
            for writer, start, end, seq in (("query-a", 0, 10, 1), ("query-b", 3, 10, 0), ("query-c", 0, 20, 0))
        ),
        seals=tuple(
            LocatedVersion(
                key=log.layout.seal_key(MONDAY, version),
                day=MONDAY,
                version=version,
                run=f"run-{version}",
                snapshot_id=76 + version,
                quarantine_snapshot_id=88,
                writer=writer,
                batch=0,
                status=None,  # these seals name snapshots that no table has
            )
            for version, writer in ((1, "query-a"), (2, "query-c"))
        ),
    )


def test_a_record_of_an_unsealed_day_has_no_seal(log: Log) -> None:
    log.produce(4, at(TUESDAY, 9))
    log.archive(0, 4)
    found = find(log, 0)
    assert (found.day, found.seals, len(found.copies)) == (TUESDAY, (), 1)


def test_a_record_archived_after_its_day_was_sealed_is_in_no_copy_that_seal_used(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 10)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    seal_run(run)
    log.produce(2, at(MONDAY, 22))
    log.archive(10, 12)
    (seal,) = find(log, 11).seals
    assert (seal.version, seal.writer, seal.batch) == (1, None, None)


def test_an_offset_without_a_row_has_a_copy_without_an_object(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    del log.produced[0][4]  # as an aborted record or a transaction marker is
    log.archive(0, 10)
    found = find(log, 4)
    assert (found.day, found.event_time, found.seals) == (None, None, ())
    assert [(item.range, item.object) for item in found.copies] == [(OffsetRange(start=0, end=10), None)]


def test_an_offset_outside_the_log_is_refused_with_the_logs_ends(log: Log) -> None:
    log.produce(10, at(MONDAY, 9))
    log.archive(0, 5)
    for offset in (10, -1):
        with pytest.raises(PositionError, match=f"outside the log: expected 0 to 9, found {offset} "):
            find(log, offset)
    with pytest.raises(PositionError, match="expected no offset, the log is empty, found 0"):
        find(log, 0, partition=1)


def test_an_offset_not_archived_yet_differs_from_a_gap(log: Log) -> None:
    log.produce(30, at(MONDAY, 9))
    log.archive(0, 10)
    log.archive(15, 20)
    with pytest.raises(PositionError, match=r"offset 12, found a gap below the archive's end 20 .* refill"):
        find(log, 12)
    with pytest.raises(PositionError, match=r"offset 25, found an archive that ends at 20 .* has not read it yet"):
        find(log, 25)


def test_an_unknown_topic_partition_or_stream_is_named_with_the_known_ones(log: Log) -> None:
    log.produce(1, at(MONDAY, 9))
    with pytest.raises(RequestError, match="no such partition: expected 0 to 1, found 7"):
        find(log, 0, partition=7)
    with pytest.raises(RequestError, match=f"expected {log.stream.topic}, found flights.live"):
        locate(log.settings, log.stream.name, "flights.live", 0, 0)
    with pytest.raises(ConfigError, match=r"no such stream: expected one of: .*, found ferries"):
        locate(log.settings, "ferries", log.stream.topic, 0, 0)


def test_a_missing_committed_object_is_a_conflict_that_names_it(log: Log) -> None:
    log.produce(3, at(MONDAY, 9))
    log.archive(0, 3)
    (manifest,) = log.manifests()
    key = object_key(log, "query-a", 0, 3)
    body = log.store.get(key)
    assert body is not None
    log.store.delete(key)
    with pytest.raises(ConflictError, match=r"a committed object is missing.*query-a.* Restore it .*: delete the man"):
        find(log, 1)
    log.store.put(key, body)
    assert find(log, 1).day == MONDAY
    # The other way that is named.
    compact(log.store, log.layout, log.stream, read_archived(log.store, log.layout, log.stream))
    for missing in (key, log.layout.manifest_key(manifest.writer, manifest.batch)):
        log.store.delete(missing)
    maintain_ledger(log.store, log.layout, log.stream, from_scratch=True)
    with pytest.raises(PositionError, match="the offset is not archived"):
        find(log, 1)
    run = log.run()
    plan_run(run, [MONDAY], False)
    assert [(item.range.start, item.range.end) for item in run.require(PLAN).refill] == [(0, 3)]


def test_a_damaged_committed_object_is_named_by_its_key(log: Log) -> None:
    log.produce(3, at(MONDAY, 9))
    log.archive(0, 3)
    key = object_key(log, "query-a", 0, 3)
    body = log.store.get(key)
    assert body is not None
    log.store.put(key, body[:-1])
    with pytest.raises(FormatError, match=r"a data object does not read as Parquet: .*query-a"):
        find(log, 1)
