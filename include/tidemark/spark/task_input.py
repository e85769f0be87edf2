"""Notice that the input of a ``mapInArrow`` function ended early.

If a task fails in Java, in its source or in a transformation, Spark closes the connection to the task's Python process.
Arrow takes that for the end of the rows. So a function that writes somewhere would finish its work with a part of the
rows: an object with the final name, or a position after rows that it never saw. After its last row, Java says that the
input is complete, and this waits for that. PySpark gives a function no access to the connection, so this looks for it
in the frames of PySpark's worker. tests/spark/test_private_apis.py fails when Spark's version changes, and names what
to check.
"""

import inspect
from collections.abc import Iterable, Iterator
from io import BufferedReader
from types import FrameType

import pyarrow as pa

from tidemark.core.errors import ServiceError

PROVEN_WITH = "4.0.4"  # the version of Spark


def whole(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches, in a task of ``mapInArrow``. Raises ServiceError after the last one if rows are missing."""
    connection = _connection(inspect.currentframe())
    yield from batches
    if not connection.peek(1):
        raise ServiceError(
            "a task's rows ended early",
            expected="the end of its input",
            found="a closed connection to Java",
            hint="The task's own error says why it failed, and the next attempt repeats it",
        )


def _connection(frame: FrameType | None) -> BufferedReader:
    """The file from which the worker of these frames reads its input."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "main" and code.co_filename.endswith("pyspark/worker.py"):
            found: BufferedReader = frame.f_locals["infile"]
            return found
        frame = frame.f_back
    raise ServiceError(
        "a task can't tell whether its rows are complete",
        expected=f"the worker of PySpark {PROVEN_WITH}",
        found="another one",
        where="tidemark.spark.task_input",
    )
