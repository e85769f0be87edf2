"""Frozen dataclasses to JSON values and back, by their own field types: one form for plans, seals and step results.

A range is ``[start, end]``, a date ISO text, a tuple a list, a dataclass an object with every field and no other. A
field of type ``Any`` or ``dict[str, Any]`` holds a JSON value as it is.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tidemark.core.errors import FormatError
from tidemark.core.offsets import OffsetRange

T = TypeVar("T")


def require_format(problem: str, found: object, *, known: int, where: str) -> None:
    """Raise FormatError with this problem unless the format is the one that this version knows."""
    if found != known:
        later = isinstance(found, int) and found > known
        hint = "A later version of Tidemark wrote it: use that version or a later one" if later else None
        raise FormatError(problem, expected=known, found=found, where=where, hint=hint)


def encode(value: Any) -> Any:
    """The JSON value of a dataclass, tuple, date, range, or plain text, number, truth value or None."""
    if isinstance(value, OffsetRange):
        return [value.start, value.end]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: encode(getattr(value, name)) for name, _ in _fields(type(value))}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, str | int | float | dict | list):
        return value
    raise TypeError(f"no JSON form for {type(value).__name__}")


def decode(kind: type[T], raw: Any, *, where: str) -> T:
    """The value of type ``kind`` that ``encode`` made ``raw`` from.

    Raises FormatError, naming ``where`` and the field, for a missing or unknown field and for a value of another type.
    """
    value: T = _decode(kind, raw, where)
    return value


@cache
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in fields(kind))


def _decode(kind: Any, raw: Any, where: str) -> Any:
    if kind is OffsetRange:
        return _range(raw, where)
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, raw, where)
    if kind is date:
        return _date(raw, where)
    if kind is Any:
        return raw
    if get_origin(kind) is not None:
        return _generic(get_origin(kind), get_args(kind), raw, where)
    _require(type(raw) is kind, kind.__name__, raw, where)
    return raw


def _generic(generic: Any, arguments: tuple[Any, ...], raw: Any, where: str) -> Any:
    if generic is tuple:
        _require(isinstance(raw, list), "a list", raw, where)
        return tuple(_decode(arguments[0], item, f"{where}[{at}]") for at, item in enumerate(raw))
    if generic is dict:
        _require(isinstance(raw, dict), "an object", raw, where)
        return raw
    if generic in (UnionType, Union):  # "Literal[…] | None" is the latter; the only unions in our values are "X | None"
        return None if raw is None else _decode(next(item for item in arguments if item is not NoneType), raw, where)
    if generic is not Literal:
        raise TypeError(f"no JSON form for {generic}")
    _require(raw in arguments, f"one of {', '.join(map(str, arguments))}", raw, where)
    return raw


def _date(raw: Any, where: str) -> date:
    _require(isinstance(raw, str), "a date", raw, where)
    try:
        return date.fromisoformat(raw)
    except ValueError as error:
        raise FormatError("does not parse", expected="a date", found=repr(raw), where=where) from error


def _dataclass(kind: type, raw: Any, where: str) -> Any:
    _require(isinstance(raw, Mapping), "an object", raw, where)
    known = dict(_fields(kind))
    if known.keys() != raw.keys():
        raise FormatError("fields differ", expected=", ".join(sorted(known)), found=", ".join(sorted(raw)), where=where)
    return kind(**{name: _decode(known[name], raw[name], f"{where}.{name}") for name in known})


def _range(raw: Any, where: str) -> OffsetRange:
    match raw:
        case [start, end] if type(start) is int and type(end) is int:
            return OffsetRange(start=start, end=end)
    raise FormatError("does not parse", expected="[start, end]", found=repr(raw), where=where)


def _require(holds: bool, expected: str, raw: Any, where: str) -> None:
    if not holds:
        raise FormatError("does not parse", expected=expected, found=repr(raw), where=where)
