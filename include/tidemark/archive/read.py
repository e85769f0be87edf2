"""Slices of archive objects as rows, trimmed by offset: no shuffle, and no filter where a slice is a whole object.

Spark reads the archive's own objects itself. Adopted ones are streamed through Python, a task per some of them.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, reduce
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.days import micros
from tidemark.core.errors import IncompleteError
from tidemark.core.plan import Slice
from tidemark.definitions.stream import Stream
from tidemark.objects.connect import is_connect_key, read_rows
from tidemark.s3 import ObjectInfo, ObjectStore
from tidemark.settings import Settings
from tidemark.spark.failures import WITHOUT_OBJECT
from tidemark.spark.records import ARCHIVE_SCHEMA, event_time, no_rows

Step = Callable[[DataFrame], DataFrame]

NAMED_MAX = 5
_LISTINGS = 16
TASKS_MAX = 200  # each is sent the list of slices: thousands of tasks would cost more than the reading
# Characters Hadoop leaves alone when it turns a path into the URI that `_metadata.file_path` holds.
_PLAIN = re.compile(r"[A-Za-z0-9_\-!.~'()*,;:$&+=/@]*")


def as_they_are(rows: DataFrame) -> DataFrame:
    """The rows."""
    return rows


def read_slices(
    spark: SparkSession,
    settings: Settings,
    stream: Stream,
    slices: Sequence[Slice],
    step: Callable[[Slice], Step] = lambda _: as_they_are,
) -> DataFrame:
    """The slices' rows, in ARCHIVE_SCHEMA; every row once, because slices of a plan are disjoint.

    Adopted objects hold values only: their rows get their event time here, as the stream extracts it. ``step`` tells
    what a slice's rows go through; each step is called once, with the rows of all its slices.

    Raises IncompleteError naming the objects that are gone: a listing would silently read less. The tasks raise
    FormatError for an adopted object that is damaged, as ``tidemark.objects.connect`` tells it.
    """
    parquet = _Parquet(spark, settings.bucket, _listed(settings, {item.key for item in slices}))
    steps: dict[Step, list[Slice]] = {}
    for item in slices:
        steps.setdefault(step(item), []).append(item)
    parts = [act(together(_read(spark, settings, stream, parquet, own))) for act, own in steps.items()]
    return together(parts) if parts else no_rows(spark, ARCHIVE_SCHEMA)


def _read(
    spark: SparkSession, settings: Settings, stream: Stream, parquet: "_Parquet", slices: Sequence[Slice]
) -> list[DataFrame]:
    parts = parquet.read([item for item in slices if not is_connect_key(item.key)])
    adopted = [item for item in slices if is_connect_key(item.key)]
    if adopted:
        rows = _streamed(spark, settings, adopted).withColumn("event_time", event_time(stream))
        parts.append(rows.select(*ARCHIVE_SCHEMA.fieldNames()))
    return parts


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """All their rows; of one part at least, and all of the same columns."""
    return reduce(DataFrame.unionByName, parts)


def _streamed(spark: SparkSession, settings: Settings, slices: Sequence[Slice]) -> DataFrame:
    """Rows of adopted objects, without their event time."""
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
                    _require_present([item.key], len({item.key for item in slices}))
                else:
                    yield from rows

    return read


@lru_cache(maxsize=1)
def _store(settings: Settings) -> ObjectStore:
    """One client per worker process: to make one takes longer than to read a small object."""
    return ObjectStore(settings)


def _listed(settings: Settings, keys: set[str]) -> dict[str, ObjectInfo]:
    """The objects by key; of each folder no more is listed than its keys span.

    Raises IncompleteError naming those that are gone.
    """
    store = ObjectStore(settings)

    def inside(folder: str, wanted: Sequence[str]) -> list[ObjectInfo]:
        last = max(wanted)
        found = takewhile(lambda item: item.key <= last, store.list(folder, after=min(wanted)[:-1]))
        return [item for item in found if item.key in keys]

    folders = _folders(keys)
    with ThreadPoolExecutor(_LISTINGS, thread_name_prefix="listings") as pool:
        found = {item.key: item for items in pool.map(inside, folders, folders.values()) for item in items}
    _require_present(sorted(keys - set(found)), len(keys))
    return found


class _Parquet:
    """The archive's own objects, which Spark reads itself."""

    def __init__(self, spark: SparkSession, bucket: str, listed: Mapping[str, ObjectInfo]) -> None:
        self._spark, self._bucket, self._listed = spark, bucket, listed

    def read(self, slices: Sequence[Slice]) -> list[DataFrame]:
        whole = [item.key for item in slices if item.whole]
        trimmed = [item for item in slices if not item.whole]
        parts = []
        if whole:
            parts.append(self._files(whole))
        if trimmed:
            # As a table: of plain rows Spark would make an RDD, and a job to broadcast them.
            bounds = self._spark.createDataFrame(
                pa.table(
                    {
                        "_path": [self._uri(item.key) for item in trimmed],
                        "_start": [item.range.start for item in trimmed],
                        "_end": [item.range.end for item in trimmed],
                    }
                )
            )
            at = F.col("offset")
            parts.append(
                # The path as a plain column first: Spark fails on a join condition with a metadata column in it.
                self._files([item.key for item in trimmed])
                .select("*", F.col("_metadata.file_path").alias("_path"))
                .join(F.broadcast(bounds), on="_path", how="inner")
                .where((at >= F.col("_start")) & (at < F.col("_end")))
                .select(*ARCHIVE_SCHEMA.fieldNames())
            )
        return parts

    def _files(self, keys: Iterable[str]) -> DataFrame:
        """All rows of exactly these objects.

        Spark is told them by a log such as its own file sink leaves beside its output. It asks for none of them (as it
        would for each path it is given) and compares no row's path (as it would below a filter of a folder's files).
        """
        wanted = sorted(set(keys))
        log = ["v1", *(self._status(self._listed[key]) for key in wanted)]
        reader = self._spark.read.schema(ARCHIVE_SCHEMA).option("recursiveFileLookup", True)
        with TemporaryDirectory(prefix="tidemark-files-") as folder:
            path = Path(folder, "_spark_metadata")
            path.mkdir()
            (path / "0").write_text("\n".join(log), encoding="utf-8")
            rows = reader.parquet(f"file://{folder}")  # reads the log at once, and never again
        found = len(rows._jdf.inputFiles())  # as Python's own list it is a call to the JVM for each of them
        if found != len(wanted):
            raise IncompleteError(
                "Spark does not read the objects it was told",
                expected=f"{len(wanted)} objects",
                found=found,
                hint="The session must not set spark.sql.streaming.fileStreamSink.ignoreMetadata",
            )
        return rows

    def _status(self, item: ObjectInfo) -> str:
        return json.dumps(
            {
                "path": self._uri(item.key),
                "size": item.size,
                "isDir": False,
                "modificationTime": micros(item.modified) // 1000,
                "blockReplication": 1,
                "blockSize": item.size,
                "action": "add",
            }
        )

    def _uri(self, key: str) -> str:
        """As ``_metadata.file_path`` has it."""
        path = f"s3a://{self._bucket}/{key}"
        if _PLAIN.fullmatch(path):
            return path
        jvm: Any = self._spark._jvm
        return str(jvm.org.apache.hadoop.fs.Path(path).toUri().toString())


def _folders(keys: Iterable[str]) -> dict[str, list[str]]:
    """The keys by folder, without folders inside another one: a listing of that shows their objects, too."""
    kept: dict[str, list[str]] = {}
    last = None
    for folder, key in sorted((key.rsplit("/", 1)[0] + "/", key) for key in keys):
        if last is None or not folder.startswith(last):
            last = folder
        kept.setdefault(last, []).append(key)
    return kept


def _require_present(missing: Sequence[str], objects: int) -> None:
    if missing:
        more = ", …" if len(missing) > NAMED_MAX else ""
        raise IncompleteError(
            "archive objects of the plan are gone",
            expected=f"{objects} objects",
            found=f"{objects - len(missing)}; missing: {', '.join(missing[:NAMED_MAX])}{more}",
            hint="Start again from step plan: a compaction may have replaced it since. If a new plan misses it, too:"
            f" {WITHOUT_OBJECT}",
            objects=tuple(missing),
        )
