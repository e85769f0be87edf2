"""Manifests: the archive's commit records, one per micro-batch of one writer.

An object that no manifest lists is not part of the archive. The JSON is canonical (sorted keys, no spaces, a newline at
the end), so the ``digest`` of its bytes chains a writer's manifests.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

from tidemark.core.codec import require_format
from tidemark.core.errors import FormatError, PositionError
from tidemark.core.logged_record import LoggedRecord
from tidemark.core.offsets import OffsetRange, TopicPartition

FORMAT = 3
WITHOUT_UNREADABLE_TIMES = 2  # a manifest in which they are not counted has the same bytes as before they were
WITHOUT_DAY_SETTINGS = 1  # and one without day settings as before there were any
COMPACTION = "compact"  # the writer of manifests that replace ranges
REFILL = "refill-"  # and the name of a run: the writer of records that the run fetched from Kafka
# What to do about a manifest whose object is missing.
WITHOUT_OBJECT = (
    "Restore it from a copy of the bucket. Only if Kafka still holds everything that its manifest lists, and the writer"
    " is not 'compact': delete the manifest and its objects, rebuild the ledger (tidemark maintain STREAM"
    " --rebuild-ledger), and start a new run, which refills the ranges"
)

# Fields that are in the JSON as they are.
_MANIFEST_FIELDS = ("stream", "writer", "batch", "committed_at_us", "time_zone", "settings", "previous")
_REPLACED_FIELDS = ("writer", "batch", "digest")
_DAY_FIELDS = ("rows", "first_offset", "last_offset")
_RECORD_FIELDS = ("offset", "timestamp_us", "digest", "leader_epoch")
_FILE_FIELDS = (
    "key",
    "bytes",
    *_DAY_FIELDS,
    "min_timestamp_us",
    "max_timestamp_us",
    "checksum",
    "sha256",
    "out_of_bounds_rows",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRows:
    """The rows of one file that belong to one day.

    - day: the day, in the manifest's time zone.
    - rows: number of these rows.
    - first_offset: lowest offset among them.
    - last_offset: highest offset among them, inclusive.
    - unreadable_times: rows of them that have their record's timestamp because their time field has no time that can be
      read. The key is only in format 3, and there only if they were counted.
    """

    day: date
    rows: int
    first_offset: int
    last_offset: int
    unreadable_times: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One object of the archive.

    - key: key of the object in the bucket.
    - log: the log that its rows are from.
    - range: the committed range that the object belongs to. Its own rows may span less.
    - rows: number of its rows.
    - bytes: size of the object.
    - first_offset: lowest offset of its rows.
    - last_offset: highest offset of its rows, inclusive.
    - min_timestamp_us: lowest record timestamp, in µs since the epoch.
    - max_timestamp_us: highest record timestamp, in µs since the epoch.
    - days: its rows per day.
    - checksum: checksum of its rows, whatever their encoding.
    - sha256: SHA-256 of its bytes, in hex.
    - out_of_bounds_rows: its rows whose time field lay too far from the record's timestamp, which then counts. A
      compaction does not count them again.
    """

    key: str
    log: TopicPartition
    range: OffsetRange
    rows: int
    bytes: int
    first_offset: int
    last_offset: int
    min_timestamp_us: int
    max_timestamp_us: int
    days: tuple[DayRows, ...]
    checksum: str
    sha256: str
    out_of_bounds_rows: int = 0

    @property
    def unreadable_times(self) -> int:
        """Its rows whose time field has no time that can be read. A compaction keeps the sum of its ranges."""
        return sum(day.unreadable_times or 0 for day in self.days)

    def __post_init__(self) -> None:
        if not (self.range.start <= self.first_offset <= self.last_offset < self.range.end):
            raise PositionError(
                "a file's rows lie outside its committed range",
                expected=self.range,
                found=f"offsets {self.first_offset} to {self.last_offset}",
                where=self.key,
            )
        if sum(day.rows for day in self.days) != self.rows:
            raise FormatError(
                "a file's rows per day do not add up",
                expected=self.rows,
                found=sum(day.rows for day in self.days),
                where=self.key,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRange:
    """What a batch commits of one log.

    - log: the log.
    - range: the committed offsets.
    - rows: number of rows they came out as. Fewer rows than offsets means that the range has holes.
    """

    log: TopicPartition
    range: OffsetRange
    rows: int


Identity: TypeAlias = tuple[str, int, TopicPartition]  # of a committed range: writer, batch, log


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """A complete range whose rows a compaction has written to new objects.

    - writer: writer of the manifest that committed the range.
    - batch: batch of that manifest.
    - log: the log of the range.
    - range: the offsets.
    - files: key, checksum and ETag of each object of the range, as the compaction read it.
    - digest: SHA-256 of that manifest.
    """

    writer: str
    batch: int
    log: TopicPartition
    range: OffsetRange
    files: tuple[tuple[str, str, str], ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One committed batch.

    - stream: name of the stream.
    - writer: who committed it: the id of a streaming query, `refill-<run>`, `import-<prefix>` or `compact`.
    - batch: number of the batch, in the order of its writer.
    - committed_at_us: when it was committed, in µs since the epoch.
    - time_zone: IANA name of the time zone that days are counted in.
    - settings: fingerprint of the archive settings that decide which rows share an object.
    - previous: SHA-256 of the same writer's manifest before this one. Null for its first.
    - ranges: what the batch commits, by log.
    - files: the objects with the rows of these ranges.
    - replaces: the ranges that this manifest replaces. Together they are exactly its own ranges, which are complete.
    - last: the last record of each log that the writer has archived up to this batch, to notice a rewritten log. Empty
      for records that were not read from Kafka.
    - day_settings: the keys of the definition that decided the days of its rows, as a text. Not in format 1: there they
      are unknown.
    """

    stream: str
    writer: str
    batch: int
    committed_at_us: int
    time_zone: str
    settings: str
    previous: str | None
    ranges: tuple[CommittedRange, ...]
    files: tuple[DataFile, ...]
    replaces: tuple[Replaced, ...] = ()
    last: tuple[LoggedRecord, ...] = ()
    day_settings: str | None = None

    def __post_init__(self) -> None:
        if self.replaces:
            _require_tiles(self)

    def to_json(self) -> bytes:
        """Canonical bytes; ``parse_manifest`` reads them back to an equal value."""
        form = WITHOUT_DAY_SETTINGS if self.day_settings is None else WITHOUT_UNREADABLE_TIMES
        if any(day.unreadable_times is not None for file in self.files for day in file.days):
            form = FORMAT
        return canonical_json(
            {
                "format": form,
                **({} if form == WITHOUT_DAY_SETTINGS else {"day_settings": self.day_settings}),
                **_plain(self, _MANIFEST_FIELDS),
                "ranges": [{**_place(item), "rows": item.rows} for item in self.ranges],
                "files": [_file(item) for item in self.files],
                "replaces": [_replaced(item) for item in self.replaces],
                "last": [{**_log(item.log), **_plain(item, _RECORD_FIELDS)} for item in self.last],
            }
        )


def replaced_by(manifests: Iterable[Manifest]) -> set[Identity]:
    """The ranges that these manifests replace. Readers of manifests must leave them out, as ``History`` does."""
    return {(item.writer, item.batch, item.log) for manifest in manifests for item in manifest.replaces}


def canonical_json(value: Mapping[str, Any]) -> bytes:
    """The JSON form of everything persisted: sorted keys, no spaces, a newline at the end."""
    return (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode()


def digest(body: bytes) -> str:
    """SHA-256 in hex, as in ``previous`` of the next manifest or seal."""
    return hashlib.sha256(body).hexdigest()


def parse_manifest(body: bytes, *, where: str) -> Manifest:
    """The manifest in ``body``. Raises FormatError, with ``where``, for anything else."""
    try:
        raw = json.loads(body)
        if raw["format"] not in (WITHOUT_DAY_SETTINGS, WITHOUT_UNREADABLE_TIMES):
            require_format("unknown manifest format", raw["format"], known=FORMAT, where=where)
        return Manifest(
            **{name: raw[name] for name in _MANIFEST_FIELDS},
            ranges=tuple(CommittedRange(**_parse_place(item), rows=item["rows"]) for item in raw["ranges"]),
            files=tuple(_parse_file(item) for item in raw["files"]),
            replaces=tuple(_parse_replaced(item) for item in raw["replaces"]),
            last=tuple(
                LoggedRecord(log=_parse_log(item), **{name: item[name] for name in _RECORD_FIELDS})
                for item in raw["last"]
            ),
            day_settings=None if raw["format"] == WITHOUT_DAY_SETTINGS else raw["day_settings"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(
            "a manifest does not parse", expected=f"format 1 to {FORMAT}", found=repr(error), where=where
        ) from error


def _require_tiles(manifest: Manifest) -> None:
    """Raise PositionError unless the replaced ranges tile the complete ranges of the manifest."""
    where = f"manifest {manifest.writer}/{manifest.batch}"
    complete = {item.log: item.range for item in manifest.ranges if item.rows == len(item.range)}
    at = {log: item.start for log, item in complete.items()}
    for item in sorted(manifest.replaces, key=lambda item: (item.log, item.range)):
        if item.writer == manifest.writer and item.batch >= manifest.batch:
            raise PositionError(
                "a manifest replaces a later batch",
                expected=f"batches of {manifest.writer} below {manifest.batch}",
                found=item.batch,
                where=where,
            )
        if at.get(item.log) != item.range.start:
            raise PositionError(
                "replaced ranges do not tile a complete range of their manifest",
                expected=f"one that starts at {at[item.log]}" if item.log in at else "none of this log",
                found=f"{item.range} of {item.writer}/{item.batch}",
                where=f"{where}, {item.log}",
            )
        at[item.log] = item.range.end
    for committed in manifest.ranges:
        if at.get(committed.log) != committed.range.end:
            raise PositionError(
                "a compacted range does not match the ranges that it replaces",
                expected=f"{committed.range}, complete, of replaced ranges",
                found=f"{committed.rows} rows, replaced ranges up to {at.get(committed.log)}",
                where=f"{where}, {committed.log}",
            )


def _plain(item: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(item, name) for name in names}


def _place(item: CommittedRange | Replaced | DataFile) -> dict[str, Any]:
    return {**_log(item.log), "start": item.range.start, "end": item.range.end}


def _log(log: TopicPartition) -> dict[str, Any]:
    return {"topic": log.topic, "topic_id": log.topic_id, "partition": log.partition}


def _parse_place(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {"log": _parse_log(raw), "range": OffsetRange(start=raw["start"], end=raw["end"])}


def _parse_log(raw: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(topic=raw["topic"], topic_id=raw["topic_id"], partition=raw["partition"])


def _replaced(item: Replaced) -> dict[str, Any]:
    files = [list(file) for file in item.files]
    return {**_place(item), **_plain(item, _REPLACED_FIELDS), "files": files}


def _parse_replaced(raw: Mapping[str, Any]) -> Replaced:
    files = tuple((key, checksum, etag) for key, checksum, etag in raw["files"])
    return Replaced(**_parse_place(raw), **{name: raw[name] for name in _REPLACED_FIELDS}, files=files)


def _file(item: DataFile) -> dict[str, Any]:
    return {
        **_place(item),
        **_plain(item, _FILE_FIELDS),
        "days": {day.day.isoformat(): _day(day) for day in item.days},
    }


def _day(rows: DayRows) -> dict[str, Any]:
    counted = {} if rows.unreadable_times is None else {"unreadable_times": rows.unreadable_times}
    return {**_plain(rows, _DAY_FIELDS), **counted}


def _parse_file(raw: Mapping[str, Any]) -> DataFile:
    days = tuple(
        DayRows(
            day=date.fromisoformat(day),
            **{name: rows[name] for name in _DAY_FIELDS},
            unreadable_times=rows.get("unreadable_times"),
        )
        for day, rows in sorted(raw["days"].items())
    )
    return DataFile(**_parse_place(raw), **{name: raw[name] for name in _FILE_FIELDS}, days=days)
