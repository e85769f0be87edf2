"""What the metadata of data files says of their columns, without a scan."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from math import isfinite
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField, PrimitiveType

from tidemark.core.days import EPOCH_DAY
from tidemark.tables.reader import pyiceberg_errors

_WHOLE = (IntegerType, LongType)
_NUMBERS = (*_WHOLE, FloatType, DoubleType)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayStatistics:
    """A day's files: their rows, the nulls of each column that all of them count, and the bounds of numbers.

    ``bounds`` are the least and the greatest value of columns of whole numbers and of floats without NaN or infinity.
    """

    rows: int
    nulls: Mapping[str, int]
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def added_days(table: Table, snapshot_id: int) -> dict[date, DayStatistics]:
    """The days whose files a snapshot added; empty if the snapshot deletes single rows, or is not there.

    Nested columns have no counts of their own, and a table counts those of its first 100 columns. Raises what
    ``pyiceberg_errors`` raises.
    """
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return {}
    files: dict[date, list[DataFile]] = defaultdict(list)
    with pyiceberg_errors(table.name()[-1]):
        for manifest in snapshot.manifests(table.io):
            if manifest.content != ManifestContent.DATA:
                return {}
            if manifest.added_snapshot_id != snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(table.io):
                number = entry.data_file.partition[0]
                if entry.snapshot_id == snapshot_id and number is not None:
                    files[date.fromordinal(EPOCH_DAY + number)].append(entry.data_file)
    schema = table.schemas()[snapshot.schema_id] if snapshot.schema_id is not None else table.schema()
    return {day: _statistics(own, schema.fields) for day, own in files.items()}


def _statistics(files: Sequence[DataFile], columns: Sequence[NestedField]) -> DayStatistics:
    nulls: dict[str, int] = {}
    bounds: dict[str, tuple[float, float]] = {}
    for column in columns:
        number, name = column.field_id, column.name
        counted = [
            (file.null_value_counts or {}).get(number)
            for file in files
            if (file.value_counts or {}).get(number) == file.record_count
        ]
        known = [item for item in counted if item is not None]
        if len(known) == len(files):
            nulls[name] = sum(known)
            if isinstance(column.field_type, _NUMBERS) and (found := _bounds(files, column)):
                bounds[name] = found
    return DayStatistics(rows=sum(file.record_count for file in files), nulls=nulls, bounds=bounds)


def _bounds(files: Sequence[DataFile], column: NestedField) -> tuple[float, float] | None:
    """The bounds of a column; None if no file has a value, or one lacks bounds or has a NaN or an infinity."""
    number, kind = column.field_id, column.field_type
    assert isinstance(kind, _NUMBERS)
    found: list[float] = []
    for file in files:
        if (file.null_value_counts or {}).get(number) == file.record_count:
            continue
        low, high = ((bounds or {}).get(number) for bounds in (file.lower_bounds, file.upper_bounds))
        exact = isinstance(kind, _WHOLE) or (file.nan_value_counts or {}).get(number) == 0
        if low is None or high is None or not exact:
            return None
        read: Callable[[PrimitiveType, bytes], Any] = from_bytes
        found += [read(kind, low), read(kind, high)]
    return (min(found), max(found)) if found and all(map(isfinite, found)) else None
