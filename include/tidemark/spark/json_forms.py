"""The forms that a JSON value may have for each type of a ``value_schema``; docs/reference/json-values.md lists them.

``from_json`` reads some types too liberally: ``"12,50"`` as DECIMAL gives 1250.00, 128 as TINYINT gives -128, a bare
number as TIMESTAMP gives a time. So it reads those as ``as_read``, which keeps what was sent, and ``converted`` makes
the value. ``misfits`` finds the values of another form.
"""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from tidemark.spark.calendar import within_calendar
from tidemark.spark.fields import any_value, has_type
from tidemark.spark.records import TIMESTAMP_FORMAT

_CONVERTED = (BinaryType, ByteType, DecimalType, TimestampType)
_CHECKED = (*_CONVERTED, FloatType, DoubleType, DateType, TimestampNTZType)
_AS_READ: dict[type[DataType], DataType] = {
    BinaryType: VariantType(),
    ByteType: ShortType(),
    DecimalType: VariantType(),
    TimestampType: StringType(),
}

# Possessive quantifiers: Java's matcher then needs no stack for long texts. Its "$" also matches before a last newline.
_INTEGER = "-?(?:0|[1-9][0-9]*+)"
# With more than 15 digits, the text of a double may not be the number that was sent.
_SCIENTIFIC = rf"^(?=[-0-9.]{{1,17}}[eE]){_INTEGER}(?:\.[0-9]++)?[eE][-+]?[0-9]{{1,2}}\z"
_DOUBLE_DIGITS = 15
_DEEP = 300
# A number outside of quotes of which a VARIANT may lose digits: with an exponent, or of more than 38 digits.
_QUOTED = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_LONG = r"(?<![0-9.])(?:[0-9.]{17,}+[eE]|[0-9.]{40,}+)"
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\z"
# The text that Spark makes of a number with a fraction or an exponent. Text in quotes may look the same.
_NUMBER_LIKE = r'^(?:-?[0-9]++\.[0-9]++(?:E-?[0-9]++)?|"-?Infinity")\z'

_EXAMPLES: dict[type[DataType], str] = {
    BooleanType: "true",
    DecimalType: '12.5 or "12.5"',
    FloatType: "12.5",
    DoubleType: "12.5",
    StringType: '"text"',
    BinaryType: '"AQI=" in base64',
    DateType: '"2013-01-31"',
    TimestampType: '"2013-01-31T05:15:00Z"',
    TimestampNTZType: '"2013-01-31T05:15:00"',
}
_INTEGER_EXAMPLE = "12"
_PARTS_MAX = 3


def form(kind: DataType) -> str:
    """The type and an example of its form, such as ``DATE such as "2013-01-31"``."""
    match kind:
        case StructType() | MapType():
            return f"an object of {_listed(kind)}"
        case ArrayType(elementType=element):
            return f"a list of {form(element)}"
    return f"{kind.simpleString().upper()} such as {_EXAMPLES.get(type(kind), _INTEGER_EXAMPLE)}"


def _listed(kind: StructType | MapType) -> str:
    if isinstance(kind, MapType):
        return form(kind.valueType)
    shown = [f"{item.name} {form(item.dataType)}" for item in kind.fields[:_PARTS_MAX]]
    return ", ".join([*shown, *(["…"] if len(kind) > _PARTS_MAX else [])])


def as_read(schema: StructType) -> StructType:
    """The type that ``from_json`` gets in place of ``schema``."""
    return _with_types(schema, _AS_READ)


def deep(text: Column) -> Column:
    """Whether the objects and lists of a record may be nested so deep that Java's stack ends where Spark writes them.

    Jackson reads 1,000 levels. Brackets are counted only in a text that has room for so many.
    """
    brackets = F.length(text) - F.length(F.translate(text, "{[", ""))
    return F.when(F.length(text) > 2 * _DEEP, brackets > _DEEP).otherwise(False)


def converted(read: Column, kind: DataType, is_deep: Column) -> Column:
    """A value that was read by ``as_read`` as ``kind``; good only if ``misfits`` finds nothing.

    Uses ``read`` once per value: Spark computes an expression as often as it stands in another. ``is_deep`` is
    ``deep`` of the record.
    """
    if not has_type(kind, _CONVERTED):
        return read
    match kind:
        case StructType():
            parts = (converted(read[item.name], item.dataType, is_deep).alias(item.name) for item in kind)
            return F.when(read.isNotNull(), F.struct(*parts))
        case ArrayType(elementType=element):
            return F.transform(read, lambda item: converted(item, element, is_deep))
        case MapType(valueType=value):
            return F.transform_values(read, lambda _, item: converted(item, value, is_deep))
        case TimestampType():
            return F.try_to_timestamp(read, F.lit(TIMESTAMP_FORMAT))
        case ByteType():
            return read.try_cast(kind)
        case DecimalType():
            return _decimal(_plain_text(read, is_deep), kind)
        case BinaryType():
            text = _plain_text(read, is_deep)
            return F.when(text.rlike(_BASE64), F.unbase64(text))
    raise AssertionError(kind)


def _decimal(text: Column, kind: DecimalType) -> Column:
    """The number, null if the text is none or has more digits than the type: nothing is rounded."""
    plain = rf"^{_INTEGER}(?:\.(?=[0-9])[0-9]{{0,{kind.scale}}}+0*+)?\z"
    # Of a text that does not match, the empty text is extracted, which is no number.
    number, scientific = (F.regexp_extract(text, pattern, 0).try_cast(kind) for pattern in (plain, _SCIENTIFIC))
    # Two different decimals of up to 15 digits are two different doubles.
    exact = scientific.cast("double") == text.try_cast("double")
    return F.coalesce(number, F.when(exact, scientific))


def misfits(read: Column, found: Column, kind: DataType, text: Column) -> Column:
    """Whether any part of ``read`` is a value in another form, so that ``found`` is not what was sent; never null.

    ``text`` is the record that holds the value.
    """
    return _any_pair(read, found, kind, _CHECKED, lambda one, other, part: _misfit(one, other, part, text))


def _misfit(read: Column, found: Column, kind: DataType, text: Column) -> Column:
    given = read.isNotNull()
    if isinstance(kind, BinaryType | DecimalType):
        given &= ~F.is_variant_null(read)
    match kind:
        case FloatType() | DoubleType():  # an overflow
            return F.abs(read) == F.lit(float("inf"))
        case DateType() | TimestampNTZType() | TimestampType():
            return given & ~F.coalesce(within_calendar(found, kind), F.lit(False))
        case DecimalType():
            return given & (found.isNull() | _inexact(read, found, text))
        case BinaryType():
            return given & (found.isNull() | ~_is(read, "STRING"))
    return given & found.isNull()


def _inexact(read: Column, found: Column, text: Column) -> Column:
    """Whether the decimal may not be the number that was sent.

    A VARIANT keeps 38 digits of a number without an exponent. Any other number is a double there, 0.0 if too small, and
    its digits are known only from the record's text.
    """
    digits = F.length(F.regexp_replace(_text(read), "[eE].*|[-.]", ""))
    long = F.regexp_replace(text, _QUOTED, '""').rlike(_LONG)
    return _is(read, "DOUBLE") & ((found == 0) | (digits > _DOUBLE_DIGITS) | long)


def _plain_text(variant: Column, is_deep: Column) -> Column:
    """The text of a VARIANT; in a deep record null for an object or list."""
    parts = (F.try_variant_get(variant, "$", kind).isNull() for kind in ("map<string,variant>", "array<variant>"))
    return F.when(~is_deep, _text(variant)).when(reduce(Column.__and__, parts), _text(variant))


def _text(variant: Column) -> Column:
    return F.try_variant_get(variant, "$", "string")


def _is(variant: Column, kind: str) -> Column:
    return F.schema_of_variant(variant) == kind


def number_like(column: Column, kind: DataType) -> Column:
    """Whether any STRING may be the text that Spark made of a number; never null."""
    return any_value(column, kind, (StringType,), lambda text, _: text.rlike(_NUMBER_LIKE))


def strings_as_variants(schema: StructType) -> StructType:
    """The type that ``from_json`` gets in place of ``schema`` for ``numbers_as_text``."""
    return _with_types(schema, {**_AS_READ, StringType: VariantType()})


def numbers_as_text(found: Column, read: Column, kind: DataType) -> Column:
    """Whether any STRING of ``found`` was sent as a number whose text Spark changes; never null.

    ``read`` is the same value as ``strings_as_variants`` reads it.
    """

    def number(one: Column, other: Column, _: DataType) -> Column:
        return one.rlike(_NUMBER_LIKE) & ~_is(other, "STRING")

    return _any_pair(found, read, kind, (StringType,), number)


def _any_pair(
    one: Column,
    other: Column,
    kind: DataType,
    types: tuple[type[DataType], ...],
    test: Callable[[Column, Column, DataType], Column],
) -> Column:
    """Whether the test is true for two values of one of the types at the same place in two values of one shape."""
    if isinstance(kind, types):
        return F.coalesce(test(one, other, kind), F.lit(False))
    if not has_type(kind, types):
        return F.lit(False)
    match kind:
        case StructType():
            fields = [(item.name, item.dataType) for item in kind if has_type(item.dataType, types)]
            parts = (_any_pair(one[name], other[name], part, types, test) for name, part in fields)
            return reduce(Column.__or__, parts, F.lit(False))
        case ArrayType(elementType=element):
            pairs = F.zip_with(one, other, lambda left, right: _any_pair(left, right, element, types, test))
            return F.coalesce(F.exists(pairs, lambda wrong: wrong), F.lit(False))
        case MapType(valueType=value):
            return _any_pair(F.map_values(one), F.map_values(other), ArrayType(value), types, test)
    raise AssertionError(kind)


def _with_types(schema: StructType, types: dict[type[DataType], DataType]) -> StructType:
    replaced = StructType()
    for item in schema:
        replaced = replaced.add(item.name, _with_type(item.dataType, types))
    return replaced


def _with_type(kind: DataType, types: dict[type[DataType], DataType]) -> DataType:
    match kind:
        case StructType():
            return _with_types(kind, types)
        case ArrayType():
            return ArrayType(_with_type(kind.elementType, types))
        case MapType():
            return MapType(kind.keyType, _with_type(kind.valueType, types))
    return types.get(type(kind), kind)
