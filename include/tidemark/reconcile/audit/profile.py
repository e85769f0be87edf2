"""A stream's checks on a table's columns."""

from pyspark.sql.types import NumericType, StringType, StructField, StructType

from tidemark.definitions.check_profile import ProfiledColumn, stream_checks
from tidemark.definitions.sections import Check
from tidemark.definitions.stream import Stream


def checks_of(stream: Stream, columns: StructType) -> tuple[Check, ...]:
    """The checks of the stream. ``columns`` are the table's, of which the platform's begin with an underscore."""
    own = [_profiled(field, stream) for field in columns.fields if not field.name.startswith("_")]
    return stream_checks(stream.batch, own)


def _profiled(field: StructField, stream: Stream) -> ProfiledColumn:
    if isinstance(field.dataType, NumericType):
        # On a day with one row, the mean is its value.
        return ProfiledColumn(name=field.name, kind="other" if stream.is_personal(field.name) else "number")
    return ProfiledColumn(name=field.name, kind="text" if isinstance(field.dataType, StringType) else "other")
