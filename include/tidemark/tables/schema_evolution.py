"""Compare a table's columns with a definition's: which are added, widened, renamed or refused.

Nothing here changes a table. Nullability and the order of columns do not matter. Iceberg identifies a column by its id:
a renamed one keeps its values, and an added one is null in older files.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    AnsiIntervalType,
    ArrayType,
    CalendarIntervalType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    VariantType,
)

from tidemark.core.errors import ConfigError
from tidemark.core.renames import Renamed
from tidemark.spark.fields import SCALARS, parts

_NULLABLE = ("nullable", "containsNull", "valueContainsNull")
_STORED = (*SCALARS, ArrayType, MapType, StringType, StructType)
_TYPES = ("type", "elementType", "keyType", "valueType")


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """A column that the table does not have. ``path`` is its name after those of the columns around it."""

    path: tuple[str, ...]
    kind: DataType

    def __str__(self) -> str:
        return f"column {'.'.join(self.path)} {self.kind.simpleString()} added"


@dataclass(frozen=True, slots=True, kw_only=True)
class Widened:
    """A column whose new type holds every value of its old one."""

    path: tuple[str, ...]
    earlier: DataType
    kind: DataType

    def __str__(self) -> str:
        return f"column {'.'.join(self.path)} widened from {self.earlier.simpleString()} to {self.kind.simpleString()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A column that gets another name."""

    name: str
    earlier: str

    def __str__(self) -> str:
        return f"column {self.earlier} renamed to {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A column that can't become the definition's; None for the side without it."""

    path: tuple[str, ...]
    table: DataType | None
    definition: DataType | None
    hint: str

    def __str__(self) -> str:
        table, definition = ("none" if kind is None else kind.simpleString() for kind in (self.table, self.definition))
        return f"column {'.'.join(self.path)}: table {table}, definition {definition} ({self.hint})"


Change = Added | Widened | Moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """The changes of a table, and its ``columns`` after them: in its own order, added ones last."""

    changes: tuple[Change, ...]
    refused: tuple[Refused, ...]
    columns: StructType

    def require_allowed(self, where: str) -> None:
        """Raise ConfigError with every refused column, its types and what to do."""
        if self.refused:
            raise ConfigError(
                "the table's columns can't become the definition's",
                expected="columns that are the same, added, widened or renamed",
                found="; ".join(map(str, self.refused)),
                where=where,
            )


def evolution(table: StructType, definition: StructType, renamed: Renamed) -> Evolution:
    """The changes that make the table's columns (none of a new table) the definition's.

    ``renamed`` maps a column to its earlier names. A column is renamed if the table has only an earlier name of it, and
    the definition no longer uses that name. If it still does, the table's values could belong to either: refused.
    """
    table, definition = stored(table), stored(definition)
    found: list[Change | Refused] = []
    earlier = {
        name: was
        for name in definition.names
        if name not in table.names
        for was in [item for item in renamed.get(name, ()) if item in table.names and item not in definition.names][:1]
    }
    found += [Moved(name=name, earlier=was) for name, was in earlier.items()]
    for field in definition.fields:
        was = earlier.get(field.name, field.name)
        if was in table.names:
            found += _compared((field.name,), table[was].dataType, field.dataType)
        elif taken := [item for item in renamed.get(field.name, ()) if item in table.names]:
            hint = (
                f"the definition renames {taken[0]} and also has a column {taken[0]}: deploy the rename first, then add"
            )
            hint += f" the other {taken[0]}"
            found.append(Refused(path=(field.name,), table=None, definition=field.dataType, hint=hint))
        else:
            found += _added((field.name,), field.dataType)
    found += _named_twice(definition)
    kept = {was: name for name, was in earlier.items()}
    order = [kept.get(name, name) for name in table.names]
    for was, name in zip(table.names, order, strict=True):
        if name not in definition.names:
            found.append(_removed((was,), table[was].dataType, definition.names))
    names = [name for name in dict.fromkeys([*order, *definition.names]) if name in definition.names]
    return Evolution(
        changes=tuple(item for item in found if not isinstance(item, Refused)),
        refused=tuple(item for item in found if isinstance(item, Refused)),
        columns=StructType([definition[name] for name in names]),
    )


def stored(schema: StructType) -> StructType:
    """The columns as Iceberg stores them: nullable, and no integer below 32 bits."""

    def convert(part: dict[str, object]) -> dict[str, object]:
        free = {key: True for key in part if key in _NULLABLE}
        wide = {key: "integer" for key in part if key in _TYPES and part[key] in ("byte", "short")}
        return {**part, **free, **wide}

    return StructType.fromJson(json.loads(schema.json(), object_hook=convert))


def table_columns(table: Table) -> StructType:
    """The columns of a table that pyiceberg loaded, as Spark has them."""
    return from_arrow_schema(schema_to_pyarrow(table.schema()), prefer_timestamp_ntz=True)


def _compared(path: tuple[str, ...], table: DataType, definition: DataType) -> Iterator[Change | Refused]:
    match table, definition:
        case StructType(), StructType():
            for field in definition.fields:
                inside = (*path, field.name)
                if field.name in table.names:
                    yield from _compared(inside, table[field.name].dataType, field.dataType)
                else:
                    yield from _added(inside, field.dataType)
            for field in table.fields:
                if field.name not in definition.names:
                    yield _removed((*path, field.name), field.dataType, definition.names)
        case ArrayType(), ArrayType():
            yield from _compared((*path, "element"), table.elementType, definition.elementType)
        case MapType(), MapType() if not [*_compared(path, table.keyType, definition.keyType)]:
            yield from _compared((*path, "value"), table.valueType, definition.valueType)
        case _:
            if _widens(table, definition):
                yield Widened(path=path, earlier=table, kind=definition)
            elif table != definition:
                hint = f"cast it to {table.simpleString()}, or give the column of the new type another name"
                yield Refused(path=path, table=table, definition=definition, hint=hint)


def _added(path: tuple[str, ...], kind: DataType) -> Iterator[Added | Refused]:
    found: list[Added | Refused] = [
        Refused(path=inside, table=None, definition=part, hint=hint)
        for inside, part in parts(kind, path)
        if (hint := _unstorable(part)) is not None
    ]
    yield from found or [Added(path=path, kind=kind)]


def _unstorable(kind: DataType) -> str | None:
    """What to do about a type that Iceberg's tables of format version 2, or Parquet, can't hold."""
    match kind:
        case NullType():
            return "cast it to its intended type"
        case StructType() if not kind.names:
            return "leave it out, or give it a field"
        case VariantType():
            return "store its JSON: F.to_json makes it a STRING"
        case AnsiIntervalType() | CalendarIntervalType():
            return "store its length as BIGINT, such as seconds, or cast it to STRING"
        case StringType() if kind != StringType():
            return "give it Spark's default collation: F.collate(column, 'UTF8_BINARY')"
    return None if isinstance(kind, _STORED) else "cast it to a type that Iceberg has"


def _named_twice(definition: StructType) -> Iterator[Refused]:
    """Columns that Iceberg or Spark can't tell apart.

    Iceberg joins the names of a field and of those around it by dots. Spark ignores the case of names in one struct.
    """
    named: dict[object, list[tuple[tuple[str, ...], DataType]]] = {}
    for path, kind in parts(definition):
        for key in (".".join(path), (path[:-1], path[-1].lower())) if path else ():
            named.setdefault(key, []).append((path, kind))
    found: dict[tuple[str, ...], Refused] = {}
    for same in named.values():
        for path, kind in same[1:]:
            hint = f"Iceberg has the name {'.'.join(same[0][0])} for another column, too: rename one of them"
            found.setdefault(path, Refused(path=path, table=None, definition=kind, hint=hint))
    yield from found.values()


def _removed(path: tuple[str, ...], kind: DataType, names: Sequence[str]) -> Refused:
    hint = f"keep it, as CAST(NULL AS {kind.simpleString()}) if records no longer have it"
    alike = next((name for name in names if name.casefold() == path[-1].casefold()), None)
    if alike is not None:
        hint = f"rename {alike} to {path[-1]} in the transformation: only the case of a name can't change"
    elif len(path) == 1:
        hint += ", or list it under 'renamed' of its new name"
    return Refused(path=path, table=kind, definition=None, hint=hint)


def _widens(table: DataType, definition: DataType) -> bool:
    """Iceberg's own list of promotions, https://iceberg.apache.org/spec/#schema-evolution for format version 2."""
    match table, definition:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return table.scale == definition.scale and table.precision < definition.precision
    return False
