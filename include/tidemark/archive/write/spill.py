"""Rows that wait on local disk until fewer files are open.

The files have no name, so the system deletes them when the task ends, even by a kill.
"""

import os
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BUCKETS = 64


class Spill:
    """Record batches of one schema in at most BUCKETS temporary files, which the context manager closes.

    Memory: the rows of one ``add``. Raises OSError if the disk is full.
    """

    def __init__(self) -> None:
        self._open: dict[int, tuple[IO[bytes], pa.ipc.RecordBatchStreamWriter]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file, _ in self._open.values():
            file.close()
        self._open.clear()

    def add(self, rows: pa.RecordBatch, buckets: npt.NDArray[np.int64]) -> None:
        """Append each row to its bucket (0 to BUCKETS - 1); within a bucket rows keep their order."""
        order = np.argsort(buckets.astype(np.int16), kind="stable")
        kinds, starts = np.unique(buckets[order], return_index=True)
        ends = [*starts[1:], len(order)]
        for bucket, start, end in zip(kinds.tolist(), starts, ends, strict=True):
            self._writer(bucket, rows.schema).write_batch(rows.take(pa.array(order[start:end])))

    def drain(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """Each bucket's rows; a bucket's file is closed before the next one is read."""
        for bucket in sorted(self._open):
            file, writer = self._open[bucket]
            writer.close()
            file.seek(0)
            with pa.ipc.open_stream(file) as reader:
                yield iter(reader)
            del self._open[bucket]
            file.close()

    def _writer(self, bucket: int, schema: pa.Schema) -> pa.ipc.RecordBatchStreamWriter:
        if bucket not in self._open:
            folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None  # Spark's setting for workers
            file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed with the spill
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._open[bucket] = (file, pa.ipc.new_stream(file, schema, options=options))
        return self._open[bucket][1]
