"""The ledger: what the manifests say, compacted, so that planning reads only what is new.

Segments are numbered, immutable and linked: each names the one it continues by number and SHA-256, and the newest
decides. A compaction writes what it read as the next number, with ``If-None-Match: *``: of two at once one wins, and
the other's work is dropped. There is no head beside the listing, so nothing can fall between the two. A compaction
that repeats small segments inside a large one links past them; those stay, unread.
Manifests stay the truth: they are never removed, and a new ledger can be made of them at any time.
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
from tidemark.core.seal import require_origin
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectInfo, ObjectStore

# Behind this many uncompacted manifests planning compacts: some 3 s of reading, against a second for the segment.
COMPACT_AFTER = 1_000
_LISTING_PAGE = 1_000
_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """Everything committed, as it was read: the ledger's segments, oldest first, and what is behind them.

    ``newest`` is the highest number of any segment, 0 without one; ``new`` counts the manifests behind the ledger, and
    ``tables``, ``positions`` and ``broken`` are what came out of those (positions of all writers).
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
        """How many manifests there are in all."""
        return sum(item.manifests for item in self.segments) + self.new

    @property
    def broken_links(self) -> tuple[BrokenLink, ...]:
        """Every broken link in a writer's chain, by writer and batch."""
        found = [link for segment in self.segments for link in segment.broken]
        return tuple(sorted([*found, *self.broken], key=lambda link: (link.writer, link.batch)))

    def history(self) -> History:
        """The ranges, files and days of all of it."""
        return History([*(item.tables for item in self.segments), *self.tables])


def read_archived(store: ObjectStore, layout: Layout, stream: Stream, progress: Progress = lambda _: None) -> Archived:
    """The ledger, then the manifests behind its positions, of which ``progress`` is called with the number so far.

    Raises FormatError for a segment or manifest that does not parse, IncompleteError for a segment that is missing,
    and ConflictError for one that is another's, or where a writer's last compacted manifest is no longer the same.
    """
    numbers = _numbers(store, layout)
    newest = max(numbers, default=0)
    segments, digests = _chain(store, layout, stream, newest)
    positions = segments[-1].positions if segments else {}
    found = _read_behind(store, layout, stream, positions, progress)
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
    """``read_archived``, and a new segment where planning had to read more than ``COMPACT_AFTER`` manifests."""
    archived = read_archived(store, layout, stream)
    if archived.new > COMPACT_AFTER:
        compact(store, layout, stream, archived)
    return archived


def compact(store: ObjectStore, layout: Layout, stream: Stream, archived: Archived) -> Segment | None:
    """Write what was read behind the ledger as its next segment; None where nothing was, or somebody else was first.

    Segments that are small beside the new one are taken into it, so that their number grows with the logarithm.
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
        broken=(*(link for item in merged for link in item.broken), *archived.broken),
        tables=merge_tables([*(item.tables for item in merged), *archived.tables]),
    )
    wrote = store.put_if_absent(
        layout.ledger_key(segment.number), segment.to_bytes(), content_type="application/octet-stream"
    )
    return segment if wrote else None


def rebuild(store: ObjectStore, layout: Layout, stream: Stream, progress: Progress = lambda _: None) -> Segment:
    """A ledger of one segment, made of the manifests alone; it replaces every other one, whatever state that is in.

    ``progress`` is called with the number of manifests so far.
    """
    found = _read_behind(store, layout, stream, {}, progress)
    while True:
        segment = Segment(
            stream=stream.name,
            time_zone=stream.time_zone,
            number=max(_numbers(store, layout), default=0) + 1,
            previous=None,
            manifests=found.manifests,
            positions=found.positions,
            broken=tuple(found.broken),
            tables=merge_tables(found.tables),
        )
        key = layout.ledger_key(segment.number)
        if store.put_if_absent(key, segment.to_bytes(), content_type="application/octet-stream"):
            return segment


def require_agreement(segments: Sequence[Segment], manifests: Iterable[Manifest]) -> None:
    """Raises ConflictError, naming the writer, where the ledger is not what the manifests up to its positions say."""
    if not segments:
        return
    actual: dict[str, Position] = {}
    positions = segments[-1].positions
    for item in manifests:
        position = positions.get(item.writer)
        if position is not None and item.batch <= position.batch:
            actual[item.writer] = Position.behind(actual.get(item.writer), item.batch, digest(item.to_json()))
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
    """The tables one behind the other, as one."""
    logs = sorted({log for part in parts for log in part.logs})
    writers = sorted({writer for part in parts for writer in part.writers})
    ranges, files, days, replaced = [], [], [], []
    first_range = first_file = 0
    for part in parts:
        counts = part.counts()
        new_logs = np.array([logs.index(log) for log in part.logs], dtype=np.int64)
        new_writers = np.array([writers.index(writer) for writer in part.writers], dtype=np.int64)
        ranges.append(_mapped(part.ranges, {"log": new_logs, "writer": new_writers}))
        replaced.append(_mapped(part.replaced, {"log": new_logs, "writer": new_writers}))
        files.append(_shifted(part.all_files(), {"range": first_range}))
        days.append(_shifted(part.days, {"range": first_range, "file": first_file}))
        first_range, first_file = first_range + counts[0], first_file + counts[1]
    return Tables(
        logs=tuple(logs),
        writers=tuple(writers),
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
                expected=f"what segment {segments[-1].number} continues" if segments else "the newest segment",
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
                "a ledger segment is not the one that the next one continues",
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
    """What reading manifests gave, so far."""

    positions: dict[str, Position]
    manifests: int
    tables: list[Tables]
    broken: list[BrokenLink]


def _read_behind(
    store: ObjectStore, layout: Layout, stream: Stream, positions: Mapping[str, Position], progress: Progress
) -> _Found:
    """The manifests behind the positions, turned into columns some thousand at a time: values of all would not fit."""
    found = _Found(positions=dict(positions), manifests=0, tables=[], broken=[])
    for bodies in manifest_bodies(store, _listed_behind(store, layout, positions), at_once=_AT_ONCE):
        manifests = []
        behind = {writer: (item.batch, item.digest) for writer, item in found.positions.items()}
        for key, body in bodies:
            if body is None:  # removed since it was listed
                continue
            item = parse_manifest(body, where=key)
            if (item.writer, item.batch) != layout.parse_manifest_key(key):
                raise ConflictError(
                    "a manifest lies under another's key",
                    expected=layout.manifest_key(item.writer, item.batch),
                    found=key,
                    where=f"s3://{store.bucket}/{key}",
                )
            require_origin(stream.name, stream.time_zone, item.stream, item.time_zone, f"manifest {key}")
            manifests.append(item)
            before = found.positions.get(item.writer)
            found.positions[item.writer] = Position.behind(before, item.batch, digest(body))
        found.broken += broken_links(manifests, behind)
        found.manifests += len(manifests)
        progress(found.manifests)
        found.tables.append(Tables.build(manifests))
    return found


def _listed_behind(store: ObjectStore, layout: Layout, positions: Mapping[str, Position]) -> Iterator[ObjectInfo]:
    """The manifests behind the positions. The listing leaps over a writer with more than a page of old ones."""
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
    """The last compacted manifest of every writer that went on must still be what the ledger took it for."""
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
