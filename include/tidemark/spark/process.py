"""Records to rows of the stream: decode, then the stream's transformation. Speed layer and rebuild both use this code.

A transformation gets a data frame with

    source      struct<topic, partition, offset, timestamp, key, value, headers, …>: the record it came from
    event_time  timestamp
    event       struct of the stream's ``value_schema`` or ``avro_schema_file``; of one field ``value`` for raw values

and returns ``source`` and ``event_time`` unchanged and its own columns, one row per row. To reject a row it sets a
reason in an extra column ``reject`` (string, null for a good row). Rejected rows go to the dead-letter topic and the
quarantine table. It must not drop or multiply rows: the rebuild counts them.

Records that could not be decoded pass through it too, so that one read of Kafka serves both kinds. Their ``event`` is
null, and the transformation's result for them is discarded.
"""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import Stream
from tidemark.spark.calendar import TIMES, outside_calendar
from tidemark.spark.decode import REASON, decode
from tidemark.spark.fields import has_type
from tidemark.spark.personal import PERSONAL, masked_reason, require_known, with_personal_texts

PLATFORM_COLUMNS = ("source", "event_time")
Transform = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """``good``: source, event_time and the stream's columns. ``rejected``: source, event_time and ``reason``."""

    good: DataFrame
    rejected: DataFrame


def code_file(stream: Stream, folder: Path) -> Path:
    """The file with the stream's transformation."""
    return folder / f"{stream.name}.py"


def load_transform(stream: Stream, folder: Path) -> Transform:
    """``transform`` of ``folder/<stream>.py``, or without such a file ``fields``; a ConfigError if it does not load."""
    path = code_file(stream, folder)
    if not path.exists():
        return fields
    spec = importlib.util.spec_from_file_location(f"tidemark_stream_{stream.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # anything that a user's module raises
        raise ConfigError("a transformation does not load", found=repr(error), where=str(path)) from error
    function = getattr(module, "transform", None)
    if not callable(function):
        raise ConfigError(
            "no transformation", expected="def transform(records: DataFrame) -> DataFrame", where=str(path)
        )
    return function  # type: ignore[no-any-return]  # a user's module is untyped


def fields(records: DataFrame) -> DataFrame:
    """The transformation of a stream without a file of its own: each field of the value is a column."""
    return records.select(*PLATFORM_COLUMNS, "event.*")


def process(records: DataFrame, stream: Stream, transform: Transform) -> Processed:
    """Decode and transform rows of ARCHIVE_SCHEMA; every row is in exactly one of the two frames.

    Each frame reads ``records`` by itself. Raises ConfigError, before any row is read, for a broken contract.
    """
    rows = classify(records, stream, transform)
    rows = rows.withColumn("source", F.col("source").dropFields(REASON))
    rejected = rows.where(F.col(REASON).isNotNull()).select(*PLATFORM_COLUMNS, F.col(REASON).alias("reason"))
    return Processed(good=rows.where(F.col(REASON).isNull()).drop(REASON), rejected=rejected)


def classify(records: DataFrame, stream: Stream, transform: Transform) -> DataFrame:
    """Every row once: source, event_time, ``_reason`` (null for a good row) and the stream's columns.

    ``source`` keeps the ``_reason`` of a value that could not be decoded; it is null if the transformation rejected the
    row. Raises ConfigError as ``process`` does.
    """
    decoded = decode(records, stream)
    rows = shape(decoded, stream, transform)
    require_known(stream, decoded, rows.drop(*PLATFORM_COLUMNS, REASON))
    return rows


def shape(decoded: DataFrame, stream: Stream, transform: Transform) -> DataFrame:
    """The second half of ``classify``: apply the stream's transformation to decoded rows."""
    decoded = with_personal_texts(decoded, stream)
    try:
        rows = transform(decoded)
    except AnalysisException as error:
        raise ConfigError(
            "a transformation does not fit its stream",
            expected=f"event of {_described(stream)}",
            found=str(error).split("\n", 1)[0],
            where=f"transform of stream {stream.name}",
        ) from error
    _check_contract(rows, decoded, stream)
    reason = F.col(f"source.{REASON}")
    own = [name for name in rows.columns if name not in (*PLATFORM_COLUMNS, "reject")]
    if "reject" in rows.columns:
        reason = F.coalesce(reason, masked_reason(rows, stream))
    reason = F.coalesce(reason, *_outside(rows, own))
    source = F.col("source").dropFields(PERSONAL).alias("source") if stream.has_personal else F.col("source")
    return rows.select(source, "event_time", reason.alias(REASON), *(f"`{name}`" for name in own))


def _outside(rows: DataFrame, names: list[str]) -> Iterator[Column]:
    """Per column that can hold a time, the reason to reject a row whose time Python, Iceberg or Parquet can't hold."""
    for name in names:
        kind = rows.schema[name].dataType
        if has_type(kind, TIMES):
            reason = f"{name}: a time outside of the years 1 to 9999"
            yield F.when(outside_calendar(F.col(f"`{name}`"), kind), reason)


def _described(stream: Stream) -> str:
    described = {"json": stream.value_schema, "avro": stream.avro_schema_file, "raw": "value BINARY"}
    return str(described[stream.value_format])


def _check_contract(rows: DataFrame, decoded: DataFrame, stream: Stream) -> None:
    for problem, expected in (
        (_changed(rows, decoded), "columns source and event_time as they were"),
        ([name for name in rows.columns if name.startswith("_")], "no column starting with '_'"),
        (
            [repr(name) for name in rows.columns if not name or "`" in name],
            "names of at least one character, without `",
        ),
        (_twice(rows.columns), "names that differ in more than case"),
        (_not_text(rows), "column reject of type string"),
        ([] if set(rows.columns) - {*PLATFORM_COLUMNS, "reject"} else ["none"], "a column of the stream's own"),
    ):
        if problem:
            raise ConfigError(
                "a transformation breaks its contract",
                expected=expected,
                found=f"{', '.join(problem)} among {', '.join(rows.columns)}",
                where=f"transform of stream {stream.name}",
            )


def _changed(rows: DataFrame, decoded: DataFrame) -> list[str]:
    before, after = ({field.name: field.dataType for field in frame.schema} for frame in (decoded, rows))
    return [
        f"{name} changed" if name in after else f"no {name}"
        for name in PLATFORM_COLUMNS
        if after.get(name) != before[name]
    ]


def _twice(names: list[str]) -> list[str]:
    folded = [name.lower() for name in names]
    return sorted({name for name in folded if folded.count(name) > 1})


def _not_text(rows: DataFrame) -> list[str]:
    return [
        f"reject {item.dataType.simpleString()}"
        for item in rows.schema
        if item.name == "reject" and item.dataType != StringType()
    ]
