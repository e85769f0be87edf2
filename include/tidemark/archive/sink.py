"""The sink: rows of a data frame become objects of the archive, one receipt per object.

Runs as ``mapInArrow``, narrow from the Kafka source: one task per log, rows in offset order. Which rows share a file
depends on the rows and the stream's settings alone, never on how Arrow batched them; so a retry writes the same files.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tidemark.archive.file import OpenFile, Target
from tidemark.archive.metrics import TaskMetrics
from tidemark.archive.schema import SCHEMA
from tidemark.core import errors
from tidemark.core.codec import decode, encode
from tidemark.core.errors import PositionError, ServiceError, TidemarkError
from tidemark.core.layout import DataName, Layout
from tidemark.core.manifest import DataFile
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.paths import partition_path
from tidemark.spark.records import day
from tidemark.streams import Stream

_ROWS = "file string, task string"  # a row per file, and one per task


def write_range(
    records: DataFrame,
    ranges: Mapping[TopicPartition, OffsetRange],
    stream: Stream,
    settings: Settings,
    *,
    clock_us: int,
    on_task: Callable[[TaskMetrics], object] | None = None,
) -> tuple[DataFile, ...]:
    """Write rows of ARCHIVE_SCHEMA, all inside ``ranges``, and return the objects that hold them, sorted by key.

    The objects exist when this returns, but are part of the archive only once a manifest lists them. Writing the same
    rows again gives the same objects. ``clock_us`` is the batch's own time, µs UTC, which every retry must give alike:
    wall-clock paths follow it. ``on_task`` is called with each task's account. Raises PositionError for a row outside
    ``ranges``, ConflictError for a key that holds something else, ServiceError where S3 or the source fails.
    """
    columns = [*SCHEMA.names, partition_path(stream, clock_us).alias("path"), day(stream).alias("day")]
    write = _writer(tuple(ranges.items()), stream, settings)
    try:
        rows = records.select(*columns).mapInArrow(write, _ROWS).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise task_error(error, where=f"archive of {stream.name}") from error
    for row in rows:
        if on_task is not None and row.task is not None:
            on_task(decode(TaskMetrics, json.loads(row.task), where="a task's account"))
    files = (decode(DataFile, json.loads(row.file), where="a task's receipt") for row in rows if row.file is not None)
    return tuple(sorted(files, key=lambda file: file.key))


def task_error(error: Exception, *, where: str) -> TidemarkError:
    """The TidemarkError a task died of, found in Spark's account of it; any other cause as a ServiceError."""
    text = str(error)
    found = re.findall(r"tidemark\.core\.errors\.(\w+): (.*)", text)
    if found:
        kind = getattr(errors, found[-1][0], TidemarkError)
        told = kind(found[-1][1].strip())
        assert isinstance(told, TidemarkError)
        return told
    causes = re.findall(r"Caused by: (.*)", text)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return ServiceError("a Spark job failed", found=causes[-1].strip() if causes else first, where=where)


def _writer(
    ranges: tuple[tuple[TopicPartition, OffsetRange], ...], stream: Stream, settings: Settings
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = Target(
            store=ObjectStore(settings),
            layout=Layout(prefix=settings.prefix, stream=stream.name),
            part_bytes=stream.archive.part_bytes,
            settings=stream.archive_settings,
            format=stream.archive.format,
            storage=stream.archive.storage,
        )
        target.meter.listen(target.store.client)
        cuts = Cuts(flush_size=stream.archive.flush_size, max_bytes=stream.archive.max_bytes)
        receipts = [json.dumps(encode(file)) for file in write_files(batches, ranges, target, cuts)]
        account = json.dumps(encode(target.meter.take()))
        columns = ([*receipts, None], [*(None for _ in receipts), account])
        yield pa.record_batch([pa.array(column, pa.string()) for column in columns], names=["file", "task"])

    return write


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """A file is closed behind the row that makes its rows or its key and value bytes reach one of these."""

    flush_size: int
    max_bytes: int


def write_files(
    batches: Iterable[pa.RecordBatch],
    ranges: Iterable[tuple[TopicPartition, OffsetRange]],
    target: Target,
    cuts: Cuts,
) -> list[DataFile]:
    """Write one task's rows: the columns of SCHEMA, ``path`` and ``day``. On failure every open upload is aborted."""
    task = _Task(dict(ranges), target, cuts)
    try:
        for batch in batches:
            if batch.num_rows:
                task.add(batch)
        return task.finish()
    except BaseException:
        task.abort()
        raise


class _Task:
    def __init__(self, ranges: Mapping[TopicPartition, OffsetRange], target: Target, cuts: Cuts) -> None:
        self._logs = {(log.topic, log.partition): (log, item) for log, item in ranges.items()}
        self._target = target
        self._cuts = cuts
        self._open: dict[tuple[int, str], OpenFile] = {}
        self._next_seq: dict[tuple[int, str], int] = {}
        self._done: list[DataFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for topic, of_topic in _groups(batch, "topic"):
            for partition, of_log in _groups(of_topic, "partition"):
                log, allowed = self._log(topic, partition, of_log)
                for path, of_path in _groups(of_log, "path"):
                    self._append(log, allowed, path, of_path)

    def finish(self) -> list[DataFile]:
        for at in tuple(self._open):
            self._done.append(self._open.pop(at).finish())
        return self._done

    def abort(self) -> None:
        for file in self._open.values():
            file.abort()

    def _log(self, topic: str, partition: int, rows: pa.RecordBatch) -> tuple[TopicPartition, OffsetRange]:
        offsets = pc.min_max(rows.column("offset")).as_py()
        known = self._logs.get((topic, partition))
        if known is None or offsets["min"] not in known[1] or offsets["max"] not in known[1]:
            raise PositionError(
                "rows outside the range to be committed",
                expected="no rows" if known is None else known[1],
                found=f"offsets {offsets['min']} to {offsets['max']}",
                where=f"{topic}-{partition}",
            )
        return known

    def _append(self, log: TopicPartition, allowed: OffsetRange, path: str, rows: pa.RecordBatch) -> None:
        days = rows.column("day").cast(pa.int32()).to_numpy()
        sizes = _payload_sizes(rows)
        total = np.cumsum(sizes)
        batch = _conform(rows)
        start = 0
        while start < rows.num_rows:
            file = self._file(log, allowed, path)
            before = int(total[start - 1]) if start else 0
            # Up to and including the row that reaches max_bytes, and no further than flush_size.
            reaches = int(np.searchsorted(total, before + self._cuts.max_bytes - file.payload_bytes)) + 1
            end = min(reaches, start + self._cuts.flush_size - file.rows, rows.num_rows)
            file.add(batch.slice(start, end - start), days[start:end], int(total[end - 1]) - before)
            if file.rows >= self._cuts.flush_size or file.payload_bytes >= self._cuts.max_bytes:
                del self._open[log.partition, path]
                self._done.append(file.finish())
            start = end

    def _file(self, log: TopicPartition, allowed: OffsetRange, path: str) -> OpenFile:
        at = (log.partition, path)
        file = self._open.get(at)
        if file is None:
            seq = self._next_seq.get(at, 0)
            name = DataName(path=path, topic=log.topic, partition=log.partition, range=allowed, seq=seq)
            file = self._open[at] = OpenFile(self._target, log, name)
            self._next_seq[at] = file.name.seq + 1
            self._target.meter.see_open_files(len(self._open))
        return file


def _groups(batch: pa.RecordBatch, column: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """The rows of each value of a column, in row order; values in order of appearance."""
    encoded = batch.column(column).dictionary_encode()
    values = encoded.dictionary.to_pylist()
    if len(values) == 1:
        yield values[0], batch
        return
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    for value, start, end in zip(values, [0, *ends[:-1]], ends, strict=True):
        # A copy, not a slice: a rare value's few rows would keep whole batches in memory until their file is full.
        yield value, batch.take(pa.array(order[start:end]))


def _conform(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of SCHEMA with its very types."""
    arrays = [rows.column(item.name) for item in SCHEMA]
    return pa.RecordBatch.from_arrays(
        [
            array if array.type == item.type else array.cast(item.type)
            for array, item in zip(arrays, SCHEMA, strict=True)
        ],
        schema=SCHEMA,
    )


def _payload_sizes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of key and value per row; a null has none."""
    lengths = (pc.fill_null(pc.binary_length(rows.column(name)), 0) for name in ("key", "value"))
    key, value = (item.to_numpy(zero_copy_only=False).astype(np.int64) for item in lengths)
    total: npt.NDArray[np.int64] = key + value
    return total
