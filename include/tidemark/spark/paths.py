"""The folder of a row below its stream's data prefix, for every partitioner."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.streams import DefaultPartitioner, FieldPartitioner, Stream, TimePartitioner

_UNSAFE = "[^A-Za-z0-9=_./-]"


def partition_path(stream: Stream) -> Column:
    """The folder of a row below the stream's data prefix: relative, of safe characters, without dot segments."""
    match stream.archive.partitioner:
        case DefaultPartitioner():
            return F.concat(F.lit("partition="), F.col("partition").cast("string"))
        case FieldPartitioner():
            raise NotImplementedError
        case TimePartitioner(pattern=pattern):
            local = F.from_utc_timestamp("event_time", stream.time_zone)
            path = F.regexp_replace(F.date_format(local, pattern), _UNSAFE, "_")
            path = F.regexp_replace(path, r"(?<=^|/)\.+(?=/|$)", "_")
            return F.regexp_replace(path, r"^/+|/+$|(?<=/)/+", "")
