"""The offsets that Kafka had of each log: what a deleted topic has lost can only be known from what was seen of it."""

import json
from collections.abc import Iterable
from typing import Any

from tidemark.core.codec import decode, encode, require_format
from tidemark.core.errors import FormatError
from tidemark.core.manifest import canonical_json
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import LogRange

FORMAT = 1
LogExtents = tuple[LogRange, ...]


def widen(*seen: Iterable[LogRange]) -> LogExtents:
    """Per log, from the lowest offset to the highest one in ``seen``; in the order of the logs."""
    found: dict[TopicPartition, OffsetRange] = {}
    for log, own in ((item.log, item.range) for items in seen for item in items):
        known = found.get(log, own)
        found[log] = OffsetRange(start=min(known.start, own.start), end=max(known.end, own.end))
    return tuple(LogRange(log=log, range=found[log]) for log in sorted(found))


def extents_json(extents: LogExtents) -> bytes:
    """Canonical bytes; ``parse_extents`` reads them back to an equal value."""
    return canonical_json({"format": FORMAT, "logs": encode(extents)})


def parse_extents(body: bytes, *, where: str) -> LogExtents:
    """The extents in ``body``. Raises FormatError, with ``where``, for anything else."""
    try:
        raw: Any = json.loads(body)
        form, logs = raw["format"], raw["logs"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "offsets seen in Kafka do not parse", expected=f"format {FORMAT}", found=repr(error), where=where
        ) from error
    require_format("unknown format of offsets seen in Kafka", form, known=FORMAT, where=where)
    return decode_extents(logs, where=where)


def decode_extents(raw: Any, *, where: str) -> LogExtents:
    """The extents in a JSON value that ``encode`` made."""
    return decode(LogExtents, raw, where=where)
