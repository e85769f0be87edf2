"""Records to rows of the stream: decode, then the stream's own transformation. Both layers use this and nothing else.

A transformation gets a data frame with

    source      struct<topic, partition, offset, timestamp, key, value, headers, …>: the record it came from
    event_time  timestamp
    event       struct of the stream's ``value_schema``

and returns ``source`` and ``event_time`` as they were and its own columns, one row per row. A row it does not want it
marks with a reason in an extra column ``reject`` (string, null for a good row); rejected rows go to the dead-letter
topic and the quarantine table. It must not drop or multiply rows: the rebuild counts them.

Records that could not be decoded pass through it too, so that one pass over Kafka serves both kinds: their ``event``
is null, like an event without any field, and what the transformation makes of them is discarded.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructType

from tidemark.core.errors import ConfigError
from tidemark.spark.records import LOCAL_TIME_FORMAT, TIMESTAMP_FORMAT
from tidemark.streams import Stream

PLATFORM_COLUMNS = ("source", "event_time")
REASON = "_reason"

TOMBSTONE = "the value is null (a tombstone)"
NOT_UTF8 = "the value is not UTF-8"
NOT_JSON = "the value is not one JSON object"
NOT_SCHEMA = "a field of the value does not fit the stream's value_schema"

Transform = Callable[[DataFrame], DataFrame]

_CORRUPT = "_corrupt"
_MARK = "_tidemark"
# Strict JSON; Spark's defaults also take {'a': NaN}.
_JSON = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": TIMESTAMP_FORMAT,
    "timestampNTZFormat": LOCAL_TIME_FORMAT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """``good``: source, event_time and the stream's columns. ``rejected``: source, event_time and ``reason``."""

    good: DataFrame
    rejected: DataFrame


def load_transform(stream: Stream, folder: Path) -> Transform:
    """``transform`` of ``folder/<stream>.py``.

    Raises ConfigError when there is no such file or function, or when the file does not load.
    """
    path = folder / f"{stream.name}.py"
    spec = importlib.util.spec_from_file_location(f"tidemark_stream_{stream.name}", path)
    if spec is None or spec.loader is None or not path.exists():
        raise ConfigError("a stream has no transformation", expected=f"a file {path}", where=stream.name)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a user's module raises
        raise ConfigError("a transformation does not load", found=repr(error), where=str(path)) from error
    function = getattr(module, "transform", None)
    if not callable(function):
        raise ConfigError(
            "no transformation", expected="def transform(records: DataFrame) -> DataFrame", where=str(path)
        )
    return function  # type: ignore[no-any-return]  # a user's module is untyped


def process(records: DataFrame, stream: Stream, transform: Transform) -> Processed:
    """Decode and transform rows of ARCHIVE_SCHEMA; every row ends in exactly one of the two frames.

    Each frame reads ``records`` by itself. Raises ConfigError when the transformation's columns break the contract
    above, before any row is read.
    """
    rows = classify(records, stream, transform)
    rejected = rows.where(F.col(REASON).isNotNull()).select(*PLATFORM_COLUMNS, F.col(REASON).alias("reason"))
    return Processed(good=rows.where(F.col(REASON).isNull()).drop(REASON), rejected=rejected)


def classify(records: DataFrame, stream: Stream, transform: Transform) -> DataFrame:
    """Every row once: source, event_time, ``_reason`` (null for a good row) and the stream's columns.

    Raises ConfigError as ``process`` does.
    """
    decoded = _decode(records, stream)
    try:
        rows = transform(decoded)
    except AnalysisException as error:
        raise ConfigError(
            "a transformation does not fit its stream",
            expected=f"event of {stream.value_schema}",
            found=str(error).split("\n", 1)[0],
            where=f"transform of stream {stream.name}",
        ) from error
    _check_contract(rows, decoded, stream)
    reason = F.col(f"source.{REASON}")
    if "reject" in rows.columns:
        reason = F.coalesce(reason, F.col("reject"))
    own = [name for name in rows.columns if name not in (*PLATFORM_COLUMNS, "reject")]
    source = F.col("source").dropFields(REASON).alias("source")
    return rows.select(source, "event_time", reason.alias(REASON), *(f"`{name}`" for name in own))


def _decode(records: DataFrame, stream: Stream) -> DataFrame:
    """Source (with ``_reason``), event_time and event.

    ``from_json`` alone takes the first object of a text and ignores what follows it. So the value is parsed inside a
    list between two marks that a text can't know: whatever is not exactly one value breaks the list or moves the marks.
    """
    schema = value_schema(stream)
    wrapper = StructType().add("event", ArrayType(schema.add(_MARK, StringType()))).add(_CORRUPT, StringType())
    text, mark = F.col("value").cast("string"), F.xxhash64("value").cast("string")
    marked = F.concat(F.lit(f'{{"{_MARK}":"'), mark, F.lit('"}'))
    wrapped = F.concat(F.lit('{"event":['), marked, F.lit(","), text, F.lit(","), marked, F.lit("]}"))
    # Always true, but not deterministic: the optimizer would else copy from_json into each filter above, 4 × slower.
    once = F.when(F.spark_partition_id() >= 0, wrapped)
    parsed = records.select("*", F.from_json(once, wrapper, _JSON).alias("_parsed"))
    event = F.get("_parsed.event", F.lit(1)).dropFields(_MARK)
    source = F.struct(
        "topic", "partition", "offset", "timestamp", "key", "value", "headers", _reason(text, mark, event).alias(REASON)
    )
    return parsed.select(source.alias("source"), "event_time", event.alias("event"))


def value_schema(stream: Stream) -> StructType:
    """The stream's ``value_schema``; raises ConfigError where Spark can't read it."""
    wrong = ConfigError(
        "value_schema is not Spark DDL",
        expected="such as 'carrier STRING, delay INT'",
        found=stream.value_schema,
        where=f"value_schema of stream {stream.name}",
    )
    try:
        schema = StructType.fromDDL(stream.value_schema or "")
    except ParseException as error:
        raise wrong from error
    if not isinstance(schema, StructType):
        raise wrong
    return schema


def _reason(text: Column, mark: Column, event: Column) -> Column:
    first, last = (F.get("_parsed.event", F.lit(at))[_MARK] for at in (0, 2))
    alone = (F.size("_parsed.event") == 3) & first.eqNullSafe(mark) & last.eqNullSafe(mark)
    return (
        F.when(text.isNull(), TOMBSTONE)
        .when(~F.is_valid_utf8(text), NOT_UTF8)
        .when(event.isNull() | ~F.coalesce(alone, F.lit(False)), NOT_JSON)
        .when(F.col(f"_parsed.{_CORRUPT}").isNotNull(), NOT_SCHEMA)
    )


def _check_contract(rows: DataFrame, decoded: DataFrame, stream: Stream) -> None:
    for problem, expected in (
        (_changed(rows, decoded), "columns source and event_time as they were"),
        ([name for name in rows.columns if name.startswith("_")], "no column starting with '_'"),
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
