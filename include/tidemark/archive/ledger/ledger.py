"""The ledger: an index of the manifests, so that planning reads only new manifests.

Segments are numbered, immutable and linked. Each names the segment that it continues by number and SHA-256, and the
newest one counts. A compaction writes the next number with ``If-None-Match: *``: of two at once one wins, and the other
one's work is dropped. No other object names the newest segment; the listing does. A compaction that merges small
segments into a large one links past them; they stay, unread. The manifests are the truth: they are never removed, and
the ledger can be rebuilt from them at any time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.segment import (
    DAYS,
    FILES,
    RANGES,
    REBUILD,
    REPLACED,
    Position,
    Segment,
    Tables,
    parse_segment,
    segment_digest,
)
from tidemark.archive.manifests import Progress, manifest_bodies
from tidemark.core.errors import ConflictError, IncompleteError
from tidemark.core.layout import Layout
from tidemark.core.manifest import Manifest, digest, parse_manifest
from tidemark.core.manifest_chain import BrokenLink, broken_links
from tidemark.core.seal import require_same_stream
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectInfo, ObjectStore

# Planning compacts when it had to read more new manifests: that takes some 3 s, a segment one second.
COMPACT_AFTER = 1_000
_LISTING_PAGE = 1_000
_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """Everything committed: the ledger's segments, oldest first, and the manifests after them.

    ``newest`` is the highest number of any segment, 0 without one. ``new`` counts the manifests after the ledger;
    ``tables`` and ``broken`` are theirs. ``positions`` are those of all writers.
    """

    segments: tuple[Segment, ...]
    digests: tuple[str, ...]
    newest: int
    new: int
    tables: tuple[Tables, ...]
    positions: Mapping[str, Position]
    broken: tuple[BrokenLink, ...]

    @property
    def manifests(self) -> int:
        """How many manifests there are."""
        return sum(item.manifests for item in self.segments) + self.new

    @property
    def broken_links(self) -> tuple[BrokenLink, ...]:
        """Every broken link in a writer's chain, by writer and batch."""
        found = [link for segment in self.segments for link in segment.broken_links]
        return tuple(sorted([*found, *self.broken], key=lambda link: (link.writer, link.batch)))

    def history(self) -> History:
        """All ranges, files and days."""
        return History([*(item.tables for item in self.segments), *self.tables])


def read_archived(store: ObjectStore, layout: Layout, stream: Stream, progress: Progress = lambda _: None) -> Archived:
    """Read the ledger, then the manifests after its positions; ``progress`` is called with their number so far.

    Raises FormatError if a segment or manifest does not parse, and IncompleteError if a segment is missing. Raises
    ConflictError if a segment belongs to another stream, or a writer's last compacted manifest has changed.
    """
    numbers = _numbers(store, layout)
    newest = max(numbers, default=0)
    segments, digests = _chain(store, layout, stream, newest)
    positions = segments[-1].positions if segments else {}
    found = _read_after(store, layout, stream, positions, progress)
    _require_same(store, layout, positions, found.positions)
    return Archived(
        segments=segments,
        digests=digests,
        newest=newest,
        new=found.manifests,
        tables=tuple(found.tables),
        positions=found.positions,
        broken=tuple(found.broken),
    )


def read_and_compact(store: ObjectStore, layout: Layout, stream: Stream) -> Archived:
    """``read_archived``; writes a new segment if it read more than ``COMPACT_AFTER`` manifests."""
    archived = read_archived(store, layout, stream)
    if archived.new > COMPACT_AFTER:
        compact(store, layout, stream, archived)
    return archived


def compact(store: ObjectStore, layout: Layout, stream: Stream, archived: Archived) -> Segment | None:
    """Write the new manifests as the ledger's next segment; None if there are none, or if another writer was first.

    Segments that are small compared to the new one are merged into it, so their number grows with the logarithm.
    """
    if not archived.new:
        return None
    keep, manifests = len(archived.segments), archived.new
    while keep and archived.segments[keep - 1].manifests <= 2 * manifests:
        keep -= 1
        manifests += archived.segments[keep].manifests
    merged = archived.segments[keep:]
    segment = Segment(
        stream=stream.name,
        time_zone=stream.time_zone,
        number=archived.newest + 1,
        previous=(archived.segments[keep - 1].number, archived.digests[keep - 1]) if keep else None,
        manifests=manifests,
        positions=dict(archived.positions),
        broken_links=(*(link for item in merged for link in item.broken_links), *archived.broken),
        tables=merge_tables([*(item.tables for item in merged), *archived.tables]),
    )
    wrote = store.put_if_absent(
        layout.ledger_key(segment.number), segment.to_bytes(), content_type="application/octet-stream"
    )
    return segment if wrote else None


def rebuild(store: ObjectStore, layout: Layout, stream: Stream, progress: Progress = lambda _: None) -> Segment:
    """Write a ledger of one segment from the manifests alone; it replaces the current one, damaged or not.

    ``progress`` is called with the number of manifests so far.
    """
    found = _read_after(store, layout, stream, {}, progress)
    while True:
        segment = Segment(
            stream=stream.name,
            time_zone=stream.time_zone,
            number=max(_numbers(store, layout), default=0) + 1,
            previous=None,
            manifests=found.manifests,
            positions=found.positions,
            broken_links=tuple(found.broken),
            tables=merge_tables(found.tables),
        )
        key = layout.ledger_key(segment.number)
        if store.put_if_absent(key, segment.to_bytes(), content_type="application/octet-stream"):
            return segment


def require_agreement(segments: Sequence[Segment], manifests: Iterable[Manifest]) -> None:
    """Raise ConflictError, naming the writer, if the ledger differs from the manifests up to its positions."""
    if not segments:
        return
    actual: dict[str, Position] = {}
    positions = segments[-1].positions
    for item in manifests:
        position = positions.get(item.writer)
        if position is not None and item.batch <= position.batch:
            actual[item.writer] = Position.following(actual.get(item.writer), item.batch, digest(item.to_json()))
    for writer, position in positions.items():
        found = actual.get(writer)
        if found != position:
            raise ConflictError(
                "the ledger disagrees with the manifests of a writer",
                expected=f"{position.manifests} manifests up to batch {position.batch}, rollup {position.rollup[:16]}",
                found=f"{found.manifests}, rollup {found.rollup[:16]}" if found else "none",
                where=writer,
                hint=REBUILD,
            )


def merge_tables(parts: Sequence[Tables]) -> Tables:
    """All tables as one, in order."""
    logs = sorted({log for part in parts for log in part.logs})
    writers = sorted({writer for part in parts for writer in part.writers})
    settings = list(dict.fromkeys(text for part in parts for text in part.day_settings))
    ranges, files, days, replaced = [], [], [], []
    first_range = first_file = 0
    for part in parts:
        counts = part.counts()
        new_logs = np.array([logs.index(log) for log in part.logs], dtype=np.int64)
        new_writers = np.array([writers.index(writer) for writer in part.writers], dtype=np.int64)
        new_settings = np.array([settings.index(text) for text in part.day_settings], dtype=np.int64)
        places = {"log": new_logs, "writer": new_writers, "day_settings": new_settings}
        ranges.append(_mapped(part.ranges, places))
        replaced.append(_mapped(part.replaced, {"log": new_logs, "writer": new_writers}))
        files.append(_shifted(part.all_files(), {"range": first_range}))
        days.append(_shifted(part.days, {"range": first_range, "file": first_file}))
        first_range, first_file = first_range + counts[0], first_file + counts[1]
    return Tables(
        logs=tuple(logs),
        writers=tuple(writers),
        day_settings=tuple(settings),
        ranges=pa.concat_tables(ranges) if ranges else RANGES.empty_table(),
        files=pa.concat_tables(files) if files else FILES.empty_table(),
        days=pa.concat_tables(days) if days else DAYS.empty_table(),
        replaced=pa.concat_tables(replaced) if replaced else REPLACED.empty_table(),
    )


def _mapped(table: pa.Table, places: Mapping[str, np.ndarray[Any, np.dtype[np.int64]]]) -> pa.Table:
    for name, new in places.items():
        values = new[table[name].to_numpy()] if table.num_rows else new[:0]
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values, pa.int64()))
    return table


def _shifted(table: pa.Table, by: Mapping[str, int]) -> pa.Table:
    for name, number in by.items():
        values = pa.array(table[name].to_numpy() + number, pa.int64())
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return table


def _numbers(store: ObjectStore, layout: Layout) -> list[int]:
    return [layout.parse_ledger_key(item.key) for item in store.list(layout.ledger_prefix)]


def _chain(
    store: ObjectStore, layout: Layout, stream: Stream, newest: int
) -> tuple[tuple[Segment, ...], tuple[str, ...]]:
    """The newest segment and those it continues, oldest first, with their digests."""
    segments: list[Segment] = []
    digests: list[str] = []
    link: tuple[int, str] | None = (newest, "") if newest else None
    while link is not None:
        number, expected = link
        key = layout.ledger_key(number)
        body = store.get(key)
        if body is None:
            raise IncompleteError(
                "a ledger segment is missing",
                expected=f"the segment before {segments[-1].number}" if segments else "the newest segment",
                found="no object",
                where=f"s3://{store.bucket}/{key}",
                hint=REBUILD,
            )
        segment, found = (
            parse_segment(body, stream=stream.name, time_zone=stream.time_zone, where=key),
            segment_digest(body),
        )
        if segment.number != number or (expected and found != expected):
            raise ConflictError(
                "a ledger segment is not the one that the next segment names",
                expected=f"segment {number}, SHA-256 {expected or 'of any kind'}",
                found=f"segment {segment.number}, SHA-256 {found}",
                where=f"s3://{store.bucket}/{key}",
                hint=REBUILD,
            )
        segments.append(segment)
        digests.append(found)
        link = segment.previous
    return tuple(segments[::-1]), tuple(digests[::-1])


@dataclass(slots=True, kw_only=True)
class _Found:
    """What was read from manifests so far."""

    positions: dict[str, Position]
    manifests: int
    tables: list[Tables]
    broken: list[BrokenLink]


def _read_after(
    store: ObjectStore, layout: Layout, stream: Stream, positions: Mapping[str, Position], progress: Progress
) -> _Found:
    """The manifests after the positions as columns, some thousand at a time: all manifests would not fit in memory."""
    found = _Found(positions=dict(positions), manifests=0, tables=[], broken=[])
    for bodies in manifest_bodies(store, _listed_after(store, layout, positions), at_once=_AT_ONCE):
        manifests = []
        last = {writer: (item.batch, item.digest) for writer, item in found.positions.items()}
        for key, body in bodies:
            if body is None:  # removed since the listing
                continue
            item = parse_manifest(body, where=key)
            if (item.writer, item.batch) != layout.parse_manifest_key(key):
                raise ConflictError(
                    "a manifest has another manifest's key",
                    expected=layout.manifest_key(item.writer, item.batch),
                    found=key,
                    where=f"s3://{store.bucket}/{key}",
                )
            require_same_stream(stream.name, stream.time_zone, item.stream, item.time_zone, f"manifest {key}")
            manifests.append(item)
            before = found.positions.get(item.writer)
            found.positions[item.writer] = Position.following(before, item.batch, digest(body))
        found.broken += broken_links(manifests, last)
        found.manifests += len(manifests)
        progress(found.manifests)
        found.tables.append(Tables.build(manifests))
    return found


def _listed_after(store: ObjectStore, layout: Layout, positions: Mapping[str, Position]) -> Iterator[ObjectInfo]:
    """The manifests after the positions. The listing skips a writer's old manifests if they fill more than a page."""
    after: str | None = ""
    while after is not None:
        start, after = after, None
        for item in store.list(layout.manifest_prefix, after=start):
            writer, batch = layout.parse_manifest_key(item.key)
            position = positions.get(writer)
            if position is None or batch > position.batch:
                yield item
            elif position.manifests > _LISTING_PAGE and batch < position.batch:
                after = layout.manifest_key(writer, position.batch)
                break


def _require_same(
    store: ObjectStore, layout: Layout, positions: Mapping[str, Position], reached: Mapping[str, Position]
) -> None:
    """Raise ConflictError if the last compacted manifest of a writer with new manifests has changed."""
    for writer, position in positions.items():
        if reached[writer] == position:
            continue
        key = layout.manifest_key(writer, position.batch)
        body = store.get(key)
        if body is None or digest(body) != position.digest:
            raise ConflictError(
                "a manifest in the ledger was changed or removed",
                expected=f"SHA-256 {position.digest}",
                found="no object" if body is None else f"SHA-256 {digest(body)}",
                where=f"s3://{store.bucket}/{key}",
                hint=REBUILD,
            )
