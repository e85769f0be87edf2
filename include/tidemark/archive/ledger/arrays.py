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


def named(own: tuple[Ints, Ints, Ints], others: tuple[Ints, Ints, Ints]) -> npt.NDArray[np.bool_]:
    """Which of the ranges, given by log, writer and batch, are among the others."""
    number = len(own[2])
    # One number per range. Batches are renumbered first, so the product can't overflow.
    _, places = np.unique(np.append(own[2], others[2]), return_inverse=True)
    logs, writers = np.append(own[0], others[0]), np.append(own[1], others[1])
    numbers = (writers * (logs.max(initial=0) + 1) + logs) * len(places) + places
    found: npt.NDArray[np.bool_] = np.isin(numbers[:number], numbers[number:])
    return found


def first_gap(start: int, starts: Ints, ends: Ints) -> int:
    """The first offset at or after ``start`` that none of the ranges, given in the order of their starts, has."""
    reach = np.maximum.accumulate(np.append([np.int64(start)], ends))
    after_gap = np.flatnonzero(starts > reach[:-1])
    return int(reach[after_gap[0]] if len(after_gap) else reach[-1])


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
