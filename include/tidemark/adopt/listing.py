"""Which objects below a prefix are a topic's, by partition and offset; and which of them were adopted before."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemark.adopt.scan import Listed, Scanned
from tidemark.archive.manifests import each_manifest
from tidemark.core.connect_key import parse_connect_key
from tidemark.core.errors import ConfigError, ConflictError
from tidemark.core.layout import Layout
from tidemark.core.manifest import ADOPTED, DataFile
from tidemark.core.offsets import TopicPartition
from tidemark.kafka.positions import Watermarks
from tidemark.s3 import ObjectInfo, ObjectStore
from tidemark.settings import Settings

EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """Objects below the prefix that are none of the topic's; ``examples`` are some of their keys."""

    reason: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedObject:
    """An object of the topic that is not adopted, and why."""

    key: str
    reason: str


@dataclass(slots=True, kw_only=True)
class LogObjects:
    """One log's objects in offset order, and what becomes of them. ``known`` were adopted before, by key."""

    log: TopicPartition
    objects: list[Listed] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    known: dict[str, DataFile] = field(default_factory=dict)
    adopted: list[tuple[Listed, Scanned]] = field(default_factory=list)
    refused: list[RefusedObject] = field(default_factory=list)

    @property
    def new(self) -> list[Listed]:
        """The objects that are neither adopted nor refused yet."""
        done = self.known.keys() | {item.key for item, _ in self.adopted} | {item.key for item in self.refused}
        return [item for item in self.objects if item.key not in done]

    def bound(self, start: int) -> int | None:
        """Where the next object behind ``start`` starts; None behind the last one."""
        at = bisect_right(self.starts, start)
        return self.starts[at] if at < len(self.starts) else None


def folder_of(settings: Settings, prefix: str) -> str:
    """The prefix as keys begin with it, ending with a slash; ``s3://bucket/…`` is taken too.

    Raises ConfigError for another bucket than the archive's: manifests name keys only.
    """
    if prefix.startswith("s3://"):
        bucket, _, prefix = prefix.removeprefix("s3://").partition("/")
        if bucket != settings.bucket:
            raise ConfigError(
                "only objects of the archive's own bucket can be adopted", expected=settings.bucket, found=bucket
            )
    folder = prefix.strip("/")
    return f"{folder}/" if folder else ""


def sort_out(objects: Iterable[ObjectInfo], topic: str) -> tuple[list[Listed], tuple[Ignored, ...]]:
    """The topic's objects by partition and offset, and what else there is, by reason."""
    found = []
    others: dict[str, list[str]] = {}
    for item in objects:
        name = parse_connect_key(item.key)
        if isinstance(name, str):
            others.setdefault(name, []).append(item.key)
        elif name.topic != topic:
            others.setdefault(f"of topic {name.topic}", []).append(item.key)
        else:
            found.append(Listed(key=item.key, name=name, bytes=item.size, etag=item.etag))
    ignored = tuple(
        Ignored(reason=reason, count=len(keys), examples=tuple(keys[:EXAMPLES])) for reason, keys in others.items()
    )
    return sorted(found, key=lambda item: (item.name.partition, item.name.start, item.key)), ignored


def by_log(objects: Iterable[Listed], logs: Iterable[TopicPartition], topic_id: str | None) -> list[LogObjects]:
    """The objects of each log that has any; two that start at the same offset are both refused.

    Raises ConflictError for a partition the topic does not have, or where its id is not ``topic_id``.
    """
    known = {log.partition: log for log in logs}
    found: dict[int, LogObjects] = {}
    for item in objects:
        log = known.get(item.name.partition)
        if log is None:
            raise ConflictError(
                "an object is of a partition the topic does not have",
                expected=f"partition 0 to {len(known) - 1}",
                found=item.name.partition,
                where=item.key,
            )
        if topic_id is not None and log.topic_id != topic_id:
            raise ConflictError(
                "the topic is not the one vouched for",
                expected=f"topic id {topic_id}",
                found=log.topic_id,
                where=log.topic,
            )
        found.setdefault(log.partition, LogObjects(log=log)).objects.append(item)
    for group in found.values():
        group.starts = [item.name.start for item in group.objects]
        rivals: dict[str, str] = {}
        for one, other in zip(group.objects, group.objects[1:], strict=False):
            if one.name.start == other.name.start:
                rivals[other.key] = one.key
                rivals.setdefault(one.key, other.key)
        group.refused = [
            RefusedObject(
                key=item.key, reason=f"another object starts at offset {item.name.start} too: {rivals[item.key]}"
            )
            for item in group.objects
            if item.key in rivals
        ]
    return [found[partition] for partition in sorted(found)]


def match_known(store: ObjectStore, layout: Layout, groups: Iterable[LogObjects]) -> None:
    """Mark what was adopted before, under whichever prefix.

    Raises ConflictError for an object that was adopted for another topic id, was changed since, or (being the last of
    its partition then) does not end where the next one starts.
    """
    adopted = {file.key: file for manifest in each_manifest(store, layout, ADOPTED) for file in manifest.files}
    for group in groups:
        for item in group.objects:
            file = adopted.get(item.key)
            if file is not None:
                _require_same(group, item, file)
                group.known[item.key] = file
        group.refused = [item for item in group.refused if item.key not in group.known]


def _require_same(group: LogObjects, item: Listed, file: DataFile) -> None:
    hint = "Its manifests, below manifests/<stream>/adopt-…, no longer tell the truth: delete them, make the"
    hint += " ledger anew (tidemark maintain STREAM --rebuild-ledger), then adopt again"
    if file.log != group.log:
        raise ConflictError(
            "the object was adopted for the topic before it was made again",
            expected=f"topic id {group.log.topic_id}",
            found=f"topic id {file.log.topic_id}",
            where=item.key,
            hint=hint,
        )
    if etag_of(file) != item.etag:
        raise ConflictError(
            "an adopted object was changed",
            expected=f"{file.bytes} bytes, ETag {etag_of(file)}",
            found=f"{item.bytes} bytes, ETag {item.etag}",
            where=item.key,
            hint=hint,
        )
    bound = group.bound(item.name.start)
    if bound is not None and bound != file.last_offset + 1:
        raise ConflictError(
            "an object adopted as its partition's last one does not end where the next one starts",
            expected=f"[{item.name.start}, {bound})",
            found=f"[{item.name.start}, {file.last_offset + 1})",
            where=item.key,
            hint=hint,
        )


def require_inside(groups: Iterable[LogObjects], marks: dict[TopicPartition, Watermarks]) -> None:
    """Every object must start at an offset its log has or had; raises ConflictError naming both."""
    for group in groups:
        last, end = group.objects[-1], marks[group.log].high_watermark
        if last.name.start >= end:
            raise ConflictError(
                "an object starts behind the end of its log",
                expected=f"an offset below {end}",
                found=last.name.start,
                where=f"{last.key}, {group.log}",
                hint="It is of another topic, or of this one before it was deleted and made again",
            )


def checksum_of(sha256: str, etag: str) -> str:
    """What a manifest keeps of an adopted object's bytes: a proof, and what a listing can be compared with."""
    return f"sha256-object-1:{sha256} etag:{etag}"


def etag_of(file: DataFile) -> str:
    """The ETag in such a checksum."""
    return file.checksum.rpartition(" etag:")[2]
