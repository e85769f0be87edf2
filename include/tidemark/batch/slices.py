"""Slices of archive objects as rows, trimmed by offset: no shuffle, and no filter where a slice is a whole object.

Spark reads Parquet itself. Objects of any other kind are streamed by the archive's decoders, a task per some of them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.archive.connect import is_connect_key
from tidemark.archive.decoders import decoded, read_rows
from tidemark.core.errors import IncompleteError
from tidemark.core.plan import Slice
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.records import ARCHIVE_SCHEMA, event_time
from tidemark.streams import Stream

NAMED_MAX = 5
TASKS_MAX = 200  # each is sent the list of slices: thousands of tasks would cost more than the reading
# Characters Hadoop leaves alone when it turns a path into the URI that `_metadata.file_path` holds.
_PLAIN = re.compile(r"[A-Za-z0-9_\-!.~'()*,;:$&+=/@]*")


def read_slices(
    spark: SparkSession,
    settings: Settings,
    stream: Stream,
    slices: Sequence[Slice],
    passing: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> DataFrame:
    """The slices' rows, in ARCHIVE_SCHEMA; every row once, because slices of a plan are disjoint.

    Adopted objects hold values only: their rows get their event time here, as the stream extracts it. ``passing`` is
    put on the rows of slices without ``rows`` alone, in one frame; it is not called where there are none.

    Raises IncompleteError naming the objects that are gone: a listing would silently read less. The tasks raise
    FormatError and PositionError for an object that is damaged, as ``tidemark.archive.decoders`` tells it.
    """
    parquet = _Parquet(spark, settings.bucket, [item for item in slices if not decoded(item.key)])
    streamed = {item.key for item in slices if decoded(item.key)}
    if streamed:
        _require_present(_gone(settings, streamed), slices)
    listed = _read(spark, settings, stream, parquet, [item for item in slices if item.rows is not None])
    counted = _read(spark, settings, stream, parquet, [item for item in slices if item.rows is None])
    parts = listed + ([passing(together(counted))] if counted else [])
    return together(parts) if parts else spark.createDataFrame([], ARCHIVE_SCHEMA)


def _read(
    spark: SparkSession, settings: Settings, stream: Stream, parquet: "_Parquet", slices: Sequence[Slice]
) -> list[DataFrame]:
    parts = parquet.read([item for item in slices if not decoded(item.key)])
    own = [item for item in slices if decoded(item.key) and not is_connect_key(item.key)]
    if own:
        parts.append(_streamed(spark, settings, own))
    adopted = [item for item in slices if is_connect_key(item.key)]
    if adopted:
        rows = _streamed(spark, settings, adopted).withColumn("event_time", event_time(stream))
        parts.append(rows.select(*ARCHIVE_SCHEMA.fieldNames()))
    return parts


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """All their rows; of one part at least, and all of the same columns."""
    return reduce(DataFrame.unionByName, parts)


def _streamed(spark: SparkSession, settings: Settings, slices: Sequence[Slice]) -> DataFrame:
    """Rows of objects that a decoder reads; of adopted ones without their event time."""
    # A row per slice, without a Python object having to pass through Spark.
    numbers = spark.range(0, len(slices), 1, min(len(slices), TASKS_MAX))
    return numbers.mapInArrow(_reader(settings, tuple(slices)), ARCHIVE_SCHEMA)


def _reader(
    settings: Settings, slices: tuple[Slice, ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                item = slices[number]
                rows = read_rows(_store(settings), item.key, item.range)
                if rows is None:
                    _require_present([item.key], slices)
                else:
                    yield from rows

    return read


@lru_cache(maxsize=1)
def _store(settings: Settings) -> ObjectStore:
    """One client per worker process: to make one takes longer than to read a small object."""
    return ObjectStore(settings)


def _gone(settings: Settings, keys: set[str]) -> list[str]:
    """Those of the keys that a listing does not show; of each folder no more is listed than the keys span."""
    store = ObjectStore(settings)
    found = set()
    for folder in _folders(keys):
        inside = sorted(key for key in keys if key.startswith(folder))
        for item in store.list(folder, after=inside[0][:-1]):
            if item.key > inside[-1]:
                break
            found.add(item.key)
    return sorted(keys - found)


class _Parquet:
    """The objects that Spark reads itself, listed once."""

    def __init__(self, spark: SparkSession, bucket: str, slices: Sequence[Slice]) -> None:
        self._spark = spark
        self._uris = {key: _uri(spark, f"s3a://{bucket}/{key}") for key in {item.key for item in slices}}
        if not slices:
            return
        reader = spark.read.schema(ARCHIVE_SCHEMA).option("recursiveFileLookup", True)
        self._archive = reader.parquet(*(f"s3a://{bucket}/{folder}" for folder in _folders(self._uris)))
        listed = set(self._archive.inputFiles())
        _require_present(sorted(key for key, uri in self._uris.items() if uri not in listed), slices)

    def read(self, slices: Sequence[Slice]) -> list[DataFrame]:
        whole = [self._uris[item.key] for item in slices if item.whole]
        trimmed = [(self._uris[item.key], item.range.start, item.range.end) for item in slices if not item.whole]
        parts = []
        path = F.col("_metadata.file_path")
        if whole:
            parts.append(self._archive.where(path.isin(whole)))
        if trimmed:
            bounds = self._spark.createDataFrame(trimmed, "_path string, _start long, _end long")
            at = F.col("offset")
            parts.append(
                # The path as a plain column first: Spark fails on a join condition with a metadata column in it.
                self._archive.select("*", path.alias("_path"))
                .where(F.col("_path").isin(sorted({uri for uri, _, _ in trimmed})))
                .join(F.broadcast(bounds), on="_path", how="inner")
                .where((at >= F.col("_start")) & (at < F.col("_end")))
                .select(*ARCHIVE_SCHEMA.fieldNames())
            )
        return parts


def _folders(keys: Iterable[str]) -> list[str]:
    """The keys' folders without those inside another one: a recursive listing would show their files twice."""
    kept: list[str] = []
    for folder in sorted({key.rsplit("/", 1)[0] + "/" for key in keys}):
        if not (kept and folder.startswith(kept[-1])):
            kept.append(folder)
    return kept


def _uri(spark: SparkSession, path: str) -> str:
    if _PLAIN.fullmatch(path):
        return path
    jvm: Any = spark._jvm
    return str(jvm.org.apache.hadoop.fs.Path(path).toUri().toString())


def _require_present(missing: Sequence[str], slices: Sequence[Slice]) -> None:
    if missing:
        objects = len({item.key for item in slices})
        more = ", …" if len(missing) > NAMED_MAX else ""
        raise IncompleteError(
            "archive objects of the plan are gone",
            expected=f"{objects} objects",
            found=f"{objects - len(missing)}; missing: {', '.join(missing[:NAMED_MAX])}{more}",
            hint="Plan again with their manifests removed, so that Kafka can refill the ranges",
        )
