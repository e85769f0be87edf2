"""Avro values: the stream's schema as a Spark type, and the strict decoding of one record.

A value is the bare binary encoding of one record, of the schema in ``avro_schema_file``, or else of one of the earlier
ones that the definition names. There is no registry, so nothing in front of it (Confluent's five bytes, say) is taken
off: which schema a value was written with is told by its bytes, that are exactly one record of it.
"""

import json
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import Stream
from tidemark.spark.fields import field

_MARK_BYTES = 8


def avro_type(stream: Stream) -> StructType:
    """The Spark type of the stream's records; needs a running session, but no jar.

    Raises ConfigError, at the schema file as the definition names it, where Avro or Spark refuses it, names differ only
    in case, or records of an earlier schema can't be read as records of the newest.
    """
    newest, kind = _parsed(stream.avro_schema, stream.avro_schema_file)
    record = StructType.fromJson(json.loads(kind))
    twice = _twice(record, "")
    if twice or not record.names:
        expected = "fields whose names differ in more than case"
        raise _refused(stream.avro_schema_file, expected=expected, found=", ".join(twice) or "none")
    for text, file in zip(stream.avro_earlier_schemas, stream.avro_earlier_schema_files, strict=True):
        earlier, _ = _parsed(text, file)
        compatibility = _jvm().org.apache.avro.SchemaCompatibility.checkReaderWriterCompatibility(newest, earlier)
        problems = compatibility.getResult().getIncompatibilities()
        if problems:
            expected = f"an earlier schema, whose records can be read as those of {stream.avro_schema_file}"
            found = "; ".join(f"{item.getType()} at {item.getLocation()}: {item.getMessage()}" for item in problems)
            raise _refused(file, expected=expected, found=found)
    return record


def _parsed(text: str | None, file: str | None) -> tuple[Any, str]:
    """A schema as Avro has it, and as Spark's type in JSON."""
    try:
        schema = _jvm().org.apache.avro.Schema.Parser().parse(text)
        return schema, _jvm().org.apache.spark.sql.avro.SchemaConverters.toSqlType(schema).dataType().json()
    except (Py4JJavaError, PySparkException) as error:
        told = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
        found = " ".join(str(told).split())
        raise _refused(file, expected="a schema that Avro and Spark take", found=found) from error


def _jvm() -> Any:
    return SparkSession.active().sparkContext._jvm  # noqa: SLF001 - PySpark's way to Java classes


def avro_parsed(stream: Stream, value: Column) -> Column:
    """``struct<event, mark>`` of a value; ``avro_exact`` tells whether ``event`` is good.

    ``from_avro`` does not mind what follows a record. So the value is read as the first field of a larger record whose
    second is a mark made from it: bytes too many or too few move the mark, or leave none to read. What is no record of
    the newest schema is read by the earlier ones, and comes out as Avro resolves it: new fields have their defaults.
    """
    avro_type(stream)  # explains a schema that Spark refuses, which from_avro does not
    newest = _marked(stream.avro_schema)
    marked, options = F.concat(value, _mark(value)), {"mode": "PERMISSIVE", "avroSchema": newest}
    parsed = [from_avro(marked, writer, options) for writer in (newest, *map(_marked, stream.avro_earlier_schemas))]
    return F.coalesce(*(F.when(avro_exact(item, value), item) for item in parsed)) if len(parsed) > 1 else parsed[0]


def _marked(schema: str | None) -> str:
    """The schema of a record of ``schema`` and a mark behind it."""
    fixed = {"type": "fixed", "name": "tidemark_mark", "size": _MARK_BYTES}
    fields = [{"name": "event", "type": json.loads(schema or "")}, {"name": "mark", "type": fixed}]
    return json.dumps({"type": "record", "name": "tidemark_marked", "fields": fields})


def avro_exact(parsed: Column, value: Column) -> Column:
    """Whether a value's bytes are exactly one record; never null."""
    return parsed["mark"].eqNullSafe(_mark(value)) & value.isNotNull()


def avro_field(stream: Stream, value: Column, path: str) -> tuple[Column, DataType]:
    """The field at a JSON path, null where the value is not exactly one record or has none there, and its type.

    Raises ConfigError where the schema has no such field.
    """
    parsed = avro_parsed(stream, value)
    try:
        return field(F.when(avro_exact(parsed, value), parsed["event"]), avro_type(stream), path)
    except ConfigError as error:
        file = stream.avro_schema_file
        raise _refused(file, expected=f"a field {path}: {error.expected}", found=str(error.found)) from error


def _mark(value: Column) -> Column:
    return F.unhex(F.lpad(F.hex(F.xxhash64(value)), 2 * _MARK_BYTES, "0"))


def _twice(kind: DataType, at: str) -> list[str]:
    """Names of one record that differ only in case: Spark could not tell them apart."""
    match kind:
        case StructType():
            folded = [name.lower() for name in kind.names]
            own = [at + name for name in kind.names if folded.count(name.lower()) > 1]
            return own + [name for field in kind for name in _twice(field.dataType, f"{at}{field.name}.")]
        case ArrayType():
            return _twice(kind.elementType, at)
        case MapType():
            return _twice(kind.valueType, at)
    return []


def _refused(file: str | None, *, expected: str, found: str) -> ConfigError:
    return ConfigError("not a schema for a stream's values", expected=expected, found=found, where=file)
