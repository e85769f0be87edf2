"""The import: objects that Kafka Connect's S3 sink wrote become objects and manifests of the archive.

Connect's objects stay as they are.
"""

import hashlib
import re
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tidemark.adopt.check import compare_with_kafka
from tidemark.adopt.job import ImportJob, LogState
from tidemark.adopt.listing import IgnoredObjects, Listing, by_log, folder_of, sort_objects
from tidemark.adopt.rows import NO_FIELDS, ValueFields
from tidemark.archive.ledger.ledger import read_archived
from tidemark.core.errors import ConfigError, ConflictError, FormatError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, subtract
from tidemark.definitions.sections import FieldTime
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import Watermarks, watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

WRITER = "import-"  # and where from: the writer of an import's manifests
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLog:
    """What became of one log's objects.

    ``read`` objects were read; ``known`` ones were not, because all their offsets were archived. ``rows`` counts the
    imported records. ``span`` reaches from the first offset of any object to the last one seen; ``gaps`` are its
    offsets that are still not archived.
    """

    log: TopicPartition
    read: int
    known: int
    rows: int
    span: OffsetRange
    gaps: OffsetSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """``compared`` counts values that were equal in Kafka; ``problems`` say what was not imported, and why."""

    stream: str
    folder: str
    dry_run: bool
    compared: int
    logs: tuple[ImportedLog, ...]
    problems: tuple[FormatError, ...]
    ignored: tuple[IgnoredObjects, ...]
    manifests: tuple[str, ...]


def import_objects(
    spark: SparkSession,
    settings: Settings,
    stream: Stream,
    prefix: str,
    *,
    fields: ValueFields = NO_FIELDS,
    topic_id: str | None = None,
    dry_run: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Imported:
    """Import the records below ``prefix`` whose offsets are not archived; with ``dry_run`` only find out what would be.

    Stopped in the middle and repeated, it continues; repeated after its end, it imports nothing. ``topic_id`` confirms
    that the objects are of that topic, where Kafka holds none of their records any more. ``progress`` is called with
    the objects read and with all that are to be read. Raises ConfigError where the stream can't have such records or
    the prefix holds none, ConflictError where objects are of another log.
    """
    _require_importable(stream, fields)
    folder = folder_of(settings, prefix)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    listing = _listed(store, folder, stream)
    history = read_archived(store, layout, stream).history()
    logs = describe_topic(settings.kafka_bootstrap, stream.topic)
    marks = {item.log: item for item in watermarks(settings.kafka_bootstrap, logs)}
    groups = by_log(listing.objects, marks, {log: history.archived(log) for log in logs}, topic_id)
    compared = compare_with_kafka(settings, store, groups, fields)
    job = ImportJob(
        spark=spark,
        settings=settings,
        stream=stream,
        store=store,
        layout=layout,
        fields=fields,
        writer=None if dry_run else writer_name(store.bucket, folder),
        logs=[
            LogState(group=group, waiting=deque(item for item in group.objects if not group.is_archived(item)))
            for group in groups
        ],
        progress=progress,
        doubt=None if compared or topic_id is not None else _unconfirmed(marks.values()),
    )
    job.run()
    return Imported(
        stream=stream.name,
        folder=folder,
        dry_run=dry_run,
        compared=compared,
        logs=tuple(_imported(state) for state in job.logs),
        problems=(*listing.problems, *job.problems.values()),
        ignored=listing.ignored,
        manifests=tuple(job.manifests),
    )


def _listed(store: ObjectStore, folder: str, stream: Stream) -> Listing:
    """What is below the folder; raises ConfigError where nothing is of the stream's topic."""
    listing = sort_objects(store.list(folder), stream.topic)
    if not listing.objects:
        found = [f"{item.count} {item.reason}" for item in listing.ignored]
        raise ConfigError(
            "there is nothing to import",
            expected=f"objects named {stream.topic}+<partition>+<start>.<format>",
            found="; ".join([*found, *map(str, listing.problems)]) or "no object",
            where=f"s3://{store.bucket}/{folder}",
            hint="Name the sink's topics.dir, or a folder in it",
        )
    return listing


def _unconfirmed(marks: Collection[Watermarks]) -> ConflictError:
    logs = [item.log for item in marks]
    return ConflictError(
        "Kafka holds none of the objects' records, so nothing shows that they are of this topic",
        expected="a record to compare",
        found="; ".join(f"{item.log} from {item.log_start}" for item in marks),
        where=logs[0].topic,
        hint=f"If the topic was not recreated since, confirm it: --topic-id {logs[0].topic_id}",
    )


def writer_name(bucket: str, folder: str) -> str:
    """The writer of a prefix's manifests: always the same one, with a name that a person recognizes."""
    place = f"s3://{bucket}/{folder}"
    slug = re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-")[:40]
    return f"{WRITER}{slug + '-' if slug else ''}{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def _require_importable(stream: Stream, fields: ValueFields) -> None:
    for name in (fields.offset, fields.timestamp):
        if name is not None and not _FIELD.fullmatch(name):
            raise ConfigError("not a field's name", expected="letters, digits and _", found=name, hint="Name the field")
    if stream.value_format != "json":
        raise ConfigError(
            "imported values are JSON",
            expected="value_format json",
            found=stream.value_format,
            where=f"stream {stream.name}",
            hint="Import into a stream of JSON values",
        )
    if not isinstance(stream.event_time, FieldTime) and fields.timestamp is None:
        raise ConfigError(
            "the records in the objects have no timestamp",
            expected="event_time.extractor record_field, or --timestamp-field",
            found=stream.event_time.extractor,
            where=f"stream {stream.name}",
            hint="Name the field that holds the record's timestamp, if the sink added one",
        )


def _imported(state: LogState) -> ImportedLog:
    objects = state.group.objects
    span = OffsetRange(start=objects[0].start, end=max(state.last, objects[-1].start + 1))
    return ImportedLog(
        log=state.group.log,
        read=state.read,
        known=state.known,
        rows=state.rows,
        span=span,
        gaps=subtract([span], state.group.archived),
    )
