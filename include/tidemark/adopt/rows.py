"""Connect objects as rows of the archive, in Spark: one task per log, and what is in each object.

The rows are kept on the workers' local disks, so that each object is read from S3 and decoded once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from tidemark.adopt.decode import bounded, read_object
from tidemark.adopt.listing import ConnectObject
from tidemark.core.errors import FormatError
from tidemark.core.offsets import OffsetRange, OffsetSet, normalise
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.failures import task_error
from tidemark.spark.records import ARCHIVE_SCHEMA, event_time

NO_TIMESTAMP_TYPE = -1  # Kafka's own number for a timestamp of unknown type
_HEADERS = ARCHIVE_SCHEMA["headers"].dataType
# A row per record; of an object that can't be read one row with its ``problem``.
_READ = (
    StructType()
    .add("file", IntegerType())
    .add("line", LongType())
    .add("problem", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("key", ARCHIVE_SCHEMA["key"].dataType)
    .add("value", ARCHIVE_SCHEMA["value"].dataType)
    .add("headers", _HEADERS)
)
_RUNS = "partition int, start bigint, end bigint"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFields:
    """Top-level fields of the values that hold the record's offset and timestamp, as the InsertField transform of Kafka
    Connect adds them. None where the sink added none."""

    offset: str | None = None
    timestamp: str | None = None


NO_FIELDS = ValueFields()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectContent:
    """What an object holds. ``problem`` says why it can't be read; the other numbers are then 0.

    ``unreadable`` counts records without an offset or an event time, ``first_unreadable`` is the line of the first one.
    Offsets are those of the readable records; ``first`` is the offset of the first line.
    """

    rows: int
    problem: str | None
    unreadable: int
    first_unreadable: int | None
    first: int | None
    lowest: int | None
    highest: int | None


class ImportRows:
    """The rows of some objects. Close it to free the local disks."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        stream: Stream,
        objects: Sequence[ConnectObject],
        fields: ValueFields,
    ) -> None:
        self._stream = stream
        tasks = [tuple(own) for _, own in groupby(enumerate(objects), key=lambda item: item[1].partition)]
        rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_reader(settings, tuple(tasks)), _READ)
        if fields.offset is not None:
            rows = rows.withColumn("offset", _text(fields.offset).try_cast("bigint"))
            rows = rows.repartition(len(tasks), "partition").sortWithinPartitions("partition", "offset", "file", "line")
            rows = rows.mapInArrow(_without_repeats, _READ)
        rows = rows.withColumn("timestamp", _timestamp(fields.timestamp)).withColumn("event_time", event_time(stream))
        # A record without a timestamp of its own has the one of its event: of unknown type in any case.
        rows = rows.withColumn("timestamp", F.coalesce("timestamp", "event_time"))
        rows = rows.withColumn("timestamp_type", F.lit(NO_TIMESTAMP_TYPE))
        self._rows = rows.persist(StorageLevel.DISK_ONLY)
        self._readable = F.col("offset").isNotNull() & F.col("event_time").isNotNull()

    def close(self) -> None:
        self._rows.unpersist()

    def contents(self) -> dict[int, ObjectContent]:
        """What each object holds, by its number; no entry where all its records are repeated ones."""
        is_record = F.col("problem").isNull()
        unreadable = is_record & ~self._readable
        offset = F.when(self._readable, F.col("offset"))
        found = self._rows.groupBy("file").agg(
            F.count(F.when(is_record, 1)).alias("rows"),
            F.max("problem").alias("problem"),
            F.count(F.when(unreadable, 1)).alias("unreadable"),
            F.min(F.when(unreadable, F.col("line"))).alias("first_unreadable"),
            F.min(F.when(F.col("line") == 0, offset)).alias("first"),
            F.min(offset).alias("lowest"),
            F.max(offset).alias("highest"),
        )
        return {row["file"]: ObjectContent(**_but_file(row.asDict())) for row in self._collected(found)}

    def offsets(self, refused: Sequence[int]) -> dict[int, OffsetSet]:
        """Per partition the offsets of the readable records, without those of the refused objects."""
        runs: dict[int, list[OffsetRange]] = {}
        rows = self._accepted(refused).select("partition", "offset").mapInArrow(_runs, _RUNS)
        for row in self._collected(rows):
            runs.setdefault(row["partition"], []).append(OffsetRange(start=row["start"], end=row["end"]))
        return {partition: normalise(found) for partition, found in runs.items()}

    def inside(self, refused: Sequence[int], ranges: dict[int, OffsetRange]) -> DataFrame:
        """The readable records inside the ranges, one of each partition, as rows of ARCHIVE_SCHEMA."""
        wanted = F.lit(False)
        for partition, item in ranges.items():
            wanted |= (F.col("partition") == partition) & F.col("offset").between(item.start, item.end - 1)
        return self._accepted(refused).where(wanted)

    def _accepted(self, refused: Sequence[int]) -> DataFrame:
        return self._rows.where(self._readable & ~F.col("file").isin(list(refused)))

    def _collected(self, rows: DataFrame) -> list[Any]:
        try:
            return rows.collect()
        except (PySparkException, Py4JJavaError) as error:
            raise task_error(error, where=f"objects to be imported for {self._stream.name}") from error


def _but_file(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "file"}


def _text(field: str) -> Column:
    return F.get_json_object(F.col("value").cast("string"), f"$['{field}']")


def _timestamp(field: str | None) -> Column:
    """The field as a moment: milliseconds since the epoch, as JSON has them, or the text of an Avro or Parquet time."""
    if field is None:
        return F.lit(None).cast("timestamp")
    text = _text(field)
    milliseconds = F.when(text.rlike(r"^-?\d{1,14}$"), text).try_cast("bigint")
    return F.coalesce(F.timestamp_millis(milliseconds), F.try_to_timestamp(text))


def _reader(
    settings: Settings, tasks: tuple[tuple[tuple[int, ConnectObject], ...], ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = ObjectStore(settings)
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                for file, item in tasks[number]:
                    yield from _read(store, file, item)

    return read


def _read(store: ObjectStore, file: int, item: ConnectObject) -> Iterator[pa.RecordBatch]:
    try:
        table = read_object(store, item)
    except FormatError as error:
        schema = to_arrow_schema(_READ)
        columns = {"file": file, "problem": str(error), "partition": item.partition}
        yield pa.RecordBatch.from_pylist([columns], schema=schema)
        return
    line = 0
    for batch in bounded(table):
        rows = batch.num_rows
        lines = np.arange(line, line + rows, dtype=np.int64)
        columns = {
            "file": pa.array(np.full(rows, file, np.int32)),
            "line": pa.array(lines),
            "problem": pa.nulls(rows, pa.string()),
            "partition": pa.array(np.full(rows, item.partition, np.int32)),
            "offset": pa.array(lines + item.start),
            **{name: batch.column(name) for name in ("key", "value", "headers")},
        }
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        line += rows


def _without_repeats(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of sorted rows the first one of each partition and offset: after a failure a sink may write a record again."""
    before = (-1, -1)
    for batch in batches:
        if not batch.num_rows:
            continue
        partitions = np.append(before[0], batch.column("partition").to_numpy())
        offsets = np.append(before[1], batch.column("offset").fill_null(-1).to_numpy())
        repeated = (np.diff(partitions) == 0) & (np.diff(offsets) == 0) & (offsets[1:] >= 0)
        before = (int(partitions[-1]), int(offsets[-1]))
        yield batch.filter(pa.array(~repeated))


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The runs of offsets without a gap."""
    for batch in batches:
        if batch.num_rows:
            partitions, offsets = (batch.column(name).to_numpy() for name in ("partition", "offset"))
            breaks = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(partitions) != 0))
            firsts, lasts = np.append(0, breaks + 1), np.append(breaks, len(offsets) - 1)
            columns = [partitions[firsts], offsets[firsts], offsets[lasts] + 1]
            yield pa.RecordBatch.from_arrays([pa.array(item) for item in columns], names=["partition", "start", "end"])
