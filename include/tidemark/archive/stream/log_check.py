"""Compares the stream's logs with what it archived of them: at the start, and whenever a log has another leader.

Only a new leader truncates a log. So each batch asks for the leaders' epochs, and reads a record from Kafka only where
one has changed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from tidemark.archive.ledger.ledger import read_archived
from tidemark.archive.loss import RangeOfLog
from tidemark.archive.rewritten import ArchivedRecords, Ends, differing, rewritten_error, with_epochs
from tidemark.archive.write.sink import Written
from tidemark.core.layout import Layout
from tidemark.core.logged_record import LoggedRecord, RewrittenLog
from tidemark.core.manifest import Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.kafka.log_ends import LogEnds
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.streaming import log_event


@dataclass(kw_only=True)
class LogCheck:
    """The last archived record of each log, and the epoch of its leader when it was last compared."""

    stream: Stream
    records: ArchivedRecords
    _last: dict[TopicPartition, LoggedRecord] = field(default_factory=dict)
    _epochs: dict[TopicPartition, int | None] = field(default_factory=dict)
    _ends: LogEnds = field(init=False)

    def __post_init__(self) -> None:
        self._ends = LogEnds(self.records.kafka)

    @classmethod
    def of(cls, stream: Stream, settings: Settings, store: ObjectStore) -> Self:
        """The check of a stream's archive."""
        layout = Layout(prefix=settings.prefix, stream=stream.name)
        records = ArchivedRecords(
            store=store,
            layout=layout,
            kafka=settings.kafka,
            history=lambda: read_archived(store, layout, stream).history(),
        )
        return cls(stream=stream, records=records)

    def start(self, before: Manifest | None, logs: Sequence[TopicPartition]) -> None:
        """Compare each log's last record: in the writer's last manifest, or without one the last that anyone archived.

        Raises PositionError if Kafka holds another record, or none, unless the stream accepts that.
        """
        if before is not None:
            self._last = {item.log: item for item in before.last}
        else:  # the first start, or the checkpoint was lost
            self._last = {item.log: item for item in self.records.last(logs)}
        self.compare()

    def compare(self) -> None:
        """Compare every log with its last record. Raises what ``start`` raises."""
        ends = self._ends.ask(self._last)
        self._require_same(self._last.values(), ends)
        self._epochs = {log: end.leader_epoch for log, end in ends.items()}

    def before_commit(self, ranges: RangeOfLog, written: Written) -> tuple[LoggedRecord, ...]:
        """Compare the logs of a batch that have another leader, between its read and its manifest. Returns the last
        records for the manifest.

        Both the last record before the batch and the batch's own last one must be Kafka's: the log may have been
        truncated while the batch was read. Raises PositionError as ``start``.
        """
        ends = self._ends.ask(ranges)
        changed = {
            log
            for log, end in ends.items()
            if log not in self._epochs or end.leader_epoch is None or end.leader_epoch != self._epochs[log]
        }
        if changed:
            self._require_same([item for log, item in self._last.items() if log in changed], ends)
            self._require_read([item for item in written.last if item.log in changed], ends, ranges, written)
        self._epochs |= {log: ends[log].leader_epoch for log in changed}
        own = {item.log: item for item in with_epochs(written.last, ends)}
        return tuple((self._last | own).values())

    def committed(self, manifest: Manifest) -> None:
        """Continue after a batch's manifest."""
        self._last = {item.log: item for item in manifest.last}

    def _require_same(self, records: Iterable[LoggedRecord], ends: Ends) -> None:
        found = self.records.rewritten(records, ends)
        if self._refuses(found):
            raise rewritten_error(found, f"archive of {self.stream.name}")

    def _require_read(self, records: Iterable[LoggedRecord], ends: Ends, ranges: RangeOfLog, written: Written) -> None:
        """Raise PositionError unless the batch's own last records are Kafka's."""
        found = tuple(
            RewrittenLog(
                archived=item,
                kafka=there.record,
                end=there.end,
                range=OffsetRange(start=ranges[item.log].start, end=item.offset + 1),
            )
            for item, there in differing(self.records.kafka, records, ends)
        )
        if self._refuses(found):
            logs = {item.archived.log for item in found}
            keys = tuple(file.key for file in written.files if file.log in logs)
            raise rewritten_error(found, f"archive of {self.stream.name}, a batch that is not committed", objects=keys)

    def _refuses(self, found: Sequence[RewrittenLog]) -> bool:
        """Whether the stream must stop. If it accepts rewritten logs, log each of them instead."""
        if self.stream.archive.on_rewrite == "stop":
            return bool(found)
        for item in found:
            log_event(
                "rewritten",
                level="error",
                layer="archive",
                stream=self.stream.name,
                topic=item.archived.log.topic,
                partition=item.archived.log.partition,
                start=item.range.start,
                end=item.range.end,
            )
        return False
