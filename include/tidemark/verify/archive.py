"""A day derived from its archive alone: every manifest, and every object with rows of the day, read to its end."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, tzinfo
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.archive.manifests import manifest_bodies
from tidemark.core.days import day_end, day_start, micros
from tidemark.core.errors import FormatError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.core.manifest import COMPACTION, DataFile, Manifest, digest, parse_manifest
from tidemark.core.manifest_chain import broken_links
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise
from tidemark.objects.bits import OffsetBits
from tidemark.objects.checksum import ALGORITHM, RowChecksum
from tidemark.objects.columns import archived_offsets, object_batches
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore
from tidemark.verify.lineage import Basis, Lineage
from tidemark.verify.result import ProofPart

_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRange:
    """A committed range as its manifest has it."""

    range: OffsetRange
    rows: int
    replaced: bool


@dataclass(slots=True, kw_only=True)
class Derived:
    """``batches`` by log, writer and batch, those of replaced ranges too. ``rows`` are the offsets with a row of the
    day, by log, of what the version is made of; ``copies`` counts those rows with all their copies; ``late`` those that
    came later."""

    manifests: int = 0
    objects: int = 0
    gone: int = 0
    all_gone: bool = False
    late: int = 0
    batches: dict[TopicPartition, dict[str, dict[int, ListedRange]]] = field(default_factory=dict)
    rows: dict[TopicPartition, OffsetBits] = field(default_factory=dict)
    copies: dict[TopicPartition, int] = field(default_factory=dict)

    def windows(self) -> dict[TopicPartition, OffsetRange]:
        """The offsets that were looked at, by log."""
        return {log: bits.window for log, bits in self.rows.items()}

    def committed(self, log: TopicPartition) -> OffsetSet:
        """The offsets that ranges in use hold."""
        batches = self.batches.get(log, {}).values()
        return normalise(item.range for own in batches for item in own.values() if not item.replaced)


class ArchiveReader:
    """One stream's archive, for one day."""

    def __init__(self, store: ObjectStore, layout: Layout, day: date, zone: tzinfo) -> None:
        self._store, self._layout = store, layout
        self._day = day
        self._span = tuple(micros(moment) for moment in (day_start(day, zone), day_end(day, zone)))

    def derive(self, basis: Basis, chains: ProofPart, files: ProofPart, progress: Callable[[str], None]) -> Derived:
        """Everything the archive says of the day; what does not fit goes to the checks."""
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
                # Several list one object where a stream lost its checkpoint, or where two runs refilled the same range:
                # it is part of the version by the one that was used, and as old as the first of them.
                _, known = todo.get(file.key, (file, manifest))
                todo[file.key] = (file, min(known, manifest, key=partial(basis.rank, file.log)))
        for log in found.batches:
            lineage.compare(log, found.committed(log), chains)
        windows = _windows([file for file, _ in todo.values()])
        found.rows = {log: OffsetBits(window) for log, window in windows.items()}
        found.copies = dict.fromkeys(windows, 0)
        for number, (_, (file, manifest)) in enumerate(sorted(todo.items())):
            progress(f"object {number + 1:,} of {len(todo):,}")
            self._read(file, found, files, late=lineage.late(manifest, file, basis))
        found.all_gone = 0 < found.gone == len(todo)
        chains.looked_at = f"{found.manifests:,} manifests{lineage.looked_at}"
        files.looked_at = f"{found.objects:,} objects, every row and checksum"
        if found.all_gone:
            files.differences.clear()
            files.total = 0
            files.unknown.append(f"none of the day's {found.gone:,} objects is there any more")
        return found

    def offsets(self, window: OffsetRange, log: TopicPartition, found: Derived, check: ProofPart) -> OffsetBits:
        """The offsets inside the window with a row of any day, from the objects of every batch that reaches into it."""
        bits = OffsetBits(window)
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
                    own = archived_offsets(self._store, files, window)
                except FormatError:
                    continue  # the check of the objects names it
                if own is None:
                    check.unknown.append(f"objects of {key} are gone: what they held can't be told from holes")
                else:
                    bits.bits |= own.bits
        return bits

    def _compactions(self) -> Iterator[Manifest]:
        """Manifests that replace ranges, which must be known before the others are counted."""
        listed = self._store.list(f"{self._layout.manifest_prefix}{COMPACTION}/")
        for bodies in manifest_bodies(self._store, listed, at_once=_AT_ONCE):
            for key, body in bodies:
                try:
                    manifest = parse_manifest(body or b"", where=key)
                except TidemarkError:
                    continue  # the check of the manifests names it, as it does one that is another's
                if self._layout.manifest_key(manifest.writer, manifest.batch) == key:
                    yield manifest

    def _manifests(self, check: ProofPart, progress: Callable[[str], None]) -> Iterator[Manifest]:
        behind: dict[str, tuple[int, str]] = {}
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
                    check.differs("a manifest is another's", expected=key, found=found, where=key)
                    continue
                manifests.append(item)
            for link in broken_links(manifests, behind):
                where = self._layout.manifest_key(link.writer, link.batch)
                if link.after is None or link.after < link.batch - 1:
                    # What it held, others hold as well, or the check of the ranges names it.
                    check.notes.append(f"a manifest in front of {where} was deleted")
                    continue
                check.differs(
                    "the manifest before was altered",
                    expected=f"SHA-256 {link.found}",
                    found=f"SHA-256 {link.expected}",
                    where=self._layout.manifest_key(link.writer, link.after),
                )
            behind |= {item.writer: (item.batch, digest(item.to_json())) for item in manifests}
            read += len(bodies)
            progress(f"{read:,} manifests")
            yield from manifests

    def _take(self, manifest: Manifest, found: Derived, check: ProofPart, lineage: Lineage) -> None:
        key = self._layout.manifest_key(manifest.writer, manifest.batch)
        lineage.see(manifest, key, check)
        for before in manifest.replaces:  # a seal may have used it, though its manifest is gone
            known = found.batches.setdefault(before.log, {}).setdefault(before.writer, {})
            known.setdefault(before.batch, ListedRange(range=before.range, rows=len(before.range), replaced=True))
        rows: dict[tuple[TopicPartition, OffsetRange], int] = {}
        for file in manifest.files:
            rows[file.log, file.range] = rows.get((file.log, file.range), 0) + file.rows
        for item in manifest.ranges:
            batches = found.batches.setdefault(item.log, {}).setdefault(manifest.writer, {})
            replaced = lineage.replaced((manifest.writer, manifest.batch, item.log))
            batches[manifest.batch] = ListedRange(range=item.range, rows=item.rows, replaced=replaced)
            listed = rows.pop((item.log, item.range), 0)
            check.equal("rows of a range and of its objects", expected=item.rows, found=listed, where=key)
        for log, span in rows:
            check.differs(
                "an object is of no range of its manifest", expected="its range", found=span, where=f"{key}, {log}"
            )

    def _read(self, file: DataFile, found: Derived, check: ProofPart, *, late: Sequence[OffsetRange]) -> None:
        """One object against its manifest; its rows of the day into ``found``, those in ``late`` only counted."""
        checksum = RowChecksum(SCHEMA.names) if file.checksum.startswith(ALGORITHM) else None
        columns = ["offset", "event_time"] if checksum is None else SCHEMA.names
        rows, of_day, first, last = 0, 0, None, None
        listed = next((item.rows for item in file.days if item.day == self._day), 0)
        try:
            batches = object_batches(self._store, file.key, columns)
            if batches is None:
                found.gone += 1
                check.differs("an object is gone", expected=f"{file.rows} rows", found="no object", where=file.key)
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
                    own = own[~inside]
                found.copies[file.log] += len(own)
                found.rows[file.log].add(own)
        except FormatError as error:
            check.differs("an object does not read", expected=f"{file.rows} rows", found=error, where=file.key)
            return
        check.equal("rows of an object", expected=file.rows, found=rows, where=file.key)
        expected = (file.first_offset, file.last_offset)
        check.equal("first and last offset of an object", expected=expected, found=(first, last), where=file.key)
        check.equal("rows of the day in an object", expected=listed, found=of_day, where=file.key)
        if checksum is not None:
            check.equal("checksum of an object's rows", expected=file.checksum, found=checksum.value, where=file.key)
        else:
            check.notes.append(f"no checksum that can be compared: {file.key} has {file.checksum!r}")

    def _of_day(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        column = batch.column(batch.schema.get_field_index("event_time"))
        times = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy(zero_copy_only=False)
        of_day: npt.NDArray[np.bool_] = (times >= self._span[0]) & (times < self._span[1])
        return of_day


def _windows(files: Sequence[DataFile]) -> Mapping[TopicPartition, OffsetRange]:
    """Where the rows of the day may be: from the first to the last offset of any object with some."""
    found: dict[TopicPartition, OffsetRange] = {}
    for file in files:
        before = found.get(file.log, file.range)
        found[file.log] = OffsetRange(start=min(before.start, file.range.start), end=max(before.end, file.range.end))
    return found
