"""Which objects below a prefix hold a topic's records, by log and in offset order."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidemark.adopt.connect_key import ConnectName, Part, parse_connect_key
from tidemark.core.errors import ConfigError, ConflictError, FormatError
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise, range_or_none, subtract
from tidemark.kafka.positions import Watermarks
from tidemark.s3 import ObjectInfo
from tidemark.settings import Settings

EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectFile:
    """One object in S3."""

    key: str
    name: ConnectName
    bytes: int
    modified: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectObject:
    """The values of some records, and their keys and headers where the sink stored them."""

    values: ConnectFile
    keys: ConnectFile | None
    headers: ConnectFile | None

    @property
    def key(self) -> str:
        return self.values.key

    @property
    def partition(self) -> int:
        return self.values.name.partition

    @property
    def start(self) -> int:
        """The offset of its first record."""
        return self.values.name.start

    @property
    def files(self) -> tuple[ConnectFile, ...]:
        return tuple(item for item in (self.values, self.keys, self.headers) if item is not None)

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredObjects:
    """Objects below the prefix that have nothing to do with the topic; ``examples`` are some of their keys."""

    reason: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The topic's objects, in order of partition and start; objects of the topic that can't be imported; the others."""

    objects: tuple[ConnectObject, ...]
    problems: tuple[FormatError, ...]
    ignored: tuple[IgnoredObjects, ...]


@dataclass(slots=True, kw_only=True)
class LogObjects:
    """One log's objects in offset order, and what is archived of the log.

    ``in_order`` is True where each object ends before the next one starts (the default partitioner). ``end`` is the
    log's high watermark: no object has a record there or later.
    """

    log: TopicPartition
    in_order: bool
    log_start: int
    end: int
    archived: OffsetSet
    objects: list[ConnectObject] = field(default_factory=list)

    def bound(self, item: ConnectObject) -> int | None:
        """The start of the next object; None for the last one."""
        at = bisect_right(self.objects, item.start, key=lambda other: other.start)
        return self.objects[at].start if at < len(self.objects) else None

    def is_archived(self, item: ConnectObject) -> bool:
        """Whether all offsets that the object may hold are archived, as far as that is known without reading it."""
        end = (self.bound(item) if self.in_order else None) or self.end
        wanted = range_or_none(item.start, max(end, item.start))
        return wanted is not None and not subtract([wanted], self.archived)

    def add(self, ranges: Iterable[OffsetRange]) -> None:
        """Count the ranges as archived."""
        self.archived = normalise([*self.archived, *ranges])


def folder_of(settings: Settings, prefix: str) -> str:
    """The prefix as keys begin with it, with a slash at its end; ``s3://bucket/…`` is accepted too.

    Raises ConfigError for another bucket than the archive's.
    """
    if prefix.startswith("s3://"):
        bucket, _, prefix = prefix.removeprefix("s3://").partition("/")
        if bucket != settings.bucket:
            raise ConfigError(
                "only objects in the archive's bucket can be imported",
                expected=settings.bucket,
                found=bucket,
                hint="Copy them into that bucket first",
            )
    folder = prefix.strip("/")
    return f"{folder}/" if folder else ""


def sort_objects(infos: Iterable[ObjectInfo], topic: str) -> Listing:
    """Sort the objects below a prefix. Only what is of the topic by its name or folder can be a problem."""
    stems: dict[str, dict[Part, list[ConnectFile]]] = {}
    problems: list[FormatError] = []
    others: dict[str, list[str]] = {}
    for info in infos:
        name = parse_connect_key(info.key)
        if isinstance(name, str):
            if topic in info.key.split("/")[:-1] or info.key.rsplit("/", 1)[-1].startswith(f"{topic}+"):
                problems.append(_bad_key(info.key, name))
            else:
                others.setdefault(name, []).append(info.key)
        elif name.topic != topic:
            others.setdefault(f"of topic {name.topic}", []).append(info.key)
        else:
            file = ConnectFile(key=info.key, name=name, bytes=info.size, modified=info.modified)
            stems.setdefault(name.stem, {}).setdefault(name.part, []).append(file)
    objects = []
    for parts in stems.values():
        sides: dict[Part, ConnectFile | None] = {}
        for part in ("keys", "headers"):
            sides[part], *more = parts.get(part, [None])
            problems += [_bad_key(file.key, f"another object of the same {part}") for file in more if file is not None]
        objects += [
            ConnectObject(values=file, keys=sides["keys"], headers=sides["headers"]) for file in parts.get("values", ())
        ]
        if "values" not in parts:
            lonely = (file for file in sides.values() if file is not None)
            problems += [_bad_key(file.key, "no object with the values beside it") for file in lonely]
    ignored = tuple(
        IgnoredObjects(reason=reason, count=len(keys), examples=tuple(keys[:EXAMPLES]))
        for reason, keys in others.items()
    )
    ordered = sorted(objects, key=lambda item: (item.partition, item.start, item.key))
    return Listing(objects=tuple(ordered), problems=tuple(problems), ignored=ignored)


def _bad_key(key: str, found: str) -> FormatError:
    return FormatError(
        "an object's key can't be used",
        expected="<topic>+<partition>+<start>[.keys|.headers].<format>",
        found=found,
        where=key,
        hint="Rename it, or move it out of the folder",
    )


def by_log(
    objects: Iterable[ConnectObject],
    marks: Mapping[TopicPartition, Watermarks],
    archived: Mapping[TopicPartition, OffsetSet],
    topic_id: str | None,
) -> list[LogObjects]:
    """The objects of each log that has any.

    Raises ConflictError for a partition the topic does not have, an object that starts after the end of its log, and
    where the topic's id is not ``topic_id``.
    """
    known = {log.partition: log for log in marks}
    found: dict[int, LogObjects] = {}
    for item in objects:
        log = known.get(item.partition)
        if log is None:
            raise ConflictError(
                "an object is of a partition the topic does not have",
                expected=f"partition 0 to {len(known) - 1}",
                found=item.partition,
                where=item.key,
                hint="Move the object out of the folder, or name the folder of the right topic",
            )
        mark = marks[log]
        if topic_id is not None and log.topic_id != topic_id:
            raise ConflictError(
                "the topic has another id",
                expected=f"topic id {topic_id}",
                found=log.topic_id,
                where=log.topic,
                hint="The objects can't be of a topic that was created after they were written",
            )
        if item.start >= mark.high_watermark:
            raise _after_end(log, item.key, mark.high_watermark, item.start)
        group = found.setdefault(
            log.partition,
            LogObjects(
                log=log,
                in_order=True,
                log_start=mark.log_start,
                end=mark.high_watermark,
                archived=archived.get(log, ()),
            ),
        )
        group.objects.append(item)
        group.in_order &= item.values.name.in_order
    return [found[partition] for partition in sorted(found)]


def require_before_end(group: LogObjects, item: ConnectObject, end: int) -> None:
    """Raises ConflictError where the object's records end after its log does."""
    if end > group.end:
        raise _after_end(group.log, item.key, group.end, end - 1)


def _after_end(log: TopicPartition, key: str, end: int, found: int) -> ConflictError:
    return ConflictError(
        "an object has records after the end of its log",
        expected=f"offsets below {end}",
        found=found,
        where=f"{key}, {log}",
        hint="The object is of another topic, or of this topic before it was recreated. Move it out of the folder",
    )


def rivals(group: LogObjects) -> Iterator[tuple[ConnectObject, ConnectObject]]:
    """Objects that start at the same offset, each with another one that does."""
    for one, other in zip(group.objects, group.objects[1:], strict=False):
        if one.start == other.start:
            yield one, other
            yield other, one
