"""What a stream makes and costs in a day: batches, objects, requests, memory. From its settings and its load.

The figures are upper bounds for even loads: each batch has records of every partition and every folder, as far as
there are so many records. No retry and no crash is counted.
"""

from dataclasses import dataclass
from math import ceil, inf

from tidemark.core.batch_size import ARCHIVE_OFFSETS, offsets_per_batch
from tidemark.core.requests import (
    Requests,
    archive_commit,
    checkpoint_batch,
    data_object,
    heartbeats,
    lease_checks,
)

DAY_S = 86_400
BATCH_S_LEAST = 0.5  # an assumption: without a trigger interval, the 24 requests of a batch or more take 20 ms each
MIB = 1024 * 1024
# Of a Python worker with one open file; see benchmarks/archive.py for the measurement.
WORKER_BYTES = 320 * MIB
ROW_GROUP_BYTES = 16 * MIB
WAITING_BYTES = 128 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """The keys of a stream's ``archive`` that decide about batches and objects; None as in the definition."""

    trigger_seconds: float = 10
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_seconds: float = 900
    max_offsets_per_trigger: int | None = None
    flush_size: int = 500_000
    max_bytes: int = 256 * MIB
    part_bytes: int = 25_000_000
    rotate_interval_seconds: float | None = None
    max_open_files: int = 20
    max_folders: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What producers do, evenly: records/s of all partitions, bytes of key and value, folders filled in each batch.

    An infinite ``records_per_second`` stands for an unknown one: each trigger then has records of every partition and
    folder, and objects have an unknown size. ``stored_share`` is what zstd leaves of the bytes: 1 is the upper bound.
    """

    partitions: int
    records_per_second: float = inf
    record_bytes: float = 0
    folders: int = 1
    stored_share: float = 1.0

    @property
    def known(self) -> bool:
        return self.records_per_second != inf

    @property
    def records_per_day(self) -> float:
        return self.records_per_second * DAY_S

    @property
    def bytes_per_day(self) -> float:
        return self.records_per_day * self.record_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DayEstimate:
    """A layer's day. ``objects`` are data objects; ``records_per_object`` is None without a known load."""

    batches: float
    objects: float
    records_per_object: float | None
    requests: Requests

    @property
    def manifests(self) -> float:
        """The archive writes one per batch, and keeps it."""
        return self.batches


def batch_interval(settings: ArchiveSettings, load: Load) -> float:
    """Seconds between the archive's batches; infinite without records.

    A batch waits for the trigger, and for ``min_offsets_per_trigger`` or ``max_trigger_delay_seconds``. If a trigger
    interval has more than ``max_offsets_per_trigger``, batches follow each other as fast as that many arrive.
    """
    if load.records_per_second == 0:
        return inf
    interval = max(settings.trigger_seconds, BATCH_S_LEAST)
    least = settings.min_offsets_per_trigger
    if least is not None:
        filled = least / load.records_per_second if load.known else 0
        interval = max(interval, min(filled, settings.max_trigger_delay_seconds))
    # Below one record a second, a trigger may find none.
    interval = max(interval, 1 / load.records_per_second)
    if not load.known:
        return interval
    most = offsets_per_batch(
        settings.max_offsets_per_trigger, partitions=load.partitions, default=ARCHIVE_OFFSETS, least=least
    )
    return min(interval, max(most / load.records_per_second, BATCH_S_LEAST))


def files_per_folder(settings: ArchiveSettings, rows: float, row_bytes: float, seconds: float) -> float:
    """Objects of one folder and partition in a batch of so many rows, bytes and seconds of event time."""
    by_rows = ceil(rows / settings.flush_size) if rows != inf else 1
    by_bytes = ceil(rows * row_bytes / settings.max_bytes) if rows != inf else 1
    rotate = settings.rotate_interval_seconds
    by_time = 1 if rotate is None else ceil(seconds / rotate)
    return max(by_rows, by_bytes, by_time, 1)


def objects_per_batch(settings: ArchiveSettings, load: Load) -> float:
    """Data objects of one batch: for each partition, folder and file; never more than records."""
    interval = batch_interval(settings, load)
    if interval == inf:
        return 0
    records = load.records_per_second * interval
    # One more than allowed: the overflow folder takes the rest.
    folders = min(load.folders, settings.max_folders + 1)
    rows = records / load.partitions / folders
    files = files_per_folder(settings, rows, load.record_bytes, interval)
    return min(load.partitions * folders * files, records)


def object_bytes(settings: ArchiveSettings, load: Load) -> float | None:
    """The mean size of a data object; None if the load is unknown, or if there is none."""
    objects = objects_per_batch(settings, load)
    if not load.known or not objects:
        return None
    stored = load.records_per_second * batch_interval(settings, load) * load.record_bytes * load.stored_share
    return stored / objects


def batch_requests(settings: ArchiveSettings, load: Load) -> Requests:
    """One batch of the archive, without heartbeats and the main thread's lease checks."""
    objects = objects_per_batch(settings, load)
    if not objects:
        return Requests()
    size = object_bytes(settings, load) or 0
    return checkpoint_batch() + archive_commit() + data_object(size, settings.part_bytes).times(objects)


def archive_day(settings: ArchiveSettings, load: Load) -> DayEstimate:
    """A day of the archive stream."""
    interval = batch_interval(settings, load)
    batches = DAY_S / interval
    objects = batches * objects_per_batch(settings, load)
    records = load.records_per_day
    return DayEstimate(
        batches=batches,
        objects=objects,
        records_per_object=records / objects if load.known and objects else None,
        requests=batch_requests(settings, load).times(batches) + heartbeats(DAY_S, interval) + lease_checks(DAY_S),
    )


def speed_day(trigger_seconds: float, load: Load, *, exactly_once: bool = False) -> DayEstimate:
    """A day of the speed stream. Its records go to Kafka; S3 has its checkpoint, lease and heartbeat.

    An exactly-once batch reads two files of the write-ahead log: where the batch starts and ends.
    """
    rate = load.records_per_second
    interval = inf if rate == 0 else max(trigger_seconds, BATCH_S_LEAST, 1 / rate)
    batches = DAY_S / interval
    own = Requests(get=2 if exactly_once else 0)
    return DayEstimate(
        batches=batches,
        objects=0,
        records_per_object=None,
        requests=(checkpoint_batch() + own).times(batches) + heartbeats(DAY_S, interval) + lease_checks(DAY_S),
    )


def task_memory(settings: ArchiveSettings, load: Load) -> float:
    """Most bytes of one Python worker of the archive, which does one task at a time.

    Besides a worker's own memory with one open file: of each open file, one part or the whole object; and of each
    further one the rows of a row group, of all of them together 128 MiB.
    """
    objects = objects_per_batch(settings, load)
    open_files = min(load.folders, settings.max_open_files) if objects else 0
    size = object_bytes(settings, load)
    buffer = settings.part_bytes if size is None else min(size, settings.part_bytes)
    rows = min(max(open_files - 1, 0) * ROW_GROUP_BYTES, WAITING_BYTES)
    return WORKER_BYTES + open_files * buffer + rows


def manifest_bytes(ranges: float, objects: float) -> float:
    """The size of a batch's manifest: some 0.3 kB for each partition with records, and 0.6 kB for each object."""
    return 300 + 330 * ranges + 620 * objects
