"""Spark's streaming checkpoint: the offsets of a batch, fixed before it ran, and the query's id.

The formats are Spark's (``OffsetSeqLog``, ``KafkaSourceInitialOffsetWriter``, ``StreamMetadata``), for a query with one
Kafka source of one topic.
"""

import json
from collections.abc import Mapping
from typing import Any

from tidemark.core.errors import ConflictError, FormatError, PositionError
from tidemark.core.offsets import OffsetRange, range_or_none

INITIAL_OFFSETS = "sources/0/0"
METADATA = "metadata"
_VERSION = "v1"


def offsets_name(batch: int) -> str:
    """The file, below the checkpoint, with the batch's end in each partition. Spark writes it before the batch runs."""
    return f"offsets/{batch}"


def commit_name(batch: int) -> str:
    """The file, below the checkpoint, that Spark writes after the batch."""
    return f"commits/{batch}"


def parse_offsets(body: bytes, *, topic: str, where: str) -> dict[int, int]:
    """``offsets/<batch>``: its end by partition. Raises FormatError, or ConflictError for another topic's positions."""
    return _positions(_offset_lines(body, where)[1], topic, where)


def parse_batch_time_us(body: bytes, *, where: str) -> int:
    """``offsets/<batch>``: the time when Spark planned the batch, µs since the epoch; the same for every retry."""
    line = _offset_lines(body, where)[0]
    try:
        found = json.loads(line)["batchTimestampMs"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "not a batch's metadata", expected='{"batchTimestampMs": …}', found=line[:200], where=where
        ) from error
    if not isinstance(found, int) or isinstance(found, bool) or found <= 0:  # Spark's default 0 means no time
        raise FormatError("not a batch's time", expected="ms since the epoch", found=found, where=where)
    return found * 1000


def parse_initial_offsets(body: bytes, *, topic: str, where: str) -> dict[int, int]:
    """``sources/0/0``: the start of batch 0 by partition. Raises what ``parse_offsets`` raises."""
    lines = body.removeprefix(b"\0").decode(errors="replace").strip().split("\n")
    if len(lines) != 2 or lines[0] != _VERSION:
        raise FormatError(
            "not the initial offsets of a Kafka source",
            expected=f"{_VERSION} and a line of offsets",
            found=_short(body),
            where=where,
        )
    return _positions(lines[1], topic, where)


def parse_query_id(body: bytes, *, where: str) -> str:
    """``metadata``: the query's id, the same for the checkpoint's lifetime."""
    try:
        found = json.loads(body)["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError("not a query's metadata", expected='{"id": …}', found=_short(body), where=where) from error
    if not isinstance(found, str) or not found:
        raise FormatError("not a query's id", expected="text", found=found, where=where)
    return found


def batch_ranges(start: Mapping[int, int], end: Mapping[int, int], *, where: str) -> dict[int, OffsetRange]:
    """The batch's offsets by partition; a partition without any is left out.

    A partition that ``start`` lacks is new and read from offset 0: Spark refuses any other start. Raises PositionError
    for a partition that is missing in ``end`` or moved back.
    """
    if start.keys() - end.keys():
        raise PositionError(
            "a partition is missing in the next batch",
            expected=f"partitions {sorted(start)}",
            found=f"partitions {sorted(end)}",
            where=where,
        )
    ranges = {}
    for partition in sorted(end):
        first = start.get(partition, 0)
        if end[partition] < first:
            raise PositionError(
                "a batch ends before it starts",
                expected=f">= {first}",
                found=end[partition],
                where=f"{where}, partition {partition}",
            )
        span = range_or_none(first, end[partition])
        if span is not None:
            ranges[partition] = span
    return ranges


def _offset_lines(body: bytes, where: str) -> tuple[str, str]:
    """Metadata and offsets of a query with one source."""
    lines = body.decode(errors="replace").split("\n")
    if len(lines) != 3 or lines[0] != _VERSION:
        raise FormatError(
            "not the offsets of a query with one source",
            expected=f"{_VERSION}, a line of metadata, a line of offsets",
            found=_short(body),
            where=where,
        )
    return lines[1], lines[2]


def _positions(line: str, topic: str, where: str) -> dict[int, int]:
    try:
        raw: Any = json.loads(line)
        found = {str(name): {int(p): int(offset) for p, offset in positions.items()} for name, positions in raw.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise FormatError(
            "not positions in a topic", expected='{"topic": {"0": 17}}', found=line[:200], where=where
        ) from error
    if set(found) != {topic}:
        raise ConflictError(
            "a checkpoint belongs to another topic",
            expected=topic,
            found=", ".join(sorted(found)) or "no topic",
            where=where,
            hint="Give the stream its own topic back, or delete the checkpoint to read the new topic from its start",
        )
    return found[topic]


def _short(body: bytes) -> str:
    return repr(body[:200])
