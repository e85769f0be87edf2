"""Columns of offsets as numpy arrays: the operations that reading a long history needs."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.core.offsets import OffsetRange

Ints = npt.NDArray[np.int64]


def ints(table: pa.Table, column: str) -> Ints:
    """A column without nulls."""
    found: Ints = table[column].to_numpy()
    return found


def joined(arrays: Sequence[Ints]) -> Ints:
    """All arrays as one; an empty one if there are none."""
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])


def renumbered(places: Ints, new: Sequence[int]) -> Ints:
    """Positions in one part's list as positions in the common list."""
    found: Ints = np.array(new, dtype=np.int64)[places] if len(places) else places
    return found


def alone(start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
    """Which of the ranges, given in offset order, share no offset with another one."""
    reach = np.maximum.accumulate(end)
    alone: npt.NDArray[np.bool_] = start >= np.append([np.int64(0)], reach[:-1])
    return alone & (np.append(start[1:], reach[-1:]) >= reach)


def touched(ranges: Sequence[OffsetRange], start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
    """Which of the spans ``[start, end)`` share an offset with one of the disjoint ranges, given in offset order."""
    starts = np.array([item.start for item in ranges] + [np.iinfo(np.int64).max], dtype=np.int64)
    ends = np.array([item.end for item in ranges], dtype=np.int64)
    touched: npt.NDArray[np.bool_] = starts[np.searchsorted(ends, start, "right")] < end
    return touched


def within(ranges: Sequence[OffsetRange], start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
    """Which of the spans ``[start, end)`` lie in one of the disjoint ranges, given in offset order."""
    starts = np.array([item.start for item in ranges] + [np.iinfo(np.int64).max], dtype=np.int64)
    ends = np.array([item.end for item in ranges] + [np.iinfo(np.int64).max], dtype=np.int64)
    at = np.searchsorted(ends[:-1], start, "right")
    within: npt.NDArray[np.bool_] = (starts[at] <= start) & (end <= ends[at])
    return within
