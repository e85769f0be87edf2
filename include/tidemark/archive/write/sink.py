"""The sink: writes the rows of a data frame as objects of the archive, and returns a ``DataFile`` per object.

Runs as ``mapInArrow``, without a shuffle after the Kafka source: one task per log, rows in offset order. The task is
in ``tidemark.archive.write.task``.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from tidemark.archive.write.file import FileTarget
from tidemark.archive.write.last_records import LastRecords
from tidemark.archive.write.metrics import TaskMetrics
from tidemark.archive.write.task import OUT_OF_BOUNDS, FileLimits, write_files
from tidemark.core.codec import decode, encode
from tidemark.core.errors import ConflictError, ServiceError
from tidemark.core.layout import Layout
from tidemark.core.logged_record import LoggedRecord
from tidemark.core.maintenance_ages import REUSED_FOR
from tidemark.core.manifest import COMPACTION, DataFile
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import topic_config
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.failures import task_error
from tidemark.spark.large_rows import bounded_batches, join, split
from tidemark.spark.paths import partition_path
from tidemark.spark.records import day, out_of_bounds
from tidemark.spark.task_input import whole
from tidemark.spark.task_settings import task_settings

_Ranges = tuple[tuple[TopicPartition, OffsetRange], ...]
_COLUMNS = ["file", "last", "task"]
_ROWS = "file string, last string, task string"  # a row per file, one per log, and one per task


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The objects that hold the rows, by key, and the last record of each log that was read from Kafka."""

    files: tuple[DataFile, ...]
    last: tuple[LoggedRecord, ...]


def write_range(
    records: DataFrame,
    ranges: Mapping[TopicPartition, OffsetRange],
    stream: Stream,
    settings: Settings,
    *,
    clock_us: int,
    on_task: Callable[[TaskMetrics], object] | None = None,
) -> Written:
    """Write rows of ARCHIVE_SCHEMA, all inside ``ranges``, and return the objects that hold them.

    The objects are part of the archive only once a manifest lists them. Writing the same rows again gives the same
    objects, except those older than ``REUSED_FOR`` in an archive that was ever compacted. ``clock_us`` is the batch's
    time, µs UTC, the same for every retry: wall-clock paths depend on it. ``on_task`` is called with each task's
    metrics. An earlier attempt may have read records that a compacted topic no longer has; then the rows get new names.

    Raises PositionError for a row outside ``ranges``, ConflictError if a key holds another object, and ServiceError if
    S3 or the source fails.
    """
    # Topic and default folder are the same for a whole log: adding them in Python is cheaper.
    names = [name for name in SCHEMA.names if name != "topic"]
    path = partition_path(stream, clock_us)
    paths = [] if path is None else [path.alias("path")]
    outside = out_of_bounds(stream)
    counted = [] if outside is None else [outside.alias(OUT_OF_BOUNDS)]
    frame = split(records.select(*names, *paths, day(stream).alias("day"), *counted))
    try:
        rows = _written(frame, tuple(ranges.items()), stream, settings)
    except ConflictError as conflict:
        if not _compacted(stream, settings, conflict):
            raise
        rows = _written(frame, tuple(ranges.items()), stream, settings, new_names=True)
    for row in rows:
        if on_task is not None and row.task is not None:
            on_task(decode(TaskMetrics, json.loads(row.task), where="a task's metrics"))
    files = (decode(DataFile, json.loads(row.file), where="a task's file") for row in rows if row.file is not None)
    last = (decode(LoggedRecord, json.loads(row.last), where="a task's last record") for row in rows if row.last)
    return Written(
        files=tuple(sorted(files, key=lambda file: file.key)), last=tuple(sorted(last, key=lambda item: item.log))
    )


def _written(
    frame: DataFrame, ranges: _Ranges, stream: Stream, settings: Settings, *, new_names: bool = False
) -> list[Row]:
    write = _writer(ranges, stream, settings, new_names=new_names, oldest=_oldest(stream, settings))
    try:
        with bounded_batches(frame.sparkSession):
            return frame.mapInArrow(write, _ROWS).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise task_error(error, where=f"archive of {stream.name}", personal=stream.has_personal) from error


@lru_cache(maxsize=1)
def _store(settings: Settings) -> ObjectStore:
    """One client for all batches: creating one takes longer than a request."""
    return ObjectStore(settings)


def _oldest(stream: Stream, settings: Settings) -> datetime | None:
    """The age limit of objects that may be reused; None in an archive that was never compacted: nothing is deleted."""
    layout = Layout(prefix=settings.prefix, stream=stream.name)
    compactions = _store(settings).list(f"{layout.manifest_prefix}{COMPACTION}/")
    return None if next(iter(compactions), None) is None else datetime.now(UTC) - REUSED_FOR


def _compacted(stream: Stream, settings: Settings, conflict: ConflictError) -> bool:
    """Whether Kafka compacts the topic; raises the conflict if Kafka does not answer."""
    try:
        return "compact" in topic_config(settings.kafka, stream.topic)["cleanup.policy"]
    except ServiceError as error:
        raise conflict from error


def _writer(
    ranges: _Ranges, stream: Stream, settings: Settings, *, new_names: bool, oldest: datetime | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = FileTarget(
            store=ObjectStore(task_settings(settings)),
            layout=Layout(prefix=settings.prefix, stream=stream.name),
            part_bytes=stream.archive.part_bytes,
            settings=stream.archive_settings,
            storage=stream.archive.storage,
            new_names=new_names,
            oldest=oldest,
        )
        target.meter.listen(target.store.client)
        last = LastRecords(ranges)
        rows = last.watch(_complete(join(whole(batches)), stream.topic))
        files = write_files(rows, ranges, target, FileLimits.of(stream.archive))
        yield from (_result("file", item) for item in files)
        yield from (_result("last", item) for item in last.found())
        yield _result("task", target.meter.take())

    return write


def _result(name: str, value: object) -> pa.RecordBatch:
    """A row of ``_ROWS`` with one value."""
    texts = [json.dumps(encode(value)) if column == name else None for column in _COLUMNS]
    return pa.record_batch([pa.array([text], pa.string()) for text in texts], names=_COLUMNS)


def _complete(batches: Iterable[pa.RecordBatch], topic: str) -> Iterator[pa.RecordBatch]:
    """Add the topic, and the default partitioner's folder if the rows have no path."""
    for batch in batches:
        rows = batch.append_column("topic", pa.repeat(topic, batch.num_rows))
        if "path" not in rows.schema.names:
            rows = rows.append_column("path", _default_folders(rows.column("partition")))
        yield rows


def _default_folders(partitions: pa.Array) -> pa.Array:
    if len(kinds := partitions.unique()) == 1:
        return pa.repeat(f"partition={kinds[0]}", len(partitions))
    return pc.binary_join_element_wise("partition", partitions.cast(pa.string()), "=")
