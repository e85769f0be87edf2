"""The days of the rows in data objects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, tzinfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.core.committed import Committed
from tidemark.core.days import EPOCH_DAY, day_spans, micros
from tidemark.core.manifest import DataFile
from tidemark.core.offsets import OffsetSet
from tidemark.objects.columns import object_batches
from tidemark.s3 import ObjectStore

Ints = npt.NDArray[np.int64]
_KEPT = 8  # objects: a large copy is compared with many small ones, one after the other


def day_numbers(times_us: Ints, days: Sequence[date], zone: tzinfo) -> npt.NDArray[np.int32]:
    """The number of the day since 1970-01-01 of each time, if it is one of these days.

    Another time gets one of them too: compare the rows of each day with what is expected.
    """
    spans = sorted((micros(start), day.toordinal() - EPOCH_DAY) for day in days for start, _ in day_spans(day, zone))
    starts, numbers = np.array(spans, dtype=np.int64).T
    places = np.maximum(np.searchsorted(starts, times_us, "right") - 1, 0)
    found: npt.NDArray[np.int32] = numbers[places].astype(np.int32)
    return found


@dataclass(slots=True, kw_only=True)
class RowDays:
    """Reads offsets and days of rows. ``missing`` are the objects that were not there."""

    store: ObjectStore
    zone: tzinfo
    missing: set[str] = field(default_factory=set)
    _kept: dict[str, tuple[Ints, npt.NDArray[np.int32]]] = field(default_factory=dict)

    def read(self, copy: Committed, within: OffsetSet) -> Iterator[tuple[int, date]]:
        """Offset and day of each row of the copy at these offsets. Raises FormatError for a damaged object."""
        for file in copy.files:
            spans = [item for item in within if item.start <= file.last_offset and item.end > file.first_offset]
            if not spans:
                continue
            offsets, days = self._rows(file)
            for span in spans:
                inside = (offsets >= span.start) & (offsets < span.end)
                for offset, number in zip(offsets[inside].tolist(), days[inside].tolist(), strict=True):
                    yield offset, date.fromordinal(number + EPOCH_DAY)

    def _rows(self, file: DataFile) -> tuple[Ints, npt.NDArray[np.int32]]:
        if file.key not in self._kept:
            offsets, days = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int32)]
            batches = object_batches(self.store, file.key, ["offset", "event_time"])
            if batches is None:
                self.missing.add(file.key)
            for batch in batches or ():
                times = batch.column("event_time").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
                offsets.append(batch.column("offset").to_numpy())
                days.append(day_numbers(times, [item.day for item in file.days], self.zone))
            if len(self._kept) == _KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[file.key] = np.concatenate(offsets), np.concatenate(days)
        return self._kept[file.key]
