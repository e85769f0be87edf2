"""Rows as JSON Lines and back: one record a line, nothing lost.

Bytes are a JSON string where they are UTF-8. Where they are not, the field's name ends in ``_base64`` instead, so that
each name has one type and null, empty, text and binary stay apart. Times are ISO 8601 in UTC with six digits of
microseconds; years beyond 0 to 9999, which Kafka allows, have a sign in front.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from tidemark.core.errors import FormatError
from tidemark.objects.schema import SCHEMA

SHOWN_CHARACTERS = 80
_PLAIN_MOMENT_CHARACTERS = len("2013-01-14T12:00:00.123456")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MOMENT = re.compile(r"(?:\d{4}|[+-]\d{4,6})-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_quoted = json.encoder.encode_basestring
# The names a line may have: four forms, for key and value as text (or null) and as base64.
_FORMS = tuple(
    frozenset({*SCHEMA.names} - {"key", "value"} | {key, value})
    for key in ("key", "key_base64")
    for value in ("value", "value_base64")
)
_HEADER_FORMS = (frozenset({"key", "value"}), frozenset({"key", "value_base64"}))


def encode_rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    """The rows of a batch of SCHEMA as lines, each with its newline."""
    columns = {name: batch.column(name) for name in SCHEMA.names}
    rows = zip(
        columns["topic"].to_pylist(),
        columns["partition"].to_pylist(),
        columns["offset"].to_pylist(),
        _moments(columns["timestamp"]),
        columns["timestamp_type"].to_pylist(),
        columns["key"].to_pylist(),
        columns["value"].to_pylist(),
        columns["headers"].to_pylist(),
        _moments(columns["event_time"]),
        strict=True,
    )
    for topic, partition, offset, timestamp, kind, key, value, headers, event_time in rows:
        yield (
            f'{{"topic":{_quoted(topic)},"partition":{partition},"offset":{offset},"timestamp":{timestamp},'
            f'"timestamp_type":{"null" if kind is None else kind},{_bytes("key", key)},{_bytes("value", value)},'
            f'"headers":{_headers(headers)},"event_time":{event_time}}}\n'
        ).encode()


def decode_lines(lines: Sequence[bytes], *, where: str, first_line: int = 1) -> pa.RecordBatch:
    """The rows of some lines, as a batch of SCHEMA.

    Raises FormatError that names ``where``, the line's number counted on from ``first_line``, what was expected and
    what was found, for a line ``encode_rows`` would not write.
    """
    rows: list[tuple[Any, ...]] = []
    for number, line in enumerate(lines, first_line):
        try:
            rows.append(_row(line))
        except _Unfit as unfit:
            raise FormatError(
                "a record of a data object does not parse",
                expected=unfit.expected,
                found=unfit.found,
                where=f"{where}, line {number}",
            ) from unfit
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, item.type) for column, item in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _moments(column: pa.Array) -> list[str]:
    texts = np.datetime_as_string(column.to_numpy(zero_copy_only=False), unit="us").tolist()
    return [
        f'"{text}Z"' if len(text) == _PLAIN_MOMENT_CHARACTERS and text[0] != "-" else _rare_moment(text)
        for text in texts
    ]


def _rare_moment(text: str) -> str:
    """Null, or a year that ISO 8601 wants signed, with four digits at least."""
    if text == "NaT":
        return "null"
    year, _, rest = text.removeprefix("-").partition("-")
    return f'"{"-" if text[0] == "-" else "+"}{year:0>4}-{rest}Z"'


def _bytes(name: str, value: bytes | None) -> str:
    if value is None:
        return f'"{name}":null'
    try:
        return f'"{name}":{_quoted(value.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64":"{b64encode(value).decode()}"'


def _headers(headers: Sequence[dict[str, Any]] | None) -> str:
    if headers is None:
        return "null"
    items = (f'{{"key":{_quoted(item["key"])},{_bytes("value", item["value"])}}}' for item in headers)
    return f"[{','.join(items)}]"


class _Unfit(Exception):  # noqa: N818 - never leaves this module
    """What a line should have held, and what it holds."""

    def __init__(self, expected: str, found: object) -> None:
        super().__init__(expected)
        self.expected = expected
        text = repr(found)
        self.found = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _unfit(expected: str, found: object) -> NoReturn:
    raise _Unfit(expected, found)


def _row(line: bytes) -> tuple[Any, ...]:
    """The line's values in SCHEMA's order."""
    try:
        raw = json.loads(line.decode())
    except ValueError as error:
        raise _Unfit("a JSON object", line) from error
    if type(raw) is not dict or raw.keys() not in _FORMS:
        _unfit(f"an object with {', '.join(SCHEMA.names)}", raw)
    topic, headers = raw["topic"], raw["headers"]
    if type(topic) is not str:
        _unfit("topic: text", topic)
    if headers is not None and type(headers) is not list:
        _unfit("headers: a list or null", headers)
    return (
        topic,
        _integer(raw, "partition", 32),
        _integer(raw, "offset", 64),
        _microseconds(raw, "timestamp"),
        None if raw["timestamp_type"] is None else _integer(raw, "timestamp_type", 32),
        _content(raw, "key"),
        _content(raw, "value"),
        None if headers is None else [_header(item) for item in headers],
        _microseconds(raw, "event_time"),
    )


def _integer(raw: dict[str, Any], name: str, bits: int) -> int:
    value = raw[name]
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        _unfit(f"{name}: a whole number of {bits} bits", value)
    assert isinstance(value, int)
    return value


def _microseconds(raw: dict[str, Any], name: str) -> int | None:
    value = raw[name]
    if value is None:
        return None
    if type(value) is str and _MOMENT.fullmatch(value):
        # Python's own reading is the fast one; NumPy's knows the years beyond 1 to 9999. Neither has a 13th month.
        with suppress(ValueError):
            return (datetime.fromisoformat(value) - _EPOCH) // _MICROSECOND
        with suppress(ValueError):
            return int(np.datetime64(value[:-1], "us").astype(np.int64))
    _unfit(f"{name}: a time such as 2013-01-14T12:00:00.123456Z", value)


def _content(raw: dict[str, Any], name: str) -> bytes | None:
    if name in raw:
        text = raw[name]
        if text is None:
            return None
        if type(text) is str:
            with suppress(UnicodeEncodeError):  # half a surrogate pair
                return text.encode()
        _unfit(f"{name}: text or null", text)
    text = raw[f"{name}_base64"]
    if type(text) is str:
        with suppress(ValueError):
            return b64decode(text, validate=True)
    _unfit(f"{name}_base64: base64", text)


def _header(raw: Any) -> dict[str, Any]:
    if type(raw) is not dict or raw.keys() not in _HEADER_FORMS or type(raw["key"]) is not str:
        _unfit("headers: objects of key and value", raw)
    assert isinstance(raw, dict)
    return {"key": raw["key"], "value": _content(raw, "value")}
