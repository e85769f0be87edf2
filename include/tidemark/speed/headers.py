"""The headers that say which source record a live record was made from."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.core.offsets import TopicPartition

# Behind "tidemark."; dead letters have the second line as well, behind the first. Few, because each costs every record.
HEADERS = ("source", "timestamp", "stream")
DEAD_LETTER_HEADERS = ("reason", "exception", "attempt")

# Of ``tidemark.source``: topic, topic id, partition, offset. No part can hold a colon.
SOURCE_PATTERN = r"^([a-zA-Z0-9._-]{1,249}):([a-zA-Z0-9_-]{1,64}):([0-9]{1,10}):([0-9]{1,19})$"
# Of ``tidemark.stream``: the stream's name and version.
STREAM_PATTERN = r"^([^:]+):([0-9]{1,10})$"


def log_text(log: TopicPartition) -> str:
    """``tidemark.source`` up to the offset."""
    return f"{log.topic}:{log.topic_id}:{log.partition}:"


def stream_text(stream: str, version: int) -> str:
    """``tidemark.stream``."""
    return f"{stream}:{version}"


def add_coordinates(batch: pa.RecordBatch, log: TopicPartition, stream: str, version: int) -> pa.RecordBatch:
    """Rows of ``output`` without coordinates, with them: the same headers as the JVM would make.

    There they are more than a quarter of a row's work, and then have to come here in lists of pairs. ``log`` is the
    source of all the rows.
    """
    rows, width = batch.num_rows, len(HEADERS)
    columns = [
        pc.binary_join_element_wise(log_text(log), batch.column("source_offset").cast(pa.string()), ""),
        milliseconds(batch.column("timestamp")).cast(pa.string()),
        pa.repeat(stream_text(stream, version), rows),
    ]
    row_by_row = np.arange(rows * width).reshape(width, rows).T.ravel()
    names = pa.array([f"tidemark.{name}" for name in HEADERS]).take(np.tile(np.arange(width), rows))
    values = pa.concat_arrays(columns).cast(pa.binary()).take(row_by_row)
    made = pa.ListArray.from_arrays(
        pa.array(np.arange(0, rows * width + 1, width, dtype=np.int32)),
        pa.StructArray.from_arrays([names, values], names=["key", "value"]),
    )
    at = batch.schema.get_field_index("headers")
    good = batch.column("_good").to_numpy(zero_copy_only=False)
    if not good.all():
        made = _with_letters(made, np.flatnonzero(~good), batch.column("headers"))
    return batch.set_column(at, "headers", made)


def _with_letters(made: pa.ListArray, dead: np.ndarray, given: pa.ListArray) -> pa.ListArray:
    """The coordinates of all rows; at dead letters between the source's own headers and what is told of the letter."""
    told = len(DEAD_LETTER_HEADERS)
    pairs = zip(given.take(dead).to_pylist(), made.take(dead).to_pylist(), strict=True)
    letters = pa.array([[*own[:-told], *coordinates, *own[-told:]] for own, coordinates in pairs], made.type)
    rows = np.arange(len(made))
    rows[dead] = len(made) + np.arange(len(dead))
    return pa.concat_arrays([made, letters]).take(rows)


def milliseconds(column: pa.Array) -> pa.Array:
    """Timestamps as Kafka counts them: ms since the epoch, rounded down."""
    return pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
