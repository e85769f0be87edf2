"""Object names as Kafka Connect's S3 sinks write them with the default partitioner: Confluent's, kept as they are.

    <topics.dir>/<topic>/partition=<partition>/<topic>+<partition>+<start>.<format>

``start`` is the offset of the object's first record, padded to ``filename.offset.zero.pad.width`` digits (10 unless
told). Neither the end nor any other offset is written anywhere.
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Encoding: TypeAlias = Literal["lines", "avro", "parquet"]

_NAME = re.compile(
    r"(?:(?P<folder>.*)/)?(?P<topic>[A-Za-z0-9._-]+)\+(?P<partition>\d{1,9})\+(?P<start>\d{1,19})\.(?P<format>[A-Za-z0-9.]+)"
)
# JsonFormat, ByteArrayFormat (lines of whatever bytes), AvroFormat, and ParquetFormat with the codec before its name.
_FORMATS = re.compile(r"(?P<lines>(?:json|bin)(?:\.gz)?)|(?P<avro>avro)|(?P<parquet>(?:[a-z0-9]+\.)?parquet)")
_SIDE_FILES = ("keys.", "headers.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectName:
    """What such a key says. ``encoding`` is how the values are stored, ``gzipped`` whether the whole object is."""

    topic: str
    partition: int
    start: int
    encoding: Encoding
    gzipped: bool


def parse_connect_key(key: str) -> ConnectName | str:
    """What the key says, or why it is none of the names above, as a phrase for the reader."""
    found = _NAME.fullmatch(key)
    if found is None:
        return "not named <topic>+<partition>+<start>.<format>"
    form = _FORMATS.fullmatch(found["format"])
    if form is None:
        if found["format"].startswith(_SIDE_FILES):
            return "keys and headers beside the values are not read"
        return f"format .{found['format']} is not one of .json, .json.gz, .bin, .bin.gz, .avro, .parquet"
    if (found["folder"] or "").rsplit("/", 1)[-1] != f"partition={int(found['partition'])}":
        return "not in its folder partition=<partition>: only the default partitioner keeps offsets in a row"
    encoding: Encoding = "lines" if form["lines"] else "avro" if form["avro"] else "parquet"
    return ConnectName(
        topic=found["topic"],
        partition=int(found["partition"]),
        start=int(found["start"]),
        encoding=encoding,
        gzipped=encoding == "lines" and found["format"].endswith(".gz"),
    )
