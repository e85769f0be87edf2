"""Derive a day from its archive: from every manifest, and every object with rows of the day."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, tzinfo
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.archive.manifests import manifest_bodies
from tidemark.core.cover import Copy
from tidemark.core.days import Span, day_spans, micros
from tidemark.core.errors import FormatError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.core.manifest import COMPACTION, DataFile, Manifest, digest, parse_manifest
from tidemark.core.manifest_chain import broken_links
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, count, normalise, subtract
from tidemark.objects.bits import Ints, OffsetBits
from tidemark.objects.checksum import ALGORITHM, RowChecksum
from tidemark.objects.columns import object_batches
from tidemark.objects.schema import NO_TIMESTAMP_TYPE, SCHEMA
from tidemark.s3 import ObjectStore
from tidemark.verify.lineage import Basis, Lineage
from tidemark.verify.result import ProofPart

_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRange:
    """A committed range of a manifest. ``of_day`` are offsets from the first to the last row of the day, per object.

    ``day_settings`` decided the days of its rows; None if they are unknown.
    """

    range: OffsetRange
    rows: int
    replaced: bool
    committed_at_us: int = 0
    of_day: OffsetSet = ()
    day_settings: str | None = None


@dataclass(slots=True, kw_only=True)
class Derived:
    """``batches`` by log, writer and batch include replaced ranges. ``missing`` counts missing objects, and
    ``deleted`` manifests.

    ``rows`` are the version's offsets, ``copies`` counts their copies in batches that its plan knew. ``later`` are the
    offsets of the day's other rows, ``late`` counts these with all copies. ``undated`` of them may have been archived
    before the seal; ``unused`` are in batches of the version, at offsets that it did not use. ``elsewhere`` counts
    offsets that are of another day in the copy that the version has used.
    """

    manifests: int = 0
    objects: int = 0
    missing: int = 0
    deleted: int = 0
    all_missing: bool = False
    late: int = 0
    undated: int = 0
    unused: int = 0
    elsewhere: int = 0
    batches: dict[TopicPartition, dict[str, dict[int, ListedRange]]] = field(default_factory=dict)
    rows: dict[TopicPartition, OffsetBits] = field(default_factory=dict)
    copies: dict[TopicPartition, int] = field(default_factory=dict)
    later: dict[TopicPartition, OffsetBits] = field(default_factory=dict)

    @property
    def left_out(self) -> int:
        """The number of the day's records that are archived and not part of the version."""
        return sum(count(bits.without(self.rows[log])) for log, bits in self.later.items())

    def keep(self, log: TopicPartition, used: Sequence[OffsetRange]) -> None:
        """Rows at other offsets than the used ones are not the version's."""
        bits, before = self.rows[log], self.rows[log].bits.copy()
        for span in subtract([bits.window], used):
            self.unused += bits.clear(span)
        self.later[log].bits |= before & ~bits.bits

    def windows(self) -> dict[TopicPartition, OffsetRange]:
        """The checked offsets by log."""
        return {log: bits.window for log, bits in self.rows.items()}

    def committed(self, log: TopicPartition) -> OffsetSet:
        """The offsets of all ranges in use."""
        batches = self.batches.get(log, {}).values()
        return normalise(item.range for own in batches for item in own.values() if not item.replaced)

    def copies_of(self, log: TopicPartition) -> list[Copy]:
        """The ranges in use, with what decided the days of their rows."""
        return [
            Copy(range=item.range, rows=item.rows, day_settings=item.day_settings)
            for own in self.batches.get(log, {}).values()
            for item in own.values()
            if not item.replaced
        ]


@dataclass(slots=True, kw_only=True)
class WindowRows:
    """The rows of a log in a window: their ``offsets``, and ``times``, pairs of arrays of offsets and timestamps (ms).

    Rows that were not read from Kafka are not in ``times``. Several copies of a row are.
    """

    offsets: OffsetBits
    times: list[tuple[Ints, Ints]] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of an object, with the columns offset, timestamp and timestamp_type."""
        offsets, kinds = batch.column(0).to_numpy(), batch.column(2).to_numpy()
        times = batch.column(1).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
        self.offsets.add(offsets)
        window = self.offsets.window
        wanted = (offsets >= window.start) & (offsets < window.end) & (kinds != NO_TIMESTAMP_TYPE)
        self.times.append((offsets[wanted], times[wanted] // 1000))

    def other_times(self, offsets: Ints, timestamps_ms: Ints) -> tuple[int, Ints]:
        """How many rows have one of Kafka's records, given in offset order, and at which offsets the timestamps
        differ."""
        compared, other = 0, []
        for own, own_ms in self.times:
            at = np.minimum(np.searchsorted(offsets, own), max(len(offsets) - 1, 0))
            known = offsets[at] == own if len(offsets) else np.zeros(len(own), dtype=bool)
            compared += int(known.sum())
            other.append(own[known][timestamps_ms[at[known]] != own_ms[known]])
        return compared, np.unique(np.concatenate([np.empty(0, dtype=np.int64), *other]))


class ArchiveReader:
    """One stream's archive, for one day."""

    def __init__(self, store: ObjectStore, layout: Layout, day: date, zone: tzinfo) -> None:
        self._store, self._layout = store, layout
        self._day = day
        self._spans = day_spans(day, zone)
        self._deleted = 0  # manifests

    def derive(self, basis: Basis, chains: ProofPart, files: ProofPart, progress: Callable[[str], None]) -> Derived:
        """Read the archive of the day; the checks get every difference."""
        found = Derived()
        todo: dict[str, tuple[DataFile, Manifest]] = {}
        lineage = Lineage(self._compactions())
        for manifest in self._manifests(chains, progress):
            found.manifests += 1
            if lineage.too_new(manifest):
                continue
            self._take(manifest, found, chains, lineage)
            for file in manifest.files:
                if lineage.replaced((manifest.writer, manifest.batch, file.log)):
                    continue
                if not any(rows.day == self._day for rows in file.days):
                    continue
                # Several manifests list one object if a stream lost its checkpoint, or if two runs refilled a range.
                # The object is part of the version if one of them is.
                _, known = todo.get(file.key, (file, manifest))
                todo[file.key] = (file, min(known, manifest, key=partial(basis.rank, file.log)))
        found.deleted = self._deleted
        for log in found.batches:
            lineage.compare(log, found.committed(log), chains)
        windows = _windows([file for file, _ in todo.values()])
        found.rows = {log: OffsetBits(window) for log, window in windows.items()}
        found.later = {log: OffsetBits(window) for log, window in windows.items()}
        found.copies = dict.fromkeys(windows, 0)
        for number, (_, (file, manifest)) in enumerate(sorted(todo.items())):
            progress(f"object {number + 1:,} of {len(todo):,}")
            before = found.late
            self._read(file, found, files, late=lineage.late(manifest, file, basis))
            if not basis.follows(manifest):
                found.undated += found.late - before
        found.all_missing = 0 < found.missing == len(todo)
        chains.derived_from = f"{found.manifests:,} manifests{lineage.derived_from}"
        files.derived_from = f"{found.objects:,} objects, every row and checksum"
        if found.all_missing:
            files.differences.clear()
            files.total = 0
            files.unknown.append(f"all {found.missing:,} objects of the day are missing")
        return found

    def rows(self, window: OffsetRange, log: TopicPartition, found: Derived, check: ProofPart) -> WindowRows:
        """The window's rows of any day, from the objects of every batch in it."""
        rows = WindowRows(offsets=OffsetBits(window))
        for writer, batches in found.batches.get(log, {}).items():
            for number, batch in batches.items():
                if batch.replaced or batch.range.start >= window.end or batch.range.end <= window.start:
                    continue
                key = self._layout.manifest_key(writer, number)
                body = self._store.get(key)
                if body is None:
                    continue
                files = [item for item in parse_manifest(body, where=key).files if item.log == log]
                try:
                    own = self._rows(files, window)
                except FormatError:
                    continue  # a difference of the objects
                if own is None:
                    check.unknown.append(f"objects of {key} are missing: their rows can't be distinguished from holes")
                else:
                    rows.offsets.bits |= own.offsets.bits
                    rows.times += own.times
        return rows

    def _rows(self, files: Sequence[DataFile], window: OffsetRange) -> WindowRows | None:
        """The files' rows in the window; None if a file is missing."""
        found = WindowRows(offsets=OffsetBits(window))
        for file in files:
            if file.first_offset < window.end and file.last_offset >= window.start:
                batches = object_batches(self._store, file.key, ["offset", "timestamp", "timestamp_type"])
                if batches is None:
                    return None
                for batch in batches:
                    found.add(batch)
        return found

    def _compactions(self) -> Iterator[Manifest]:
        """Manifests that replace ranges. They must be known before the others are counted."""
        listed = self._store.list(f"{self._layout.manifest_prefix}{COMPACTION}/")
        for bodies in manifest_bodies(self._store, listed, at_once=_AT_ONCE):
            for key, body in bodies:
                try:
                    manifest = parse_manifest(body or b"", where=key)
                except TidemarkError:
                    continue  # a difference of the manifests, like one at another's key
                if self._layout.manifest_key(manifest.writer, manifest.batch) == key:
                    yield manifest

    def _manifests(self, check: ProofPart, progress: Callable[[str], None]) -> Iterator[Manifest]:
        last: dict[str, tuple[int, str]] = {}
        read = 0
        for bodies in manifest_bodies(self._store, self._store.list(self._layout.manifest_prefix), at_once=_AT_ONCE):
            manifests = []
            for key, body in bodies:
                try:
                    item = parse_manifest(body or b"", where=key)
                except TidemarkError as error:
                    check.differs("a manifest does not parse", expected="a manifest", found=error, where=key)
                    continue
                if (item.stream, self._layout.manifest_key(item.writer, item.batch)) != (self._layout.stream, key):
                    found = f"{item.stream}, batch {item.batch} of {item.writer}"
                    check.differs("a manifest does not match its key", expected=key, found=found, where=key)
                    continue
                manifests.append(item)
            for link in broken_links(manifests, last):
                where = self._layout.manifest_key(link.writer, link.batch)
                if link.after is None or link.after < link.batch - 1:
                    # Its ranges are committed by others too, or they are a difference of the ranges.
                    check.notes.append(f"a manifest before {where} was deleted")
                    self._deleted += 1
                    continue
                check.differs(
                    "the manifest before was altered",
                    expected=f"SHA-256 {link.found}",
                    found=f"SHA-256 {link.expected}",
                    where=self._layout.manifest_key(link.writer, link.after),
                )
            last |= {item.writer: (item.batch, digest(item.to_json())) for item in manifests}
            read += len(bodies)
            progress(f"{read:,} manifests")
            yield from manifests

    def _take(self, manifest: Manifest, found: Derived, check: ProofPart, lineage: Lineage) -> None:
        key = self._layout.manifest_key(manifest.writer, manifest.batch)
        lineage.see(manifest, key, check)
        for before in manifest.replaces:  # a seal may have used it, even if its manifest is missing
            known = found.batches.setdefault(before.log, {}).setdefault(before.writer, {})
            known.setdefault(before.batch, ListedRange(range=before.range, rows=len(before.range), replaced=True))
        rows: dict[tuple[TopicPartition, OffsetRange], int] = {}
        of_day: dict[TopicPartition, list[OffsetRange]] = {}
        for file in manifest.files:
            rows[file.log, file.range] = rows.get((file.log, file.range), 0) + file.rows
            of_day.setdefault(file.log, []).extend(
                OffsetRange(start=item.first_offset, end=item.last_offset + 1)
                for item in file.days
                if item.day == self._day
            )
        for item in manifest.ranges:
            batches = found.batches.setdefault(item.log, {}).setdefault(manifest.writer, {})
            replaced = lineage.replaced((manifest.writer, manifest.batch, item.log))
            batches[manifest.batch] = ListedRange(
                range=item.range,
                rows=item.rows,
                replaced=replaced,
                committed_at_us=manifest.committed_at_us,
                of_day=normalise(of_day.get(item.log, ())),
                day_settings=manifest.day_settings,
            )
            listed = rows.pop((item.log, item.range), 0)
            check.equal("rows of a range and of its objects", expected=item.rows, found=listed, where=key)
        for log, span in rows:
            check.differs(
                "an object belongs to no range of its manifest", expected="its range", found=span, where=f"{key}, {log}"
            )

    def _read(self, file: DataFile, found: Derived, check: ProofPart, *, late: Sequence[OffsetRange]) -> None:
        """Compare an object with its manifest. Rows of the day go to ``found``; those in ``late`` are only counted."""
        checksum = RowChecksum(SCHEMA.names) if file.checksum.startswith(ALGORITHM) else None
        columns = ["offset", "event_time"] if checksum is None else SCHEMA.names
        rows, of_day, first, last = 0, 0, None, None
        listed = next((item.rows for item in file.days if item.day == self._day), 0)
        try:
            batches = object_batches(self._store, file.key, columns)
            if batches is None:
                found.missing += 1
                check.differs("an object is missing", expected=f"{file.rows} rows", found="no object", where=file.key)
                return
            found.objects += 1
            for batch in batches:
                if checksum is not None:
                    checksum.add(batch)
                offsets = batch.column(batch.schema.get_field_index("offset")).to_numpy()
                first = int(offsets[0]) if first is None else first
                last = int(offsets[-1])
                rows += batch.num_rows
                own = offsets[self._of_day(batch)]
                of_day += len(own)
                for span in late:
                    inside = (own >= span.start) & (own < span.end)
                    found.late += int(inside.sum())
                    found.later[file.log].add(own[inside])
                    own = own[~inside]
                found.copies[file.log] += len(own)
                found.rows[file.log].add(own)
        except FormatError as error:
            check.differs("an object can't be read", expected=f"{file.rows} rows", found=error, where=file.key)
            return
        check.equal("rows of an object", expected=file.rows, found=rows, where=file.key)
        expected = (file.first_offset, file.last_offset)
        check.equal("first and last offset of an object", expected=expected, found=(first, last), where=file.key)
        check.equal("rows of the day in an object", expected=listed, found=of_day, where=file.key)
        if checksum is not None:
            check.equal("checksum of an object's rows", expected=file.checksum, found=checksum.value, where=file.key)
        else:
            check.notes.append(f"no comparable checksum: {file.key} has {file.checksum!r}")

    def _of_day(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        column = batch.column(batch.schema.get_field_index("event_time"))
        times = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy(zero_copy_only=False)
        return within(times, self._spans)


def within(times: npt.NDArray[np.int64], spans: Sequence[Span], *, unit_us: int = 1) -> npt.NDArray[np.bool_]:
    """Which of the times since the epoch, in units of so many µs, are in one of the spans."""
    found = np.zeros(len(times), dtype=np.bool_)
    for start, end in spans:
        found |= (times >= micros(start) // unit_us) & (times < micros(end) // unit_us)
    return found


def _windows(files: Sequence[DataFile]) -> Mapping[TopicPartition, OffsetRange]:
    """The offsets by log that may have rows of the day: those of all objects with some."""
    found: dict[TopicPartition, OffsetRange] = {}
    for file in files:
        before = found.get(file.log, file.range)
        found[file.log] = OffsetRange(start=min(before.start, file.range.start), end=max(before.end, file.range.end))
    return found
