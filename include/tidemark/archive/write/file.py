"""One open data file: takes rows, gives a complete object and its ``DataFile``."""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.archive.write.metrics import TaskMeter
from tidemark.core.errors import ConflictError, PositionError, ServiceError
from tidemark.core.layout import DataName, Layout
from tidemark.core.manifest import DataFile, DayRows
from tidemark.core.offsets import TopicPartition
from tidemark.definitions.sections import Storage
from tidemark.objects.checksum import RowChecksum
from tidemark.objects.columns import checksum_of_rows, object_sha256
from tidemark.objects.encoder import Encoder
from tidemark.objects.footer import Footer, read_footer
from tidemark.objects.schema import SCHEMA
from tidemark.objects.upload import Upload
from tidemark.s3 import ObjectStore

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """Where a task's files go. ``settings`` is the archive settings' fingerprint.

    ``new_names`` skips every name that is taken, by an earlier attempt too. A name taken before ``oldest`` (with a
    zone) has the same effect on the names after it.
    """

    store: ObjectStore
    layout: Layout
    part_bytes: int
    settings: str
    meter: TaskMeter = field(default_factory=TaskMeter)
    storage: Storage = field(default_factory=Storage)
    new_names: bool = False
    oldest: datetime | None = None


@dataclass(slots=True, kw_only=True)
class _Days:
    """Rows, first and last offset, and unreadable times per day (days since the epoch)."""

    found: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    unreadable: Counter[int] | None = None

    def add(
        self, days: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64], unreadable: npt.NDArray[np.bool_] | None
    ) -> None:
        """Add rows; ``offsets`` ascend, so a day's first and last row have its first and last offset."""
        if unreadable is not None:
            self.unreadable = self.unreadable or Counter()
            self.unreadable.update(days[unreadable].tolist())
        if days[0] == days[-1] and (days == days[0]).all():
            self._merge(int(days[0]), len(days), int(offsets[0]), int(offsets[-1]))
            return
        kinds, first, counts = np.unique(days, return_index=True, return_counts=True)
        last = len(days) - 1 - np.unique(days[::-1], return_index=True)[1]
        for day, rows, head, tail in zip(kinds, counts, first, last, strict=True):
            self._merge(int(day), int(rows), int(offsets[head]), int(offsets[tail]))

    def _merge(self, day: int, rows: int, first: int, last: int) -> None:
        known_rows, known_first, _ = self.found.get(day, (0, first, last))
        self.found[day] = (known_rows + rows, known_first, last)

    def value(self) -> tuple[DayRows, ...]:
        return tuple(
            DayRows(
                day=_EPOCH + timedelta(days=day),
                rows=rows,
                first_offset=first,
                last_offset=last,
                unreadable_times=None if self.unreadable is None else self.unreadable[day],
            )
            for day, (rows, first, last) in sorted(self.found.items())
        )


class OpenFile:
    """Rows of one log and path. The task decides where the file ends. Memory: the encoder's and one upload part."""

    def __init__(self, target: FileTarget, log: TopicPartition, name: DataName) -> None:
        self.name = _free_name(target, log, name)
        self.key = target.layout.data_key(self.name)
        self.rows = 0
        self.payload_bytes = 0  # of keys and values, which max_bytes limits
        self._target = target
        self._log = log
        self._upload = Upload(target.store, self.key, part_bytes=target.part_bytes, storage=target.storage)
        self._encoder = Encoder(self._upload)
        self._checksum = RowChecksum(SCHEMA.names)
        self._days = _Days()
        self._out_of_bounds = 0
        self._offsets: tuple[int, int] | None = None
        self._timestamps: tuple[int, int] | None = None

    def add(
        self,
        batch: pa.RecordBatch,
        days: npt.NDArray[np.int32],
        payload_bytes: int,
        out_of_bounds: int = 0,
        unreadable: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Append rows of SCHEMA with the day of each; raises PositionError unless their offsets ascend.

        ``out_of_bounds`` of them have their record's timestamp because their time field lies too far from it, and the
        ``unreadable`` ones because it has no time that can be read; None if that is not known.
        """
        offsets = batch.column("offset").to_numpy()
        before = self._offsets[1] if self._offsets else -1
        if offsets[0] <= before or (np.diff(offsets) <= 0).any():
            raise PositionError(
                "rows of one log must come in offset order",
                expected=f"offsets ascending from {before + 1}",
                found=f"{offsets[0]} to {offsets[-1]} in {len(offsets)} rows",
                where=self.key,
            )
        self._offsets = (self._offsets[0] if self._offsets else int(offsets[0]), int(offsets[-1]))
        span = pc.min_max(batch.column("timestamp").view(pa.int64())).as_py()
        low, high = self._timestamps or (span["min"], span["max"])
        self._timestamps = (min(low, span["min"]), max(high, span["max"]))
        self._days.add(days, offsets, unreadable)
        self._checksum.add(batch)
        self.rows += batch.num_rows
        self._out_of_bounds += out_of_bounds
        self.payload_bytes += payload_bytes
        self._encoder.add(batch, payload_bytes)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of keys, values and headers in memory that are not encoded yet."""
        return self._encoder.waiting_bytes

    def flush(self) -> None:
        """Encode the waiting rows now, in a smaller row group."""
        self._encoder.flush()

    def finish(self) -> DataFile:
        """Complete the object, or find that an earlier attempt did. Raises ConflictError if another object is there."""
        if self._offsets is None or self._timestamps is None:
            raise ValueError("a file without rows is never opened")
        try:
            footer = Footer(
                rows=self.rows,
                first_offset=self._offsets[0],
                last_offset=self._offsets[1],
                checksum=self._checksum.value,
                settings=self._target.settings,
                topic_id=self._log.topic_id,
            )
            self._encoder.finish(footer)
            size, sha256 = self._upload.tell(), self._upload.sha256
            if not self._upload.complete():
                size, sha256 = self._same_object(footer)
        except BaseException:
            self.abort()
            raise
        return DataFile(
            key=self.key,
            log=self._log,
            range=self.name.range,
            rows=footer.rows,
            bytes=size,
            first_offset=footer.first_offset,
            last_offset=footer.last_offset,
            min_timestamp_us=self._timestamps[0],
            max_timestamp_us=self._timestamps[1],
            days=self._days.value(),
            checksum=footer.checksum,
            sha256=sha256,
            out_of_bounds_rows=self._out_of_bounds,
        )

    def abort(self) -> None:
        """Abort the upload; nothing of the file becomes visible."""
        self._upload.abort()

    def _same_object(self, ours: Footer) -> tuple[int, str]:
        """Size and SHA-256 of the object of an earlier attempt."""
        where = f"s3://{self._target.store.bucket}/{self.key}"
        stored = read_footer(self._target.store, self.key)
        if stored is None:
            raise ServiceError(
                "an upload was lost",
                expected="an object, because S3 reports that the key is taken or the upload ended",
                found="none",
                where=where,
                hint="Something removed the upload or the object. Start the stream again: it repeats the batch",
            )
        if stored.footer != ours:
            raise ConflictError(
                "another object has a data file's key",
                expected=ours,
                found=stored.footer,
                where=where,
                hint="Kafka never changes a record, so one of the two does not come from this log. Compare them",
            )
        found = checksum_of_rows(self._target.store, self.key)
        if found != ours.checksum:
            raise ConflictError(
                "the object of an earlier attempt is damaged",
                expected=f"rows of checksum {ours.checksum}, as in its footer",
                found=found,
                where=where,
                hint="Delete it: the next attempt writes it again",
            )
        return stored.bytes, object_sha256(self._target.store, self.key)


def _free_name(target: FileTarget, log: TopicPartition, name: DataName) -> DataName:
    """The first name in seq order that is free, or taken by an earlier attempt of ours.

    A file of other archive settings, or of the topic before it was recreated, may have other rows: its name is skipped.
    A file of the same settings and log is from an earlier attempt, and ``finish`` compares it. After a file that is too
    old only free names are used: the next file may have been written by the same attempt.
    """
    own = None if target.new_names else (target.settings, log.topic_id)
    while True:
        stored = read_footer(target.store, target.layout.data_key(name))
        if stored is None:
            return name
        if (stored.footer.settings, stored.footer.topic_id) == own:
            if target.oldest is None or stored.modified >= target.oldest:
                return name
            own = None
        name = replace(name, seq=name.seq + 1)
