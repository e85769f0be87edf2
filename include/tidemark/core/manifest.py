"""Manifests: the archive's commit records, one per micro-batch of one writer.

An object that no manifest lists is not part of the archive. The JSON form is canonical (sorted keys, no
spaces, one trailing newline), so that ``digest`` of the bytes chains a writer's manifests.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from tidemark.core.errors import FormatError, PositionError
from tidemark.core.offsets import OffsetRange, TopicPartition

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRows:
    """The rows of one file that belong to one day, and the first and last offset among them (inclusive)."""

    day: date
    rows: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One object of the archive. ``range`` is its batch's committed range, not its own rows' extent.

    ``first_offset`` and ``last_offset`` are inclusive and belong to real rows; timestamps are in µs since
    the epoch; ``checksum`` covers the rows, not the encoding (see tidemark.archive.checksum).
    Of an adopted object the timestamps are event times, and the checksum is of its bytes (tidemark.archive.adopt_list).
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
    """A partition's range in a batch and the rows that came out of it (fewer where the log has holes)."""

    log: TopicPartition
    range: OffsetRange
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One committed batch.

    ``writer`` is the streaming query's id or ``refill-<run>``; ``previous`` the digest of the same
    writer's manifest before this one, None for its first; ``time_zone`` the one days were cut in.
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

    def to_json(self) -> bytes:
        """Canonical bytes; ``parse_manifest`` reads them back to an equal value."""
        return canonical_json(
            {
                "format": FORMAT,
                "stream": self.stream,
                "writer": self.writer,
                "batch": self.batch,
                "committed_at_us": self.committed_at_us,
                "time_zone": self.time_zone,
                "settings": self.settings,
                "previous": self.previous,
                "ranges": [
                    {**_log(item.log), "start": item.range.start, "end": item.range.end, "rows": item.rows}
                    for item in self.ranges
                ],
                "files": [_file(item) for item in self.files],
            }
        )


def canonical_json(value: Mapping[str, Any]) -> bytes:
    """The one JSON form of everything persisted: sorted keys, no spaces, a newline at the end."""
    return (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode()


def digest(body: bytes) -> str:
    """SHA-256 in hex: what ``previous`` of the next manifest or seal holds."""
    return hashlib.sha256(body).hexdigest()


def parse_manifest(body: bytes, *, where: str) -> Manifest:
    """The manifest in ``body``; raises FormatError, naming ``where``, for anything else."""
    try:
        raw = json.loads(body)
        if raw["format"] != FORMAT:
            raise FormatError("unknown manifest format", expected=FORMAT, found=raw["format"], where=where)
        return Manifest(
            stream=raw["stream"],
            writer=raw["writer"],
            batch=raw["batch"],
            committed_at_us=raw["committed_at_us"],
            time_zone=raw["time_zone"],
            settings=raw["settings"],
            previous=raw["previous"],
            ranges=tuple(
                CommittedRange(
                    log=_parse_log(item), range=OffsetRange(start=item["start"], end=item["end"]), rows=item["rows"]
                )
                for item in raw["ranges"]
            ),
            files=tuple(_parse_file(item) for item in raw["files"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(
            "a manifest does not parse", expected=f"format {FORMAT}", found=repr(error), where=where
        ) from error


def _log(log: TopicPartition) -> dict[str, Any]:
    return {"topic": log.topic, "topic_id": log.topic_id, "partition": log.partition}


def _parse_log(raw: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(topic=raw["topic"], topic_id=raw["topic_id"], partition=raw["partition"])


def _file(item: DataFile) -> dict[str, Any]:
    return {
        **_log(item.log),
        "key": item.key,
        "start": item.range.start,
        "end": item.range.end,
        "rows": item.rows,
        "bytes": item.bytes,
        "first_offset": item.first_offset,
        "last_offset": item.last_offset,
        "min_timestamp_us": item.min_timestamp_us,
        "max_timestamp_us": item.max_timestamp_us,
        "days": {
            day.day.isoformat(): {"rows": day.rows, "first_offset": day.first_offset, "last_offset": day.last_offset}
            for day in item.days
        },
        "checksum": item.checksum,
    }


def _parse_file(raw: Mapping[str, Any]) -> DataFile:
    return DataFile(
        key=raw["key"],
        log=_parse_log(raw),
        range=OffsetRange(start=raw["start"], end=raw["end"]),
        rows=raw["rows"],
        bytes=raw["bytes"],
        first_offset=raw["first_offset"],
        last_offset=raw["last_offset"],
        min_timestamp_us=raw["min_timestamp_us"],
        max_timestamp_us=raw["max_timestamp_us"],
        days=tuple(
            DayRows(
                day=date.fromisoformat(day),
                rows=rows["rows"],
                first_offset=rows["first_offset"],
                last_offset=rows["last_offset"],
            )
            for day, rows in sorted(raw["days"].items())
        ),
        checksum=raw["checksum"],
    )
