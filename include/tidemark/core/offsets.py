"""Offset ranges and their set algebra.

A range is half-open, ``[start, end)``, and never empty: "no offsets" is an empty tuple. A set of
offsets is a tuple of ranges that is sorted, disjoint and merged (``normalise`` makes one).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tidemark.core.errors import PositionError

OffsetSet: TypeAlias = "tuple[OffsetRange, ...]"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicPartition:
    """One log: a partition of a topic.

    - topic: name of the topic.
    - topic_id: Kafka's id of the topic. A recreated topic has another id, so it is another log.
    - partition: number of the partition.
    """

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class OffsetRange:
    """Offsets of one partition; never empty.

    - start: first offset.
    - end: offset after the last one.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start < 0:
            raise PositionError("a range starts below offset 0", found=self.start)
        if self.end <= self.start:
            raise PositionError("a range must end after its start", expected=f"> {self.start}", found=self.end)

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"

    def intersect(self, other: "OffsetRange") -> "OffsetRange | None":
        """The offsets in both; None if there are none."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return OffsetRange(start=start, end=end) if start < end else None


def range_or_none(start: int, end: int) -> OffsetRange | None:
    """``[start, end)``, or None if that is empty. An end below its start is an error."""
    return None if start == end else OffsetRange(start=start, end=end)


def normalise(ranges: Iterable[OffsetRange]) -> OffsetSet:
    """The union of the ranges as a set."""
    merged: list[OffsetRange] = []
    for item in sorted(ranges):
        if merged and item.start <= merged[-1].end:
            if item.end > merged[-1].end:
                merged[-1] = OffsetRange(start=merged[-1].start, end=item.end)
        else:
            merged.append(item)
    return tuple(merged)


def subtract(universe: Iterable[OffsetRange], taken: Iterable[OffsetRange]) -> OffsetSet:
    """The offsets of ``universe`` that are not in ``taken``; linear after sorting."""
    left: list[OffsetRange] = []
    holes = normalise(taken)
    at = 0
    for item in normalise(universe):
        position = item.start
        while at < len(holes) and holes[at].end <= position:
            at += 1
        scan = at
        while scan < len(holes) and holes[scan].start < item.end:
            if holes[scan].start > position:
                left.append(OffsetRange(start=position, end=holes[scan].start))
            position = max(position, holes[scan].end)
            scan += 1
        if position < item.end:
            left.append(OffsetRange(start=position, end=item.end))
    return tuple(left)


def count(ranges: Iterable[OffsetRange]) -> int:
    """The number of offsets; overlaps count more than once."""
    return sum(len(item) for item in ranges)


def chunks(ranges: Iterable[OffsetRange], size: int) -> Iterator[OffsetRange]:
    """The ranges, split after every ``size`` offsets."""
    for whole in ranges:
        for start in range(whole.start, whole.end, size):
            yield OffsetRange(start=start, end=min(start + size, whole.end))
