"""Personal data in a stream's rows: its fields and columns, and reasons without their values."""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tidemark.core.errors import ConfigError
from tidemark.core.masking import MASK
from tidemark.core.text import did_you_mean
from tidemark.definitions.stream import Stream

# In column source, on the way through the transformation: the texts of the value's personal fields.
PERSONAL = "_personal"


def unknown_names(stream: Stream, event: StructType, columns: StructType, where: str) -> list[ConfigError]:
    """An error for each name in ``personal`` that is neither a field of the value nor one of these columns."""
    known = list(dict.fromkeys([*_paths(event), *_paths(columns)]))
    return [
        ConfigError(
            f"personal.{at}: neither a field of the value nor a column of the transformation",
            expected=f"one of: {', '.join(known)}",
            found=name,
            where=where,
            hint=did_you_mean(name, known),
        )
        for at, name in enumerate(stream.personal)
        if _type(name, event) is None and _type(name, columns) is None
    ]


def require_known(stream: Stream, decoded: DataFrame, own: DataFrame) -> None:
    """Raise the first of ``unknown_names``; ``own`` are the transformation's columns. A misspelt name masks nothing."""
    if stream.has_personal:
        for problem in unknown_names(stream, _event(decoded), own.schema, f"definition of stream {stream.name}"):
            raise problem


def with_personal_texts(decoded: DataFrame, stream: Stream) -> DataFrame:
    """Decoded rows with the texts of their personal fields in ``source``, for ``masked_reason``."""
    if not stream.has_personal:
        return decoded
    texts = _all_texts(stream, F.col("event"), _event(decoded))
    return decoded.withColumn("source", F.col("source").withField(PERSONAL, texts))


def masked_reason(rows: DataFrame, stream: Stream) -> Column:
    """Column ``reject`` of transformed rows, with a mask in place of each text of personal data."""
    reason = F.col("reject")
    if not stream.has_personal:
        return reason
    for texts in (F.col(f"source.{PERSONAL}"), _all_texts(stream, None, rows.schema)):
        known = F.filter(texts, lambda text: F.length(text) > 0)
        reason = F.aggregate(known, reason, lambda left, text: F.replace(left, text, F.lit(MASK)))
    return reason


def _event(decoded: DataFrame) -> StructType:
    kind = decoded.schema["event"].dataType
    assert isinstance(kind, StructType)
    return kind


def _all_texts(stream: Stream, column: Column | None, kind: StructType) -> Column:
    """The texts of all personal data inside a struct, or without one in the columns of a frame; never null."""
    found = [(name, inside) for name in stream.personal if (inside := _type(name, kind)) is not None]
    return _joined(*(_texts(_inside(column, name), inside) for name, inside in found))


def _inside(column: Column | None, name: str) -> Column:
    for part in name.split("."):
        column = F.col(f"`{part}`") if column is None else column.getField(part)
    assert column is not None
    return column


def _type(name: str, kind: DataType) -> DataType | None:
    """The type of the field with a name such as ``passenger.name``, as Spark finds it; None without such a field."""
    for part in name.split("."):
        own = {item.name.casefold(): item.dataType for item in kind} if isinstance(kind, StructType) else {}
        inside = own.get(part.casefold())
        if inside is None:
            return None
        kind = inside
    return kind


def _paths(kind: StructType, above: str = "") -> Iterator[str]:
    for item in kind:
        yield f"{above}{item.name}"
        if isinstance(item.dataType, StructType):
            yield from _paths(item.dataType, f"{above}{item.name}.")


def _texts(column: Column, kind: DataType) -> Column:
    """The texts of all plain values inside a value of this type, never null."""
    match kind:
        case StructType():
            return _joined(*(_texts(column.getField(item.name), item.dataType) for item in kind))
        case ArrayType(elementType=element):
            return _joined(F.flatten(F.transform(column, lambda item: _texts(item, element))))
        case MapType():
            lists = (F.map_keys(column), kind.keyType), (F.map_values(column), kind.valueType)
            return _joined(*(_texts(values, ArrayType(inside)) for values, inside in lists))
    return F.array(column.cast("string"))


def _joined(*lists: Column) -> Column:
    """One array of the arrays; a null among them counts as empty, else it would hide the others."""
    empty = F.array().cast("array<string>")
    return F.concat(empty, *(F.coalesce(item, empty) for item in lists))
