"""Read slices of archive objects as rows, trimmed by offset: without a shuffle, and whole objects without a filter."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import takewhile

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.errors import IncompleteError
from tidemark.core.manifest import WITHOUT_OBJECT
from tidemark.core.plan import Slice
from tidemark.s3 import ObjectInfo, ObjectStore
from tidemark.settings import Settings
from tidemark.spark.file_list import file_uri, read_files
from tidemark.spark.records import ARCHIVE_SCHEMA, no_rows

Step = Callable[[DataFrame], DataFrame]

NAMED_MAX = 5
_LISTINGS = 16


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

    ``step`` returns the step for a slice; each step is called once, with the rows of all its slices.

    Raises IncompleteError with the missing objects: Spark would silently read less.
    """
    objects = _Objects(spark, settings.bucket, _listed(settings, {item.key for item in slices}))
    steps: dict[Step, list[Slice]] = {}
    for item in slices:
        steps.setdefault(step(item), []).append(item)
    parts = [act(together(objects.read(own))) for act, own in steps.items()]
    return together(parts) if parts else no_rows(spark, ARCHIVE_SCHEMA)


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """The rows of all parts, of which there is at least one; all have the same columns."""
    return reduce(DataFrame.unionByName, parts)


def _listed(settings: Settings, keys: set[str]) -> dict[str, ObjectInfo]:
    """The objects by key; of each folder only the span of its keys is listed.

    Raises IncompleteError with the missing objects.
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
            # An Arrow table: plain rows would become an RDD, and broadcasting them would take a job.
            bounds = self._spark.createDataFrame(
                pa.table(
                    {
                        "_path": [file_uri(self._spark, self._bucket, item.key) for item in trimmed],
                        "_start": [item.range.start for item in trimmed],
                        "_end": [item.range.end for item in trimmed],
                    }
                )
            )
            at = F.col("offset")
            parts.append(
                # The path as a plain column first: Spark fails on a join condition with a metadata column.
                self._files([item.key for item in trimmed])
                .select("*", F.col("_metadata.file_path").alias("_path"))
                .join(F.broadcast(bounds), on="_path", how="inner")
                .where((at >= F.col("_start")) & (at < F.col("_end")))
                .select(*ARCHIVE_SCHEMA.fieldNames())
            )
        return parts

    def _files(self, keys: Iterable[str]) -> DataFrame:
        return read_files(self._spark, ARCHIVE_SCHEMA, self._bucket, [self._listed[key] for key in keys])


def _folders(keys: Iterable[str]) -> dict[str, list[str]]:
    """The keys by folder. A folder inside another one is left out: a listing of the outer one includes its objects."""
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
            "archive objects of the plan are missing",
            expected=f"{objects} objects",
            found=f"{objects - len(missing)}; missing: {', '.join(missing[:NAMED_MAX])}{more}",
            hint="Start again from step plan: a compaction may have replaced the object. If a new plan needs it too:"
            f" {WITHOUT_OBJECT}",
            objects=tuple(missing),
        )
