"""The records of one Connect object: values, and keys and headers where the sink stored them in objects beside it.

A line of a ``.json`` or ``.bin`` object is a value, byte for byte. A value of an Avro or Parquet object is written as
JSON: equal to the record's value, but not its bytes. Memory: one decoded object.
"""

import base64
import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, time
from decimal import Decimal
from itertools import islice
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.adopt.listing import ConnectFile, ConnectObject
from tidemark.core.errors import FormatError
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore

BATCH_ROWS = 5_000
_HEADERS = SCHEMA.field("headers").type


def read_object(store: ObjectStore, item: ConnectObject) -> pa.Table:
    """The object's records in their order: columns ``value``, ``key`` and ``headers``.

    Raises FormatError with the object's key if one does not decode, is missing, has no records, or has another number
    of them than the values. Raises ServiceError if S3 refuses.
    """
    values = _decoded(store, item.values, _values)
    rows = len(values)
    if not rows:
        raise FormatError("an object has no records", where=item.key, hint="Delete it")
    columns = {"value": values, "key": pa.nulls(rows, pa.binary()), "headers": pa.array([[]] * rows, _HEADERS)}
    for name, file, decode in (("key", item.keys, _keys), ("headers", item.headers, _headers)):
        if file is None:
            continue
        columns[name] = _decoded(store, file, decode)
        if len(columns[name]) != rows:
            raise FormatError(
                f"an object of {file.part} does not fit its values",
                expected=f"{rows} records",
                found=len(columns[name]),
                where=file.info.key,
                hint="Replace it by a good copy, or remove it to import the values alone",
            )
    return pa.table(columns)


def _decoded(
    store: ObjectStore, file: ConnectFile, decode: Callable[[ConnectFile, bytes], pa.ChunkedArray]
) -> pa.ChunkedArray:
    body = store.get(file.info.key)
    if body is None:
        raise FormatError("an object was removed during the import", found="no object", where=file.info.key)
    try:
        return decode(file, gzip.decompress(body) if file.info.key.endswith(".gz") else body)
    except MemoryError:
        raise
    except Exception as error:  # the decoders have no one type for what does not decode
        raise FormatError(
            "an object does not decode",
            expected=f"a complete {file.encoding} file",
            found=f"{type(error).__name__}: {error}",
            where=file.info.key,
            hint="Replace it by a good copy",
        ) from error


def _values(file: ConnectFile, body: bytes) -> pa.ChunkedArray:
    if file.encoding in {"json", "bin"}:
        return _array(_lines(body), pa.binary())
    return _array(([to_json(record) for record in records] for records in _records(file, body)), pa.binary())


def _keys(file: ConnectFile, body: bytes) -> pa.ChunkedArray:
    """A key that is a text is that text, as the sink's StringConverter read it; any other key is written as JSON."""
    if file.encoding == "bin":
        return _array(_lines(body), pa.binary())
    return _array(([_key(record) for record in records] for records in _records(file, body)), pa.binary())


def _headers(file: ConnectFile, body: bytes) -> pa.ChunkedArray:
    """Lists of names and texts: the sink stores headers as text, inside a field ``headers`` or as they are."""
    chunks = (
        [record["headers"] if isinstance(record, dict) else record for record in records]
        for records in _records(file, body)
    )
    return _array(chunks, _HEADERS)


def _array(chunks: Iterable[Sequence[Any]], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(chunk, kind) for chunk in chunks], kind)


def _lines(body: bytes) -> Iterator[list[bytes]]:
    """The lines without their newlines, in chunks."""
    lines = body.removesuffix(b"\n").split(b"\n") if body else []
    for start in range(0, len(lines), BATCH_ROWS):
        yield lines[start : start + BATCH_ROWS]


def _records(file: ConnectFile, body: bytes) -> Iterator[list[Any]]:
    """The records as Python values, in chunks."""
    if file.encoding == "parquet":
        for batch in pq.ParquetFile(io.BytesIO(body)).iter_batches(batch_size=BATCH_ROWS):
            yield batch.to_pylist(maps_as_pydicts="strict")
    elif file.encoding == "avro":
        records = iter(fastavro.reader(io.BytesIO(body)))
        while chunk := list(islice(records, BATCH_ROWS)):
            yield chunk
    else:
        for lines in _lines(body):
            yield [json.loads(line) for line in lines]


def _key(record: Any) -> bytes:
    if isinstance(record, dict) and record.keys() == {"key"}:  # the sink's own envelope
        record = record["key"]
    if isinstance(record, str):
        return record.encode()
    return record if isinstance(record, bytes) else to_json(record)


def to_json(value: Any) -> bytes:
    """The value as compact JSON."""
    return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _plain(value: Any) -> str:
    """What JSON has no type for: times as ISO 8601, decimals and UUIDs as text, bytes in base 64."""
    match value:
        case date() | time():
            return value.isoformat().replace("+00:00", "Z")
        case Decimal() | UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError(f"no JSON form for {type(value).__name__}")
