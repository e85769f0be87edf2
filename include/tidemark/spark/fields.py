"""Fields inside a decoded value: by JSON path, and all values of a type at any depth."""

from collections.abc import Callable, Iterator
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidemark.core.errors import ConfigError
from tidemark.core.json_path import steps

# Spark's defaults also accept {'a': NaN}.
STRICT_JSON = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
# By default a field "_corrupt_record" gets broken texts. No step of a path has this name.
_ANY_NAME = {**STRICT_JSON, "columnNameOfCorruptRecord": "'"}
# Options of to_json for values that are compared. By itself it leaves nulls out, and writes times to the ms.
EXACT_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# Types of one value that JSON has a form for, and Iceberg can store. STRING is one of them without a collation only.
SCALARS = (BinaryType, BooleanType, DateType, NumericType, TimestampNTZType, TimestampType)
ValueTest = Callable[[Column, DataType], Column]


def field(column: Column, kind: DataType, path: str) -> tuple[Column, DataType]:
    """The field of a decoded value at a JSON path such as ``$.trip.stops[1].at``, null if missing, and its type.

    Raises ConfigError with the allowed names if a value of this type can't have the field.
    """
    for step in steps(path):
        column, kind = part(column, kind, step)
    return column, kind


def part(column: Column, kind: DataType, step: str | int) -> tuple[Column, DataType]:
    """The named field of a struct or map, or the item of a list, and its type. Raises ConfigError as ``field``."""
    match kind, step:
        case StructType(), str() if step in kind.names:
            return column[step], kind[step].dataType
        case MapType(), str():
            return F.try_element_at(column, F.lit(step)), kind.valueType
        case ArrayType(), int():
            return F.get(column, F.lit(step)), kind.elementType
    allowed = f"one of: {', '.join(kind.names)}" if isinstance(kind, StructType) else kind.simpleString()
    raise ConfigError(f"no field {step}", expected=allowed, found=step)


def json_field(text: Column, path: str) -> Column:
    """The field at a JSON path of an object as text, null without it: a string as it is, another value as JSON.

    Read by the parser of ``decode``: of a name that is repeated the last value counts, where ``get_json_object`` takes
    the first, so that the event time would not be that of the column.
    """
    kind: DataType = StringType()
    found = steps(path)
    for step in reversed(found):
        kind = ArrayType(kind) if isinstance(step, int) else StructType().add(step, kind)
    assert isinstance(kind, StructType)
    column = F.from_json(text, kind, _ANY_NAME)
    for step in found:
        column = F.get(column, F.lit(step)) if isinstance(step, int) else column[step]
    return column


def any_value(column: Column, kind: DataType, types: tuple[type[DataType], ...], test: ValueTest) -> Column:
    """Whether the test is true for any value of one of the types inside a value of type ``kind``; never null."""
    if isinstance(kind, types):
        return F.coalesce(test(column, kind), F.lit(False))
    if not has_type(kind, types):
        return F.lit(False)
    match kind:
        case StructType():
            fields = [(item.name, item.dataType) for item in kind if has_type(item.dataType, types)]
            parts = (any_value(column[name], part, types, test) for name, part in fields)
            return reduce(Column.__or__, parts, F.lit(False))
        case ArrayType(elementType=element):
            return F.coalesce(F.exists(column, lambda item: any_value(item, element, types, test)), F.lit(False))
        case MapType():
            lists = ArrayType(kind.keyType), ArrayType(kind.valueType)
            keys, values = F.map_keys(column), F.map_values(column)
            return any_value(keys, lists[0], types, test) | any_value(values, lists[1], types, test)
    raise AssertionError(kind)


def parts(kind: DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """Every type inside of ``kind``, itself the last, with its path.

    A path has the names of fields, and ``element``, ``key`` and ``value``, as Iceberg names them.
    """
    inside: list[tuple[str, DataType]] = []
    match kind:
        case StructType():
            inside = [(item.name, item.dataType) for item in kind]
        case ArrayType():
            inside = [("element", kind.elementType)]
        case MapType():
            inside = [("key", kind.keyType), ("value", kind.valueType)]
    for name, part in inside:
        yield from parts(part, (*path, name))
    yield path, kind


def same_names(kind: DataType) -> list[str]:
    """The paths of fields of one struct whose names differ only in case: Spark treats them as the same."""
    return [
        ".".join((*path, name))
        for path, struct in parts(kind)
        if isinstance(struct, StructType)
        for lower_case in [[name.lower() for name in struct.names]]
        for name in struct.names
        if lower_case.count(name.lower()) > 1
    ]


def has_type(kind: DataType, types: tuple[type[DataType], ...]) -> bool:
    """Whether ``kind`` is of one of the types, or contains one of them."""
    if isinstance(kind, types):
        return True
    match kind:
        case StructType():
            return any(has_type(item.dataType, types) for item in kind)
        case ArrayType():
            return has_type(kind.elementType, types)
        case MapType():
            return has_type(kind.keyType, types) or has_type(kind.valueType, types)
    return False
