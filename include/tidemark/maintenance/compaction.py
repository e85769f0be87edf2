"""Rewrite small files of adjacent ranges as few large ones, in a batch whose manifest replaces those ranges.

All compactions have one writer, ``COMPACTION``, with consecutive batches. Of two at once one gets the next manifest's
key, and the other reads the archive again. So no range is replaced twice. A crash before the manifest leaves objects
that a repetition reuses; after it everything is done.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import partial
from itertools import islice
from typing import Literal, TypeAlias

import pyarrow as pa

from tidemark.archive.ledger.history import CommittedRef, History
from tidemark.archive.ledger.ledger import read_archived
from tidemark.archive.manifests import require_manifest
from tidemark.archive.write.file import FileTarget
from tidemark.archive.write.task import FileLimits, write_files
from tidemark.core.days import micros
from tidemark.core.errors import ConflictError, FormatError, PositionError
from tidemark.core.layout import Layout
from tidemark.core.maintenance_ages import MIN_AGE
from tidemark.core.manifest import COMPACTION, CommittedRange, DataFile, DayRows, Manifest, Replaced, digest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.maintenance.grouping import SMALL, Input, RangeGroup, group_inputs
from tidemark.objects.checksum import RowChecksum
from tidemark.objects.columns import object_batches
from tidemark.objects.days import day_numbers
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore

_READERS = 16
# The most small ranges that are in memory at once; each takes 1 to 2 kB. A manifest is read once for all its ranges
# among them.
_AT_ONCE = 100_000
# Each try ends because another compaction committed first. Then that one does the work.
TRIES = 10

Progress = Callable[[int], object]  # called with the bytes read since the last call
# A small range that may be compacted, or the reason why it is left as it is.
_Checked: TypeAlias = "Input | Literal['young', 'other_settings']"
_Ref: TypeAlias = tuple[TopicPartition, CommittedRef]


@dataclass(slots=True, kw_only=True)
class CompactedFiles:
    """The ranges and files that were, or would be, rewritten, and the files written; ``batches`` counts the new ranges.

    Small ranges are left alone if they are too ``young``, were written with ``other_settings``, or have holes.
    ``unfit`` names the objects that could not be compacted, and why: an object is missing, or its rows are not those in
    its manifest.
    """

    batches: int = 0
    ranges: int = 0
    files: int = 0
    bytes: int = 0
    files_written: int = 0
    bytes_written: int = 0
    young: int = 0
    other_settings: int = 0
    has_holes: int = 0
    unfit: dict[str, str] = field(default_factory=dict)

    def require_fit(self) -> None:
        """Raise FormatError if there are unfit objects."""
        if self.unfit:
            reasons = "; ".join(dict.fromkeys(self.unfit.values()))
            raise FormatError("objects of the archive can't be compacted", found=reasons)

    def add(self, group: RangeGroup, written: Sequence[DataFile] = ()) -> None:
        """Count a group and the files written from it."""
        self.batches += 1
        self.ranges += len(group.inputs)
        self.files += len(group.files)
        self.bytes += sum(file.bytes for file in group.files)
        self.files_written += len(written)
        self.bytes_written += sum(file.bytes for file in written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The compaction of one stream's archive at a moment (with a zone).

    ``checked`` is called with the number of small ranges checked so far.
    """

    store: ObjectStore
    layout: Layout
    stream: Stream
    now: datetime
    progress: Progress = field(default=lambda _: None)
    checked: Callable[[int], object] = field(default=lambda _: None)

    def preview(self) -> CompactedFiles:
        """What ``run`` would do. Raises what ``read_archived`` raises."""
        found = CompactedFiles()
        for group in self._groups(read_archived(self.store, self.layout, self.stream).history(), found):
            found.add(group)
        return found

    def run(self) -> CompactedFiles:
        """Compact the archive. Safe beside streams, runs, readers and other compactions; can be killed and repeated.

        Damaged inputs do not end it (see ``CompactedFiles.require_fit``). Raises ServiceError if S3 refuses,
        ConflictError if other compactions commit first ``TRIES`` times, and what ``read_archived`` raises. What was
        committed until then stays.
        """
        done = CompactedFiles()
        for _ in range(TRIES):
            if self._run(done):
                return done
        raise ConflictError(
            "other compactions of this archive commit first",
            expected="one compaction at a time",
            found=f"{TRIES} manifests of others",
            where=f"s3://{self.store.bucket}/{self.layout.manifest_prefix}{COMPACTION}/",
            hint="Let the other maintenance of the stream finish, then run this one again. Nothing is lost",
        )

    def _run(self, done: CompactedFiles) -> bool:
        """False if another compaction committed first, so that this one must read the archive again."""
        archived = read_archived(self.store, self.layout, self.stream)
        position = archived.positions.get(COMPACTION)
        batch, previous = (position.batch + 1, position.digest) if position else (0, None)
        done.young = done.other_settings = 0
        done.unfit.clear()
        for group in self._groups(archived.history(), done):
            try:
                files, etags = self.write(group)
            except (ConflictError, FormatError, PositionError) as error:
                done.unfit |= {file.key: f"{group.log} {group.range}: {error}" for file in group.files}
                continue
            replaces = tuple(item.replaced_as(etags) for item in group.inputs)
            body = self._manifest(group, files, batch, previous, replaces).to_json()
            if not self.store.put_if_absent(self.layout.manifest_key(COMPACTION, batch), body):
                return False
            done.add(group, files)
            batch, previous = batch + 1, digest(body)
        return True

    def _manifest(
        self,
        group: RangeGroup,
        files: Sequence[DataFile],
        batch: int,
        previous: str | None,
        replaces: tuple[Replaced, ...],
    ) -> Manifest:
        return Manifest(
            stream=self.stream.name,
            writer=COMPACTION,
            batch=batch,
            committed_at_us=micros(self.now),
            time_zone=self.stream.time_zone,
            settings=self.stream.archive_settings,
            previous=previous,
            ranges=(CommittedRange(log=group.log, range=group.range, rows=sum(file.rows for file in files)),),
            files=tuple(sorted(files, key=lambda file: file.key)),
            replaces=replaces,
            last=() if (last := group.inputs[-1].last) is None else (last,),
            day_settings=group.inputs[0].day_settings,
        )

    def _groups(self, history: History, counts: CompactedFiles) -> Iterator[RangeGroup]:
        archive = self.stream.archive
        limits = archive.max_bytes // SMALL, archive.flush_size // 2
        counts.has_holes = history.neighbours_with_holes(*limits)
        refs = ((log, item) for log, ranges in history.small_neighbours(*limits) for item in ranges)
        yield from group_inputs(_fit(self._inputs(refs), counts), archive, self.layout)

    def _inputs(self, refs: Iterator[_Ref]) -> Iterator[_Checked]:
        """The ranges in their order. A manifest with ranges of many logs is read once per ``_AT_ONCE`` ranges."""
        number = 0
        with ThreadPoolExecutor(_READERS, thread_name_prefix="compaction") as pool:
            while part := list(islice(refs, _AT_ONCE)):
                places: dict[tuple[str, int], list[int]] = {}
                for place, (_, item) in enumerate(part):
                    places.setdefault((item.writer, item.batch), []).append(place)
                found: dict[int, _Checked] = {}
                asked = [[(place, part[place]) for place in own] for own in places.values()]
                for own in pool.map(self._of_one_manifest, asked):
                    found |= own
                    number += len(own)
                    self.checked(number)
                yield from (found[place] for place in range(len(part)))

    def _of_one_manifest(self, asked: Sequence[tuple[int, _Ref]]) -> dict[int, _Checked]:
        """The ranges of one manifest, by their places in the order."""
        (_, (_, first)), *_ = asked
        manifest, own = require_manifest(self.store, self.layout, first.writer, first.batch)
        if manifest.committed_at_us > micros(self.now - MIN_AGE):
            return {place: "young" for place, _ in asked}
        if manifest.settings != self.stream.archive_settings:
            return {place: "other_settings" for place, _ in asked}
        return {place: _input(manifest, own, log, item.range) for place, (log, item) in asked}

    def write(self, group: RangeGroup) -> tuple[tuple[DataFile, ...], dict[str, str]]:
        """Write the group's rows, with the file boundaries of a batch of its whole range, in the folders they are in.

        Returns the new files, and the ETag of each input as it was read. Memory: one open file. Raises ConflictError,
        FormatError and PositionError for unfit inputs.
        """
        target = FileTarget(
            store=self.store,
            layout=self.layout,
            part_bytes=self.stream.archive.part_bytes,
            settings=self.stream.archive_settings,
            storage=self.stream.archive.storage,
        )
        written: list[DataFile] = []
        etags: dict[str, str] = {}
        for path, files in group.by_path(self.layout).items():
            rows = (batch for file in files for batch in self._rows(file, path, etags))
            written += write_files(rows, [(group.log, group.range)], target, FileLimits.of(self.stream.archive))
        expected, found = _days(group.files), _days(written)
        if expected != found:
            raise ConflictError(
                "compacted rows are not those of their inputs",
                expected=expected,
                found=found,
                where=f"{group.log} {group.range}",
            )
        return _with_unreadable_times(written, group.files), etags

    def _rows(self, file: DataFile, path: str, etags: dict[str, str]) -> Iterator[pa.RecordBatch]:
        """The file's rows with path and day; raises after the last one, before their new file is complete, if they are
        not the manifest's."""
        days = [item.day for item in file.days]
        batches = object_batches(self.store, file.key, SCHEMA.names, partial(etags.__setitem__, file.key))
        if batches is None:
            raise ConflictError(
                "a committed object is missing", expected=f"{file.bytes} bytes", found="no object", where=file.key
            )
        checksum = RowChecksum(SCHEMA.names)
        for batch in batches:
            checksum.add(batch)
            times = batch.column("event_time").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
            with_path = batch.append_column("path", pa.repeat(path, batch.num_rows))
            yield with_path.append_column("day", pa.array(day_numbers(times, days, self.stream.zone)))
        if checksum.value != file.checksum:
            raise FormatError(
                "an object's rows are not those in its manifest",
                expected=f"{file.rows} rows, checksum {file.checksum}",
                found=checksum.value,
                where=file.key,
                hint="Run 'tidemark verify' to check the day",
            )
        self.progress(file.bytes)


def _input(manifest: Manifest, own: str, log: TopicPartition, span: OffsetRange) -> Input:
    files = tuple(file for file in manifest.files if file.log == log)
    replaced = Replaced(
        writer=manifest.writer,
        batch=manifest.batch,
        log=log,
        range=span,
        files=tuple((file.key, file.checksum, "") for file in files),
        digest=own,
    )
    last = next((record for record in manifest.last if record.log == log and record.offset in span), None)
    return Input(replaced=replaced, files=files, last=last, day_settings=manifest.day_settings)


def _fit(checked: Iterator[_Checked], counts: CompactedFiles) -> Iterator[Input]:
    for item in checked:
        if isinstance(item, Input):
            yield item
        elif item == "young":
            counts.young += 1
        else:
            counts.other_settings += 1


def _with_unreadable_times(written: Sequence[DataFile], inputs: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """The files with the unreadable times of their inputs. Of a day only the sum is known: its first rows take it.

    Those of a day that were not counted in every input are not known.
    """
    given = [item for file in inputs for item in file.days]
    unknown = {item.day for item in given if item.unreadable_times is None}
    left: Counter[date] = Counter()
    for item in given:
        left[item.day] += item.unreadable_times or 0

    def counted(item: DayRows) -> DayRows:
        if item.day in unknown:
            return item
        number = min(left[item.day], item.rows)
        left[item.day] -= number
        return replace(item, unreadable_times=number)

    return tuple(replace(file, days=tuple(map(counted, file.days))) for file in written)


def _days(files: Sequence[DataFile]) -> dict[str, tuple[int, int, int]]:
    """Rows, first and last offset per day."""
    found: dict[str, tuple[int, int, int]] = {}
    for file in files:
        for item in file.days:
            day = item.day.isoformat()
            rows, first, last = found.get(day, (0, item.first_offset, item.last_offset))
            found[day] = (rows + item.rows, min(first, item.first_offset), max(last, item.last_offset))
    return found
