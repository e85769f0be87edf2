"""Sets of offsets inside a window, one bit per offset: a hundred million records take 12 MB."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from tidemark.core.offsets import OffsetRange

Ints = npt.NDArray[np.int64]
_BLOCK_BYTES = 1 << 20


class OffsetBits:
    """A set of offsets inside ``window``. ``bits`` starts with the lowest offset."""

    def __init__(self, window: OffsetRange) -> None:
        self.window = window
        self.bits = np.zeros((len(window) + 7) // 8, dtype=np.uint8)

    def __len__(self) -> int:
        """The number of offsets in the set."""
        return int(np.bitwise_count(self.bits).sum())

    def add(self, offsets: Ints) -> int:
        """Add the offsets inside the window, and return how many of them are new."""
        if not (np.diff(offsets) > 0).all():
            offsets = np.unique(offsets)
        inside = offsets[np.searchsorted(offsets, self.window.start) : np.searchsorted(offsets, self.window.end)]
        new = 0
        while len(inside):
            first = (int(inside[0]) - self.window.start) & ~7
            number = int(np.searchsorted(inside, self.window.start + first + 8 * _BLOCK_BYTES))
            places = inside[:number] - (self.window.start + first)
            flags = np.zeros((int(places[-1]) + 8) & ~7, dtype=np.uint8)
            flags[places] = 1
            block = self.bits[first >> 3 : (first + len(flags)) >> 3]
            before = int(np.bitwise_count(block).sum())
            block |= np.packbits(flags, bitorder="little")
            new += int(np.bitwise_count(block).sum()) - before
            inside = inside[number:]
        return new

    def clear(self, span: OffsetRange) -> int:
        """Remove the offsets inside the span, and return how many there were."""
        inside = span.intersect(self.window)
        if inside is None:
            return 0
        first, end = inside.start - self.window.start, inside.end - self.window.start
        block = self.bits[first >> 3 : (end + 7) >> 3]
        flags = np.unpackbits(block, bitorder="little")
        own = flags[first & 7 : (first & 7) + len(inside)]
        number = int(own.sum())
        own[:] = 0
        block[:] = np.packbits(flags, bitorder="little")
        return number

    def common(self, other: "OffsetBits") -> int:
        """The number of offsets that are also in ``other``, a set over the same window."""
        assert self.window == other.window
        return int(np.bitwise_count(self.bits & other.bits).sum())

    def ranges(self) -> Iterator[OffsetRange]:
        """The set's offsets, as maximal ranges in order."""
        return _joined(self._blocks(self.bits, end=len(self.window)))

    def missing(self) -> Iterator[OffsetRange]:
        """The window's offsets that are not in the set, as maximal ranges in order."""
        return _joined(self._blocks(~self.bits, end=len(self.window)))

    def without(self, other: "OffsetBits") -> Iterator[OffsetRange]:
        """The offsets that are not in ``other``, a set over the same window."""
        assert self.window == other.window
        return _joined(self._blocks(self.bits & ~other.bits, end=len(self.window)))

    def _blocks(self, bits: npt.NDArray[np.uint8], *, end: int) -> Iterator[tuple[int, int]]:
        """The runs of set bits, split at block boundaries."""
        for at in range(0, len(bits), _BLOCK_BYTES):
            block = bits[at : at + _BLOCK_BYTES]
            flags = np.unpackbits(block, bitorder="little", count=min(len(block) * 8, end - at * 8))
            edges = np.flatnonzero(np.diff(np.concatenate([[0], flags, [0]]).astype(np.int8)))
            first = self.window.start + at * 8
            yield from zip((first + edges[::2]).tolist(), (first + edges[1::2]).tolist(), strict=True)


def _joined(runs: Iterable[tuple[int, int]]) -> Iterator[OffsetRange]:
    last: tuple[int, int] | None = None
    for start, end in runs:
        if last is not None and last[1] == start:
            last = last[0], end
        else:
            if last is not None:
                yield OffsetRange(start=last[0], end=last[1])
            last = start, end
    if last is not None:
        yield OffsetRange(start=last[0], end=last[1])
