"""Large rows go from the JVM to Python in pieces, so that a bound on an Arrow batch's rows is one on its bytes.

Spark's own bound on bytes (``maxBytesPerBatch``) measures every column anew behind every row: more than a third of all
that the JVM does for a record of 200 bytes. Here a row of many bytes becomes several, and the others cost a comparison.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.errors import PositionError

# A batch holds at most ROWS times PIECE bytes of values, 16 MiB, and no more than that of keys and of headers.
ROWS = 4096
PIECE = 4096
# How many pieces of the same row follow, with a minus in a row's first one; 0 in its last one and in a whole row.
LEFT = "pieces_left"
_LAST = "last_piece"
_BOUNDS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),  # the one number that Spark takes for "don't measure"
}
_HEADERS_MEASURED = 4


@contextmanager
def bounded_batches(spark: SparkSession) -> Iterator[None]:
    """Within the block, Arrow batches of the session's queries end at ROWS rows, whatever their bytes."""
    before = {key: str(spark.conf.get(key)) for key in _BOUNDS}
    try:
        for key, value in _BOUNDS.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def split(rows: DataFrame) -> DataFrame:
    """Rows with ``key``, ``value`` and ``headers``, and with the column ``pieces_left`` for ``join``.

    A row with more than PIECE bytes in any of the three becomes several, with at most so much of each; the other
    columns are in all of them. Narrow, in order.
    """
    packed = F.to_json("headers").cast("binary")  # a list can't be cut; bytes are base64 in it
    sizes = (F.octet_length("key"), F.octet_length("value"))
    last = F.when(
        F.greatest(*sizes, _headers_size()) > PIECE,
        ((F.greatest(*sizes, F.octet_length(packed)) - 1) / PIECE).cast("int"),
    ).otherwise(0)
    numbers = F.when(F.col(_LAST) > 0, F.sequence(_LAST, F.lit(0), F.lit(-1))).otherwise(F.array(F.lit(0)))
    pieces = rows.withColumn(_LAST, last).withColumn(LEFT, F.explode(numbers))
    whole, start = F.col(_LAST) == 0, (F.col(_LAST) - F.col(LEFT)) * PIECE + 1

    def share(column: Column) -> Column:
        return F.substring(column, start, F.lit(PIECE))

    shares = {
        "key": share(F.col("key")),
        "value": share(F.col("value")),
        "headers": F.array(F.struct(F.lit("").alias("key"), share(packed).alias("value"))),
    }
    first = ~whole & (F.col(LEFT) == F.col(_LAST))
    changed = {name: F.when(whole, F.col(name)).otherwise(part) for name, part in shares.items()}
    return pieces.withColumns({**changed, LEFT: F.when(first, -F.col(LEFT)).otherwise(F.col(LEFT))}).drop(_LAST)


def _headers_size() -> Column:
    """Bytes of the headers, or somewhat more."""
    # Written out for the usual few: Spark's functions over lists are not compiled, and a text has to be built.
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
    """The rows that ``split`` got, in the same order, without its column.

    ``offset`` names the column that tells a row from the next. Memory: the batch at hand and the pieces of one row.
    Raises PositionError where a piece is missing.
    """
    pending: list[pa.RecordBatch] = []  # pieces of one row
    for batch in batches:
        left = batch.column(LEFT).to_numpy()
        start = 0
        while start < len(left):
            if pending or left[start]:  # up to and including the row's last piece, if it is here
                ends = np.flatnonzero(left[start:] == 0)
                end = start + int(ends[0]) + 1 if len(ends) else len(left)
                pending.append(batch.slice(start, end - start))
                if not left[end - 1]:
                    yield _joined(pa.concat_batches(pending), offset)
                    pending.clear()
            else:  # up to the next row in pieces
                further = np.flatnonzero(left[start:])
                end = start + int(further[0]) if len(further) else len(left)
                yield batch.slice(start, end - start).drop_columns([LEFT])
            start = end
    if pending:
        _joined(pa.concat_batches(pending), offset)


def _joined(pieces: pa.RecordBatch, offset: str) -> pa.RecordBatch:
    """One row of its pieces."""
    found, offsets = (pieces.column(name).to_pylist() for name in (LEFT, offset))
    if found != [1 - len(found), *reversed(range(len(found) - 1))] or len(set(offsets)) > 1:
        raise PositionError(
            "a large record's pieces do not fit", expected="all of them, in order", found=found, where=f"{offsets=}"
        )
    row = pieces.slice(0, 1).drop_columns([LEFT])
    for name in ("key", "value"):
        row = _with(row, name, _concatenated(pieces.column(name).to_pylist()))
    packed = _concatenated([headers[0]["value"] for headers in pieces.column("headers").to_pylist()])
    assert packed is not None  # a row has a list of headers, if an empty one
    headers = [(item["key"], _decoded(item.get("value"))) for item in json.loads(packed)]
    return _with(row, "headers", [{"key": key, "value": value} for key, value in headers])


def _concatenated(parts: list[bytes | None]) -> bytes | None:
    return None if parts[0] is None else b"".join(part or b"" for part in parts)


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _with(row: pa.RecordBatch, name: str, value: object) -> pa.RecordBatch:
    at = row.schema.get_field_index(name)
    return row.set_column(at, row.schema.field(at), pa.array([value], row.schema.field(at).type))
