"""The import: objects that Kafka Connect's S3 sink wrote become objects and manifests of the archive.

Connect's objects stay as they are.

An object's key holds the offset of its first record only. An object is imported if the offsets of all its records are
known:

- With a field that holds the offset, every record has its own.
- Else an object must have as many records as there are offsets up to the next object. The default partitioner needs no
  other proof. With any other one, an object may also hold records from after the start of the next one. Then the
  objects before it must hold exactly the offsets before it. Nothing is imported after offsets that no object has.

A log's last object has no next one. Its records are assumed to have no holes, and are compared with Kafka's.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest

from pyspark.sql import Row, SparkSession

from tidemark.adopt.check import compare_with_kafka
from tidemark.adopt.listing import ConnectObject, LogImport, by_log, sort_objects
from tidemark.adopt.rows import NO_FIELDS, ImportRows, ValueFields
from tidemark.archive.ledger.ledger import read_archived
from tidemark.archive.manifests import commit_batch, last_manifest
from tidemark.archive.write.sink import write_range
from tidemark.core.days import micros
from tidemark.core.errors import ConfigError, ConflictError, FormatError, RequestError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, count, normalise, range_or_none, subtract
from tidemark.definitions.sections import FieldTime
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

CHUNK_OBJECTS = 200
CHUNK_BYTES = 512 * 1024**2


@dataclass(slots=True, kw_only=True)
class Imported:
    """The outcome of an import. ``problems`` describe what was not imported, and why.

    ``compared`` values were equal in Kafka. ``ignored`` has the keys of other objects by the reason.
    """

    compared: int
    logs: list[LogImport]
    problems: dict[str, FormatError]  # by their texts
    ignored: dict[str, list[str]]
    manifests: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ImportJob:
    """Reads the objects in chunks, and writes of each chunk what is not archived.

    ``writer`` is None for a dry run. Without ``confirmed``, the objects may be of another topic: nothing is written.
    """

    spark: SparkSession
    settings: Settings
    stream: Stream
    store: ObjectStore
    layout: Layout
    fields: ValueFields
    writer: str | None
    confirmed: bool
    outcome: Imported

    def run(self, progress: Callable[[int, int], None]) -> None:
        logs = self.outcome.logs
        total = sum(len(log.waiting) for log in logs)
        progress(0, total)
        while any(log.waiting for log in logs):
            self._import_chunk(self._next_chunk())
            progress(sum(log.read for log in logs), total)

    def _next_chunk(self) -> list[tuple[LogImport, ConnectObject]]:
        """The open objects and the next ones of every log, ordered by log."""
        active = [log for log in self.outcome.logs if log.waiting]
        objects, size = CHUNK_OBJECTS // len(active), CHUNK_BYTES // len(active)
        chunk = []
        for log in active:
            taken = [log.waiting.popleft()]
            left = size - taken[0].values.info.size
            while log.waiting and len(taken) < objects and (left := left - log.waiting[0].values.info.size) >= 0:
                taken.append(log.waiting.popleft())
            log.open += taken
            log.read += len(taken)
            chunk += [(log, item) for item in log.open]
        return chunk

    def _import_chunk(self, chunk: Sequence[tuple[LogImport, ConnectObject]]) -> None:
        objects = [item for _, item in chunk]
        rows = ImportRows(self.spark, self.settings, self.stream, objects, self.fields)
        try:
            contents = rows.contents()
            refused = [
                number
                for number, (log, item) in enumerate(chunk)
                if (content := contents.get(number)) is not None and not self._accept(log, item, content)
            ]
            ends = {
                item.key: contents[number].highest or 0 for number, item in enumerate(objects) if number in contents
            }
            found = rows.offsets(refused)
            wanted = {
                log.log: self._wanted(log, found.get(log.log.partition, ()), ends)
                for log in self.outcome.logs
                if log.open
            }
            if not self.confirmed and any(wanted.values()):
                raise self._unconfirmed()
            for round_ in zip_longest(*wanted.values()):
                ranges = {log: item for log, item in zip(wanted, round_, strict=True) if item is not None}
                self._write(rows, refused, ranges, objects)
        finally:
            rows.close()

    def _unconfirmed(self) -> ConflictError:
        ends = [log.ends for log in self.outcome.logs]
        return ConflictError(
            "Kafka holds none of the objects' records, so nothing shows that they are of this topic",
            expected="a record to compare",
            found="; ".join(f"{item.log} from {item.log_start}" for item in ends),
            where=ends[0].log.topic,
            hint=f"If the topic was not recreated since, confirm it: --topic-id {ends[0].log.topic_id}",
        )

    def _accept(self, log: LogImport, item: ConnectObject, content: Row) -> bool:
        """Whether the offsets of the object's records are known. Reports what is not imported of it."""
        end = item.start + content.rows
        if content.problem is not None:
            log.surplus = None
            self.outcome.problems.setdefault(content.problem, FormatError(content.problem))
            return False
        if self.fields.offset is not None:
            end = item.start if content.highest is None else content.highest + 1
            wrong = content.first is not None and content.first != item.start
            if wrong or (content.lowest is not None and content.lowest < item.start):
                return self._refuse(
                    item,
                    f"field {self.fields.offset} is not the record's offset",
                    f"offsets from {item.start} on",
                    content.first if wrong else content.lowest,
                    "Name the field that Kafka Connect's InsertField put the offset into",
                )
        elif not self._fits(log, item, content.rows):
            return False
        log.require_before_end(item, end)
        log.last = max(log.last, end)
        if content.unreadable:
            self._refuse(
                item,
                f"{content.unreadable} of {content.rows} records can't be read, line"
                f" {(content.first_unreadable or 0) + 1} first",
                "an event time" + (f", and an offset in {self.fields.offset}" if self.fields.offset else ""),
                "none",
                "The object's other records are imported. Correct these records, then run the command again",
            )
        return True

    def _fits(self, log: LogImport, item: ConnectObject, rows: int) -> bool:
        """Whether the object's records are at the offsets from its start on, without a hole."""
        rivals = log.same_start(item)
        if rivals > 1:
            log.surplus = None
            problem, hint = "several objects start at the same offset", "Remove all but one of them"
            return self._refuse(item, problem, "one object", rivals, hint)
        bound = log.bound(item)
        offsets = rows if bound is None else bound - item.start
        before, expected = log.surplus, f"the {offsets} records of [{item.start}, {bound})"
        if log.in_order:
            fits = rows == offsets
        else:
            expected += ", and of no other offsets in the objects before"
            after = None if before is None else before + rows - offsets
            log.surplus = None if after is None or after < 0 else after
            fits = before == 0 and after == 0
        return fits or self._refuse(
            item,
            "the offsets of an object's records are unknown",
            expected,
            f"{rows} records",
            "If the sink added the offset to the values, name the field: --offset-field",
        )

    def _wanted(self, log: LogImport, found: OffsetSet, ends: Mapping[str, int]) -> OffsetSet:
        """The offsets to import of those found; an object that has later ones stays open.

        Any object that holds an offset starts at or before it. So up to the start of the next object all are known.
        ``ends`` has the last offset of each object by its key.
        """
        following = log.waiting[0].start if self.fields.offset is not None and log.waiting else None
        if following is None:
            log.open = []
        else:
            known = range_or_none(0, following)
            found = subtract(found, subtract(found, [known] if known else []))
            log.open = [item for item in log.open if ends.get(item.key, 0) >= following]
        wanted = subtract(found, log.archived)
        log.rows += count(wanted)
        log.archived = normalise([*log.archived, *wanted])
        return wanted

    def _write(
        self,
        rows: ImportRows,
        refused: Sequence[int],
        ranges: dict[TopicPartition, OffsetRange],
        objects: Sequence[ConnectObject],
    ) -> None:
        """Commit the ranges as one batch of the archive."""
        if self.writer is None:
            return
        newest = max(item.values.info.modified for item in objects)
        written = write_range(
            rows.inside(refused, {log.partition: item for log, item in ranges.items()}),
            ranges,
            self.stream,
            self.settings,
            clock_us=micros(newest),  # the same in every attempt
        )
        before = last_manifest(self.store, self.layout, self.writer)
        batch = 0 if before is None else before.batch + 1
        commit_batch(
            self.store,
            self.layout,
            self.stream,
            writer=self.writer,
            batch=batch,
            ranges=ranges,
            files=written.files,
            now_us=micros(datetime.now(UTC)),
            # The record's timestamp is the object's, not Kafka's.
            day_settings=f"{self.stream.day_settings}, import.timestamp_field={self.fields.timestamp}",
        )
        self.outcome.manifests.append(self.layout.manifest_key(self.writer, batch))

    def _refuse(self, item: ConnectObject, problem: str, expected: object, found: object, hint: str) -> bool:
        """Report that not all of the object is imported. Returns False."""
        error = FormatError(problem, expected=expected, found=found, where=item.key, hint=hint)
        self.outcome.problems.setdefault(str(error), error)  # an object that stays open is seen again
        return False


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
    """Import the records below ``prefix`` whose offsets are not archived. With ``dry_run``, only report them.

    A stopped import continues at the next call; a finished one imports nothing. ``topic_id`` confirms that the objects
    are of that topic, if Kafka holds none of their records any more. ``progress`` is called with the number of objects
    read and of all to be read. Raises ConfigError if the stream can't have such records, RequestError if the prefix
    holds none, and ConflictError if objects are of another log.
    """
    _require_importable(stream, fields)
    folder = f"{prefix.strip('/')}/".removeprefix("/")
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    listing = sort_objects(store.list(folder), stream.topic)
    if not listing.objects:
        others = [f"{len(keys)} {reason}" for reason, keys in listing.ignored.items()]
        raise RequestError(
            "there is nothing to import",
            expected=f"objects named {stream.topic}+<partition>+<start>.<format>",
            found="; ".join([*others, *map(str, listing.problems)]) or "no object",
            where=f"s3://{store.bucket}/{folder}",
            hint="Name the sink's topics.dir, or a folder in it",
        )
    history = read_archived(store, layout, stream).history()
    ends = watermarks(settings.kafka, describe_topic(settings.kafka, stream.topic))
    logs = by_log(listing.objects, ends, {item.log: history.archived(item.log) for item in ends})
    outcome = Imported(
        compared=compare_with_kafka(settings, store, logs, fields),
        logs=logs,
        problems={str(item): item for item in listing.problems},
        ignored=listing.ignored,
    )
    # The writer is the same in every run, and its name shows the folder.
    slug = re.sub(r"[^a-z0-9]+", "-", folder.lower())[:40]
    digest = hashlib.sha256(f"s3://{store.bucket}/{folder}".encode()).hexdigest()
    job = ImportJob(
        spark=spark,
        settings=settings,
        stream=stream,
        store=store,
        layout=layout,
        fields=fields,
        writer=None if dry_run else f"import-{slug}{digest[:8]}",
        confirmed=outcome.compared > 0 or topic_id == ends[0].log.topic_id,
        outcome=outcome,
    )
    job.run(progress)
    return outcome


def _require_importable(stream: Stream, fields: ValueFields) -> None:
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
