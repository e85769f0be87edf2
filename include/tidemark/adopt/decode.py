"""The records of one Connect object: values, and keys and headers where the sink stored them in objects beside it.

A line of a ``.json`` or ``.bin`` object is a value, byte for byte. A value of an Avro or Parquet object is written as
JSON: equal to the record's value, but not its bytes. Memory: one decoded object.
"""

import base64
import gzip
import io
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from tidemark.adopt.connect_key import ConnectName
from tidemark.adopt.listing import ConnectFile, ConnectObject
from tidemark.core.errors import FormatError
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore

BATCH_ROWS = 5_000
BATCH_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 64 * 1024 * 1024  # of an Arrow array, which holds 2 GiB at most
_NEWLINE = ord("\n")
_HEADERS = SCHEMA.field("headers").type
_JSON_HEADERS = pj.ParseOptions(
    explicit_schema=pa.schema([("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))])
)


def read_object(store: ObjectStore, item: ConnectObject) -> pa.Table:
    """The object's records in their order: columns ``value``, ``key`` and ``headers``.

    Raises FormatError, naming the object, where one does not decode, is missing, has no records, or has another number
    of them than the values; ServiceError where S3 refuses.
    """
    values = _decoded(store, item.values, _values)
    if not len(values):
        raise FormatError("an object has no records", where=item.key, hint="Delete it")
    keys = pa.chunked_array([pa.nulls(len(values), pa.binary())])
    headers = pa.chunked_array([_no_headers(len(values))])
    if item.keys is not None:
        keys = _decoded(store, item.keys, _keys, rows=len(values))
    if item.headers is not None:
        headers = _decoded(store, item.headers, _headers, rows=len(values))
    return pa.table({"value": values, "key": keys, "headers": headers})


def bounded(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table in batches of bounded rows, and of bounded bytes on average."""
    rows = max(1, min(BATCH_ROWS, BATCH_BYTES * table.num_rows // max(table.nbytes, 1)))
    return iter(table.to_batches(max_chunksize=rows))


def _decoded(
    store: ObjectStore,
    file: ConnectFile,
    decode: Callable[[ConnectName, bytes], pa.ChunkedArray],
    *,
    rows: int | None = None,
) -> pa.ChunkedArray:
    body = store.get(file.key)
    if body is None:
        raise FormatError("an object was removed during the import", found="no object", where=file.key)
    try:
        found = decode(file.name, gzip.decompress(body) if file.name.gzipped else body)
    except MemoryError:
        raise
    except Exception as error:  # the decoders have no one type for what does not decode
        raise FormatError(
            "an object does not decode",
            expected=f"a complete {file.name.encoding} file",
            found=f"{type(error).__name__}: {error}",
            where=file.key,
            hint="Replace it by a good copy",
        ) from error
    if rows is not None and len(found) != rows:
        raise FormatError(
            f"an object of {file.name.part} does not fit its values",
            expected=f"{rows} records",
            found=len(found),
            where=file.key,
            hint="Replace it by a good copy, or remove it to import the values alone",
        )
    return found


def _values(name: ConnectName, body: bytes) -> pa.ChunkedArray:
    if name.encoding == "lines":
        return _lines(body)
    chunks = [pa.array([to_json(record) for record in records], pa.binary()) for records in _records(name, body)]
    return pa.chunked_array(chunks, pa.binary())


def _keys(name: ConnectName, body: bytes) -> pa.ChunkedArray:
    """A key that is a text is that text, as the sink's StringConverter read it; any other key is written as JSON."""
    if name.encoding != "lines":
        chunks = [pa.array([_key(record) for record in records], pa.binary()) for records in _records(name, body)]
        return pa.chunked_array(chunks, pa.binary())
    lines = _lines(body)
    if not name.text:
        return lines
    quoted = pc.equal(pc.binary_slice(lines, 0, 1), b'"')
    if pc.any(pc.match_substring(lines, "\\")).as_py():  # an escape: JSON's reader must resolve it
        return pa.chunked_array([pa.array([_key(json.loads(line)) for line in lines.to_pylist()], pa.binary())])
    return pc.if_else(quoted, pc.binary_slice(lines, 1, -1), lines)


def _headers(name: ConnectName, body: bytes) -> pa.ChunkedArray:
    """Lists of names and texts: the sink stores headers as text, inside a field ``headers`` or as they are."""
    if name.encoding == "lines":
        return pj.read_json(io.BytesIO(body), parse_options=_JSON_HEADERS).column("headers").cast(_HEADERS)
    chunks = [
        pa.array([record["headers"] if isinstance(record, dict) else record for record in records], _HEADERS)
        for records in _records(name, body)
    ]
    return pa.chunked_array(chunks, _HEADERS)


def _lines(body: bytes) -> pa.ChunkedArray:
    """The lines without their newlines. No line costs a step in Python."""
    data = np.frombuffer(body, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    if len(data) and data[-1] != _NEWLINE:
        ends = np.append(ends, len(data))
    starts = np.append(0, ends[:-1] + 1)
    chunks, at = [], 0
    while at < len(ends):
        until = max(at + 1, int(np.searchsorted(ends, starts[at] + CHUNK_BYTES)))
        part = data[starts[at] : ends[until - 1]]
        offsets = np.zeros(until - at + 1, np.int32)
        np.cumsum(ends[at:until] - starts[at:until], out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(part[part != _NEWLINE])]
        chunks.append(pa.Array.from_buffers(pa.binary(), until - at, buffers))
        at = until
    return pa.chunked_array(chunks, pa.binary())


def _records(name: ConnectName, body: bytes) -> Iterator[Sequence[Any]]:
    """The records as Python values, so many at a time."""
    if name.encoding == "parquet":
        for batch in pq.ParquetFile(io.BytesIO(body)).iter_batches(batch_size=BATCH_ROWS):
            yield batch.to_pylist(maps_as_pydicts="strict")
        return
    records: list[Any] = []
    for record in fastavro.reader(io.BytesIO(body)):
        records.append(record)
        if len(records) == BATCH_ROWS:
            yield records
            records = []
    yield records


def _key(record: Any) -> bytes:
    if isinstance(record, dict) and record.keys() == {"key"}:  # the sink's own envelope
        record = record["key"]
    match record:
        case str():
            return record.encode()
        case bytes():
            return record
    return to_json(record)


def _no_headers(rows: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), pa.array([], _HEADERS.value_type))


def to_json(value: Any) -> bytes:
    """The value as compact JSON."""
    return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """What JSON has no type for: times as ISO 8601, decimals and UUIDs as text, bytes in base 64."""
    match value:
        case datetime():
            aware = value.tzinfo is not None
            moment = value.astimezone(UTC).replace(tzinfo=None) if aware else value
            return moment.isoformat(timespec="microseconds") + ("Z" if aware else "")
        case date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError(f"no JSON form for {type(value).__name__}")
