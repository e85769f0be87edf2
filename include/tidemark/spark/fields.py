"""Fields inside a decoded value: by JSON path, and all strings at any depth."""

import re
from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from tidemark.core.errors import ConfigError

_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<at>\d+)\]|\['(?P<quoted>[^']+)'\]")


def field(column: Column, kind: DataType, path: str) -> tuple[Column, DataType]:
    """The field of a decoded value at a JSON path such as ``$.trip.stops[1].at``, null if missing, and its type.

    Raises ConfigError with the allowed names if a value of this type can't have the field.
    """
    for step in _steps(path):
        match kind, step:
            case StructType(), str() if step in kind.names:
                column, kind = column[step], kind[step].dataType
            case MapType(), str():
                column, kind = F.try_element_at(column, F.lit(step)), kind.valueType
            case ArrayType(), int():
                column, kind = F.get(column, F.lit(step)), kind.elementType
            case _:
                allowed = f"one of: {', '.join(kind.names)}" if isinstance(kind, StructType) else kind.simpleString()
                raise ConfigError(f"no field {path}", expected=allowed, found=step)
    return column, kind


def any_text(column: Column, kind: DataType, test: Callable[[Column], Column]) -> Column:
    """Whether the test is true for any string inside a value of this type; never null."""
    match kind:
        case StringType():
            return F.coalesce(test(column), F.lit(False))
        case StructType():
            parts = [any_text(column[item.name], item.dataType, test) for item in kind if _has_text(item.dataType)]
            return reduce(Column.__or__, parts, F.lit(False))
        case ArrayType(elementType=element) if _has_text(element):
            return F.coalesce(F.exists(column, lambda item: any_text(item, element, test)), F.lit(False))
        case MapType():
            lists = ArrayType(kind.keyType), ArrayType(kind.valueType)
            keys, values = F.map_keys(column), F.map_values(column)
            return any_text(keys, lists[0], test) | any_text(values, lists[1], test)
    return F.lit(False)


def _has_text(kind: DataType) -> bool:
    match kind:
        case StringType() | MapType():
            return True
        case StructType():
            return any(_has_text(item.dataType) for item in kind)
        case ArrayType():
            return _has_text(kind.elementType)
    return False


def _steps(path: str) -> list[str | int]:
    found: list[str | int] = []
    at = 1  # after the $
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise ConfigError(f"no field {path}", expected="steps such as .name and [0]", found=path[at:])
        found.append(int(step["at"]) if step["at"] else step["name"] or step["quoted"])
        at = step.end()
    return found
