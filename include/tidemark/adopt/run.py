"""Adopting: objects that Kafka Connect wrote get manifests and count as part of the archive, where they are.

Nothing is copied, moved, rewritten or deleted. What such objects leave out is either derived or refused:

- Offsets. An object's rows are taken to be at its ``start`` and the offsets that follow. That holds only if none is
  missing in between, which the next object proves: it starts where this one ends. An object of which that isn't so is
  refused, because nobody can tell where its hole is, and its range stays a gap. The last one of a partition has no such
  witness: what Kafka still holds of it is compared, and once a next object is there it must fit.
- The topic's identity. Values are compared with Kafka's as far as it still holds them.
- Time. Event time comes from the value, so the stream must have the extractor ``record_field``.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from tidemark.adopt.check import require_same_log, to_compare
from tidemark.adopt.listing import (
    Ignored,
    LogObjects,
    RefusedObject,
    by_log,
    checksum_of,
    folder_of,
    match_known,
    require_inside,
    sort_out,
)
from tidemark.adopt.scan import Listed, Scanned, scan
from tidemark.archive.manifests import commit_batch, last_manifest
from tidemark.core.errors import ConfigError, ConflictError
from tidemark.core.layout import Layout
from tidemark.core.manifest import ADOPTED, DataFile
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise, subtract
from tidemark.definitions.sections import FieldTime
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import Watermarks, watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

MANIFEST_FILES = 1_000
SCAN_FILES = 200
SCAN_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedLog:
    """What became of one partition's objects. ``known`` were adopted before; ``rows`` and ``bytes`` count new ones.

    ``held`` is every offset adopted, before or now; ``gaps`` lie between its first and its last.
    """

    log: TopicPartition
    new: int
    known: int
    rows: int
    bytes: int
    held: OffsetSet
    gaps: OffsetSet
    refused: tuple[RefusedObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """``compared`` counts values that were found alike in Kafka; ``manifests`` are the keys of those written."""

    stream: str
    folder: str
    writer: str
    dry_run: bool
    compared: int
    logs: tuple[AdoptedLog, ...]
    ignored: tuple[Ignored, ...]
    manifests: tuple[str, ...]


def adopt(
    spark: SparkSession,
    settings: Settings,
    stream: Stream,
    prefix: str,
    *,
    topic_id: str | None = None,
    dry_run: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Adoption:
    """Adopt what lies below ``prefix`` and is not adopted yet; with ``dry_run`` only tell what would be.

    ``topic_id`` vouches that the objects are of that topic, needed where Kafka holds none of their records any more.
    ``progress`` is called with the objects read so far and in all. Raises ConfigError where the stream can't have
    adopted objects or the prefix holds none, ConflictError where objects are of another log, were changed since they
    were adopted, or show that one adopted earlier has holes. Stopped in the middle, it goes on when it is repeated.
    """
    _require_adoptable(stream)
    folder = folder_of(settings, prefix)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    objects, ignored = sort_out(store.list(folder), stream.topic)
    if not objects:
        raise ConfigError(
            "nothing to adopt",
            expected=f"objects …/partition=<partition>/{stream.topic}+<partition>+<start>.<format>",
            found="; ".join(f"{item.count} {item.reason}" for item in ignored) or "no object",
            where=f"s3://{store.bucket}/{folder}",
        )
    groups = by_log(objects, describe_topic(settings.kafka_bootstrap, stream.topic), topic_id)
    match_known(store, layout, groups)
    marks = {item.log: item for item in watermarks(settings.kafka_bootstrap, [item.log for item in groups])}
    require_inside(groups, marks)
    job = _Job(spark=spark, settings=settings, stream=stream, groups=groups, progress=progress)
    compared = job.prove_topic(marks, vouched=topic_id is not None)
    writer = writer_name(store.bucket, folder)
    manifests: list[str] = []
    for accepted in job.accepted():
        if not dry_run:
            manifests += _commit(store, layout, stream, writer, accepted)
    return Adoption(
        stream=stream.name,
        folder=folder,
        writer=writer,
        dry_run=dry_run,
        compared=compared,
        logs=tuple(_told(item) for item in groups),
        ignored=ignored,
        manifests=tuple(manifests),
    )


def writer_name(bucket: str, folder: str) -> str:
    """The writer of a prefix's manifests: always the same one, and to be recognised by a person."""
    place = f"s3://{bucket}/{folder}"
    slug = re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-")[:40]
    return f"{ADOPTED}{slug + '-' if slug else ''}{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def _require_adoptable(stream: Stream) -> None:
    if not isinstance(stream.event_time, FieldTime):
        raise ConfigError(
            "adopted records have no timestamp of their own",
            expected="event_time.extractor record_field",
            found=stream.event_time.extractor,
            where=f"stream {stream.name}",
        )
    if stream.value_format != "json":
        raise ConfigError(
            "adopted values are JSON",
            expected="value_format json",
            found=stream.value_format,
            where=f"stream {stream.name}",
        )


Accepted = tuple[TopicPartition, Listed, Scanned]


class _Job:
    """Reads objects, each once, and tells those that can be adopted from those that can't."""

    def __init__(
        self,
        *,
        spark: SparkSession,
        settings: Settings,
        stream: Stream,
        groups: Sequence[LogObjects],
        progress: Callable[[int, int], None],
    ) -> None:
        self._spark, self._settings, self._stream = spark, settings, stream
        self._progress = progress
        self._groups = groups
        self._new = [(group, item) for group in groups for item in group.new]
        self._scanned: dict[str, Scanned] = {}
        self._unproven: ConflictError | None = None

    def prove_topic(self, marks: dict[TopicPartition, Watermarks], *, vouched: bool) -> int:
        """Compare some objects with Kafka before any is adopted; how many values were alike.

        Raises ConflictError for one that is not. Where there is none to compare and nobody vouches, ``accepted`` does.
        """
        early = []
        for group in self._groups:
            files = [(item, group.bound(item.name.start)) for item in group.new]
            early += [(group, item) for item in to_compare(files, marks[group.log])]
        for chunk in _chunks(early):
            self._read(chunk)
        fit = [
            (group.log, item, self._scanned[item.key]) for group, item in early if self._problem(group, item) is None
        ]
        compared = require_same_log(self._settings, marks, fit)
        if not compared and not vouched:
            log = self._groups[0].log
            self._unproven = ConflictError(
                "Kafka holds none of the objects' records any more, so it can't tell whether they are of this topic",
                expected="a record to compare",
                found="; ".join(f"{item} from {mark.log_start}" for item, mark in marks.items()),
                where=log.topic,
                hint=f"If the topic was not deleted and made again since, vouch for it: --topic-id {log.topic_id}",
            )
        return compared

    def accepted(self) -> Iterator[list[Accepted]]:
        """What can be adopted, in order, up to MANIFEST_FILES objects at a time; the rest is marked as refused.

        Raises ConflictError before the first one where nothing shows that it is of this topic.
        """
        pending: list[Accepted] = []
        for chunk in _chunks(self._new):
            self._read(chunk)
            for group, item in chunk:
                problem, found = self._problem(group, item), self._scanned[item.key]
                if problem is None:
                    if self._unproven is not None:
                        raise self._unproven
                    group.adopted.append((item, found))
                    pending.append((group.log, item, found))
                else:
                    group.refused.append(RefusedObject(key=item.key, reason=problem))
            while len(pending) >= MANIFEST_FILES:
                yield pending[:MANIFEST_FILES]
                pending = pending[MANIFEST_FILES:]
        if pending:
            yield pending

    def _read(self, chunk: Sequence[tuple[LogObjects, Listed]]) -> None:
        left = [item for _, item in chunk if item.key not in self._scanned]
        if left:
            self._scanned |= scan(self._spark, self._settings, self._stream, left)
        self._progress(len(self._scanned), len(self._new))

    def _problem(self, group: LogObjects, item: Listed) -> str | None:
        """Why the object can't be adopted; None where it can."""
        found = self._scanned[item.key]
        if found.problem is not None:
            return found.problem
        bound = group.bound(item.name.start)
        if bound is None or found.rows == bound - item.name.start:
            return None
        offsets = bound - item.name.start
        why = "it overlaps that" if found.rows > offsets else "nobody can tell where the holes are"
        return f"{found.rows} rows for the {offsets} offsets [{item.name.start}, {bound}) up to the next object: {why}"


def _chunks(items: Sequence[tuple[LogObjects, Listed]]) -> Iterator[Sequence[tuple[LogObjects, Listed]]]:
    """So many objects and bytes as one job reads: short enough to see it go on."""
    start, size = 0, 0
    for at, (_, item) in enumerate(items):
        if at > start and (at - start >= SCAN_FILES or size + item.bytes > SCAN_BYTES):
            yield items[start:at]
            start, size = at, 0
        size += item.bytes
    if start < len(items):
        yield items[start:]


def _commit(
    store: ObjectStore, layout: Layout, stream: Stream, writer: str, accepted: Sequence[Accepted]
) -> Iterator[str]:
    """Write the manifests of these objects; one holds a run of objects without a gap of each log."""
    before = last_manifest(store, layout, writer)
    batch = 0 if before is None else before.batch + 1
    left: dict[TopicPartition, list[list[tuple[Listed, Scanned]]]] = {}
    for log, item, found in accepted:
        runs = left.setdefault(log, [])
        if not runs or _end(*runs[-1][-1]) != item.name.start:
            runs.append([])
        runs[-1].append((item, found))
    while left:
        ranges = {
            log: OffsetRange(start=runs[0][0][0].name.start, end=_end(*runs[0][-1])) for log, runs in left.items()
        }
        files = [_file(log, ranges[log], item, found) for log, runs in left.items() for item, found in runs[0]]
        commit_batch(
            store,
            layout,
            stream,
            writer=writer,
            batch=batch,
            ranges=ranges,
            files=files,
            now_us=int(datetime.now(UTC).timestamp() * 1_000_000),
        )
        yield layout.manifest_key(writer, batch)
        batch += 1
        left = {log: runs[1:] for log, runs in left.items() if len(runs) > 1}


def _end(item: Listed, found: Scanned) -> int:
    return item.name.start + found.rows


def _file(log: TopicPartition, committed: OffsetRange, item: Listed, found: Scanned) -> DataFile:
    """The object in a manifest; its timestamps are event times, for it has no others."""
    return DataFile(
        key=item.key,
        log=log,
        range=committed,
        rows=found.rows,
        bytes=item.bytes,
        first_offset=item.name.start,
        last_offset=_end(item, found) - 1,
        min_timestamp_us=found.first_us,
        max_timestamp_us=found.last_us,
        days=found.days,
        checksum=checksum_of(found.sha256, item.etag),
    )


def _told(group: LogObjects) -> AdoptedLog:
    held = normalise(
        [
            *(OffsetRange(start=item.first_offset, end=item.last_offset + 1) for item in group.known.values()),
            *(OffsetRange(start=item.name.start, end=_end(item, found)) for item, found in group.adopted),
        ]
    )
    whole = [OffsetRange(start=held[0].start, end=held[-1].end)] if held else []
    return AdoptedLog(
        log=group.log,
        new=len(group.adopted),
        known=len(group.known),
        rows=sum(found.rows for _, found in group.adopted),
        bytes=sum(item.bytes for item, _ in group.adopted),
        held=held,
        gaps=subtract(whole, held),
        refused=tuple(sorted(group.refused, key=lambda item: item.key)),
    )
