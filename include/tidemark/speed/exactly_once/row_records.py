"""Rows of ``output`` as the records that a producer takes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.speed.exactly_once.marker import Sink
from tidemark.speed.headers import milliseconds

# How far a broker's clock may be from this machine's.
_CLOCKS_MS = 60_000
_MS_MAX = 2**62  # no sum with a time overflows 64 bits


def accepted_times(column: pa.Array, sink: Sink, *, now_ms: int) -> list[int]:
    """Record timestamps in Kafka's unit, as the topics accept them: the time of delivery in place of any other.

    The client takes 0 for that time, so a timestamp of 0 becomes 1. Null is -1: the record has none.
    """
    times = milliseconds(column)
    times = pc.fill_null(pc.if_else(pc.equal(times, 0), 1, times), -1).to_numpy(zero_copy_only=False)
    too_early = times < now_ms - min(sink.before_ms, _MS_MAX) + _CLOCKS_MS
    too_late = times > now_ms + min(sink.after_ms, _MS_MAX) - _CLOCKS_MS
    accepted: list[int] = np.where(times == -1, times, np.where(too_early | too_late, 0, times)).tolist()
    return accepted


def row_records(rows: pa.RecordBatch, times: Sequence[int]) -> Iterator[tuple[str, int, Any, Any, Any, int]]:
    """Topic, partition (-1: chosen by the key), key, value, headers, and timestamp in ms, of each row."""
    return zip(
        _texts(rows.column("topic")),
        pc.fill_null(rows.column("partition"), -1).to_pylist(),
        _objects(rows.column("key")),
        _objects(rows.column("value")),
        _headers(rows.column("headers")),
        times,
        strict=True,
    )


def _headers(column: pa.ListArray) -> Iterable[list[tuple[str, bytes | None]]]:
    """Each row's headers. They take most of the time per record, so a header that is equal in all rows is made once."""
    entries = column.flatten()
    names = _texts(pc.struct_field(entries, "key"))
    values = _objects(pc.struct_field(entries, "value"))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    width = lengths[0]
    if width and lengths.count(width) == len(lengths):
        return map(list, zip(*(_pairs(names[at::width], values[at::width]) for at in range(width)), strict=True))
    pairs = list(zip(names, values, strict=True))
    return (pairs[start:end] for start, end in pairwise(accumulate(lengths, initial=0)))


def _pairs(names: list[str], values: list[bytes | None]) -> Iterable[tuple[str, bytes | None]]:
    if names.count(names[0]) == len(names) and values.count(values[0]) == len(values):
        return repeat((names[0], values[0]), len(names))
    return zip(names, values, strict=True)


def _texts(column: pa.Array) -> list[str]:
    """The column's strings, of which few are distinct."""
    encoded = column.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    return [texts[index] for index in encoded.indices.to_pylist()]


def _objects(column: pa.Array) -> Any:
    return column.to_numpy(zero_copy_only=False).tolist()
