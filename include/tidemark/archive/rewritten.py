"""Find logs that were truncated and grew again: Kafka's records there are no longer those in the archive."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tidemark.archive.ledger.history import History
from tidemark.archive.loss import log_starts
from tidemark.archive.write.last_records import logged_records
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import FormatError, PositionError
from tidemark.core.layout import Layout
from tidemark.core.logged_record import (
    AtOffset,
    LoggedRecord,
    RewrittenLog,
    first_different,
    ranges_text,
    same_record,
)
from tidemark.core.manifest import Manifest, parse_manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.kafka.log_ends import LogEnd
from tidemark.kafka.positions import records_at
from tidemark.kafka.topics import topic_config
from tidemark.objects.columns import object_batches
from tidemark.s3 import ObjectStore

Ends = Mapping[TopicPartition, LogEnd]
HINT = (
    "An unclean leader election or a lost disk truncated the log, and new records took its offsets. The archived"
    " records stay as they are. Find the cause. Then set archive.on_rewrite to continue: the archive continues after"
    " them, without the new records at these offsets. Of a topic that was compacted before, compaction may have removed"
    " the record: set its cleanup.policy to compact,delete"
)

TRUNCATED_HINT = (
    "The log was truncated while the batch was read, by an unclean leader election or a lost disk. Find the cause."
    " Before the next start, delete the batch's objects: no manifest lists them"
)


def with_epochs(records: Iterable[LoggedRecord], ends: Ends) -> tuple[LoggedRecord, ...]:
    """The records with the epochs of their logs' leaders."""
    return tuple(replace(item, leader_epoch=ends[item.log].leader_epoch) for item in records)


def differing(
    kafka: KafkaConnection, archived: Iterable[LoggedRecord], ends: Ends
) -> tuple[tuple[LoggedRecord, AtOffset], ...]:
    """The archived records that Kafka does not hold, with what it has there.

    ``ends`` must have been asked for before. Records that retention or compaction removed are left out.
    """
    found: list[tuple[LoggedRecord, AtOffset]] = []
    for topic, of_topic in groupby(sorted(archived, key=lambda item: item.log), key=lambda item: item.log.topic):
        records = {item.log: item for item in of_topic}
        inside = {log: item.offset for log, item in records.items() if item.offset < ends[log].offset}
        there_now = records_at(kafka, inside)
        doubtful = [item for log, item in records.items() if log not in there_now or not item.is_same(there_now[log])]
        if not doubtful:
            continue
        # After the read: retention may have removed a record meanwhile.
        starts = log_starts(kafka, {item.log: OffsetRange(start=0, end=1) for item in doubtful})
        doubtful = [item for item in doubtful if item.log in there_now or item.offset >= starts[item.log]]
        # Retention alone stops no archive without the right to ask for the topic's settings.
        compacted = bool(doubtful) and "compact" in topic_config(kafka, topic)["cleanup.policy"]
        for item in doubtful:
            there = AtOffset(
                record=there_now.get(item.log),
                log_start=starts[item.log],
                end=ends[item.log].offset,
                compacted=compacted,
            )
            if same_record(item, there) is False:
                found.append((item, there))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRecords:
    """One stream's archived records, for comparison with Kafka. ``history`` reads what is archived."""

    store: ObjectStore
    layout: Layout
    kafka: KafkaConnection
    history: Callable[[], History]

    def last(self, logs: Iterable[TopicPartition]) -> tuple[LoggedRecord, ...]:
        """The last archived record of each log; reads one manifest per log.

        A log is left out if nothing is archived of it, or if its newest records were not read from Kafka.
        """
        history = self.history()
        manifests = _Manifests(self.store, self.layout, history)
        newest = {log: int(rows[-1]) for log in logs if len(rows := history.with_rows(log))}
        found = (manifests.last(log, row) for log, row in newest.items())
        return tuple(item for item in found if item is not None)

    def rewritten(self, last: Iterable[LoggedRecord], ends: Ends) -> tuple[RewrittenLog, ...]:
        """The logs whose last archived record Kafka does not hold, with the rewritten range; as ``differing``.

        The range is found by bisection: over the last records of the manifests, then inside one manifest's objects.
        """
        found = differing(self.kafka, last, ends)
        if not found:
            return ()
        manifests = _Manifests(self.store, self.layout, self.history())
        starts = (_first_rewritten(manifests, self.kafka, item, there) for item, there in found)
        return tuple(
            RewrittenLog(
                archived=item, kafka=there.record, end=there.end, range=OffsetRange(start=start, end=item.offset + 1)
            )
            for (item, there), start in zip(found, starts, strict=True)
        )


def rewritten_error(logs: Sequence[RewrittenLog], where: str, objects: tuple[str, ...] = ()) -> PositionError:
    """The error that names both records and the range of each log.

    ``objects`` are those of a batch that was read while the log was truncated; no manifest lists them.
    """
    sides = [item.sides() for item in logs]
    return PositionError(
        "Kafka no longer holds the records that were archived",
        expected="; ".join(expected for expected, _ in sides),
        found="; ".join(found for _, found in sides),
        where=f"{where}, rewritten: {ranges_text(logs)}",
        hint=HINT if not objects else f"{TRUNCATED_HINT}: {', '.join(objects)}",
        objects=objects,
    )


class _Manifests:
    """The manifests of a history, read on demand."""

    def __init__(self, store: ObjectStore, layout: Layout, history: History) -> None:
        self._store, self._layout, self._history = store, layout, history
        self._read: dict[str, Manifest | None] = {}

    def ranges(self, log: TopicPartition) -> list[int]:
        """The ranges of the log that have records, by their ends."""
        found: list[int] = self._history.with_rows(log).tolist()
        return found

    def start(self, row: int) -> int:
        """The first offset of a range."""
        return self._history.ref(row).range.start

    def last(self, log: TopicPartition, row: int) -> LoggedRecord | None:
        """The last record of a range. None if it was not read from Kafka, or without the manifest."""
        manifest = self._manifest(row)
        return None if manifest is None else next((item for item in manifest.last if item.log == log), None)

    def records(self, log: TopicPartition, row: int, first: int) -> list[LoggedRecord]:
        """The records of a range from an offset on, from its objects; none if an object is missing or damaged."""
        manifest = self._manifest(row)
        found: list[LoggedRecord] = []
        for file in manifest.files if manifest is not None else ():
            if file.log == log and file.last_offset >= first:
                try:
                    batches = object_batches(self._store, file.key, ["offset", "timestamp", "key", "value"])
                    found += (item for batch in batches or () for item in logged_records(log, batch, first))
                except FormatError:
                    return []
        return sorted(found, key=lambda item: item.offset)

    def _manifest(self, row: int) -> Manifest | None:
        found = self._history.ref(row)
        key = self._layout.manifest_key(found.writer, found.batch)
        if key not in self._read:
            body = self._store.get(key)
            self._read[key] = None if body is None else parse_manifest(body, where=key)
        return self._read[key]


def _first_rewritten(manifests: _Manifests, kafka: KafkaConnection, last: LoggedRecord, there: AtOffset) -> int:
    """The lowest offset, at or before the last record, that is known to be rewritten."""
    log = last.log

    def same(record: LoggedRecord | None) -> bool | None:
        if record is None:
            return None
        found = records_at(kafka, {log: record.offset}).get(log) if record.offset < there.end else None
        return same_record(record, replace(there, record=found))

    ranges = [row for row in manifests.ranges(log) if manifests.start(row) <= last.offset]
    if not ranges:
        return last.offset
    before, at = first_different(len(ranges), lambda number: same(manifests.last(log, ranges[number])))
    known = None if before is None else manifests.last(log, ranges[before])
    first = manifests.start(ranges[at]) if known is None else known.offset + 1
    records = [item for item in manifests.records(log, ranges[at], first) if item.offset <= last.offset]
    if not records:
        return first
    before, at = first_different(len(records), lambda number: same(records[number]))
    return records[at].offset
