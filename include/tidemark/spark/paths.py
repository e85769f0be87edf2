"""The folder of a row below its stream's data prefix, for every partitioner.

Hadoop skips names that start with ``_`` or ``.`` or end with ``._COPYING_``, and treats characters such as ``*`` as
patterns: no folder has any of these.
"""

from urllib.parse import quote

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from tidemark.core.renames import paths
from tidemark.definitions.sections import DefaultPartitioner, FieldPartitioner, TimePartitioner
from tidemark.definitions.stream import Stream
from tidemark.spark.avro import avro_field
from tidemark.spark.fields import json_field

# Hive's name for null, which Spark, Trino and DuckDB read as null. No text becomes it: its first "_" is encoded.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
# No text becomes a bare "~".
EMPTY = "~empty"
VALUE_CHARACTERS_MAX = 100
_CUT_CHARACTERS = 60

# Of an encoded text that was cut: half a byte at its end, and the first bytes of a character that lacks its last one.
_BYTE = "%[89AB][0-9A-F]"
_CHARACTER_STARTS = f"%(?:[CD][0-9A-F]|E[0-9A-F](?:{_BYTE})?|F[0-7](?:{_BYTE}){{0,2}})"
_CUT_OFF = f"(?:{_CHARACTER_STARTS})?(?:%[0-9A-F]?)?$"

_UNSAFE = "[^A-Za-z0-9=_./-]"


def partition_path(stream: Stream, clock_us: int) -> Column | None:
    """The folder of a row below the stream's data prefix: relative, of safe characters, without dot segments.

    None for the default partitioner: the folder is ``partition=<n>``, which needs no column.

    ``clock_us`` is the time, µs UTC, when Spark planned the micro-batch. It decides only the folder. A row's day is
    always that of its event time: otherwise two copies of a row in different batches could belong to different days.
    """
    match stream.archive.partitioner:
        case DefaultPartitioner():
            return None
        case FieldPartitioner(fields=fields):
            levels = (F.concat(F.lit(f"{folder_name(path)}="), folder_value(_text(stream, path))) for path in fields)
            return F.concat_ws("/", *levels)
        case TimePartitioner(pattern=pattern, clock=clock):
            moment = F.timestamp_micros(F.lit(clock_us)) if clock == "wall_clock" else F.col("event_time")
            return time_folder(F.date_format(F.from_utc_timestamp(moment, stream.time_zone), pattern))


def folder_name(path: str) -> str:
    """The name of a field's folders: its JSON path after ``$.``, percent-encoded."""
    return quote(path.removeprefix("$."), safe="")


def folder_value(text: Column) -> Column:
    """A text as a folder's value, at most 100 characters, different for every text and for null.

    Percent-encoded as in Hive. A longer text is cut between characters, and a hash of the full text is appended.
    """
    encoded = _encode(F.substring(text, 1, VALUE_CHARACTERS_MAX))
    fits = (F.length(text) <= VALUE_CHARACTERS_MAX) & (F.length(encoded) <= VALUE_CHARACTERS_MAX)
    cut = F.regexp_replace(F.substring(encoded, 1, _CUT_CHARACTERS), _CUT_OFF, "")
    hashed = F.concat(cut, F.lit("~"), F.substring(F.sha2(text, 256), 1, 32))
    return F.when(text.isNull(), NO_VALUE).when(text == "", EMPTY).when(fits, encoded).otherwise(hashed)


def time_folder(text: Column) -> Column:
    """A formatted time as a folder of safe characters; different texts may share one."""
    path = F.regexp_replace(text, _UNSAFE, "-")
    path = F.regexp_replace(path, "^/+|/+$|(?<=/)/+", "")
    path = F.regexp_replace(path, r"(?<=^|/)[._]", "-")
    path = F.regexp_replace(path, r"\._COPYING_(?=/|$)", "-COPYING-")
    return F.when(path == "", "-").otherwise(path)


def _encode(text: Column) -> Column:
    encoded = F.url_encode(text)
    for plain, escaped in (("+", "%20"), ("*", "%2A"), ("._COPYING_", "%2E_COPYING_")):
        encoded = F.replace(encoded, F.lit(plain), F.lit(escaped))
    return F.regexp_replace(encoded, f"^_(?={NO_VALUE[1:]}$)", "%5F")


def _text(stream: Stream, path: str) -> Column:
    """The field's text, null without one: a string as it is, another value as JSON."""
    value = F.col("value")
    if stream.value_format == "json":
        return F.coalesce(*(json_field(value.cast("string"), item) for item in paths(path, stream.renamed)))
    column, kind = avro_field(stream, value, path)
    if isinstance(kind, StringType):
        return F.when(F.is_valid_utf8(column), column)
    written = F.to_json(F.struct(column.alias("v")), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"})
    return F.get_json_object(written, "$.v")
