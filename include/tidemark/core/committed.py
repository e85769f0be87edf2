"""Committed ranges with their files: where several hold an offset, and which of them a seal or a plan has used."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark.core.cover import Copy, CoverPart
from tidemark.core.manifest import COMPACTION, DataFile
from tidemark.core.offsets import OffsetRange, OffsetSet, normalise, subtract
from tidemark.core.plan import Used


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Copy):
    """A committed range of one log and its files.

    With ``last_batch`` it stands for adjacent ranges, as in ``Used``. None of them may overlap another range.
    """

    writer: str
    batch: int
    last_batch: int | None = None
    files: tuple[DataFile, ...]


def contested(copies: Sequence[Copy], *, all_settings: bool = False) -> OffsetSet:
    """The offsets of several copies with rows, of which two may disagree about a record's day.

    Copies with equal known day settings agree. With ``all_settings`` that is not taken for granted. O(n log n).
    """
    known = {copy.day_settings for copy in copies}
    if not all_settings and len(known) < 2 and None not in known:
        return ()
    shared = _overlapping(copies)
    changes = [(copy.range.start, 1, copy.day_settings) for copy in shared]
    changes += [(copy.range.end, -1, copy.day_settings) for copy in shared]
    active: Counter[str | None] = Counter()
    found: list[OffsetRange] = []
    start = 0
    for position, change, settings in sorted(changes, key=lambda item: item[0]):
        if position > start and active.total() > 1 and (all_settings or len(active) > 1 or None in active):
            found.append(OffsetRange(start=start, end=position))
        start = position
        active[settings] += change
        if not active[settings]:
            del active[settings]
    return normalise(found)


def _overlapping(copies: Sequence[Copy]) -> list[Copy]:
    """The copies with rows that share an offset with another one: in a long history usually none."""
    found: dict[int, Copy] = {}
    farthest: Copy | None = None
    for copy in sorted((copy for copy in copies if copy.rows), key=lambda item: item.range.start):
        if farthest is not None and copy.range.start < farthest.range.end:
            found[id(farthest)], found[id(copy)] = farthest, copy
        if farthest is None or copy.range.end > farthest.range.end:
            farthest = copy
    return list(found.values())


class CopyIndex:
    """The copies of one log by writer and batch."""

    def __init__(self, copies: Sequence[Committed]) -> None:
        self._copies = copies
        self._by_writer: dict[str, list[tuple[int, int]]] = {}
        for at, copy in sorted(enumerate(copies), key=lambda item: item[1].batch):
            self._by_writer.setdefault(copy.writer, []).append((copy.batch, at))

    def parts(self, used: Iterable[Used], within: OffsetSet) -> list[CoverPart]:
        """The parts of the used ranges inside ``within``, each with the copy that has its rows now.

        That is the range's own copy, or else the compaction that has replaced it. Others are left out.
        """
        found: list[CoverPart] = []
        for item in used:
            if not within or item.range.end <= within[0].start or item.range.start >= within[-1].end:
                continue
            left = subtract([item.range], subtract([item.range], within))
            batches = self._by_writer.get(item.writer, [])
            first = bisect_right(batches, (item.batch, -1))
            end = bisect_right(batches, (item.last, len(self._copies)))
            for at in (*(at for _, at in batches[first:end]), *(at for _, at in self._by_writer.get(COMPACTION, ()))):
                own = [part for item in left if (part := item.intersect(self._copies[at].range)) is not None]
                found += [CoverPart(index=at, range=part) for part in own]
                left = subtract(left, own) if own else left
                if not left:
                    break
        return sorted(found, key=lambda part: part.range)
