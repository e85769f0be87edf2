"""Name the record that a stream's transformation fails on: Spark's error has the line of the code, but no record."""

import time
from collections.abc import Callable, Sequence

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidemark.core.errors import TidemarkError, TransformError
from tidemark.core.first_failing import first_failing
from tidemark.core.plan import LogRange
from tidemark.spark.failures import fails_on_a_row
from tidemark.spark.java import set_log_level

SEARCH_S = 45.0  # less than the age at which a heartbeat is stale


class _CannotTellError(Exception):
    """A try ended with another error than the transformation's."""


def with_record(
    error: TransformError,
    spark: SparkSession,
    spans: Sequence[LogRange],
    rows: Callable[[LogRange], DataFrame],
    *,
    seconds: float = SEARCH_S,
) -> TransformError:
    """The error with the record that it is about: topic, partition and offset.

    ``rows`` are a range's transformed rows; halves of the spans are computed again until one record is left. Where the
    time is over before, the error names the range that is left. Where the record can't be found, it is unchanged.
    Spark's log is off meanwhile: each try that fails would print the same stack trace again.
    """
    deadline = time.monotonic() + seconds
    set_log_level(spark, "OFF")
    try:
        found = first_failing(spans, lambda part: _fails(rows(part)), lambda: time.monotonic() < deadline)
    except (_CannotTellError, PySparkException, Py4JError, TidemarkError, OSError):
        return error
    finally:
        set_log_level(spark, "WARN")
    return error if found is None else error.of(_text(found))


def _fails(rows: DataFrame) -> bool:
    try:
        rows.write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError) as error:
        if not fails_on_a_row(error):
            raise _CannotTellError from error
        return True
    return False


def _text(found: LogRange) -> str:
    start, last = found.range.start, found.range.end - 1
    offsets = f"offset {start}" if start == last else f"one of the offsets {start} to {last}"
    return f"topic {found.log.topic}, partition {found.log.partition}, {offsets}"
