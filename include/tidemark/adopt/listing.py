"""Objects of Confluent's S3 sink for Kafka Connect, with any partitioner: those of a topic, by log and in offset order.

    <topics.dir>/<topic>/<partitioner path>/<topic>+<partition>+<start>[.keys|.headers].<format>

``start`` is the offset of the object's first record. The key holds no other offset.
"""

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark.core.errors import ConflictError, FormatError
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, subtract
from tidemark.kafka.positions import Watermarks
from tidemark.s3 import ObjectInfo

# With the suffixes of JsonFormat, ByteArrayFormat, AvroFormat, and ParquetFormat with the codec before its name.
_NAME = re.compile(
    r"(?P<stem>(?:(?P<folder>.*)/)?(?P<topic>[A-Za-z0-9._-]+)\+(?P<partition>\d{1,9})\+(?P<start>\d{1,18}))"
    r"(?:\.(?P<part>keys|headers))?\.(?:(?P<lines>json|bin)(?:\.gz)?|(?P<avro>avro)|(?:[a-z0-9]+\.)?(?P<parquet>parquet))"
)
_PARTS = ("values", "keys", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectFile:
    """One object in S3, and the parts of its key.

    Objects of one ``stem`` hold values, keys and headers of the same records. ``in_order`` is True below the default
    partitioner's folder: there an object holds a partition's records up to the next object.
    """

    info: ObjectInfo
    stem: str
    topic: str
    partition: int
    start: int
    part: str
    encoding: str
    in_order: bool


def connect_file(info: ObjectInfo) -> ConnectFile | None:
    """The parts of the object's key; None if the sink writes no such keys."""
    found = _NAME.fullmatch(info.key)
    return found and ConnectFile(
        info=info,
        stem=found["stem"],
        topic=found["topic"],
        partition=int(found["partition"]),
        start=int(found["start"]),
        part=found["part"] or "values",
        encoding=found["lines"] or found["avro"] or found["parquet"],
        in_order=(found["folder"] or "").rsplit("/", 1)[-1] == f"partition={int(found['partition'])}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectObject:
    """The values of some records, and their keys and headers where the sink stored them."""

    values: ConnectFile
    keys: ConnectFile | None
    headers: ConnectFile | None

    @property
    def key(self) -> str:
        return self.values.info.key

    @property
    def partition(self) -> int:
        return self.values.partition

    @property
    def start(self) -> int:
        """The offset of its first record."""
        return self.values.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The topic's objects, in order of partition and start.

    ``problems`` are about objects of the topic that can't be imported. ``ignored`` has the keys of the objects that
    have nothing to do with the topic, by the reason.
    """

    objects: tuple[ConnectObject, ...]
    problems: tuple[FormatError, ...]
    ignored: dict[str, list[str]]


@dataclass(slots=True, kw_only=True)
class LogImport:
    """One log's objects in offset order, and how far their import is.

    ``in_order``: each object ends before the next one starts (the default partitioner). ``waiting`` objects are not
    read yet. ``open`` ones are read, and may have records after the offsets imported so far. ``surplus`` is how many
    records more than offsets the objects had up to here; None once they had fewer.

    ``read`` objects were read. ``known`` ones were not, because all their offsets were archived. ``rows`` counts the
    imported records. ``last`` is the end of the offsets seen.
    """

    ends: Watermarks
    archived: OffsetSet
    in_order: bool = True
    objects: list[ConnectObject] = field(default_factory=list)
    waiting: deque[ConnectObject] = field(default_factory=deque)
    open: list[ConnectObject] = field(default_factory=list)
    surplus: int | None = 0
    read: int = 0
    known: int = 0
    rows: int = 0
    last: int = 0

    @property
    def log(self) -> TopicPartition:
        return self.ends.log

    @property
    def span(self) -> OffsetRange:
        """From the first offset of any object to the last one seen."""
        return OffsetRange(start=self.objects[0].start, end=max(self.last, self.objects[-1].start + 1))

    @property
    def gaps(self) -> OffsetSet:
        """The offsets of the span that are not archived."""
        return subtract([self.span], self.archived)

    def bound(self, item: ConnectObject) -> int | None:
        """The start of the next object; None for the last one."""
        at = bisect_right(self.objects, item.start, key=lambda other: other.start)
        return self.objects[at].start if at < len(self.objects) else None

    def same_start(self, item: ConnectObject) -> int:
        """How many objects start where this one does, itself included."""
        at = bisect_left(self.objects, item.start, key=lambda other: other.start)
        return bisect_right(self.objects, item.start, key=lambda other: other.start) - at

    def is_archived(self, item: ConnectObject) -> bool:
        """Whether all offsets that the object may hold are archived. Decided without reading it."""
        end = (self.bound(item) if self.in_order else None) or self.ends.high_watermark
        return not subtract([OffsetRange(start=item.start, end=end)], self.archived)

    def require_before_end(self, item: ConnectObject, end: int) -> None:
        """Raises ConflictError if the object's records end after its log does."""
        if end > self.ends.high_watermark:
            raise not_of_topic(item.key, f"offsets below {self.ends.high_watermark}", end - 1)


def sort_objects(infos: Iterable[ObjectInfo], topic: str) -> Listing:
    """Sort the objects below a prefix. Only what is of the topic by its name or folder can be a problem."""
    stems: dict[str, list[ConnectFile]] = {}
    problems: list[FormatError] = []
    ignored: dict[str, list[str]] = {}
    for info in infos:
        file = connect_file(info)
        if file is not None and file.topic == topic:
            stems.setdefault(file.stem, []).append(file)
        elif file is not None:
            ignored.setdefault(f"of topic {file.topic}", []).append(info.key)
        elif topic in info.key.split("/")[:-1] or info.key.rsplit("/", 1)[-1].startswith(f"{topic}+"):
            problems.append(_bad_key(info.key, "another name or format"))
        else:
            ignored.setdefault("not named <topic>+<partition>+<start>.<format>", []).append(info.key)
    objects = []
    for files in stems.values():
        values, keys, headers = ([file for file in files if file.part == part] for part in _PARTS)
        beside = {"keys": next(iter(keys), None), "headers": next(iter(headers), None)}
        objects += [ConnectObject(values=file, **beside) for file in values]
        unused = [*keys[1:], *headers[1:]] if values else [*keys, *headers]
        found = "a second object of its kind" if values else "no object with the values beside it"
        problems += [_bad_key(file.info.key, found) for file in unused]
    ordered = sorted(objects, key=lambda item: (item.partition, item.start, item.key))
    return Listing(objects=tuple(ordered), problems=tuple(problems), ignored=ignored)


def _bad_key(key: str, found: str) -> FormatError:
    return FormatError(
        "an object's key can't be used",
        expected="<topic>+<partition>+<start>[.keys|.headers].<json, json.gz, bin, bin.gz, avro or parquet>",
        found=found,
        where=key,
        hint="Rename it, or move it out of the folder",
    )


def by_log(
    objects: Iterable[ConnectObject], ends: Iterable[Watermarks], archived: Mapping[TopicPartition, OffsetSet]
) -> list[LogImport]:
    """The objects of each log that has any.

    Raises ConflictError for a partition the topic does not have, and for an object that starts after its log's end.
    """
    logs = {item.log.partition: LogImport(ends=item, archived=archived[item.log]) for item in ends}
    for item in objects:
        log = logs.get(item.partition)
        if log is None:
            raise not_of_topic(item.key, f"partition 0 to {len(logs) - 1}", item.partition)
        log.require_before_end(item, item.start + 1)
        log.objects.append(item)
        log.in_order &= item.values.in_order
    for log in logs.values():
        log.waiting = deque(item for item in log.objects if not log.is_archived(item))
        log.known = len(log.objects) - len(log.waiting)
    return [log for log in logs.values() if log.objects]


def not_of_topic(key: str, expected: str, found: object) -> ConflictError:
    """The error for an object with other records than the topic's."""
    return ConflictError(
        "an object does not hold the topic's records",
        expected=expected,
        found=found,
        where=key,
        hint="The object is of another topic, of this topic before it was recreated, or its sink changed the values."
        " Move it out of the folder",
    )
