"""What a day has read of each log: the planner compares the archive with it to find late records."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.core.cover import Copy
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenHole:
    """Offsets that were read from a copy with holes, and that copy's ``density``."""

    range: OffsetRange
    density: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLog:
    """The offsets of one log that a day has read.

    ``holes`` are disjoint and in offset order, without transactional ones, because no other copy can fill those.
    """

    ranges: OffsetSet
    holes: tuple[SeenHole, ...] = ()

    def is_new(self, within: OffsetRange, copy: Copy) -> bool:
        """Whether a copy with rows inside ``within`` may have rows that the day has not read.

        It may if the day has not read all of these offsets, or read some from a less dense copy with holes. A copy
        that the day's plan knew is never new: the cover would have used it, or one as dense.
        """
        at = bisect_right(self.ranges, within.start, key=lambda item: item.end)
        if at == len(self.ranges) or within.start < self.ranges[at].start or within.end > self.ranges[at].end:
            return True
        first = bisect_right(self.holes, within.start, key=lambda item: item.range.end)
        end = bisect_left(self.holes, within.end, key=lambda item: item.range.start)
        return any(copy.density > hole.density for hole in self.holes[first:end])


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDay:
    """A day that was rebuilt before: its highest ``version``, and what the last rebuilt version has read by log."""

    version: int
    logs: Mapping[TopicPartition, SeenLog]
