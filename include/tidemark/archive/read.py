"""Slices of archive objects as rows, trimmed by offset: no shuffle, and no filter where a slice is a whole object."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
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
from tidemark.s3 import ObjectInfo, ObjectStore
from tidemark.settings import Settings
from tidemark.spark.failures import WITHOUT_OBJECT
from tidemark.spark.records import ARCHIVE_SCHEMA, no_rows

Step = Callable[[DataFrame], DataFrame]

NAMED_MAX = 5
_LISTINGS = 16
# Characters Hadoop leaves alone when it turns a path into the URI that `_metadata.file_path` holds.
_PLAIN = re.compile(r"[A-Za-z0-9_\-!.~'()*,;:$&+=/@]*")


def as_they_are(rows: DataFrame) -> DataFrame:
    """The rows."""
    return rows


def read_slices(
    spark: SparkSession,
    settings: Settings,
    slices: Sequence[Slice],
    step: Callable[[Slice], Step] = lambda _: as_they_are,
) -> DataFrame:
    """The slices' rows, in ARCHIVE_SCHEMA; every row once, because slices of a plan are disjoint.

    ``step`` gives what a slice's rows go through; each step is called once, with the rows of all its slices.

    Raises IncompleteError naming the objects that are missing: a listing would silently read less.
    """
    objects = _Objects(spark, settings.bucket, _listed(settings, {item.key for item in slices}))
    steps: dict[Step, list[Slice]] = {}
    for item in slices:
        steps.setdefault(step(item), []).append(item)
    parts = [act(together(objects.read(own))) for act, own in steps.items()]
    return together(parts) if parts else no_rows(spark, ARCHIVE_SCHEMA)


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """All their rows; of one part at least, and all of the same columns."""
    return reduce(DataFrame.unionByName, parts)


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


class _Objects:
    """The objects that the slices name."""

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
