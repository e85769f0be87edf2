"""A log of numbered records, archived by the archive's writer in small batches."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from tidemark.archive.ledger.ledger import read_archived
from tidemark.archive.manifests import commit_batch
from tidemark.archive.write.file import FileTarget
from tidemark.archive.write.last_records import LastRecords
from tidemark.archive.write.task import FileLimits, write_files
from tidemark.core.layout import Layout
from tidemark.core.logged_record import LoggedRecord
from tidemark.core.manifest import DataFile, Manifest, parse_manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.objects.columns import object_batches
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore

ZONE = ZoneInfo("America/New_York")
START = datetime(2013, 1, 14, 20, tzinfo=ZONE)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = datetime(2100, 2, 1, tzinfo=UTC)  # of maintenance: every object is old enough for it


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def time_of(offset: int) -> datetime:
    """A record every ten minutes: six in an hour, 24 until midnight."""
    return START + timedelta(minutes=10 * offset)


def hour(moment: datetime) -> str:
    return f"hour={moment.astimezone(ZONE):%d-%H}"


def row_of(log: TopicPartition, offset: int, moment: datetime, value: bytes) -> dict[str, Any]:
    return {
        "topic": log.topic,
        "partition": log.partition,
        "offset": offset,
        "timestamp": moment,
        "timestamp_type": 0,
        "key": None if offset % 5 == 0 else b"k%d" % offset,
        "value": value,
        "headers": [{"key": "h", "value": b"%d" % offset}] * (offset % 3),
        "event_time": moment,
    }


@dataclass(slots=True, kw_only=True)
class Small:
    """The archive of one stream; ``path`` gives the folder of a record by its time."""

    store: ObjectStore
    stream: Stream
    prefix: str = ""
    path: Callable[[datetime], str] = hour
    moments: Callable[[int], datetime] = time_of
    values: Callable[[int], bytes] = lambda offset: b"value %d" % offset
    batches: dict[str, int] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return Layout(prefix=self.prefix, stream=self.stream.name)

    def log(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(topic=self.stream.topic, topic_id="id-1", partition=partition)

    def commit(
        self,
        start: int,
        end: int,
        *,
        writer: str = "query-a",
        log: TopicPartition | None = None,
        at: datetime = NOW - timedelta(days=10),
        stream: Stream | None = None,
        without: frozenset[int] = frozenset(),
        timestamp_type: int = 0,
        unreadable: frozenset[int] | None = None,
    ) -> Manifest:
        """Archive ``[start, end)`` without some offsets as the writer's next batch.

        The times of the ``unreadable`` ones can't be read; None if they are not counted.
        """
        files, last = self._write(
            start, end, log, stream, without=without, timestamp_type=timestamp_type, unreadable=unreadable
        )
        return self.list_files(start, end, files, writer=writer, log=log, at=at, stream=stream, last=last)

    def upload(
        self,
        start: int,
        end: int,
        *,
        log: TopicPartition | None = None,
        stream: Stream | None = None,
        without: frozenset[int] = frozenset(),
    ) -> list[DataFile]:
        """The objects of ``[start, end)`` without some offsets, in no manifest."""
        return self._write(start, end, log, stream, without=without)[0]

    def _write(
        self,
        start: int,
        end: int,
        log: TopicPartition | None,
        stream: Stream | None,
        *,
        without: frozenset[int],
        timestamp_type: int = 0,
        unreadable: frozenset[int] | None = None,
    ) -> tuple[list[DataFile], list[LoggedRecord]]:
        """The objects of ``[start, end)``, and the log's last record."""
        stream, log = stream or self.stream, log or self.log()
        span = OffsetRange(start=start, end=end)
        times = {o: self.moments(o) for o in range(start, end) if o not in without}
        rows = [
            {**row_of(log, o, moment, self.values(o)), "timestamp_type": timestamp_type} for o, moment in times.items()
        ]
        days = [(moment.astimezone(ZONE).date() - EPOCH.date()).days for moment in times.values()]
        paths = [self.path(moment) for moment in times.values()]
        table = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
        table = table.append_column("path", pa.array(paths)).append_column("day", pa.array(np.array(days, np.int32)))
        if unreadable is not None:
            marks = pa.array([None if o in unreadable else False for o in times], pa.bool_())
            table = table.append_column("out_of_bounds", marks)
        target = FileTarget(
            store=self.store,
            layout=self.layout,
            part_bytes=stream.archive.part_bytes,
            settings=stream.archive_settings,
        )
        last = LastRecords([(log, span)])
        files = write_files(last.watch([table]), [(log, span)], target, FileLimits.of(stream.archive))
        return files, last.found()

    def list_files(
        self,
        start: int,
        end: int,
        files: Sequence[DataFile],
        *,
        writer: str,
        log: TopicPartition | None = None,
        at: datetime = NOW - timedelta(days=10),
        stream: Stream | None = None,
        last: Sequence[LoggedRecord] = (),
    ) -> Manifest:
        """Write the manifest of the writer's next batch, ``[start, end)`` in these objects."""
        batch = self.batches.get(writer, 0)
        self.batches[writer] = batch + 1
        return commit_batch(
            self.store,
            self.layout,
            stream or self.stream,
            writer=writer,
            batch=batch,
            ranges={log or self.log(): OffsetRange(start=start, end=end)},
            files=files,
            now_us=micros(at),
            last=last,
        )

    def manifests(self) -> list[Manifest]:
        bodies = [(item.key, self.store.get(item.key)) for item in self.store.list(self.layout.manifest_prefix)]
        return [parse_manifest(body or b"", where=key) for key, body in bodies]

    def compactions(self) -> list[Manifest]:
        return [item for item in self.manifests() if item.writer == "compact"]

    def objects(self) -> dict[str, datetime]:
        """Every data object with the time of its write."""
        return {item.key: item.modified for item in self.store.list(self.layout.data_prefix)}

    def ranges_in_use(self) -> list[tuple[int, int]]:
        """The ranges of partition 0 that a plan may use."""
        history = read_archived(self.store, self.layout, self.stream).history()
        whole = OffsetRange(start=0, end=2**40)
        return sorted((item.range.start, item.range.end) for item in history.overlapping(self.log(), whole))

    def rows(self, key: str) -> list[dict[str, object]]:
        batches = object_batches(self.store, key, SCHEMA.names)
        assert batches is not None
        found: list[dict[str, object]] = pa.Table.from_batches(batches, SCHEMA).to_pylist()
        return found

    def expected(self, offsets: Iterator[int] | range, log: TopicPartition | None = None) -> list[dict[str, object]]:
        owner = log or self.log()
        table = pa.RecordBatch.from_pylist(
            [row_of(owner, o, self.moments(o), self.values(o)) for o in offsets], schema=SCHEMA
        )
        found: list[dict[str, object]] = table.to_pylist()
        return found
