"""All committed ranges in columns, and the part of them that a plan must examine one by one.

Most of a long history is regular: adjacent ranges of one writer that nothing overlaps, each complete, or with holes
that a seal has proven transactional (tidemark.core.transaction_holes). A cover uses each of them completely, so the
planner may see a sequence of them as one range. Of the files it needs those with rows of the planned days. Both are
selected here with numpy, in time linear in the history. The decisions are in the pure planner (tidemark.core.planner),
whose cost then depends on what is new and what is read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.archive.ledger.arrays import (
    Ints,
    alone,
    first_gap,
    ints,
    joined,
    named,
    renumbered,
    span_of,
    touched,
    within,
)
from tidemark.archive.ledger.segment import Tables, raw_files
from tidemark.core.committed import Committed
from tidemark.core.cover import Copy
from tidemark.core.days import EPOCH_DAY
from tidemark.core.manifest import DataFile, DayRows
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise
from tidemark.core.plan import Target
from tidemark.core.seen import SeenDay, SeenLog
from tidemark.core.transaction_holes import BatchSpan, Spans

_DAY_COUNTS = ("rows", "first_offset", "last_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRef:
    """A committed range by its manifest."""

    writer: str
    batch: int
    range: OffsetRange


class History:
    """The ranges, files and rows per day of all manifests in the parts, without replaced ranges."""

    def __init__(self, parts: Sequence[Tables]) -> None:
        self._parts = tuple(parts)
        self._logs = sorted({log for part in parts for log in part.logs})
        self._writers = sorted({writer for part in parts for writer in part.writers})
        logs = {log: at for at, log in enumerate(self._logs)}
        writers = {writer: at for at, writer in enumerate(self._writers)}
        ranges, files = [0], [0]
        for part in parts:
            counts = part.counts()
            ranges.append(ranges[-1] + counts[0])
            files.append(files[-1] + counts[1])
        self._first_range, self._first_file = ranges, files
        tables, days = [part.ranges for part in parts], [part.days for part in parts]

        def numbered(tables: Sequence[pa.Table]) -> tuple[Ints, Ints]:
            """Log and writer of each row, as positions in the common lists; one table per part."""
            pairs = list(zip(parts, tables, strict=True))
            own_logs = [renumbered(ints(table, "log"), [logs[log] for log in part.logs]) for part, table in pairs]
            own = [renumbered(ints(table, "writer"), [writers[name] for name in part.writers]) for part, table in pairs]
            return joined(own_logs), joined(own)

        self._log, self._writer = numbered(tables)
        self._batch, self._start, self._end, self._rows = (
            joined([ints(table, name) for table in tables]) for name in ("batch", "start", "end", "rows")
        )
        self._texts = list(dict.fromkeys(text for part in parts for text in part.day_settings))
        places = [[self._texts.index(text) for text in part.day_settings] for part in parts]
        self._settings = joined(
            [renumbered(ints(table, "day_settings"), own) for table, own in zip(tables, places, strict=True)]
        )
        self._day_range = joined([ints(table, "range") + at for table, at in zip(days, ranges, strict=False)])
        self._day_file = joined([ints(table, "file") + at for table, at in zip(days, files, strict=False)])
        self._day, self._day_rows, self._day_first, self._day_last, self._day_unreadable = (
            joined([ints(table, name) for table in days]) for name in ("day", *_DAY_COUNTS, "unreadable_times")
        )
        self._kept: npt.NDArray[np.bool_] | None = None  # which of the parts' ranges; None for all
        if any(part.replaced.num_rows for part in parts):
            replaced = [part.replaced for part in parts]
            self._leave_out(*numbered(replaced), joined([ints(table, "batch") for table in replaced]))

    def _leave_out(self, log: Ints, writer: Ints, batch: Ints) -> None:
        """Remove the ranges of these logs, writers and batches, with their rows per day."""
        kept = self._kept = ~named((self._log, self._writer, self._batch), (log, writer, batch))
        for name in ("_log", "_writer", "_batch", "_start", "_end", "_rows", "_settings"):
            setattr(self, name, getattr(self, name)[kept])
        rows = kept[self._day_range]
        self._day_range = (np.cumsum(kept) - 1)[self._day_range]
        for name in ("_day_range", "_day_file", "_day", "_day_rows", "_day_first", "_day_last", "_day_unreadable"):
            setattr(self, name, getattr(self, name)[rows])

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self._start)

    def extents(self) -> dict[TopicPartition, tuple[int, int]]:
        """Per log the lowest start and the highest end of its ranges."""
        owns = ((log, self._log == at) for at, log in enumerate(self._logs))
        return {log: (int(self._start[own].min()), int(self._end[own].max())) for log, own in owns if own.any()}

    def has_other_settings(self, day_settings: str) -> bool:
        """Whether the days of any range were decided by other settings, or by unknown ones."""
        return any(text != day_settings for text in self._texts)

    def newest_day(self, log: TopicPartition) -> date | None:
        """The latest day with an archived row of the log."""
        if log not in self._logs:
            return None
        days = self._day[self._log[self._day_range] == self._logs.index(log)]
        return date.fromordinal(int(days.max()) + EPOCH_DAY) if len(days) else None

    def size(self, day: date) -> tuple[int, int]:
        """The day's archived rows, and the objects that hold them. Each copy of an offset counts."""
        own = self._day == day.toordinal() - EPOCH_DAY
        return int(self._day_rows[own].sum()), len(np.unique(self._day_file[own]))

    def files_of(self, day: date) -> list[DataFile]:
        """The files with rows of the day, in all copies, by log and first offset."""
        found = self._data_files(self._day == day.toordinal() - EPOCH_DAY)
        files = {file.key: file for own in found.values() for file in own}
        return sorted(files.values(), key=lambda file: (file.log, file.first_offset, file.key))

    def archived(self, log: TopicPartition) -> OffsetSet:
        """Every offset of the log that some range holds."""
        own = self._log == (self._logs.index(log) if log in self._logs else -1)
        bounds = zip(self._start[own].tolist(), self._end[own].tolist(), strict=True)
        return normalise(OffsetRange(start=start, end=end) for start, end in bounds)

    def first_missing(self, log: TopicPartition, start: int) -> int:
        """The first offset at or after ``start`` that no range of the log holds."""
        if log not in self._logs:
            return start
        own = np.flatnonzero(self._log == self._logs.index(log))
        own = own[np.argsort(self._start[own], kind="stable")]
        return first_gap(start, self._start[own], self._end[own])

    def manifests_with(self, topic: str, partition: int, offset: int) -> list[tuple[str, int]]:
        """Writer and batch of every manifest that commits the offset, under any topic id; sorted."""
        logs = [at for at, log in enumerate(self._logs) if (log.topic, log.partition) == (topic, partition)]
        rows = np.flatnonzero(np.isin(self._log, logs) & (self._start <= offset) & (self._end > offset))
        return sorted({(self._writers[self._writer[at]], int(self._batch[at])) for at in rows})

    def overlapping(self, log: TopicPartition, within: OffsetRange) -> list[Committed]:
        """The log's ranges that share an offset with ``within``, each with all of its files."""
        if log not in self._logs:
            return []
        own = self._log == self._logs.index(log)
        rows = np.flatnonzero(own & (self._start < within.end) & (self._end > within.start))
        files = self._data_files(np.isin(self._day_range, rows))
        return [
            Committed(
                range=OffsetRange(start=int(self._start[row]), end=int(self._end[row])),
                rows=int(self._rows[row]),
                writer=self._writers[self._writer[row]],
                batch=int(self._batch[row]),
                files=files.get(row, ()),
                day_settings=self._texts[self._settings[row]],
            )
            for row in rows.tolist()
        ]

    def with_rows(self, log: TopicPartition) -> Ints:
        """The numbers of the log's ranges that have rows, by end."""
        number = self._logs.index(log) if log in self._logs else -1
        rows = np.flatnonzero((self._log == number) & (self._rows > 0))
        found: Ints = rows[np.argsort(self._end[rows], kind="stable")]
        return found

    def ref(self, row: int) -> CommittedRef:
        """A range by its number."""
        return CommittedRef(
            writer=self._writers[self._writer[row]],
            batch=int(self._batch[row]),
            range=self._span(row),
        )

    def _span(self, row: int) -> OffsetRange:
        return OffsetRange(start=int(self._start[row]), end=int(self._end[row]))

    def small_neighbours(
        self, bytes_max: int, rows_max: int
    ) -> Iterator[tuple[TopicPartition, tuple[CommittedRef, ...]]]:
        """Sequences of two or more adjacent ranges of a log: complete, overlapping no other, with small files only."""
        for log, rows in self._small_in_a_row(bytes_max, rows_max):
            complete = ~self._has_holes(rows)
            for group in np.split(rows, np.flatnonzero(~(complete[1:] & complete[:-1])) + 1):
                if len(group) > 1:
                    yield log, tuple(self.ref(row) for row in group.tolist())

    def neighbours_with_holes(self, bytes_max: int, rows_max: int) -> int:
        """How many ranges ``small_neighbours`` leaves out only because they have holes."""
        rows = self._small_in_a_row(bytes_max, rows_max)
        return sum(int(self._has_holes(group).sum()) for _, group in rows if len(group) > 1)

    def _small_in_a_row(self, bytes_max: int, rows_max: int) -> Iterator[tuple[TopicPartition, Ints]]:
        """As ``small_neighbours``, but with single ranges and ranges with holes."""
        small = np.ones(self._first_range[-1], dtype=bool)
        for part, first in zip(self._parts, self._first_range, strict=False):
            files = part.all_files(["range", "bytes", "rows"])
            large = (ints(files, "bytes") > bytes_max) | (ints(files, "rows") > rows_max)
            small[ints(files, "range")[large] + first] = False
        if self._kept is not None:
            small = small[self._kept]
        for at, log in enumerate(self._logs):
            rows = self._in_order(np.flatnonzero(self._log == at))
            start, end = self._start[rows], self._end[rows]
            fit = alone(start, end) & small[rows]
            rows, start, end = rows[fit], start[fit], end[fit]
            for group in np.split(rows, np.flatnonzero(end[:-1] != start[1:]) + 1):
                yield log, group

    def _has_holes(self, rows: Ints) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self._rows[rows] < self._end[rows] - self._start[rows]
        return found

    def _in_order(self, rows: Ints) -> Ints:
        """Sorted by range, writer and batch."""
        found: Ints = rows[np.lexsort((self._batch[rows], self._writer[rows], self._end[rows], self._start[rows]))]
        return found

    def committed(
        self,
        targets: Sequence[Target],
        requested: Sequence[date],
        seen: Mapping[date, SeenDay],
        *,
        transactional: Spans | None = None,
        force: bool = False,
        unproven: Collection[date] = (),
    ) -> dict[TopicPartition, list[Committed]]:
        """The input of ``plan_committed`` per target: the ranges inside it, with their files of the affected days.

        Sorted by range, writer and batch. Ranges outside their target are left out; those of the ``transactional``
        spans that seals prove come as one.
        """
        days = self._late_days(targets, seen) | {day for day in requested if force or day not in seen} | set(unproven)
        files = self._files(days, {target.log for target in targets})
        spans = transactional or {}
        return {target.log: self._ranges(target, files, spans.get(target.log, {})) for target in targets}

    def _late_days(self, targets: Sequence[Target], seen: Mapping[date, SeenDay]) -> set[date]:
        """The days seen before that have late rows, as ``plan_committed`` will find them."""
        if not seen:
            return set()
        order = np.argsort(self._day, kind="stable")
        ordered = self._day[order]
        late = set()
        for day, read in seen.items():
            number = day.toordinal() - EPOCH_DAY
            rows = order[np.searchsorted(ordered, number) : np.searchsorted(ordered, number, "right")]
            if any(self._is_late(rows, target, read.logs.get(target.log)) for target in targets):
                late.add(day)
        return late

    def _is_late(self, rows: Ints, target: Target, read: SeenLog | None) -> bool:
        """Whether any of these rows of the days table, all of one day, may bring what the day has not read."""
        if target.log not in self._logs:
            return False
        own = rows[self._log[self._day_range[rows]] == self._logs.index(target.log)]
        start = np.maximum(self._day_first[own], target.start)
        end = np.minimum(self._day_last[own] + 1, target.end)
        inside = start < end
        own, start, end = own[inside], start[inside], end[inside]
        if read is None or not len(own):
            return bool(len(own))
        if not within(read.ranges, start, end).all():
            return True
        # A hole's copy may have been as dense as this one.
        doubtful = np.flatnonzero(touched([hole.range for hole in read.holes], start, end))
        return any(
            read.is_new(OffsetRange(start=int(start[at]), end=int(end[at])), self._copy(int(self._day_range[own[at]])))
            for at in doubtful
        )

    def _copy(self, row: int) -> Copy:
        return Copy(range=self._span(row), rows=int(self._rows[row]))

    def _files(self, days: set[date], logs: set[TopicPartition]) -> dict[int, tuple[DataFile, ...]]:
        """The files with rows of the days, by row of the ranges table."""
        wanted = np.isin(self._day, [day.toordinal() - EPOCH_DAY for day in days])
        wanted &= np.isin(self._log[self._day_range], [at for at, log in enumerate(self._logs) if log in logs])
        return self._data_files(wanted)

    def files_with_holes(
        self, start_us: int, end_us: int
    ) -> dict[tuple[str, int, TopicPartition, OffsetRange], tuple[DataFile, ...]]:
        """The files of ranges with holes that may have timestamps ``start_us <= t < end_us``, µs since the epoch.

        By writer, batch, log and range.
        """
        found = self._data_files(self._has_holes(self._day_range), (start_us, end_us))
        refs = ((self.ref(at), self._logs[self._log[at]], files) for at, files in found.items())
        return {(ref.writer, ref.batch, log, ref.range): files for ref, log, files in refs}

    def _data_files(
        self, wanted: npt.NDArray[np.bool_], timestamps_us: tuple[int, int] | None = None
    ) -> dict[int, tuple[DataFile, ...]]:
        """The files with wanted rows of the days table and with timestamps inside, by row of the ranges table."""
        chosen = np.zeros(self._first_file[-1], dtype=bool)
        chosen[self._day_file[wanted]] = True
        rows = np.flatnonzero(chosen[self._day_file])
        rows = rows[np.argsort(self._day_file[rows], kind="stable")]
        columns = (self._day_file, self._day, self._day_rows, self._day_first, self._day_last, self._day_unreadable)
        parts = {
            file: tuple(
                DayRows(
                    day=date.fromordinal(day + EPOCH_DAY),
                    **dict(zip(_DAY_COUNTS, counts, strict=True)),
                    unreadable_times=None if unreadable < 0 else unreadable,
                )
                for _, day, *counts, unreadable in group
            )
            for file, group in groupby(
                zip(*(column[rows].tolist() for column in columns), strict=True), key=lambda row: row[0]
            )
        }
        range_of = dict(zip(self._day_file[rows].tolist(), self._day_range[rows].tolist(), strict=True))
        found: dict[int, list[DataFile]] = {}
        for file, raw in raw_files(self._parts, self._first_file, np.flatnonzero(chosen)):
            if timestamps_us is not None and not (
                raw["min_us"] < timestamps_us[1] and raw["max_us"] >= timestamps_us[0]
            ):
                continue
            at = range_of[file]
            found.setdefault(at, []).append(
                DataFile(
                    key=raw["key"],
                    log=self._logs[self._log[at]],
                    range=OffsetRange(start=int(self._start[at]), end=int(self._end[at])),
                    rows=raw["rows"],
                    bytes=raw["bytes"],
                    first_offset=raw["first_offset"],
                    last_offset=raw["last_offset"],
                    min_timestamp_us=raw["min_us"],
                    max_timestamp_us=raw["max_us"],
                    days=parts[file],
                    checksum=raw["checksum"],
                    sha256=raw["sha256"],
                    out_of_bounds_rows=raw["out_of_bounds"],
                )
            )
        return {at: tuple(files) for at, files in found.items()}

    def _ranges(
        self, target: Target, files: Mapping[int, tuple[DataFile, ...]], proven: Mapping[str, Sequence[BatchSpan]]
    ) -> list[Committed]:
        if target.log not in self._logs:
            return []
        own = self._log == self._logs.index(target.log)
        rows = self._in_order(np.flatnonzero(own & (self._start < target.end) & (self._end > target.start)))
        if not len(rows):
            return []
        start, end, batch, writer = self._start[rows], self._end[rows], self._batch[rows], self._writer[rows]
        with_files = np.zeros(len(self), dtype=bool)
        with_files[np.fromiter(files, np.int64, len(files))] = True
        span = np.full(len(rows), -1, dtype=np.int64)
        for name, own in proven.items():
            # A range with rows of a planned day stays single: its density decides whether another copy is better.
            # A range without rows stays single: the first and last batch of a sequence give the times around a loss.
            place = self._writers.index(name) if name in self._writers else -1
            by_writer = np.flatnonzero((writer == place) & ~with_files[rows] & (self._rows[rows] > 0))
            span[by_writer] = span_of(own, start[by_writer], end[by_writer], batch[by_writer])
        whole = (self._rows[rows] >= end - start) | (span >= 0)
        regular = alone(start, end) & whole & (start >= target.start) & (end <= target.end)
        # A sequence ends with its span: the evidence on its holes covers the span only.
        joined = regular[1:] & regular[:-1] & (end[:-1] == start[1:]) & (span[:-1] == span[1:])
        joined &= (writer[1:] == writer[:-1]) & (batch[1:] > batch[:-1])
        joined &= self._settings[rows[1:]] == self._settings[rows[:-1]]
        firsts = np.flatnonzero(np.append([True], ~joined))
        lasts = np.append(firsts[1:], len(rows)) - 1
        found = []
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            members = rows[first : last + 1]
            found.append(
                Committed(
                    range=OffsetRange(start=int(start[first]), end=int(end[last])),
                    rows=int(self._rows[members].sum()),
                    writer=self._writers[writer[first]],
                    batch=int(batch[first]),
                    last_batch=int(batch[last]) if last > first else None,
                    files=tuple(file for row in members[with_files[members]].tolist() for file in files[row]),
                    day_settings=self._texts[self._settings[rows[first]]],
                )
            )
        return found
