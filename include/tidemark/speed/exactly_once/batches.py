"""Exactly-once delivery of the speed stream's batches: one task per source log, each with its own transactions.

Spark writes a batch's ranges to its write-ahead log and repeats the batch until it is done. Each task reads its marker
from Kafka, which says how much of its range is delivered (``transactions``). So no repeated task, repeated batch or
second driver adds a record twice.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidemark.core.codec import decode, encode
from tidemark.core.errors import ConfigError, ConflictError
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.kafka.names import delivery_prefix, marker_topic
from tidemark.kafka.positions import watermarks
from tidemark.settings import Settings
from tidemark.spark.client_source import with_any_time
from tidemark.spark.kafka_tasks import tasks_read
from tidemark.spark.large_rows import bounded_batches, join, split
from tidemark.spark.same_topic import same_logs
from tidemark.spark.task_input import whole
from tidemark.speed.batches import BatchCounts, DeliveryBatches
from tidemark.speed.exactly_once.marker import Sink, TaskRange, ensure_markers
from tidemark.speed.exactly_once.preconditions import require_partitions
from tidemark.speed.exactly_once.transactions import Delivered, deliver
from tidemark.speed.headers import add_coordinates
from tidemark.speed.record_limits import RecordLimits
from tidemark.speed.topics import TRANSACTION_TIMEOUT_S

# The columns of a task's receipt.
RECEIPT = "delivered string"
# The client's default.
_BATCH_BYTES = 1_000_000
ANY_LIMITS = RecordLimits(live=_BATCH_BYTES, dead_letter=_BATCH_BYTES)


def sink_of(stream: Stream, settings: Settings, topic_id: str, limits: RecordLimits = ANY_LIMITS) -> Sink:
    """The sink of the stream's records and markers; ``topic_id`` is the source's. Markers need no ``limits``."""
    return Sink(
        kafka=settings.speed_kafka,
        group=delivery_prefix("speed", stream, settings) + topic_id,
        marker_topic=marker_topic(stream.speed.topic),
        records=stream.speed.transaction_records,
        timeout_s=TRANSACTION_TIMEOUT_S,
        batch_bytes=min(_BATCH_BYTES, limits.live, limits.dead_letter),
        record_bytes=limits.client_bytes,
        before_ms=limits.before_ms,
        after_ms=limits.after_ms,
        set_marker=f"tidemark markers {stream.name} --set PARTITION=OFFSET",
    )


@dataclass(kw_only=True)
class TransactionBatches(DeliveryBatches):
    """Batches for transactions. ``partitions``: the number of source partitions known so far."""

    sink: Sink
    partitions: int
    _initial: dict[int, int] | None = None

    def _deliver(self, frame: DataFrame, batch: int) -> BatchCounts:
        logs = self._logs()
        planned = self.checkpoint.ranges(batch)
        tasks = _one_log_each(frame)
        _require_own(planned, dict(tasks), f"{self.checkpoint.prefix}offsets/{batch}")
        spans = {log.partition: self._span(log, item, batch) for log, item in self._of_logs(planned, logs).items()}
        own = [spans[partition] for partition, _ in tasks]
        done = with_any_time(
            lambda source: self._run(source, own),
            frame,
            self.settings,
            lambda: {span.log: OffsetRange(start=span.start, end=span.until) for span in own},
            skip_deleted=True,
        )
        # A range that retention deleted completely has no task. Its marker moves too, to fit the next batch.
        deleted = [spans[partition] for partition in sorted(planned.keys() - dict(tasks).keys())]
        self._require_deleted(deleted)
        done += tuple(deliver((), span, self.sink) for span in deleted)
        self._logs()  # Spark must not commit the batch if the topic was recreated meanwhile
        dead, good = sum(item.dead for item in done), sum(item.good for item in done)
        # Rows that an earlier attempt delivered count as read only.
        read = dead + good + sum(item.skipped for item in done)
        return BatchCounts(read=read, written=dead + good, dead=dead)

    def _require_deleted(self, spans: list[TaskRange]) -> None:
        """Nothing may be read of a range only if its log starts after it now."""
        for mark, span in zip(watermarks(self.settings.kafka, [span.log for span in spans]), spans, strict=True):
            if mark.log_start < span.until:
                raise ConflictError(
                    "a batch does not read the range in the write-ahead log",
                    expected=f"[{span.start}, {span.until})",
                    found=f"no offsets, in a log that starts at {mark.log_start}",
                    where=str(span.log),
                )

    def _run(self, source: DataFrame, spans: list[TaskRange]) -> tuple[Delivered, ...]:
        sent = self._sent(source, with_coordinates=False)
        with self._explained(), bounded_batches(sent.sparkSession):
            return receipts(split(sent).mapInArrow(_task(tuple(spans), self.sink, self.stream), RECEIPT))

    def _span(self, log: TopicPartition, planned: OffsetRange, batch: int) -> TaskRange:
        """The task's range. It is the log's first one as long as the log's position never moved."""
        if self._initial is None:
            self._initial = self.checkpoint.initial()
        first = planned.start == self._initial.get(log.partition, 0)
        return TaskRange(log=log, start=planned.start, until=planned.end, batch=batch, first=first)

    def _logs(self) -> tuple[TopicPartition, ...]:
        logs = same_logs(self.settings, self.stream.topic, self.topic_id)
        if len(logs) > self.partitions:
            require_partitions(self.stream, self.settings, len(logs))
            ensure_markers(self.sink.kafka, self.sink.marker_topic, len(logs))
            self.partitions = len(logs)
        return logs


def receipt(done: Delivered) -> pa.RecordBatch:
    """What a task returns to the driver."""
    return pa.record_batch([pa.array([json.dumps(encode(done))])], names=["delivered"])


def receipts(frame: DataFrame) -> tuple[Delivered, ...]:
    """Run the tasks of a frame of receipts."""
    return tuple(decode(Delivered, json.loads(row.delivered), where="a task's receipt") for row in frame.collect())


def _task(
    spans: tuple[TaskRange, ...], sink: Sink, stream: Stream
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that each task runs; the spans are in the order of the tasks."""
    name, version = stream.name, stream.version

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        span = spans[context.partitionId()]
        rows = join(whole(batches), offset="source_offset")
        done = deliver((add_coordinates(batch, span.log, name, version) for batch in rows), span, sink)
        yield receipt(done)

    return run


def _one_log_each(frame: DataFrame) -> list[tuple[int, OffsetRange]]:
    """Partition and offsets of each task, in the order of the tasks. Raises ConfigError unless each reads one log."""
    tasks = tasks_read(frame)
    if any(len(task) != 1 for task in tasks) or len({task[0][0] for task in tasks}) != len(tasks):
        raise ConfigError(
            "exactly-once delivery needs one task per source partition",
            expected="a separate task for every partition",
            found="; ".join(", ".join(f"partition {number} {span}" for number, span in task) for task in tasks),
            hint="Remove minPartitions and other options that split or join partitions, or use at_least_once delivery",
        )
    return [task[0] for task in tasks]


def _require_own(planned: Mapping[int, OffsetRange], read: Mapping[int, OffsetRange], where: str) -> None:
    """The write-ahead log must hold the ranges that this query reads: another driver may have written its own."""

    def fits(partition: int, wanted: OffsetRange) -> bool:
        found = read.get(partition)
        # A new partition starts at its log's start, but the write-ahead log says 0.
        starts_later = wanted.start == 0 and (found is None or found.end == wanted.end)
        return found == wanted or starts_later

    if not read.keys() <= planned.keys() or not all(fits(*item) for item in planned.items()):
        raise ConflictError(
            "the write-ahead log holds another batch than this query reads",
            expected=_ranges_text(read),
            found=_ranges_text(planned),
            where=where,
            hint="Another driver uses this checkpoint: stop it, then restart this one",
        )


def _ranges_text(ranges: Mapping[int, OffsetRange]) -> str:
    return ", ".join(f"partition {partition} {ranges[partition]}" for partition in sorted(ranges)) or "no offsets"
