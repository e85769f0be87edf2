"""A stream whose records have keys: what is in the topic, the archive and the tables, and what happened to each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from tests.batch.logs import MONDAY, TUESDAY, ZONE, Log
from tests.batch.objects import archive_rows
from tests.batch.test_seal import finalized, finish
from tidemark.core.offsets import OffsetRange
from tidemark.reconcile.results import PUBLISH, REBUILD, DayCounts, DeduplicatedBy, PublishResult
from tidemark.reconcile.seal import seal_run
from tidemark.tables.reader import open_catalog

WEDNESDAY = date(2013, 1, 16)
RIDER, BYTES, MANY = b"rider-7", b"\x00\xff", b"m\xc3\xa4ny & <more>"
REASON = "the value is <b>no</b> number"
DUPLICATE = "duplicate by key (n)"
NEVER = "not in this version: archived later, or lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    """A record; ``fate`` is how Monday's version 1 has it."""

    partition: int
    offset: int
    day: date
    time: datetime
    key: bytes | None
    fate: str = "published"


def _record(partition: int, offset: int, day: date, hour: int, key: bytes | None, fate: str = "published") -> Keyed:
    time = datetime(day.year, day.month, day.day, hour, 30, offset % 60, tzinfo=ZONE)
    return Keyed(partition=partition, offset=offset, day=day, time=time, key=key, fate=fate)


RECORDS = (
    _record(0, 0, MONDAY, 9, RIDER),
    _record(0, 1, MONDAY, 10, b"rider-8"),
    _record(0, 2, MONDAY, 11, RIDER, f"quarantined: {REASON}"),
    _record(0, 3, MONDAY, 23, RIDER),  # in UTC that is Tuesday
    _record(0, 4, TUESDAY, 0, RIDER),
    _record(0, 5, MONDAY, 12, None),
    _record(0, 6, WEDNESDAY, 9, RIDER),
    _record(1, 0, MONDAY, 13, BYTES),
    _record(1, 1, MONDAY, 14, RIDER, f"removed: {DUPLICATE} of partition 0, offset 0"),
    *(_record(1, offset, MONDAY, 15, MANY) for offset in range(2, 152)),
)
LATE = _record(1, 152, MONDAY, 20, RIDER, NEVER)
# Writer, partition and offsets of each object. The second one is a copy of a part of the first one.
OBJECTS = (("query-a", 0, 0, 7), ("query-b", 0, 0, 4), ("query-c", 1, 0, 152))
LATE_OBJECT = ("query-d", 1, 152, 153)


def of_day(day: date, records: tuple[Keyed, ...] = (*RECORDS, LATE)) -> list[Keyed]:
    return [item for item in records if item.day == day]


def seal_keyed(log: Log) -> Log:
    """Produce and archive the records, seal Monday with the rows of real tables, and archive a late record."""
    _produce(log, RECORDS)
    for item in OBJECTS:
        _archive(log, *item)
    run = finalized(log, "run-1", MONDAY)
    monday = of_day(MONDAY, RECORDS)
    published = [item for item in monday if item.fate == "published"]
    finish(run, {MONDAY: len(monday)})
    rebuilt = run.require(REBUILD)
    with run.step(REBUILD) as rebuild:
        counts = DayCounts(
            day=MONDAY,
            read=len(monday),
            published=len(published),
            quarantined=1,
            duplicates_removed=1,
            duplicates_trimmed=4,
        )
        rebuild.result = replace(rebuilt, days=(counts,), deduplicated_by=DeduplicatedBy(key=("n",), keep="first"))
    with run.step(PUBLISH) as publish:
        publish.result = PublishResult(
            days=(MONDAY,),
            snapshot_id=_write(log, log.stream.table, [_place(log, item) for item in published]),
            quarantine_snapshot_id=_write(log, log.stream.quarantine_table, _quarantine(log, monday)),
        )
    seal_run(run)
    _produce(log, (LATE,))
    _archive(log, *LATE_OBJECT)
    return log


def _produce(log: Log, records: tuple[Keyed, ...]) -> None:
    for partition in (0, 1):
        own = [item for item in records if item.partition == partition]
        rows: list[Any] = [(item.key, b"v", int(item.time.timestamp() * 1000), partition, []) for item in own]
        if rows:
            assert log.produce_records(log.stream.topic, rows) == [item.offset for item in own]


def _archive(log: Log, writer: str, partition: int, start: int, end: int) -> None:
    owner, span = log.owner(partition), OffsetRange(start=start, end=end)
    rows: list[dict[str, Any]] = [
        {
            "topic": owner.topic,
            "partition": partition,
            "offset": item.offset,
            "timestamp": item.time.astimezone(UTC),
            "timestamp_type": 0,
            "key": item.key,
            "value": b"v",
            "headers": [],
            "event_time": item.time.astimezone(UTC),
        }
        for item in (*RECORDS, LATE)
        if item.partition == partition and item.offset in span
    ]
    _, manifest = archive_rows(log.store, log.layout, ZONE, writer=writer, batch=0, log=owner, span=span, rows=rows)
    assert log.store.put_if_absent(log.layout.manifest_key(writer, 0), manifest.to_json())


def _place(log: Log, item: Keyed) -> dict[str, Any]:
    topic_id = log.owner(item.partition).topic_id
    return {"_day": item.day, "_topic_id": topic_id, "_kafka_partition": item.partition, "_offset": item.offset}


def _quarantine(log: Log, monday: list[Keyed]) -> list[dict[str, Any]]:
    rejected = next(item for item in monday if item.fate.startswith("quarantined"))
    removed = next(item for item in monday if item.fate.startswith("removed"))
    kept = {"kept_topic_id": log.owner(0).topic_id, "kept_partition": 0, "kept_offset": 0}
    return [
        {**_place(log, rejected), "reason": REASON, **dict.fromkeys(kept)},
        {**_place(log, removed), "reason": DUPLICATE, **kept},
    ]


_TYPES: Mapping[str, pa.DataType] = {
    "_day": pa.date32(),
    "_topic_id": pa.string(),
    "_kafka_partition": pa.int32(),
    "_offset": pa.int64(),
    "reason": pa.string(),
    "kept_topic_id": pa.string(),
    "kept_partition": pa.int32(),
    "kept_offset": pa.int64(),
}


def _write(log: Log, name: str, rows: list[dict[str, Any]]) -> int:
    """The snapshot with the rows, in a new table."""
    schema = pa.schema([(column, _TYPES[column]) for column in rows[0]])
    with open_catalog(log.settings) as catalog:
        catalog.create_namespace_if_not_exists(log.settings.namespace)
        table = catalog.create_table((log.settings.namespace, name), schema)
        table.append(pa.Table.from_pylist(rows, schema=schema))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id
