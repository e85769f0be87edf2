"""One ledger segment as bytes: a line with format and SHA-256, a line of JSON, four Parquet tables.

The tables hold the manifests' ranges, files, rows per day and replaced ranges in columns. A million ranges are read in
less than a second; a million manifests would take an hour. ``Tables.build`` makes the tables from manifests.
"""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.archive.ledger.arrays import Ints, column
from tidemark.core.codec import decode, encode
from tidemark.core.days import EPOCH_DAY
from tidemark.core.errors import FormatError
from tidemark.core.manifest import DataFile, Manifest, canonical_json
from tidemark.core.manifest_chain import BrokenLink
from tidemark.core.offsets import TopicPartition
from tidemark.core.planner import files_by_range
from tidemark.core.seal import require_same_stream

FORMAT = 3
WITHOUT_UNREADABLE_TIMES = 2  # they are not counted in such a segment's manifests
WITHOUT_DAY_SETTINGS = 1  # nothing is known of the settings of such a segment's manifests
MAGIC = b"tidemark-ledger"
REBUILD = "The manifests are the truth: 'tidemark maintain STREAM --rebuild-ledger' makes a new ledger from them"
# Files of a few days lie together in the ledger: with small row groups the keys of other days are not read.
_GROUP_ROWS = 32_768

_NOT_COUNTED = -1  # in the column unreadable_times
_INT = pa.int64()
RANGES = pa.schema([(name, _INT) for name in ("log", "writer", "batch", "start", "end", "rows", "day_settings")])
FILES = pa.schema(
    [(name, _INT) for name in ("range", "bytes", "rows", "first_offset", "last_offset", "min_us", "max_us")]
    + [("key", pa.string()), ("checksum", pa.string()), ("sha256", pa.string()), ("out_of_bounds", _INT)]
)
DAYS = pa.schema(
    [(name, _INT) for name in ("range", "file", "day", "rows", "first_offset", "last_offset", "unreadable_times")]
)
REPLACED = pa.schema([(name, _INT) for name in ("log", "writer", "batch")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The last manifest of a writer that the ledger holds: its ``batch`` and its SHA-256 ``digest``.

    ``manifests`` counts the writer's manifests up to it. ``rollup`` is the SHA-256 over the previous rollup (empty for
    the first) and this digest, so it covers all of them.
    """

    batch: int
    digest: str
    manifests: int
    rollup: str

    @staticmethod
    def following(before: "Position | None", batch: int, digest: str) -> "Position":
        """The position one manifest after ``before``."""
        return Position(
            batch=batch,
            digest=digest,
            manifests=before.manifests + 1 if before else 1,
            rollup=sha256(f"{before.rollup if before else ''}{digest}".encode()).hexdigest(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Ranges, files and days in columns.

    Columns ``log``, ``writer`` and ``day_settings`` are positions in ``logs``, ``writers`` and ``day_settings``, where
    None stands for unknown settings; ``range`` and ``file`` are rows of the
    other tables; ``day`` counts days since 1970-01-01. ``replaced`` lists ranges, of these or of other tables, that
    must not be used any more. A segment's files are read only on demand, by ``take_files``.
    """

    logs: tuple[TopicPartition, ...]
    writers: tuple[str, ...]
    day_settings: tuple[str | None, ...]
    ranges: pa.Table
    days: pa.Table
    replaced: pa.Table = field(default_factory=REPLACED.empty_table)
    files_body: pa.Buffer | None = None
    files: pa.Table | None = None

    @staticmethod
    def build(manifests: Sequence[Manifest]) -> "Tables":
        """The manifests in columns, in order; raises FormatError if a file belongs to none of its manifest's ranges."""
        logs: dict[TopicPartition, int] = {}
        writers: dict[str, int] = {}
        settings: dict[str | None, int] = {}
        ranges: list[tuple[int, ...]] = []
        files: list[tuple[Any, ...]] = []
        days: list[tuple[int, ...]] = []
        replaced: list[tuple[int, ...]] = []
        for manifest in manifests:
            writer = writers.setdefault(manifest.writer, len(writers))
            decided = settings.setdefault(manifest.day_settings, len(settings))
            replaced += [
                (logs.setdefault(item.log, len(logs)), writers.setdefault(item.writer, len(writers)), item.batch)
                for item in manifest.replaces
            ]
            own = files_by_range(manifest)
            for item in manifest.ranges:
                log = logs.setdefault(item.log, len(logs))
                for file in own[item.log, item.range]:
                    days += [
                        (
                            len(ranges),
                            len(files),
                            day.day.toordinal() - EPOCH_DAY,
                            day.rows,
                            day.first_offset,
                            day.last_offset,
                            _NOT_COUNTED if day.unreadable_times is None else day.unreadable_times,
                        )
                        for day in file.days
                    ]
                    files.append(_file_row(len(ranges), file))
                ranges.append((log, writer, manifest.batch, item.range.start, item.range.end, item.rows, decided))
        return Tables(
            logs=tuple(logs),
            writers=tuple(writers),
            day_settings=tuple(settings),
            ranges=_table(ranges, RANGES),
            days=_table(days, DAYS),
            replaced=_table(replaced, REPLACED),
            files=_table(files, FILES),
        )

    def take_files(self, rows: Sequence[int]) -> pa.Table:
        """Rows of the files table, ascending; only the row groups that hold them are read."""
        if self.files is not None:
            return self.files.take(column(rows, _INT))
        source = pq.ParquetFile(pa.BufferReader(self.files_body))
        taken, start = [FILES.empty_table()], 0
        left = list(rows)
        for group in range(source.num_row_groups):
            end = start + source.metadata.row_group(group).num_rows
            here = [row - start for row in left if row < end]
            if here:
                taken.append(source.read_row_group(group).take(column(here, _INT)))
                left = left[len(here) :]
            start = end
        return pa.concat_tables(taken)

    def all_files(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The whole files table, or some columns of it."""
        if self.files is not None:
            return self.files if columns is None else self.files.select(columns)
        return _read(self.files_body, columns)

    def counts(self) -> tuple[int, int, int]:
        """Rows of ranges, files and days."""
        if self.files is not None:
            files = self.files.num_rows
        else:
            files = pq.ParquetFile(pa.BufferReader(self.files_body)).metadata.num_rows
        return self.ranges.num_rows, files, self.days.num_rows


def raw_files(
    parts: Sequence[Tables], first_files: Sequence[int], chosen: Ints
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The chosen rows of the parts' files tables with their numbers, which count through all parts; ascending.

    ``first_files`` has the number of each part's first file.
    """
    for part, start, end in zip(parts, first_files, first_files[1:], strict=False):
        own = chosen[(chosen >= start) & (chosen < end)]
        if len(own):
            yield from zip(own.tolist(), part.take_files((own - start).tolist()).to_pylist(), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The manifests of all writers after segment ``previous`` (its number and SHA-256; None for the first).

    ``positions`` holds every writer's last manifest up to and including this segment. ``broken_links`` are those found
    in it, its link to the segment before included. ``manifests`` counts its own.
    """

    stream: str
    time_zone: str
    number: int
    previous: tuple[int, str] | None
    manifests: int
    positions: dict[str, Position]
    broken_links: tuple[BrokenLink, ...]
    tables: Tables

    def to_bytes(self) -> bytes:
        """Bytes for ``parse_segment``; always the same for the same segment."""
        tables = self.tables
        parts = [_parquet(item) for item in (tables.ranges, tables.all_files(), tables.days, tables.replaced)]
        header = canonical_json(
            {
                "stream": self.stream,
                "time_zone": self.time_zone,
                "number": self.number,
                "previous": list(self.previous) if self.previous else None,
                "manifests": self.manifests,
                "positions": {writer: encode(item) for writer, item in self.positions.items()},
                "broken_links": [encode(item) for item in self.broken_links],
                "logs": [encode(item) for item in tables.logs],
                "writers": list(tables.writers),
                "day_settings": list(tables.day_settings),
                "bytes": [len(part) for part in parts],
            }
        )
        body = b"".join([header, *parts])
        return b"%s %d %s\n%s" % (MAGIC, FORMAT, sha256(body).hexdigest().encode(), body)


def segment_digest(body: bytes) -> str:
    """The SHA-256 in the body's first line, which ``parse_segment`` checks and the next segment names."""
    return body.partition(b"\n")[0].split(b" ")[-1].decode("ascii", "replace")


def parse_segment(body: bytes, *, stream: str, time_zone: str, where: str) -> Segment:
    """The segment in ``body``.

    Raises FormatError for another format or a changed byte, ConflictError for another stream or time zone.
    """
    line, _, rest = body.partition(b"\n")
    match line.split(b" "):
        case [magic, form, found] if magic == MAGIC and form.isdigit():
            pass
        case _:
            raise FormatError(
                "not a ledger segment", expected=MAGIC.decode(), found=line[:40], where=where, hint=REBUILD
            )
    if int(form) not in (WITHOUT_DAY_SETTINGS, WITHOUT_UNREADABLE_TIMES, FORMAT):
        raise FormatError("unknown ledger format", expected=FORMAT, found=int(form), where=where, hint=REBUILD)
    actual = sha256(rest).hexdigest()
    if actual.encode() != found:
        raise FormatError(
            "a ledger segment is damaged",
            expected=f"SHA-256 {found.decode('ascii', 'replace')}",
            found=actual,
            where=where,
            hint=REBUILD,
        )
    head = rest[: rest.index(b"\n") + 1]
    raw = json.loads(head)
    require_same_stream(stream, time_zone, raw["stream"], raw["time_zone"], where)
    whole, at, parts = pa.py_buffer(rest), len(head), []
    for size in raw["bytes"]:
        parts.append(whole.slice(at, size))
        at += size
    ranges, files, days, replaced = parts
    return Segment(
        stream=raw["stream"],
        time_zone=raw["time_zone"],
        number=raw["number"],
        previous=(raw["previous"][0], raw["previous"][1]) if raw["previous"] else None,
        manifests=raw["manifests"],
        positions={
            writer: decode(Position, item, where=f"{where}.positions") for writer, item in raw["positions"].items()
        },
        broken_links=tuple(decode(BrokenLink, item, where=f"{where}.broken_links") for item in raw["broken_links"]),
        tables=Tables(
            logs=tuple(decode(TopicPartition, item, where=f"{where}.logs") for item in raw["logs"]),
            writers=tuple(raw["writers"]),
            day_settings=tuple(raw.get("day_settings", [None])),
            ranges=_with_column(_read(ranges), RANGES, 0),  # the only entry of their part's settings: unknown
            days=_with_column(_read(days), DAYS, _NOT_COUNTED),
            replaced=_read(replaced),
            files_body=files,
        ),
    )


def _file_row(at: int, file: DataFile) -> tuple[Any, ...]:
    return (
        at,
        file.bytes,
        file.rows,
        file.first_offset,
        file.last_offset,
        file.min_timestamp_us,
        file.max_timestamp_us,
        file.key,
        file.checksum,
        file.sha256,
        file.out_of_bounds_rows,
    )


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pa.table([column(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema)


def _read(body: pa.Buffer, columns: Sequence[str] | None = None) -> pa.Table:
    # pq.read_table would import half of pyarrow first.
    return pq.ParquetFile(pa.BufferReader(body)).read(None if columns is None else list(columns))


def _with_column(table: pa.Table, schema: pa.Schema, value: int) -> pa.Table:
    """The table, with the value in the last column if it is of an earlier format, which lacks that one."""
    if table.num_columns < len(schema):
        table = table.append_column(schema.field(len(schema) - 1), column([value] * table.num_rows, _INT))
    return table.cast(schema)


def _parquet(table: pa.Table) -> bytes:
    """Encoded as differences: offsets to the one before, keys without their common prefix."""
    encodings = {
        field.name: "DELTA_BYTE_ARRAY" if field.type == pa.string() else "DELTA_BINARY_PACKED" for field in table.schema
    }
    sink = io.BytesIO()
    pq.write_table(
        table.combine_chunks(),
        sink,
        compression="zstd",
        use_dictionary=False,
        column_encoding=encodings,
        row_group_size=_GROUP_ROWS,
        store_schema=False,
    )
    return sink.getvalue()
