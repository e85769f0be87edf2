"""Times that Python, Java, Parquet and Iceberg can all hold: those of the years 1 to 9999."""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, TimestampNTZType, TimestampType

from tidemark.spark.fields import any_value

TIMES = (DateType, TimestampType, TimestampNTZType)
_FIRST, _LAST = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"


def outside_calendar(column: Column, kind: DataType) -> Column:
    """Whether any time inside a value of type ``kind`` is outside of the years 1 to 9999; never null."""
    return any_value(column, kind, TIMES, lambda moment, one: ~within_calendar(moment, one))


def within_calendar(moment: Column, kind: DataType) -> Column:
    """Whether a moment is in the years 1 to 9999; null for null."""
    return moment.between(*(F.lit(limit).cast("timestamp").cast(kind) for limit in (_FIRST, _LAST)))
