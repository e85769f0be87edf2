"""The headers that name the source record of an output record."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.core.offsets import TopicPartition

# Each name follows "tidemark.". Dead letters have the second group too, after the first.
HEADERS = ("source", "timestamp", "stream")
DEAD_LETTER_HEADERS = ("reason", "exception", "attempt")
# ``tidemark.exception`` of a dead letter that was too large for its topic: it has its coordinates only.
WITHOUT_VALUE = "without_value"

# ``tidemark.source``: topic, topic id, partition, offset. No part can contain a colon.
SOURCE_PATTERN = r"^([a-zA-Z0-9._-]{1,249}):([a-zA-Z0-9_-]{1,64}):([0-9]{1,10}):([0-9]{1,19})$"
# ``tidemark.stream``: the stream's name and version.
STREAM_PATTERN = r"^([^:]+):([0-9]{1,10})$"


def stream_text(stream: str, version: int) -> str:
    """``tidemark.stream``."""
    return f"{stream}:{version}"


def add_coordinates(batch: pa.RecordBatch, log: TopicPartition, stream: str, version: int) -> pa.RecordBatch:
    """Add the source coordinates to the headers of rows of ``output``; ``log`` is the source of all rows.

    The result equals the JVM's. Doing it here is faster: in the JVM it took more than a quarter of the time per row.
    """
    rows, width = batch.num_rows, len(HEADERS)
    prefix = f"{log.topic}:{log.topic_id}:{log.partition}:"
    columns = [
        pc.binary_join_element_wise(prefix, batch.column("source_offset").cast(pa.string()), ""),
        milliseconds(batch.column("timestamp")).cast(pa.string()),
        pa.repeat(stream_text(stream, version), rows),
    ]
    row_by_row = np.arange(rows * width).reshape(width, rows).T.ravel()
    names = pa.array([f"tidemark.{name}" for name in HEADERS]).take(np.tile(np.arange(width), rows))
    values = pa.concat_arrays(columns).cast(pa.binary()).take(row_by_row)
    coordinates = pa.ListArray.from_arrays(
        pa.array(np.arange(0, rows * width + 1, width, dtype=np.int32)),
        pa.StructArray.from_arrays([names, values], names=["key", "value"]),
    )
    good = batch.column("_good").to_numpy(zero_copy_only=False)
    if not good.all():
        coordinates = _with_dead_letters(coordinates, np.flatnonzero(~good), batch.column("headers"))
    return batch.set_column(batch.schema.get_field_index("headers"), "headers", coordinates)


def _with_dead_letters(coordinates: pa.ListArray, dead: np.ndarray, headers: pa.ListArray) -> pa.ListArray:
    """Put a dead letter's coordinates between the source record's headers and ``DEAD_LETTER_HEADERS``."""
    tail = len(DEAD_LETTER_HEADERS)
    pairs = zip(headers.take(dead).to_pylist(), coordinates.take(dead).to_pylist(), strict=True)
    dead_letters = pa.array([[*own[:-tail], *between, *own[-tail:]] for own, between in pairs], coordinates.type)
    rows = np.arange(len(coordinates))
    rows[dead] = len(coordinates) + np.arange(len(dead))
    return pa.concat_arrays([coordinates, dead_letters]).take(rows)


def milliseconds(column: pa.Array) -> pa.Array:
    """Timestamps in Kafka's unit: ms since the epoch, rounded down."""
    return pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
