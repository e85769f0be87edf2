"""The properties that a publication writes into its snapshot's summary: run, days, inputs, and the offsets it read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from tidemark.core.errors import FormatError
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise
from tidemark.core.plan import Used

RANGES_PROPERTY = "tidemark.ranges"
DAYS_PROPERTY = "tidemark.days"
RUN_PROPERTY = "tidemark.run"
INPUTS_PROPERTY = "tidemark.inputs"
ROWS_PROPERTY = "tidemark.rows"  # per day


def format_ranges(ranges: Mapping[TopicPartition, Iterable[OffsetRange]]) -> str:
    """The union of each log's ranges as JSON: ``{"<topic id>/<topic>-<partition>": [[start, end], …]}``."""
    value = {
        f"{log.topic_id}/{log}": [[item.start, item.end] for item in normalise(own)] for log, own in ranges.items()
    }
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def parse_ranges(text: str, *, where: str) -> dict[TopicPartition, OffsetSet]:
    """The ranges that ``format_ranges`` wrote. Raises FormatError, with ``where``, for anything else."""
    found = {}
    try:
        for key, ranges in json.loads(text).items():
            topic_id, _, name = key.partition("/")
            topic, _, partition = name.rpartition("-")
            log = TopicPartition(topic=topic, topic_id=topic_id, partition=int(partition))
            found[log] = normalise(OffsetRange(start=start, end=end) for start, end in ranges)
    except (AttributeError, TypeError, ValueError) as error:
        raise FormatError(
            "a snapshot's ranges do not parse", expected=RANGES_PROPERTY, found=repr(error), where=where
        ) from error
    return found


def snapshot_summary(
    stream: str, versions: Mapping[date, int], used: Mapping[TopicPartition, Sequence[Used]]
) -> dict[str, str]:
    """The properties that show where a snapshot's rows come from."""
    return {
        "tidemark.stream": stream,
        "tidemark.versions": json.dumps({day.isoformat(): number for day, number in versions.items()}, sort_keys=True),
        RANGES_PROPERTY: format_ranges({log: [item.range for item in items] for log, items in used.items()}),
    }
