"""What is in objects to be adopted: rows per day with the stream's own expressions, hashes, first and last value.

One Spark job over many objects, a task per some of them; only sums come back to the driver.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from tidemark.core.connect_key import ConnectName
from tidemark.core.errors import ConflictError, FormatError
from tidemark.core.manifest import DayRows
from tidemark.definitions.sections import FieldTime
from tidemark.definitions.stream import Stream
from tidemark.objects.body import ObjectBody
from tidemark.objects.connect import Hashing, batched, connect_name, read_values, to_rows
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.failures import task_error
from tidemark.spark.records import ARCHIVE_SCHEMA, day, event_time

CLIP = 120
_OUT = StructType([*ARCHIVE_SCHEMA]).add("file", LongType()).add("receipt", StringType())


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An object as it was listed; ``etag`` pins its content."""

    key: str
    name: ConnectName
    bytes: int
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value: what it is as JSON, hashed (see ``meaning``), and the beginning of its text."""

    meaning: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """The content of an object. ``problem`` says why it can't be adopted; days and times are then not to be used.

    ``first_us`` and ``last_us`` are the least and greatest event time, µs since the epoch.
    """

    rows: int
    sha256: str
    days: tuple[DayRows, ...]
    first_us: int
    last_us: int
    first: Sample | None
    last: Sample | None
    problem: str | None


def scan(spark: SparkSession, settings: Settings, stream: Stream, objects: Sequence[Listed]) -> dict[str, Scanned]:
    """Each object's content, by key.

    An object that does not decode, or has a row without an event time, is told by its ``problem``. Raises ConflictError
    for an object that was replaced or removed since it was listed, ServiceError where S3 or the job fails.
    """
    wanted = [(number, item.key, item.etag) for number, item in enumerate(objects)]
    tasks = min(len(wanted), 4 * spark.sparkContext.defaultParallelism)
    files = spark.createDataFrame(wanted, "file long, key string, etag string").repartition(tasks)
    found: dict[int, list[Row]] = {number: [] for number in range(len(objects))}
    try:
        for row in _days(files.mapInArrow(_reader(settings), _OUT), stream).collect():
            found[row.file].append(row)
    except (PySparkException, Py4JJavaError) as error:
        raise task_error(error, where=f"objects to be adopted for {stream.name}") from error
    return {item.key: _scanned(stream, item.name, found[number]) for number, item in enumerate(objects)}


def meaning(value: bytes) -> str:
    """A hash that is equal for equal JSON: blanks, the order of members, ``1`` or ``1.0``, and members that are null
    do not count. Of what is no JSON it is the bytes' own."""
    try:
        plain = json.dumps(_plain(json.loads(value)), sort_keys=True).encode()
    except ValueError:
        plain = value
    return hashlib.sha256(plain).hexdigest()


def clipped(value: bytes) -> str:
    """The beginning of a value, for a message."""
    text = value[: 4 * CLIP].decode(errors="replace")
    return text if len(text) <= CLIP else text[:CLIP] + "…"


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items() if item is not None}
        case list():
            return [_plain(item) for item in value]
        case float() if math.isfinite(value) and value.is_integer():
            return int(value)
    return value


def _days(rows: DataFrame, stream: Stream) -> DataFrame:
    """Per file and day its rows; a file's receipt is in its group without a day, with the rows that have none."""
    timed = rows.select("file", "offset", "receipt", event_time(stream).alias("event_time"))
    return (
        timed.select("*", day(stream).alias("day"))
        .groupBy("file", "day")
        .agg(
            F.count("offset").alias("rows"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.min(F.unix_micros("event_time")).alias("first_us"),
            F.max(F.unix_micros("event_time")).alias("last_us"),
            F.max("receipt").alias("receipt"),
        )
    )


def _reader(settings: Settings) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = ObjectStore(settings)
        for batch in batches:
            for item in batch.to_pylist():
                yield from _read(store, item["file"], item["key"], item["etag"])

    return read


def _read(store: ObjectStore, file: int, key: str, etag: str) -> Iterator[pa.RecordBatch]:
    """The object's rows, and behind them one row with its receipt."""
    name, body = connect_name(key), ObjectBody(store, key)
    rows, first, last, problem, sha256 = 0, None, None, None, ""
    with body:
        _require_unchanged(body, etag)
        source = Hashing(body)
        try:
            for values in batched(read_values(name, source, where=key)):
                yield _out(to_rows(name, name.start + rows, values), file)
                first = first or _sample(values[0])
                last = values[-1]
                rows += len(values)
            sha256 = source.finish()
        except FormatError as error:
            problem = str(error)
    receipt = {
        "rows": rows,
        "sha256": sha256,
        "first": first,
        "last": None if last is None else _sample(last),
        "problem": problem,
    }
    nothing = pa.RecordBatch.from_arrays([pa.nulls(1, item.type) for item in SCHEMA], schema=SCHEMA)
    yield _out(nothing, file, json.dumps(receipt))


def _require_unchanged(body: ObjectBody, etag: str) -> None:
    found = body.etag if body.open() else None
    if found != etag:
        raise ConflictError(
            "an object was replaced or removed since it was listed",
            expected=f"ETag {etag}",
            found=f"ETag {found}" if found else "no object",
            where=body.key,
        )


def _out(rows: pa.RecordBatch, file: int, receipt: str | None = None) -> pa.RecordBatch:
    extra = [pa.array([file] * len(rows), pa.int64()), pa.array([receipt] * len(rows), pa.string())]
    return pa.RecordBatch.from_arrays([*rows.columns, *extra], names=[*SCHEMA.names, "file", "receipt"])


def _sample(value: bytes) -> dict[str, str]:
    return {"meaning": meaning(value), "text": clipped(value)}


def _scanned(stream: Stream, name: ConnectName, rows: Sequence[Row]) -> Scanned:
    receipt = next(json.loads(row.receipt) for row in rows if row.receipt is not None)
    dated = sorted((row for row in rows if row.day is not None), key=lambda row: row.day)
    undated = next((row for row in rows if row.day is None and row.rows), None)
    problem = receipt["problem"]
    if problem is None and not receipt["rows"]:
        problem = "it has no rows"
    if problem is None and undated is not None:
        field = stream.event_time.field if isinstance(stream.event_time, FieldTime) else "the value"
        told = "1 row has" if undated.rows == 1 else f"{undated.rows} rows have"
        problem = f"{told} no time in {field}, line {undated.first - name.start + 1} first"
    days = tuple(
        DayRows(day=_date(row.day), rows=row.rows, first_offset=row.first, last_offset=row.last) for row in dated
    )
    return Scanned(
        rows=receipt["rows"],
        sha256=receipt["sha256"],
        days=days,
        first_us=min((row.first_us for row in dated), default=0),
        last_us=max((row.last_us for row in dated), default=0),
        first=_told(receipt["first"]),
        last=_told(receipt["last"]),
        problem=problem,
    )


def _told(raw: dict[str, str] | None) -> Sample | None:
    return None if raw is None else Sample(meaning=raw["meaning"], text=raw["text"])


def _date(value: Any) -> date:
    assert isinstance(value, date)
    return value
