"""The folder of a row below its stream's data prefix, for every partitioner."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.streams import DefaultPartitioner, FieldPartitioner, Stream, TimePartitioner

_UNSAFE = "[^A-Za-z0-9=_./-]"


def partition_path(stream: Stream, clock_us: int) -> Column:
    """The folder of a row below the stream's data prefix: relative, of safe characters, without dot segments.

    ``clock_us`` is the micro-batch's time, µs UTC: what a wall clock showed when its range was fixed.
    """
    match stream.archive.partitioner:
        case DefaultPartitioner():
            return F.concat(F.lit("partition="), F.col("partition").cast("string"))
        case FieldPartitioner():
            raise NotImplementedError
        case TimePartitioner(pattern=pattern, clock=clock):
            moment = F.timestamp_micros(F.lit(clock_us)) if clock == "wall_clock" else F.col("event_time")
            local = F.from_utc_timestamp(moment, stream.time_zone)
            path = F.regexp_replace(F.date_format(local, pattern), _UNSAFE, "_")
            path = F.regexp_replace(path, r"(?<=^|/)\.+(?=/|$)", "_")
            return F.regexp_replace(path, r"^/+|/+$|(?<=/)/+", "")
