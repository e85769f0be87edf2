"""The work of an import: which records have known offsets, and which of those are written.

An object's key says the offset of its first record only. So an object is imported where the offsets of all its records
are known:

- With a field that holds the offset, every record has its own.
- Else an object must have as many records as there are offsets up to the next object. With the default partitioner that
  proves it by itself. With any other one an object may also hold records from after the start of the next one. Then the
  objects before it must hold exactly the offsets before it, and nothing is imported after offsets that no object has.

The last object of a log has no next one. Its records are taken to have no holes, and are compared with Kafka's.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from tidemark.adopt.listing import ConnectObject, LogObjects, require_before_end, rivals
from tidemark.adopt.rows import ImportRows, ObjectContent, ValueFields
from tidemark.archive.manifests import commit_batch, last_manifest
from tidemark.archive.write.sink import write_range
from tidemark.core.days import micros
from tidemark.core.errors import ConflictError, FormatError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, count, range_or_none, subtract
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

CHUNK_OBJECTS = 200
CHUNK_BYTES = 512 * 1024**2


@dataclass(slots=True, kw_only=True)
class LogState:
    """One log during an import.

    ``waiting`` objects are not read yet. ``open`` ones are read, and may have records after the offsets imported so
    far. ``surplus`` is how many records more than offsets the objects had up to here; None once they had fewer.
    ``last`` is the end of the offsets seen. ``known`` objects are not read, as all their offsets are archived.
    """

    group: LogObjects
    waiting: deque[ConnectObject]
    open: list[ConnectObject] = field(default_factory=list)
    surplus: int | None = 0
    read: int = 0
    rows: int = 0
    known: int = field(init=False)
    last: int = 0

    def __post_init__(self) -> None:
        self.known = len(self.group.objects) - len(self.waiting)


@dataclass(slots=True, kw_only=True)
class ImportJob:
    """Reads the objects in chunks, and writes of each chunk what is not archived.

    ``writer`` is None for a dry run. ``doubt`` is raised before anything is written: that the objects may be of another
    topic.
    """

    spark: SparkSession
    settings: Settings
    stream: Stream
    store: ObjectStore
    layout: Layout
    fields: ValueFields
    writer: str | None
    logs: list[LogState]
    progress: Callable[[int, int], None]
    doubt: ConflictError | None
    problems: dict[str, FormatError] = field(default_factory=dict)  # by their texts
    manifests: list[str] = field(default_factory=list)

    def run(self) -> None:
        self._refuse_rivals()
        total = sum(len(state.waiting) for state in self.logs)
        self.progress(0, total)
        while any(state.waiting for state in self.logs):
            self._import_chunk(self._next_chunk())
            self.progress(sum(state.read for state in self.logs), total)

    def _refuse_rivals(self) -> None:
        """Without their own offsets, the records of two objects with one start can't be distinguished."""
        if self.fields.offset is not None:
            return
        for state in self.logs:
            twins = dict(rivals(state.group))
            for item in state.waiting:
                if item in twins:
                    problem, hint = "two objects start at the same offset", "Remove one of them"
                    self._refuse(item, problem, "one object", f"also {twins[item].key}", hint)
            state.waiting = deque(item for item in state.waiting if item not in twins)

    def _next_chunk(self) -> list[tuple[LogState, ConnectObject]]:
        """Some objects of every log, ordered by log: those that are open, and the next ones."""
        active = [state for state in self.logs if state.waiting]
        objects, size = CHUNK_OBJECTS // len(active), CHUNK_BYTES // len(active)
        chunk = []
        for state in active:
            taken = [state.waiting.popleft()]
            left = size - taken[0].bytes
            while state.waiting and len(taken) < objects and (left := left - state.waiting[0].bytes) >= 0:
                taken.append(state.waiting.popleft())
            state.open += taken
            state.read += len(taken)
            chunk += [(state, item) for item in state.open]
        return chunk

    def _import_chunk(self, chunk: Sequence[tuple[LogState, ConnectObject]]) -> None:
        objects = [item for _, item in chunk]
        rows = ImportRows(self.spark, self.settings, self.stream, objects, self.fields)
        try:
            contents = rows.contents()
            refused = [
                number
                for number, (state, item) in enumerate(chunk)
                if (content := contents.get(number)) is not None and not self._accept(state, item, content)
            ]
            wanted = self._wanted(chunk, contents, rows.offsets(refused))
            if self.doubt is not None and any(wanted.values()):
                raise self.doubt
            for batch in _batches(wanted):
                self._write(rows, refused, batch, objects)
        finally:
            rows.close()

    def _accept(self, state: LogState, item: ConnectObject, content: ObjectContent) -> bool:
        """Whether the offsets of the object's records are known; reports what is not imported of it."""
        end = item.start + content.rows
        if content.problem is not None:
            state.surplus = None
            self.problems.setdefault(content.problem, FormatError(content.problem))
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
        elif not self._fits(state, item, content.rows):
            return False
        require_before_end(state.group, item, end)
        state.last = max(state.last, end)
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

    def _fits(self, state: LogState, item: ConnectObject, rows: int) -> bool:
        """Whether the object's records are at the offsets from its start on, without a hole."""
        bound = state.group.bound(item)
        offsets = rows if bound is None else bound - item.start
        before, known = state.surplus, f"the {offsets} records of [{item.start}, {bound})"
        if state.group.in_order:
            fits = rows == offsets
        else:
            after = None if before is None else before + rows - offsets
            state.surplus = None if after is None or after < 0 else after
            fits = before == 0 and after == 0
        if fits:
            return True
        why = "Nobody can tell which offsets its records have. "
        if not state.group.in_order:
            known += ", and of no other offsets in the objects before"
        return self._refuse(
            item,
            "the offsets of an object's records are unknown",
            known,
            f"{rows} records",
            why + "If the sink added the offset to the values, name the field: --offset-field",
        )

    def _wanted(
        self,
        chunk: Sequence[tuple[LogState, ConnectObject]],
        contents: dict[int, ObjectContent],
        found: dict[int, OffsetSet],
    ) -> dict[TopicPartition, OffsetSet]:
        """The offsets to import of each log; an object that has later ones stays open.

        Any object that holds an offset starts at or before it. So up to the start of the next object all are known.
        """
        wanted = {}
        for state in {id(state): state for state, _ in chunk}.values():
            group = state.group
            own = found.get(group.log.partition, ())
            if self.fields.offset is not None and state.waiting:
                until = range_or_none(0, state.waiting[0].start)
                later = subtract(own, [until] if until else [])
                own = subtract(own, later)
                highest = {item.key: contents[at].highest for at, (_, item) in enumerate(chunk) if at in contents}
                state.open = [item for item in state.open if (highest.get(item.key) or 0) >= state.waiting[0].start]
            else:
                state.open = []
            wanted[group.log] = subtract(own, group.archived)
            state.rows += count(wanted[group.log])
            group.add(wanted[group.log])
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
        newest = max(file.modified for item in objects for file in item.files)
        files = write_range(
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
            files=files,
            now_us=micros(datetime.now(UTC)),
        )
        self.manifests.append(self.layout.manifest_key(self.writer, batch))

    def _refuse(self, item: ConnectObject, problem: str, expected: object, found: object, hint: str) -> bool:
        """Report that some of the object is not imported; False."""
        error = FormatError(problem, expected=expected, found=found, where=item.key, hint=hint)
        self.problems.setdefault(str(error), error)  # an object that stays open is seen again
        return False


def _batches(wanted: Mapping[TopicPartition, OffsetSet]) -> Iterator[dict[TopicPartition, OffsetRange]]:
    """The ranges in rounds of at most one of each log."""
    for number in range(max((len(ranges) for ranges in wanted.values()), default=0)):
        yield {log: ranges[number] for log, ranges in wanted.items() if number < len(ranges)}
