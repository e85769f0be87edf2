"""A stream's ``value_schema`` as Spark's type, if JSON values can be read as it."""

from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructType

from tidemark.core.errors import ConfigError
from tidemark.core.text import excerpt, quoted
from tidemark.definitions.stream import Stream
from tidemark.spark.fields import SCALARS, parts, same_names
from tidemark.spark.java import message_of

MARK = "_tidemark"  # a field that decoding adds to each list of values
_READ = (*SCALARS, ArrayType, StructType)


def value_schema(stream: Stream) -> StructType:
    """The type of the stream's events.

    Raises ConfigError if Spark can't parse it, and with every field that can't be read from JSON.
    """
    where = f"stream {stream.name}"
    try:
        schema = _fields(stream.value_schema or "")
    except (PySparkException, Py4JError, RecursionError, TypeError) as error:  # Spark's parser raises all of them
        raise ConfigError(
            "value_schema: not Spark DDL",
            expected="such as 'carrier STRING, delay INT'",
            found=f"{quoted(stream.value_schema)}: {excerpt(message_of(error))}",
            where=where,
        ) from error
    if refused := [*_refused(schema)]:
        raise ConfigError(
            "value_schema: fields that can't be read from JSON",
            expected="types that the page 'JSON values' lists, and names that differ in more than case",
            found="; ".join(refused),
            where=where,
        )
    names = {name.casefold() for name in schema.names}
    for new in schema.names:
        for old in stream.renamed.get(new, ()):
            if old.casefold() in names:  # a value's field would be ambiguous
                text = f"renamed.{new}: the earlier name is also a field's name"
                expected = "a name that value_schema no longer has"
                raise ConfigError(text, expected=expected, found=old, where=where)
    return schema


def _fields(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    if not isinstance(schema, StructType):  # Spark also takes the name of one type
        raise TypeError("a type without a field's name")
    return schema


def _refused(schema: StructType) -> Iterator[str]:
    for name in schema.names:
        if name.lower() == MARK:
            yield f"{name} (Tidemark reserves this name: no field can have it)"
    for name in same_names(schema):
        yield f"{name} (this object has the name twice, whatever the case: declare it once)"
    for path, kind in parts(schema):
        if (hint := _hint(kind)) is not None:
            yield f"{'.'.join(path)} {kind.simpleString().upper()} ({hint})"


def _hint(kind: DataType) -> str | None:
    """What to declare in place of a type that ``from_json`` refuses or reads in forms that no page lists."""
    if isinstance(kind, MapType):
        return None if kind.keyType == StringType() else "declare MAP<STRING, …>: in JSON each name is text"
    if isinstance(kind, DecimalType) and not kind.precision:
        return "declare at least one digit"
    if isinstance(kind, _READ) or kind == StringType():
        return None
    return "declare STRING, and convert it in the transformation"
