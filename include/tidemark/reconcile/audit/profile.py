"""A stream's checks on a table's columns."""

from typing import Literal

from pyspark.sql.types import NumericType, StringType, StructField, StructType

from tidemark.definitions.check_profile import ProfiledColumn, stream_checks
from tidemark.definitions.sections import Check
from tidemark.definitions.stream import Stream
from tidemark.spark.decode import decoded_schema


def checks_of(stream: Stream, columns: StructType) -> tuple[Check, ...]:
    """The checks of the stream. ``columns`` are the table's, of which the platform's begin with an underscore."""
    required = _required(stream) if stream.batch.profile else set()
    own = [_profiled(field, stream, required) for field in columns.fields if not field.name.startswith("_")]
    return stream_checks(stream.batch, own)


def _required(stream: Stream) -> set[str]:
    """The fields of the value that its schema declares NOT NULL."""
    event = decoded_schema(stream)["event"].dataType
    return {field.name for field in event.fields if not field.nullable} if isinstance(event, StructType) else set()


def _profiled(field: StructField, stream: Stream, required: set[str]) -> ProfiledColumn:
    kind: Literal["number", "text", "other"] = "other"
    # On a day with one row, the mean is its value.
    if isinstance(field.dataType, NumericType) and not stream.is_personal(field.name):
        kind = "number"
    elif isinstance(field.dataType, StringType):
        kind = "text"
    return ProfiledColumn(name=field.name, kind=kind, required=field.name in required)
