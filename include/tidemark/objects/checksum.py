"""A checksum over rows: the same for the same rows in the same order, with any batches and any encoding.

Each column's values are hashed: bytes of fixed-width values (little-endian), lengths and then bytes of variable-width
ones, positions of nulls; and the same inside lists and structs. So the checksum does not depend on Arrow's batches, on
the bytes under a null, or on the versions of Arrow and Parquet.
"""

import hashlib
import json
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3

ALGORITHM = "blake3-columns-1"


class RowChecksum:
    """Add record batches of one schema in row order, then take ``value``."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._columns = {name: _Column() for name in columns}

    def add(self, batch: pa.RecordBatch) -> None:
        for name, column in self._columns.items():
            column.add(batch.column(name))

    @property
    def value(self) -> str:
        """``<algorithm>:<hex>``; also defined for no rows."""
        described = {name: column.described() for name, column in self._columns.items()}
        return f"{ALGORITHM}:{hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()}"


class _Column:
    """Running hashes of one column, or of the values inside a list or struct column."""

    def __init__(self) -> None:
        self._rows = 0
        self._nulls = blake3()
        self._lengths = blake3()
        self._values = blake3()
        self._children: dict[str, _Column] = {}

    def add(self, array: pa.Array) -> None:
        if array.null_count:
            positions = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)) + self._rows
            self._nulls.update(positions.astype("<i8").tobytes())
        self._rows += len(array)
        kind = array.type
        if pa.types.is_list(kind):
            self._add_lengths(pc.list_value_length(array))
            self._child("item").add(array.flatten())
        elif pa.types.is_struct(kind):
            for field, child in zip(kind, array.flatten(), strict=True):
                self._child(field.name).add(child)
        elif pa.types.is_binary(kind) or pa.types.is_string(kind):
            self._add_lengths(pc.binary_length(array))
            self._add_bytes(array)
        elif pa.types.is_primitive(kind) and kind.bit_width in (32, 64):
            width = np.dtype(f"<i{kind.bit_width // 8}")
            numbers = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
            self._values.update(_filled(numbers, 0).to_numpy(zero_copy_only=False).astype(width, copy=False).tobytes())
        else:
            raise TypeError(f"no checksum for a column of type {kind}")

    def described(self) -> list[object]:
        children = {name: child.described() for name, child in self._children.items()}
        return [
            self._rows,
            self._nulls.hexdigest(),
            self._lengths.hexdigest(),
            self._values.hexdigest(),
            children,
        ]

    def _child(self, name: str) -> "_Column":
        return self._children.setdefault(name, _Column())

    def _add_lengths(self, lengths: pa.Array) -> None:
        self._lengths.update(_filled(lengths, 0).to_numpy(zero_copy_only=False).astype("<i4", copy=False).tobytes())

    def _add_bytes(self, array: pa.Array) -> None:
        if not len(array):
            return
        if array.null_count:  # the bytes under a null are undefined
            array = array.drop_null()
            if not len(array):
                return
        _, offsets, data = array.buffers()
        if data is None:
            return
        ends = np.frombuffer(offsets, dtype=np.int32)
        start, end = int(ends[array.offset]), int(ends[array.offset + len(array)])
        self._values.update(memoryview(data)[start:end])


def _filled(array: pa.Array, value: int) -> pa.Array:
    return pc.fill_null(array, value) if array.null_count else array
