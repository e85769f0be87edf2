"""The best committed ranges for a target, and the offsets that several of them hold.

``cover`` is greedy, in layers: layer k has the ranges that can be the k-th of a smallest cover. Such a range reaches
past the farthest end of layer k-1, so each range is in one layer at most. The best chain through the layers costs one
bisection per range: O(n log n) in all.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from tidemark.core.offsets import OffsetRange, subtract
from tidemark.core.plan import Overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverPart:
    """A part of the ``index``-th range given. The parts of one cover share no offset."""

    index: int
    range: OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A committed range and its number of rows: fewer than its offsets if it has holes.

    ``day_settings`` decided the days of its rows; None if they are unknown.
    """

    range: OffsetRange
    rows: int
    day_settings: str | None = None

    @property
    def density(self) -> int:
        return density(self.rows, len(self.range))

    @property
    def is_complete(self) -> bool:
        return self.rows >= len(self.range)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """The last range of a chain that trims ``trims`` ranges, and the step before it."""

    index: int
    start: int
    end: int
    trims: int
    before: "_Step | None"


def density(rows: int, size: int) -> int:
    """Rows per offset as an integer, 2**128 for 1. Its order is exact: the fractions differ by more than 2**-126."""
    return (min(rows, size) << 128) // size


def best_cover(
    target: OffsetRange,
    copies: Sequence[Copy],
    *,
    first: Collection[int] = (),
    then: Sequence[CoverPart] = (),
) -> tuple[CoverPart, ...]:
    """Every offset of ``target`` that any copy holds, from the densest such copy; disjoint parts in order.

    Complete copies go first, as their ``cover``. Two copies with holes may each have rows that the other lacks, and no
    manifest says which. The one with more rows per offset is used, in the fewest parts. O(n log n).

    Among equally dense copies, those in ``first`` are preferred, then the parts in ``then``.
    """
    complete = [index for index, copy in enumerate(copies) if copy.is_complete]
    parts = _covered(target, copies, [index for index in complete if index in first])
    if then:
        left = subtract([target], [part.range for part in parts])
        whole = [part for part in then if copies[part.index].is_complete]
        parts += [replace(part, range=span) for part in whole for item in left if (span := item.intersect(part.range))]
    gaps = subtract([target], [part.range for part in parts]) if parts else (target,)
    parts += [part for gap in gaps for part in _covered(gap, copies, complete)]
    if len(complete) < len(copies):
        others = sorted(
            (index for index, copy in enumerate(copies) if not copy.is_complete),
            key=lambda index: (copies[index].range, index),
        )
        ranks = dict.fromkeys((part.index for part in then), 1) | dict.fromkeys(first, 0)
        parts += _densest(subtract([target], [part.range for part in parts]), copies, others, ranks)
    return _joined(sorted(parts, key=lambda part: part.range))


def _covered(target: OffsetRange, copies: Sequence[Copy], indices: Sequence[int]) -> list[CoverPart]:
    found = cover(target, [copies[index].range for index in indices])
    return [CoverPart(index=indices[part.index], range=part.range) for part in found]


def _joined(parts: Sequence[CoverPart]) -> tuple[CoverPart, ...]:
    """The parts, given in order, with adjacent ones of the same copy as one."""
    found: list[CoverPart] = []
    for part in parts:
        if found and found[-1].index == part.index and found[-1].range.end == part.range.start:
            part = replace(part, range=OffsetRange(start=found.pop().range.start, end=part.range.end))  # noqa: PLW2901
        found.append(part)
    return tuple(found)


def _densest(
    left: Sequence[OffsetRange], copies: Sequence[Copy], order: Sequence[int], ranks: Mapping[int, int]
) -> list[CoverPart]:
    """Sweep over ``left``: the densest copy until it ends or a denser one starts.

    Of equally dense copies the one with the lowest rank, by index, is used. Then the one with the farthest end gives
    the fewest parts. ``order`` is by start.
    """
    parts: list[CoverPart] = []
    # Started copies: (-density, rank, -end, index); ended ones are removed later.
    ready: list[tuple[int, int, int, int]] = []
    at = 0
    for item in left:
        position = item.start
        while position < item.end:
            while at < len(order) and copies[order[at]].range.start <= position:
                at = _ready(ready, copies, order, at, ranks)
            while ready and -ready[0][2] <= position:
                heappop(ready)
            if not ready:
                if at == len(order):
                    return parts
                position = copies[order[at]].range.start
                continue
            density_and_rank, (end, index) = ready[0][:2], ready[0][2:]
            stop = min(-end, item.end)
            while at < len(order) and copies[order[at]].range.start < stop:
                start = copies[order[at]].range.start
                at = _ready(ready, copies, order, at, ranks)
                if ready[0][:2] < density_and_rank:
                    stop = start
            parts.append(CoverPart(index=index, range=OffsetRange(start=position, end=stop)))
            position = stop
    return parts


def _ready(
    ready: list[tuple[int, int, int, int]],
    copies: Sequence[Copy],
    order: Sequence[int],
    at: int,
    ranks: Mapping[int, int],
) -> int:
    copy = copies[order[at]]
    heappush(ready, (-copy.density, ranks.get(order[at], 2), -copy.range.end, order[at]))
    return at + 1


def cover(target: OffsetRange, ranges: Sequence[OffsetRange]) -> tuple[CoverPart, ...]:
    """The fewest of ``ranges`` that hold every offset of ``target`` that any of them holds; disjoint parts in order.

    If two ranges overlap, the later one is trimmed. Of covers of the same size one that trims the fewest ranges is
    chosen, then the first one in the order of ``ranges``.
    """
    order = sorted(
        (index for index, item in enumerate(ranges) if item.start < target.end and item.end > target.start),
        key=lambda index: (ranges[index].start, ranges[index].end, index),
    )
    parts: list[CoverPart] = []
    position, at = target.start, 0
    while position < target.end and at < len(order):
        position = max(position, ranges[order[at]].start)
        last: _Step | None = None
        layer: list[_Step] = []
        while position < target.end:
            taken: list[int] = []
            while at < len(order) and ranges[order[at]].start <= position:
                if ranges[order[at]].end > position:
                    taken.append(order[at])
                at += 1
            if not taken:
                break
            layer = _extend(layer, taken, ranges, target)
            last = _best_at_end(layer)
            position = last.end
        if last is not None:
            parts.extend(_chain(last))
    return tuple(parts)


def _extend(
    layer: list[_Step], taken: Sequence[int], ranges: Sequence[OffsetRange], target: OffsetRange
) -> list[_Step]:
    """The next layer, by end: every taken range with the best step of ``layer`` before it."""
    ends = [step.end for step in layer]
    # best[i]: the step with the fewest trims among layer[i:]; exact[end]: the same among those that end there.
    best: list[_Step] = list(layer)
    exact: dict[int, _Step] = {}
    for at in range(len(layer) - 1, -1, -1):
        step = layer[at]
        if at + 1 < len(layer) and best[at + 1].trims <= step.trims:
            best[at] = best[at + 1]
        if step.end not in exact or step.trims <= exact[step.end].trims:
            exact[step.end] = step
    steps = []
    for index in taken:
        item = ranges[index]
        before: _Step | None = None
        start = max(item.start, target.start) if not layer else item.start
        trims = 0
        trimmed = item.end > target.end or item.start < target.start
        if layer:
            before = best[bisect_left(ends, item.start)]
            seam = exact.get(item.start)
            if seam is not None and (seam.trims <= before.trims or (not trimmed and seam.trims <= before.trims + 1)):
                before = seam
            start, trims = before.end, before.trims
            trimmed = trimmed or item.start < before.end
        end = min(item.end, target.end)
        steps.append(_Step(index=index, start=start, end=end, trims=trims + trimmed, before=before))
    return sorted(steps, key=lambda step: step.end)


def _best_at_end(layer: list[_Step]) -> _Step:
    """The step with the farthest end; of several the one whose chain trims least."""
    end = layer[-1].end
    return min((step for step in layer[bisect_left([item.end for item in layer], end) :]), key=lambda step: step.trims)


def _chain(last: _Step) -> list[CoverPart]:
    parts = []
    step: _Step | None = last
    while step is not None:
        parts.append(CoverPart(index=step.index, range=OffsetRange(start=step.start, end=step.end)))
        step = step.before
    return parts[::-1]


def overlaps(target: OffsetRange, ranges: Sequence[OffsetRange]) -> tuple[Overlap, ...]:
    """The offsets of ``target`` that two or more of ``ranges`` hold, split where one of the ranges starts or ends."""
    change: dict[int, int] = {}
    for item in ranges:
        inside = item.intersect(target)
        if inside is not None:
            change[inside.start] = change.get(inside.start, 0) + 1
            change[inside.end] = change.get(inside.end, 0) - 1
    found: list[Overlap] = []
    copies, start = 0, 0
    for position in sorted(change):
        if copies > 1:
            found.append(Overlap(range=OffsetRange(start=start, end=position), copies=copies))
        copies += change[position]
        start = position
    return tuple(found)
