"""Locate a record: its objects, the manifests that committed them, and the seals and snapshots that published it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from tidemark.archive.ledger.ledger import read_archived
from tidemark.archive.manifests import require_manifest
from tidemark.core.days import day_of
from tidemark.core.errors import ConflictError, PositionError, RequestError
from tidemark.core.layout import Layout
from tidemark.core.manifest import COMPACTION, WITHOUT_OBJECT, CommittedRange, DataFile, Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Used
from tidemark.core.seal import Seal
from tidemark.definitions.stream import Stream, load_stream
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.objects.columns import object_batches
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.catalogs import QUESTION
from tidemark.tables.reader import KEPT, load_table, pyiceberg_errors
from tidemark.tables.seals import day_seals
from tidemark.tables.snapshots import published_at, quarantined_at

# With the reason of a quarantined record, or the record that was kept instead of a removed one.
RecordStatus = tuple[Literal["published", "quarantined", "removed"], str | None]
Place = tuple[TopicPartition, int]  # a log and an offset
_PLACE = ("_topic_id", "_kafka_partition", "_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedBatch:
    """A batch that committed the offset and was compacted later."""

    writer: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCopy:
    """One committed range that holds the offset.

    ``object`` is the key of the object with its row. It is None for an offset without a row: a transaction marker, an
    aborted record, or one that topic compaction removed. ``compacted_from`` lists the batches that held the row before
    compactions, the latest one first.
    """

    log: TopicPartition
    range: OffsetRange
    writer: str
    batch: int
    manifest: str
    object: str | None
    compacted_from: tuple[CompactedBatch, ...] = ()

    @property
    def batches(self) -> tuple[tuple[str, int], ...]:
        return ((self.writer, self.batch), *((item.writer, item.batch) for item in self.compacted_from))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedVersion:
    """One sealed version of the record's day.

    ``writer`` and ``batch`` name the copy that the rebuild read. Both are None if the offset was archived after this
    version, or counts as lost in it. ``status`` is the record's status in the version's snapshots, None if neither
    snapshot has the record.
    """

    key: str
    day: date
    version: int
    run: str
    snapshot_id: int | None
    quarantine_snapshot_id: int | None
    writer: str | None
    batch: int | None
    status: RecordStatus | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Everything the platform knows about one offset. ``day`` and ``event_time`` are None if no copy has its row."""

    stream: str
    topic: str
    partition: int
    offset: int
    day: date | None
    event_time: datetime | None
    copies: tuple[RecordCopy, ...]
    seals: tuple[LocatedVersion, ...]


def locate(settings: Settings, stream_name: str, topic: str, partition: int, offset: int) -> Located:
    """Find a record, by reading only the manifests that commit it. A recreated topic has the offset once per topic id.

    Raises RequestError for an unknown stream, topic or partition, PositionError for an offset outside the log or not
    archived, ConflictError for a missing object, FormatError for a damaged one.
    """
    stream = load_stream(stream_name, settings.streams_dir)
    if topic != stream.topic:
        raise RequestError("not the stream's topic", expected=stream.topic, found=topic, where=f"stream {stream.name}")
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    history = read_archived(store, layout, stream).history()
    copies, times = [], set()
    for writer, batch in history.manifests_with(topic, partition, offset):
        manifest, _ = require_manifest(store, layout, writer, batch)
        for item in manifest.ranges:
            if (item.log.topic, item.log.partition) != (topic, partition) or offset not in item.range:
                continue
            key, event_time = _row(store, manifest, item, offset)
            if event_time is not None:
                times.add(event_time)
            copies.append(
                RecordCopy(
                    log=item.log,
                    range=item.range,
                    writer=manifest.writer,
                    batch=manifest.batch,
                    manifest=layout.manifest_key(manifest.writer, manifest.batch),
                    object=key,
                    compacted_from=_compacted_from(store, layout, manifest, item.log, offset),
                )
            )
    if not copies:
        raise _explain_absence(settings, stream, history.extents(), partition, offset)
    days = sorted({day_of(moment, stream.zone) for moment in times})
    return Located(
        stream=stream.name,
        topic=topic,
        partition=partition,
        offset=offset,
        day=days[0] if days else None,
        event_time=min(times) if times else None,
        copies=tuple(copies),
        seals=tuple(item for day in days for item in _seals(settings, stream, day, copies, offset)),
    )


def _compacted_from(
    store: ObjectStore, layout: Layout, manifest: Manifest, log: TopicPartition, offset: int
) -> tuple[CompactedBatch, ...]:
    found: list[CompactedBatch] = []
    while replaced := next((item for item in manifest.replaces if item.log == log and offset in item.range), None):
        found.append(CompactedBatch(writer=replaced.writer, batch=replaced.batch))
        if replaced.writer != COMPACTION:
            break
        manifest, _ = require_manifest(store, layout, replaced.writer, replaced.batch)
    return tuple(found)


def _row(
    store: ObjectStore, manifest: Manifest, item: CommittedRange, offset: int
) -> tuple[str | None, datetime | None]:
    """The key of the object with the offset's row, and the row's event time."""
    for file in manifest.files:
        if (file.log, file.range) != (item.log, item.range) or not file.first_offset <= offset <= file.last_offset:
            continue
        for batch in committed_batches(store, file, ["offset", "event_time"]):
            rows = batch.filter(pc.equal(batch["offset"], offset))
            if rows.num_rows:
                return file.key, rows["event_time"][0].as_py()
    return None, None


def committed_batches(store: ObjectStore, file: DataFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """``object_batches`` of a file that a manifest lists. Raises ConflictError if there is no object."""
    batches = object_batches(store, file.key, columns)
    if batches is None:
        raise ConflictError(
            "a committed object is missing",
            expected=f"{file.bytes} bytes",
            found="no object",
            where=file.key,
            hint=WITHOUT_OBJECT,
        )
    return batches


def _seals(
    settings: Settings, stream: Stream, day: date, copies: Sequence[RecordCopy], offset: int
) -> tuple[LocatedVersion, ...]:
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    logs = {copy.log for copy in copies}
    found = []
    for seal in day_seals(store, layout, day):
        uses = [(item.log, use) for item in seal.logs if item.log in logs and (use := item.use_of(offset)) is not None]
        log, used = uses[0] if uses else (None, None)
        found.append(
            LocatedVersion(
                key=layout.seal_key(seal.day, seal.version),
                day=seal.day,
                version=seal.version,
                run=seal.run,
                snapshot_id=seal.snapshot_id,
                quarantine_snapshot_id=seal.quarantine_snapshot_id,
                writer=used.writer if used else None,
                batch=_batch(copies, used) if used else None,
                status=record_status(settings, stream, seal, log, offset) if log is not None else None,
            )
        )
    return tuple(found)


def _batch(copies: Sequence[RecordCopy], used: Used) -> int:
    """The batch that holds the offset, among those that the used range covers."""
    batches = (batch for copy in copies for writer, batch in copy.batches if writer == used.writer)
    return next((batch for batch in batches if used.batch <= batch <= used.last), used.batch)


def _explain_absence(
    settings: Settings, stream: Stream, archived: Mapping[TopicPartition, tuple[int, int]], partition: int, offset: int
) -> RequestError | PositionError:
    logs = describe_topic(settings.kafka, stream.topic)
    log = next((item for item in logs if item.partition == partition), None)
    if log is None:
        return RequestError("no such partition", expected=f"0 to {len(logs) - 1}", found=partition, where=stream.topic)
    (mark,) = watermarks(settings.kafka, [log])
    lowest, highest = archived.get(log, (mark.log_start, mark.log_start))
    if not min(lowest, mark.log_start) <= offset < max(highest, mark.high_watermark):
        return PositionError(
            "the offset is outside the log",
            expected=f"{min(lowest, mark.log_start)} to {mark.high_watermark - 1}"
            if mark.high_watermark > mark.log_start or log in archived
            else "no offset, the log is empty",
            found=offset,
            where=str(log),
        )
    inside = offset < highest
    return PositionError(
        "the offset is not archived",
        expected=f"a manifest that holds offset {offset}",
        found=f"a gap below the archive's end {highest}" if inside else f"an archive that ends at {highest}",
        where=str(log),
        hint="The next reconcile run refills the gap, if Kafka still holds it"
        if inside
        else "The archive stream has not read it yet",
    )


def record_status(
    settings: Settings, stream: Stream, seal: Seal, log: TopicPartition, offset: int
) -> RecordStatus | None:
    """The record's status in the snapshots of one seal; None if both expired or neither has the record."""
    return record_statuses(settings, stream, seal, [(log, offset)]).get((log, offset))


def record_statuses(
    settings: Settings, stream: Stream, seal: Seal, places: Collection[Place]
) -> dict[Place, RecordStatus]:
    """``record_status`` of each place that has one."""
    names = {(log.topic_id, log.partition, offset): (log, offset) for log, offset in places}
    if not names:
        return {}
    wanted = _row_filter(seal.day, places)
    table, quarantine = (load_table(settings, name, QUESTION) for name in (stream.table, stream.quarantine_table))
    found: dict[Place, RecordStatus] = {}
    left_out = names.keys() - {_place(row) for row in _table_rows(table, published_at(table, seal), wanted, _PLACE)}
    found.update({place: ("published", None) for name, place in names.items() if name not in left_out})
    if not left_out:
        return found
    wanted = _row_filter(seal.day, [names[name] for name in left_out])
    for row in _table_rows(quarantine, quarantined_at(quarantine, seal), wanted, (*_PLACE, "reason", *KEPT)):
        place = names[_place(row)]
        topic_id, partition, kept = (row.get(name) for name in KEPT)
        if kept is None:
            found[place] = "quarantined", str(row["reason"])
        else:
            other_topic = "" if topic_id == place[0].topic_id else f" of topic id {topic_id}"
            found[place] = "removed", f"{row['reason']} of partition {partition}, offset {kept}{other_topic}"
    return found


def _row_filter(day: date, places: Collection[Place]) -> str:
    offsets: dict[TopicPartition, list[str]] = {}
    for log, offset in sorted(places):
        offsets.setdefault(log, []).append(str(offset))
    logs = (
        f"(_topic_id = '{log.topic_id}' AND _kafka_partition = {log.partition} AND _offset IN ({', '.join(own)}))"
        for log, own in offsets.items()
    )
    return f"_day = '{day}' AND ({' OR '.join(logs)})"


def _place(row: Mapping[str, Any]) -> tuple[str, int, int]:
    topic_id, partition, offset = (row[name] for name in _PLACE)
    return topic_id, partition, offset


def _table_rows(
    table: Table | None, snapshot_id: int | None, wanted: str, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """The wanted rows of a snapshot, with those of the columns that it has. None without the table or snapshot."""
    if table is None or snapshot_id is None or table.snapshot_by_id(snapshot_id) is None:
        return []
    scan = table.scan(row_filter=wanted, snapshot_id=snapshot_id)
    known = scan.projection().column_names
    with pyiceberg_errors(table.name()[-1]):
        found: list[dict[str, Any]] = scan.select(*(name for name in columns if name in known)).to_arrow().to_pylist()
    return found
