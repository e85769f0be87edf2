"""Avro values: the stream's schema as a Spark type, and the strict decoding of one record.

A value is the bare binary encoding of one record, of the schema in ``avro_schema_file`` or of an earlier schema in the
definition. There is no registry, and no prefix is removed (such as Confluent's five bytes). A value has the schema of
which its bytes are exactly one record. If several schemas fit, they must give the same record.
"""

import json
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import DataType, MapType, StructType

from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import Stream
from tidemark.spark.avro_pairs import AvroType, misreadings
from tidemark.spark.fields import EXACT_JSON, field, has_type, same_names
from tidemark.spark.java import jvm, message_of

_MARK_BYTES = 8


def avro_type(stream: Stream) -> StructType:
    """The Spark type of the stream's records; needs a running session, but no jar.

    Raises ConfigError with the schema file if Avro or Spark refuses it, if names differ only in case, if records of an
    earlier schema can't be read as records of the newest, or would have other values than were written.
    """
    newest, kind = _parsed(stream.avro_schema, stream.avro_schema_file)
    record = StructType.fromJson(json.loads(kind))
    same = same_names(record)
    if same or not record.names:
        expected = "fields whose names differ in more than case"
        raise _refused(stream.avro_schema_file, expected=expected, found=", ".join(same) or "none")
    avro = jvm(SparkSession.active()).org.apache.avro
    types: dict[str, AvroType] = {}
    for text, file in zip(stream.avro_earlier_schemas, stream.avro_earlier_schema_files, strict=True):
        earlier, _ = _parsed(text, file)
        expected = f"an earlier schema whose records can be read as those of {stream.avro_schema_file}"
        try:
            compatibility = avro.SchemaCompatibility.checkReaderWriterCompatibility(newest, earlier)
            types[file] = AvroType.of(avro.Schema.applyAliases(earlier, newest))
        except Py4JJavaError as error:
            raise _refused(file, expected=expected, found=message_of(error)) from error
        problems = compatibility.getResult().getIncompatibilities()
        if problems:
            found = "; ".join(f"{item.getType()} at {item.getLocation()}: {item.getMessage()}" for item in problems)
            raise _refused(file, expected=expected, found=found)
    for file, found in misreadings(str(stream.avro_schema_file), AvroType.of(newest), types) if types else ():
        expected = "an earlier schema whose records are read as they were written"
        hint = "The guide 'Change a schema' lists such changes, and what to do instead"
        raise _refused(file, expected=expected, found=found, hint=hint)
    return record


def _parsed(text: str | None, file: str | None) -> tuple[Any, str]:
    """A schema as Avro's object, and as Spark's type in JSON."""
    apache = jvm(SparkSession.active()).org.apache
    try:
        schema = apache.avro.Schema.Parser().parse(text)
        return schema, apache.spark.sql.avro.SchemaConverters.toSqlType(schema).dataType().json()
    except (Py4JJavaError, PySparkException) as error:
        raise _refused(file, expected="a schema that Avro and Spark take", found=message_of(error)) from error


def avro_parsed(stream: Stream, value: Column) -> Column:
    """``struct<event, mark>`` of a value; ``avro_exact`` tests whether ``event`` is good.

    ``from_avro`` ignores bytes after a record. So the value is read as the first field of a larger record, whose second
    field is a mark computed from the value: too many or too few bytes move the mark. Avro fills new fields of a record
    of an earlier schema with their defaults. If several schemas read the bytes as different records, ``event`` is null.
    """
    kind = avro_type(stream)  # explains a refused schema, which from_avro does not
    newest = _marked(stream.avro_schema)
    marked, options = F.concat(value, _mark(value)), {"mode": "PERMISSIVE", "avroSchema": newest}
    parsed = [from_avro(marked, writer, options) for writer in (newest, *map(_marked, stream.avro_earlier_schemas))]
    if len(parsed) == 1:
        return parsed[0]
    exact = F.filter(F.array(*parsed), lambda item: avro_exact(item, value))
    maps = has_type(kind, (MapType,))

    def comparable(event: Column) -> Column:
        return F.to_json(event, EXACT_JSON) if maps else event  # Spark can't compare maps

    def one(found: Column) -> Column:
        events = F.transform(found, lambda item: comparable(item["event"]))
        first, same = F.get(found, F.lit(0)), F.size(F.array_distinct(events)) == 1
        return first.withField("event", F.when(same, first["event"]))

    # Inside a lambda the parsed records are a variable: as an expression they would be parsed for each use.
    return F.transform(F.array(exact), one)[0]


def _marked(schema: str | None) -> str:
    """The schema of a record of ``schema`` with a mark after it."""
    fixed = {"type": "fixed", "name": "tidemark_mark", "size": _MARK_BYTES}
    fields = [{"name": "event", "type": json.loads(schema or "")}, {"name": "mark", "type": fixed}]
    return json.dumps({"type": "record", "name": "tidemark_marked", "fields": fields})


def avro_exact(parsed: Column, value: Column) -> Column:
    """Whether the value's bytes are exactly one record, of any of the schemas; never null."""
    return parsed["mark"].eqNullSafe(_mark(value)) & value.isNotNull()


def avro_field(stream: Stream, value: Column, path: str) -> tuple[Column, DataType]:
    """The field at a JSON path and its type; null if the value is not exactly one record, or has no such field, or if
    several schemas give different records.

    Raises ConfigError if the schema has no such field.
    """
    parsed = avro_parsed(stream, value)
    try:
        return field(F.when(avro_exact(parsed, value), parsed["event"]), avro_type(stream), path)
    except ConfigError as error:
        file = stream.avro_schema_file
        raise _refused(file, expected=f"a field {path}: {error.expected}", found=str(error.found)) from error


def _mark(value: Column) -> Column:
    return F.unhex(F.lpad(F.hex(F.xxhash64(value)), 2 * _MARK_BYTES, "0"))


def _refused(file: str | None, *, expected: str, found: str, hint: str | None = None) -> ConfigError:
    return ConfigError("not a schema for a stream's values", expected=expected, found=found, where=file, hint=hint)
