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
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tidemark.adopt.decode import BATCH_ROWS, read_object
from tidemark.adopt.listing import ConnectObject
from tidemark.core.errors import FormatError
from tidemark.core.offsets import OffsetRange, OffsetSet, normalise
from tidemark.definitions.stream import Stream
from tidemark.objects.schema import NO_TIMESTAMP_TYPE, SCHEMA
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.failures import task_error
from tidemark.spark.records import event_time
from tidemark.spark.task_settings import task_settings

BATCH_BYTES = 4 * 1024 * 1024
# A row per record; of an object that can't be read one row with its ``problem``.
_ROWS = pa.schema(
    [
        ("file", pa.int32()),
        ("line", pa.int64()),
        ("problem", pa.string()),
        *(SCHEMA.field(name) for name in ("partition", "offset", "key", "value", "headers")),
    ]
)
_READ = from_arrow_schema(_ROWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFields:
    """Top-level fields of the values that hold the record's offset and timestamp, as the InsertField transform of Kafka
    Connect adds them. None where the sink added none."""

    offset: str | None = None
    timestamp: str | None = None


NO_FIELDS = ValueFields()


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
            # After a failure a sink may write a record again.
            order = Window.partitionBy("partition").orderBy("offset", "file", "line")
            rows = rows.withColumn("repeated", F.col("offset") == F.lag("offset").over(order))
            rows = rows.where(~F.coalesce("repeated", F.lit(False))).drop("repeated")
        rows = rows.withColumn("timestamp", _timestamp(fields.timestamp)).withColumn("event_time", event_time(stream))
        # A record without a timestamp of its own has the one of its event: of unknown type in any case.
        rows = rows.withColumn("timestamp", F.coalesce("timestamp", "event_time"))
        rows = rows.withColumn("timestamp_type", F.lit(NO_TIMESTAMP_TYPE))
        self._rows = rows.persist(StorageLevel.DISK_ONLY)
        self._readable = F.col("offset").isNotNull() & F.col("event_time").isNotNull()

    def close(self) -> None:
        self._rows.unpersist()

    def contents(self) -> dict[int, Row]:
        """What each object holds, by its number; no entry where all its records are repeated ones.

        ``problem`` says why it can't be read. ``unreadable`` counts records without an offset or an event time,
        ``first_unreadable`` is the line of the first one. Offsets are those of the readable records; ``first`` is the
        offset of the first line.
        """
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
        return {row.file: row for row in self._collected(found)}

    def offsets(self, refused: Sequence[int]) -> dict[int, OffsetSet]:
        """Per partition the offsets of the readable records, without those of the refused objects."""
        runs: dict[int, list[OffsetRange]] = {}
        # Offsets without a gap have the same distance to their row numbers.
        number = F.row_number().over(Window.partitionBy("partition").orderBy("offset"))
        rows = self._accepted(refused).select("partition", "offset", (F.col("offset") - number).alias("run"))
        ends = (F.min("offset").alias("start"), (F.max("offset") + 1).alias("end"))
        for row in self._collected(rows.groupBy("partition", "run").agg(*ends)):
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
            raise task_error(
                error, where=f"objects to be imported for {self._stream.name}", personal=self._stream.has_personal
            ) from error


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
        store = ObjectStore(task_settings(settings))
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                for file, item in tasks[number]:
                    table = _read(store, file, item)
                    rows = BATCH_BYTES * table.num_rows // table.nbytes
                    yield from table.to_batches(max_chunksize=min(max(rows, 1), BATCH_ROWS))

    return read


def _read(store: ObjectStore, file: int, item: ConnectObject) -> pa.Table:
    try:
        found = read_object(store, item)
    except FormatError as error:
        problem = {"file": file, "problem": str(error), "partition": item.partition}
        return pa.Table.from_pylist([problem], schema=_ROWS)
    rows = found.num_rows
    lines = np.arange(rows, dtype=np.int64)
    columns = {
        "file": pa.array(np.full(rows, file, np.int32)),
        "line": pa.array(lines),
        "problem": pa.nulls(rows, pa.string()),
        "partition": pa.array(np.full(rows, item.partition, np.int32)),
        "offset": pa.array(lines + item.start),
        **{name: found.column(name) for name in found.column_names},
    }
    return pa.table(columns, schema=_ROWS)
