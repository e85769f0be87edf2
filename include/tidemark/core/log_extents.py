"""The offsets that Kafka had of each log: what a deleted or truncated log has lost is only known from what was seen."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.core.codec import decode, encode, require_format
from tidemark.core.errors import FormatError
from tidemark.core.manifest import canonical_json
from tidemark.core.offsets import OffsetRange, TopicPartition, subtract
from tidemark.core.plan import LogRange, Truncation

FORMAT = 2
WITHOUT_TRUNCATIONS = 1
LogExtents = tuple[LogRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLogs:
    """What was seen of logs: the ``extents`` of each, and what was ``truncated``, both in the order of the logs."""

    extents: LogExtents = ()
    truncated: tuple[Truncation, ...] = ()


def widen(*seen: Iterable[LogRange]) -> LogExtents:
    """Per log, from the lowest offset to the highest one in ``seen``; in the order of the logs."""
    found: dict[TopicPartition, OffsetRange] = {}
    for log, own in ((item.log, item.range) for items in seen for item in items):
        known = found.get(log, own)
        found[log] = OffsetRange(start=min(known.start, own.start), end=max(known.end, own.end))
    return tuple(LogRange(log=log, range=found[log]) for log in sorted(found))


def lost_ends(
    before: SeenLogs, ends: Mapping[TopicPartition, int], archived: Mapping[TopicPartition, int]
) -> LogExtents:
    """The offsets that were seen of logs at or after their ends now, and that are neither archived nor known as lost.

    ``before`` must be read before Kafka is asked for ``ends``: an end that is seen later may be higher. Logs that
    ``ends`` lacks were deleted, and lose nothing here. ``archived`` are the ends of the archived offsets.
    """
    found = []
    for item in before.extents:
        if item.log in ends:
            start = max(ends[item.log], archived.get(item.log, 0), item.range.start)
            lost = [OffsetRange(start=start, end=item.range.end)] if start < item.range.end else []
            known = [other.range for other in before.truncated if other.log == item.log]
            found += [LogRange(log=item.log, range=part) for part in subtract(lost, known)]
    return tuple(found)


def extents_json(seen: SeenLogs) -> bytes:
    """Canonical bytes; ``parse_extents`` reads them back to an equal value."""
    return canonical_json({"format": FORMAT, "logs": encode(seen.extents), "truncated": encode(seen.truncated)})


def parse_extents(body: bytes, *, where: str) -> SeenLogs:
    """What was seen, in ``body`` of format 1 or 2. Raises FormatError, with ``where``, for anything else."""
    try:
        raw: Any = json.loads(body)
        form, logs = raw["format"], raw["logs"]
        truncated = [] if form == WITHOUT_TRUNCATIONS else raw.get("truncated")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            "offsets seen in Kafka do not parse", expected=f"format {FORMAT}", found=repr(error), where=where
        ) from error
    if form != WITHOUT_TRUNCATIONS:
        require_format("unknown format of offsets seen in Kafka", form, known=FORMAT, where=where)
    return SeenLogs(
        extents=decode_extents(logs, where=where),
        truncated=decode(tuple[Truncation, ...], truncated, where=where),
    )


def decode_extents(raw: Any, *, where: str) -> LogExtents:
    """The extents in a JSON value that ``encode`` made."""
    return decode(LogExtents, raw, where=where)
