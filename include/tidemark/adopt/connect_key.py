"""Object keys as Confluent's S3 sink for Kafka Connect writes them, with any partitioner.

    <topics.dir>/<topic>/<partitioner path>/<topic>+<partition>+<start>[.keys|.headers].<format>

``start`` is the offset of the object's first record. The key holds no other offset.
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Encoding: TypeAlias = Literal["lines", "avro", "parquet"]
Part: TypeAlias = Literal["values", "keys", "headers"]

_NAME = re.compile(
    r"(?P<stem>(?:(?P<folder>.*)/)?(?P<topic>[A-Za-z0-9._-]+)\+(?P<partition>\d{1,9})\+(?P<start>\d{1,18}))"
    r"(?:\.(?P<part>keys|headers))?\.(?P<format>[A-Za-z0-9.]+)"
)
# JsonFormat, ByteArrayFormat (lines of any bytes), AvroFormat, and ParquetFormat with the codec before its name.
_FORMATS = re.compile(r"(?P<lines>(?:json|bin)(?:\.gz)?)|(?P<avro>avro)|(?P<parquet>(?:[a-z0-9]+\.)?parquet)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectName:
    """The parts of a key.

    Objects of one ``stem`` hold values, keys and headers of the same records. ``in_order`` is True below the default
    partitioner's folder: there an object holds a partition's records up to the next object. ``text`` is True where a
    line is JSON, not bytes of any kind.
    """

    stem: str
    topic: str
    partition: int
    start: int
    part: Part
    encoding: Encoding
    gzipped: bool
    text: bool
    in_order: bool


def parse_connect_key(key: str) -> ConnectName | str:
    """The parts of the key, or the reason why it is no such key, as a phrase."""
    found = _NAME.fullmatch(key)
    if found is None:
        return "not named <topic>+<partition>+<start>.<format>"
    form = _FORMATS.fullmatch(found["format"])
    if form is None:
        return f"format .{found['format']} is not one of .json, .json.gz, .bin, .bin.gz, .avro, .parquet"
    parts: dict[str | None, Part] = {None: "values", "keys": "keys", "headers": "headers"}
    encoding: Encoding = "lines" if form["lines"] else "avro" if form["avro"] else "parquet"
    return ConnectName(
        stem=found["stem"],
        topic=found["topic"],
        partition=int(found["partition"]),
        start=int(found["start"]),
        part=parts[found["part"]],
        encoding=encoding,
        gzipped=encoding == "lines" and found["format"].endswith(".gz"),
        text=found["format"].startswith("json"),
        in_order=(found["folder"] or "").rsplit("/", 1)[-1] == f"partition={int(found['partition'])}",
    )
