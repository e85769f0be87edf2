"""Send large rows from the JVM to Python in chunks, so that a limit on an Arrow batch's rows also limits its bytes.

Spark's own limit (``maxBytesPerBatch``) measures all columns after every row, which takes a third of the JVM's time for
records of 200 bytes. Here a large row is split into several, and other rows cost one comparison.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.errors import PositionError
from tidemark.spark.session import temporary_conf

# A batch has at most ROWS times CHUNK_BYTES of values, 16 MiB, and at most as much of keys and of headers.
ROWS = 4096
CHUNK_BYTES = 4096
# How many chunks of the same row follow, negative in a row's first one; 0 in its last one and in a row of one chunk.
LEFT = "chunks_left"
_LAST = "last_chunk"
_BOUNDS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),  # with this number Spark does not measure
}
_HEADERS_MEASURED = 4


def bounded_batches(spark: SparkSession) -> AbstractContextManager[None]:
    """Inside the block, Arrow batches of the session's queries end at ROWS rows, without a limit on bytes."""
    return temporary_conf(spark, _BOUNDS)


def split(rows: DataFrame) -> DataFrame:
    """Split rows by ``key``, ``value`` and ``headers``, and add the column ``chunks_left`` for ``join``.

    A row with more than CHUNK_BYTES in any of the three becomes several rows, with at most CHUNK_BYTES of each. Other
    columns are repeated. Needs no shuffle and keeps the order.
    """
    packed = F.to_json("headers").cast("binary")  # a list can't be split; its bytes are base64
    sizes = (F.octet_length("key"), F.octet_length("value"))
    last = F.when(
        F.greatest(*sizes, _headers_size()) > CHUNK_BYTES,
        ((F.greatest(*sizes, F.octet_length(packed)) - 1) / CHUNK_BYTES).cast("int"),
    ).otherwise(0)
    numbers = F.when(F.col(_LAST) > 0, F.sequence(_LAST, F.lit(0), F.lit(-1))).otherwise(F.array(F.lit(0)))
    chunks = rows.withColumn(_LAST, last).withColumn(LEFT, F.explode(numbers))
    whole, start = F.col(_LAST) == 0, (F.col(_LAST) - F.col(LEFT)) * CHUNK_BYTES + 1

    def share(column: Column) -> Column:
        return F.substring(column, start, F.lit(CHUNK_BYTES))

    shares = {
        "key": share(F.col("key")),
        "value": share(F.col("value")),
        "headers": F.array(F.struct(F.lit("").alias("key"), share(packed).alias("value"))),
    }
    first = ~whole & (F.col(LEFT) == F.col(_LAST))
    changed = {name: F.when(whole, F.col(name)).otherwise(part) for name, part in shares.items()}
    return chunks.withColumns({**changed, LEFT: F.when(first, -F.col(LEFT)).otherwise(F.col(LEFT))}).drop(_LAST)


def _headers_size() -> Column:
    """Bytes of the headers, or slightly more."""
    # Written out for up to four headers: Spark does not compile functions over lists, and the text costs more.
    parts = [
        F.octet_length(F.get("headers", F.lit(at))[name])
        for at in range(_HEADERS_MEASURED)
        for name in ("key", "value")
    ]
    few = reduce(add, (F.coalesce(part, F.lit(0)) for part in parts))
    count = F.size("headers")
    return (
        F.when(count == 0, 0)
        .when(count <= _HEADERS_MEASURED, few)
        .otherwise(F.octet_length(F.col("headers").cast("string")))
    )


def join(batches: Iterable[pa.RecordBatch], *, offset: str = "offset") -> Iterator[pa.RecordBatch]:
    """The rows before ``split``, in the same order, without its column.

    ``offset`` names the column that identifies a row. Memory: one batch and the chunks of one row. Raises PositionError
    if a chunk is missing.
    """
    pending: list[pa.RecordBatch] = []  # chunks of one row
    for batch in batches:
        left = batch.column(LEFT).to_numpy()
        start = 0
        while start < len(left):
            if pending or left[start]:  # up to and including the row's last chunk, if this batch has it
                ends = np.flatnonzero(left[start:] == 0)
                end = start + int(ends[0]) + 1 if len(ends) else len(left)
                pending.append(batch.slice(start, end - start))
                if not left[end - 1]:
                    yield _joined(pa.concat_batches(pending), offset)
                    pending.clear()
            else:  # up to the next row in chunks
                further = np.flatnonzero(left[start:])
                end = start + int(further[0]) if len(further) else len(left)
                yield batch.slice(start, end - start).drop_columns([LEFT])
            start = end
    if pending:
        _joined(pa.concat_batches(pending), offset)


def _joined(chunks: pa.RecordBatch, offset: str) -> pa.RecordBatch:
    """One row from its chunks."""
    found, offsets = (chunks.column(name).to_pylist() for name in (LEFT, offset))
    if found != [1 - len(found), *reversed(range(len(found) - 1))] or len(set(offsets)) > 1:
        raise PositionError(
            "a large record's chunks do not fit", expected="all of them, in order", found=found, where=f"{offsets=}"
        )
    row = chunks.slice(0, 1).drop_columns([LEFT])
    for name in ("key", "value"):
        row = _with(row, name, _concatenated(chunks.column(name).to_pylist()))
    packed = _concatenated([headers[0]["value"] for headers in chunks.column("headers").to_pylist()])
    assert packed is not None  # a row always has a list of headers
    headers = [(item["key"], _decoded(item.get("value"))) for item in json.loads(packed)]
    return _with(row, "headers", [{"key": key, "value": value} for key, value in headers])


def _concatenated(parts: list[bytes | None]) -> bytes | None:
    return None if parts[0] is None else b"".join(part or b"" for part in parts)


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _with(row: pa.RecordBatch, name: str, value: object) -> pa.RecordBatch:
    at = row.schema.get_field_index(name)
    return row.set_column(at, row.schema.field(at), pa.array([value], row.schema.field(at).type))
