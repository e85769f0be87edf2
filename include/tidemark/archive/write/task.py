"""One task's rows become files: which rows share a file, where it ends, and how many files are open at a time.

This depends only on the rows, never on Arrow's batches: a retry writes the same files.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.archive.write.file import FileTarget, OpenFile
from tidemark.archive.write.folders import FolderBound, Key, overflow_folder
from tidemark.archive.write.spill import BUCKETS, Spill
from tidemark.core.errors import PositionError
from tidemark.core.layout import DataName
from tidemark.core.manifest import DataFile
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.sections import Archive
from tidemark.objects.schema import SCHEMA

# So many rows are grouped by path at a time: a group costs the same for one row as for a thousand.
CHUNK_ROWS = 64 * 1024
CHUNK_BYTES = 16 * 1024 * 1024
# Rows not encoded yet, of all open files together. Above it the files with the most are flushed first.
WAITING_BYTES = 128 * 1024 * 1024
_FOREVER_US = 2**63 - 1
OUT_OF_BOUNDS = "out_of_bounds"  # a column: true if a row's time field is too far off, null if it has no readable time

_Logs = Mapping[tuple[str, int], tuple[TopicPartition, OffsetRange]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """Where a file ends, and how many may be open at a time.

    A file ends after the row with which its rows reach ``flush_size``, or its keys and values ``max_bytes``. It ends
    before a row whose event time is ``rotate_interval_us`` or more after that of the file's first row. A row with an
    earlier event time, however late, ends no file. The rows of a log fill ``max_folders`` and the folder ``overflow``.
    """

    flush_size: int
    max_bytes: int
    rotate_interval_us: int | None
    max_open_files: int
    max_folders: int
    overflow: str

    @classmethod
    def of(cls, archive: Archive) -> Self:
        """The limits in a stream's definition."""
        seconds = archive.rotate_interval_seconds
        return cls(
            flush_size=archive.flush_size,
            max_bytes=archive.max_bytes,
            rotate_interval_us=None if seconds is None else max(round(seconds * 1_000_000), 1),
            max_open_files=archive.max_open_files,
            max_folders=archive.max_folders,
            overflow=overflow_folder(archive.partitioner),
        )


def write_files(
    batches: Iterable[pa.RecordBatch],
    ranges: Iterable[tuple[TopicPartition, OffsetRange]],
    target: FileTarget,
    limits: FileLimits,
) -> list[DataFile]:
    """Write one task's rows: the columns of SCHEMA, ``path``, ``day``, and perhaps OUT_OF_BOUNDS.

    On failure every open upload is aborted.

    Rows of the first ``limits.max_open_files`` paths are written as they come. Rows of further paths wait on local disk
    until those files are finished, so no file ends early because there are too many paths.
    """
    logs = {(log.topic, log.partition): (log, item) for log, item in ranges}
    return list(_write(batches, logs, target, limits, FolderBound(most=limits.max_folders, overflow=limits.overflow)))


def _write(
    batches: Iterable[pa.RecordBatch], logs: _Logs, target: FileTarget, limits: FileLimits, folders: FolderBound
) -> Iterator[DataFile]:
    with Spill() as spill:
        task = _Pass(logs, target, limits, spill, folders)
        try:
            for chunk in _chunks(batches):
                task.add(chunk)
            yield from task.finish()
        except BaseException:
            task.abort()
            raise
        for rows in spill.drain():
            yield from _write(rows, logs, target, limits, folders)


class _Pass:
    """The files of the first ``max_open_files`` paths; rows of other paths go to ``spill``."""

    def __init__(self, logs: _Logs, target: FileTarget, limits: FileLimits, spill: Spill, folders: FolderBound) -> None:
        self._logs, self._target, self._limits, self._spill, self._folders = logs, target, limits, spill, folders
        self._paths: dict[Key, _Path] = {}
        self._buckets: dict[Key, int] = {}  # of the waiting paths

    def add(self, rows: pa.RecordBatch) -> None:
        keys, codes = _keys(rows)
        self._check(rows, keys, codes)
        keys, codes = self._folders.apply(keys, codes)
        if len(keys) == 1:
            buckets = np.array([self._bucket(keys[0])])
            if buckets[0] < 0:
                self._paths[keys[0]].add(rows)
            else:
                self._spill.add(rows, np.full(rows.num_rows, buckets[0]))
            self._flush()
            return
        buckets = np.array([self._bucket(key) for key in keys])
        order = np.argsort(codes.astype(np.uint16) if len(keys) <= 1 << 16 else codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(keys)))
        for key, bucket, start, end in zip(keys, buckets, [0, *ends[:-1]], ends, strict=True):
            if bucket < 0:
                # A copy, not a slice: a rare path's few rows would keep the chunk in memory until its file ends.
                self._paths[key].add(rows.take(pa.array(order[start:end])))
        of_row = buckets[codes]
        wait = np.flatnonzero(of_row >= 0)
        if len(wait):
            self._spill.add(rows.take(pa.array(wait)), of_row[wait])
        self._flush()

    def _flush(self) -> None:
        """Keep the memory of many open files within WAITING_BYTES."""
        total = sum(path.waiting_bytes for path in self._paths.values())
        if total > WAITING_BYTES:
            for path in sorted(self._paths.values(), key=lambda path: path.waiting_bytes, reverse=True):
                total -= path.waiting_bytes
                path.flush()
                if total <= WAITING_BYTES // 2:
                    return

    def finish(self) -> Iterator[DataFile]:
        for path in self._paths.values():
            path.close()
            yield from path.done

    def abort(self) -> None:
        for path in self._paths.values():
            path.abort()

    def _bucket(self, key: Key) -> int:
        """The bucket where the path waits; -1 if it is written in this pass."""
        if key in self._paths:
            return -1
        if key not in self._buckets:
            if len(self._paths) < self._limits.max_open_files:
                self._paths[key] = _Path(self._target, self._limits, *self._logs[key[:2]], key[2])
                self._target.meter.see_open_files(len(self._paths))
                return -1
            self._buckets[key] = len(self._buckets) % BUCKETS
        return self._buckets[key]

    def _check(self, rows: pa.RecordBatch, keys: list[Key], codes: npt.NDArray[np.int32]) -> None:
        """Raise PositionError if a row is outside its log's range."""
        offsets = rows.column("offset").to_numpy()
        numbers: dict[tuple[str, int], list[int]] = {}
        for code, (topic, partition, _) in enumerate(keys):
            numbers.setdefault((topic, partition), []).append(code)
        for log, of_log in numbers.items():
            found = offsets if len(numbers) == 1 else offsets[np.isin(codes, of_log)]
            first, last = int(found.min()), int(found.max())
            known = self._logs.get(log)
            if known is None or first not in known[1] or last not in known[1]:
                raise PositionError(
                    "rows outside the range to be committed",
                    expected="no rows" if known is None else known[1],
                    found=f"offsets {first} to {last}",
                    where=f"{log[0]}-{log[1]}",
                )


class _Path:
    """The files of one log and path, one after the other."""

    def __init__(
        self, target: FileTarget, limits: FileLimits, log: TopicPartition, allowed: OffsetRange, path: str
    ) -> None:
        self.done: list[DataFile] = []
        self._target, self._limits, self._log = target, limits, log
        self._name = DataName(path=path, topic=log.topic, partition=log.partition, range=allowed, seq=0)
        self._file: OpenFile | None = None
        self._until_us = _FOREVER_US  # an event time from here on ends the open file

    def add(self, rows: pa.RecordBatch) -> None:
        days = rows.column("day").cast(pa.int32()).to_numpy()
        far, unreadable = _without_own_time(rows)
        outside = np.cumsum(far)
        batch = _conform(rows)
        times = batch.column("event_time").view(pa.int64()).to_numpy()
        total = np.cumsum(_payload_sizes(batch))
        start = 0
        while start < len(times):
            file = self._file or self._open(int(times[start]))
            before = int(total[start - 1]) if start else 0
            # Up to and including the row that reaches max_bytes, at most to flush_size, and before the rotation.
            reaches = int(np.searchsorted(total, before + self._limits.max_bytes - file.payload_bytes)) + 1
            full = min(reaches, start + self._limits.flush_size - file.rows, len(times))
            end = _first_at_least(times, self._until_us, start, full)
            if end > start:
                rows_of_file = batch.slice(start, end - start)
                if start and end == len(times):  # a copy: a waiting slice would keep the whole batch in memory
                    rows_of_file = pa.concat_batches([rows_of_file])
                counted = int(outside[end - 1]) - (int(outside[start - 1]) if start else 0)
                size = int(total[end - 1]) - before
                own = None if unreadable is None else unreadable[start:end]
                file.add(rows_of_file, days[start:end], size, counted, own)
            if end < full or file.rows >= self._limits.flush_size or file.payload_bytes >= self._limits.max_bytes:
                self.close()
            start = end

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the open file that are not encoded yet."""
        return 0 if self._file is None else self._file.waiting_bytes

    def flush(self) -> None:
        """Encode the waiting rows now."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Finish the open file, if there is one."""
        if self._file is not None:
            file, self._file = self._file, None
            self.done.append(file.finish())

    def abort(self) -> None:
        if self._file is not None:
            self._file.abort()

    def _open(self, first_us: int) -> OpenFile:
        self._file = OpenFile(self._target, self._log, self._name)
        self._name = replace(self._file.name, seq=self._file.name.seq + 1)
        if self._limits.rotate_interval_us is not None:
            self._until_us = min(first_us + self._limits.rotate_interval_us, _FOREVER_US)
        return self._file


def _first_at_least(values: npt.NDArray[np.int64], limit: int, start: int, end: int) -> int:
    """The first index in [start, end) whose value is ``limit`` or more; ``end`` if there is none."""
    if limit == _FOREVER_US:
        return end
    # In growing steps: a short file must not cost a scan of all rows left.
    step = 256
    while start < end:
        stop = min(start + step, end)
        found = values[start:stop] >= limit
        if found.any():
            return start + int(found.argmax())
        start, step = stop, step * 2
    return end


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches, copied: a row that waits keeps only its own chunk in memory."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if pending and (rows + batch.num_rows > CHUNK_ROWS or size + batch.nbytes > CHUNK_BYTES):
            yield pa.concat_batches(pending)
            pending.clear()
            rows = size = 0
        pending.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if pending:
        yield pa.concat_batches(pending)


def _keys(rows: pa.RecordBatch) -> tuple[list[Key], npt.NDArray[np.int32]]:
    """The distinct topics, partitions and paths in order of appearance, and each row's position in that list."""
    columns = [rows.column(name).dictionary_encode() for name in ("topic", "partition", "path")]
    values = [column.dictionary.to_pylist() for column in columns]
    codes = [column.indices.to_numpy() for column in columns]
    several = [number for number in range(3) if len(values[number]) > 1]
    if not several:
        return [(values[0][0], values[1][0], values[2][0])], codes[0]
    combined = codes[several[0]].astype(np.int64)
    for number in several[1:]:
        combined = combined * len(values[number]) + codes[number]
    encoded = pa.array(combined).dictionary_encode()
    of_row = encoded.indices.to_numpy()
    first = np.zeros(len(encoded.dictionary), np.int64)
    first[of_row[::-1]] = np.arange(len(of_row) - 1, -1, -1)
    topics, partitions, paths = (
        [kinds[code] for code in column[first].tolist()] for kinds, column in zip(values, codes, strict=True)
    )
    return list(zip(topics, partitions, paths, strict=True)), of_row


def _conform(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of SCHEMA with exactly its types."""
    arrays = [rows.column(item.name) for item in SCHEMA]
    return pa.RecordBatch.from_arrays(
        [
            array if array.type == item.type else array.cast(item.type)
            for array, item in zip(arrays, SCHEMA, strict=True)
        ],
        schema=SCHEMA,
    )


def _without_own_time(rows: pa.RecordBatch) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_] | None]:
    """Which rows have a time field that lies too far from their timestamp, and which have none that can be read.

    Without that column there is none, and None.
    """
    if OUT_OF_BOUNDS not in rows.schema.names:
        return np.zeros(rows.num_rows, dtype=np.bool_), None
    column = rows.column(OUT_OF_BOUNDS)
    far, unreadable = (
        item.to_numpy(zero_copy_only=False) for item in (pc.fill_null(column, False), pc.is_null(column))
    )
    return far, unreadable


def _payload_sizes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of key and value per row; 0 for null."""
    lengths = (pc.fill_null(pc.binary_length(rows.column(name)), 0) for name in ("key", "value"))
    key, value = (item.to_numpy(zero_copy_only=False).astype(np.int64) for item in lengths)
    total: npt.NDArray[np.int64] = key + value
    return total
