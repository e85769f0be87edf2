"""Objects of Kafka Connect as rows. The archive's own are not read here: Spark reads those itself, in the JVM."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tidemark.core.errors import PositionError
from tidemark.core.offsets import OffsetRange
from tidemark.objects.body import ObjectBody
from tidemark.objects.connect import decode_connect, is_connect_key
from tidemark.s3 import ObjectStore


def decoded(key: str) -> bool:
    """Whether objects of such a key are Kafka Connect's; else they are the archive's own."""
    return is_connect_key(key)


def read_rows(store: ObjectStore, key: str, wanted: OffsetRange) -> Iterator[pa.RecordBatch] | None:
    """The object's rows with offsets in ``wanted``, as batches of SCHEMA; None where there is no object.

    Reads no further than it must. Raises FormatError, naming key and record, for an object whose content is damaged,
    PositionError for rows out of offset order, and ServiceError where S3 refuses.
    """
    body = ObjectBody(store, key)
    return _trimmed(body, wanted) if body.open() else None


def _trimmed(body: ObjectBody, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    last = -1
    with body:
        for batch in decode_connect(body):
            offsets = batch.column("offset").to_numpy()
            if offsets[0] <= last or (np.diff(offsets) <= 0).any():
                raise PositionError(
                    "rows of a data object are out of order",
                    expected=f"offsets ascending from {last + 1}",
                    found=f"{offsets[0]} to {offsets[-1]} in {len(offsets)} rows",
                    where=body.key,
                )
            last = int(offsets[-1])
            start, end = np.searchsorted(offsets, [wanted.start, wanted.end])
            if start < end:
                yield batch.slice(start, end - start)
            if end < len(offsets):
                return  # not at wanted.end - 1: an object that is wanted whole is read, and compared, to its end
