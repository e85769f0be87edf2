"""Rows as they come from Spark's Kafka source, and a stream to read them with."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from tidemark.definitions.stream import Stream
from tidemark.spark.process import classify
from tidemark.spark.records import records

NOON = datetime(2024, 5, 17, 12, 0, tzinfo=UTC)

KAFKA_SCHEMA = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
    .add("headers", ArrayType(StructType().add("key", StringType()).add("value", BinaryType())))
)


def stream(value_schema: str | None = "n BIGINT", **overrides: Any) -> Stream:
    """A definition that names no file."""
    wanted = {
        "name": "sample",
        "topic": "source",
        "value_schema": value_schema,
        "speed": {"topic": "live", "dead_letter_topic": "dead"},
        **overrides,
    }
    return Stream.model_validate(wanted)


def avro_stream(fields: dict[str, Any], *earlier: dict[str, Any], **overrides: Any) -> Stream:
    """A definition with the Avro schema of a record, and earlier ones, the newest first.

    ``fields`` are names with their Avro types; a type in a tuple also has the field's default, aliases.
    """
    files = [f"sample-{number}.avsc" for number in range(len(earlier), 0, -1)]
    wanted = {
        "value_format": "avro",
        "value_schema": None,
        "avro_schema_file": "sample.avsc",
        "avro_earlier_schema_files": files,
        **overrides,
    }
    return stream(**wanted).with_avro_schemas(*map(_avro_schema, (fields, *earlier)))


def _avro_schema(fields: dict[str, Any]) -> str:
    parts = {name: kind if isinstance(kind, tuple) else (kind, {}) for name, kind in fields.items()}
    listed = [{"name": name, "type": kind, **more} for name, (kind, more) in parts.items()]
    return json.dumps({"type": "record", "name": "Sample", "fields": listed})


def kafka_rows(spark: SparkSession, values: Sequence[bytes | None], timestamp: datetime | None = NOON) -> DataFrame:
    """One record per value: offset is its place, partition 3, the key ``k<offset>``, headers null, as without any."""
    rows = [
        (f"k{offset}".encode(), value, "source", 3, offset, timestamp, 0, None) for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, KAFKA_SCHEMA)


def microseconds(moment: datetime) -> int:
    """µs since the epoch, exactly; float seconds would round."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def flat(rows: DataFrame) -> DataFrame:
    return rows.select("source", "event_time", "event.*")


def outcomes(spark: SparkSession, wanted: Stream, values: list[bytes | None]) -> list[str | dict[str, Any]]:
    """The reason of each rejected value, or its fields as ``to_json`` shows them."""
    rows = classify(records(kafka_rows(spark, values), wanted), wanted, flat)
    own = [name for name in rows.columns if name not in {"source", "event_time", "_reason"}]
    fields = F.to_json(
        F.struct(*own), {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    )
    found = rows.select("source.offset", "_reason", fields.alias("fields")).orderBy("offset").collect()
    assert [row.offset for row in found] == list(range(len(values)))
    return [row["_reason"] or json.loads(row.fields) for row in found]
