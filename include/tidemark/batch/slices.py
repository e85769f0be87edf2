"""Slices of archive objects as rows, trimmed by offset: no shuffle, and no filter where a slice is a whole object."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.errors import IncompleteError
from tidemark.core.plan import Slice
from tidemark.spark.records import ARCHIVE_SCHEMA

NAMED_MAX = 5
# Characters Hadoop leaves alone when it turns a path into the URI that `_metadata.file_path` holds.
_PLAIN = re.compile(r"[A-Za-z0-9_\-!.~'()*,;:$&+=/@]*")


def read_slices(spark: SparkSession, bucket: str, slices: Sequence[Slice]) -> DataFrame:
    """The slices' rows, in ARCHIVE_SCHEMA; every row once, because slices of a plan are disjoint.

    Raises IncompleteError naming the objects that are gone: a listing would silently read less.
    """
    if not slices:
        return spark.createDataFrame([], ARCHIVE_SCHEMA)
    uris = {key: _uri(spark, f"s3a://{bucket}/{key}") for key in {item.key for item in slices}}
    reader = spark.read.schema(ARCHIVE_SCHEMA).option("recursiveFileLookup", True)
    archive = reader.parquet(*(f"s3a://{bucket}/{folder}" for folder in _folders(uris)))
    _require_present(uris, archive)
    whole = [uris[item.key] for item in slices if item.whole]
    trimmed = [(uris[item.key], item.range.start, item.range.end) for item in slices if not item.whole]
    parts = []
    path = F.col("_metadata.file_path")
    if whole:
        parts.append(archive.where(path.isin(whole)))
    if trimmed:
        bounds = spark.createDataFrame(trimmed, "_path string, _start long, _end long")
        at = F.col("offset")
        parts.append(
            # The path as a plain column first: Spark fails on a join condition with a metadata column in it.
            archive.select("*", path.alias("_path"))
            .where(F.col("_path").isin(sorted({uri for uri, _, _ in trimmed})))
            .join(F.broadcast(bounds), on="_path", how="inner")
            .where((at >= F.col("_start")) & (at < F.col("_end")))
            .select(*ARCHIVE_SCHEMA.fieldNames())
        )
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])


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


def _require_present(uris: dict[str, str], archive: DataFrame) -> None:
    found = set(archive.inputFiles())
    missing = sorted(key for key, uri in uris.items() if uri not in found)
    if missing:
        more = ", …" if len(missing) > NAMED_MAX else ""
        raise IncompleteError(
            "archive objects of the plan are gone",
            expected=f"{len(uris)} objects",
            found=f"{len(uris) - len(missing)}; missing: {', '.join(missing[:NAMED_MAX])}{more}",
            hint="Plan again with their manifests removed, so that Kafka can refill the ranges",
        )
