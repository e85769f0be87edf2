"""Columns of offsets as numpy arrays: the operations that reading a long history needs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.core.offsets import OffsetRange
from tidemark.core.transaction_holes import BatchSpan

Ints = npt.NDArray[np.int64]


def ints(table: pa.Table, column: str) -> Ints:
    """A column without nulls.

    Not by pyarrow's ``to_numpy``: it loads pandas, and that takes longer than a command that asks may.
    """
    return joined([np.from_dlpack(chunk).astype(np.int64, copy=False) for chunk in table[column].chunks])


def column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Integers or texts as a column. Not by ``pyarrow.array``, which loads pandas, unless there are nulls."""
    if None in values:
        return pa.array(values, kind)
    if kind == pa.string():
        encoded = [text.encode() for text in values]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
        return pa.Array.from_buffers(kind, len(encoded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))])
    numbers = np.array(values, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


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


def span_of(proven: Sequence[BatchSpan], start: Ints, end: Ints, batch: Ints) -> Ints:
    """The number of the writer's span that each range lies in; -1 for none. Spans are disjoint and in offset order."""
    starts, ends, firsts, lasts = np.array(
        [(item.range.start, item.range.end, item.batch, item.last_batch) for item in proven], dtype=np.int64
    ).T
    at = np.searchsorted(starts, start, "right") - 1
    inside = (at >= 0) & (end <= ends[at]) & (batch >= firsts[at]) & (batch <= lasts[at])
    found: Ints = np.where(inside, at, -1)
    return found
