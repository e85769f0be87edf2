"""Exactly-once delivery of the speed stream's batches: one task per source log, each with its own transactions.

Spark fixes a batch's ranges in its write-ahead log and repeats the batch until it is done; the marker that a task
finds in Kafka says how much of its range is delivered already (``transactions``). So neither a repeated
task, nor a repeated batch, nor a second driver can add a record twice.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tidemark.core.codec import decode, encode
from tidemark.core.errors import ConfigError, ConflictError, ServiceError, TidemarkError
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.settings import Settings
from tidemark.spark.checkpoint import Checkpoint
from tidemark.spark.failures import task_error
from tidemark.spark.kafka_tasks import tasks_read
from tidemark.spark.large_rows import bounded_batches, join, split
from tidemark.spark.process import Transform, classify
from tidemark.spark.records import records
from tidemark.spark.streaming import stop_requested
from tidemark.speed.exactly_once.preconditions import require_partitions
from tidemark.speed.exactly_once.transactions import Delivered, Sink, TaskRange, deliver, ensure_markers
from tidemark.speed.headers import add_coordinates
from tidemark.speed.output import RecordLimits, output
from tidemark.speed.topics import TRANSACTION_TIMEOUT_S

# The client's own default.
_BATCH_BYTES = 1_000_000


def sink_of(stream: Stream, settings: Settings, topic_id: str, limits: RecordLimits) -> Sink:
    """Where the stream's records and markers go; ``topic_id`` is the source's."""
    return Sink(
        bootstrap=settings.speed_bootstrap,
        group=f"tidemark-speed-{stream.name}-{topic_id}",
        marker_topic=marker_topic(stream),
        records=stream.speed.transaction_records,
        timeout_s=TRANSACTION_TIMEOUT_S,
        batch_bytes=min(_BATCH_BYTES, limits.live, limits.dead_letter),
    )


def marker_topic(stream: Stream) -> str:
    """The empty topic for whose partitions the markers are committed."""
    return f"{stream.speed.topic}.markers"


@dataclass(kw_only=True)
class TransactionBatches:
    """One stream's batches. Called on Spark's thread; ``busy`` and ``figures`` are for the main thread."""

    stream: Stream
    settings: Settings
    transform: Transform
    checkpoint: Checkpoint
    topic_id: str
    limits: RecordLimits
    sink: Sink
    partitions: int  # that the source was known to have at the start
    busy: Event = field(default_factory=Event)
    failure: TidemarkError | None = None
    _done: dict[int, tuple[Delivered, ...]] = field(default_factory=dict)
    _initial: dict[int, int] | None = None

    def deliver(self, frame: DataFrame, batch: int) -> None:
        """For ``foreachBatch``."""
        self.busy.set()
        try:
            if stop_requested():
                # Returning would let Spark commit a batch nobody delivered; it is in the write-ahead log.
                raise ServiceError("the stream is stopping", where=f"batch {batch}")
            self._done[batch] = self._deliver(frame, batch)
        except TidemarkError as error:
            self.failure = error
            raise
        finally:
            self.busy.clear()

    def counted(self, progress: Mapping[str, Any], layer: str) -> dict[str, Any]:
        """Spark's progress of a batch with what was delivered, in the form that the at-least-once query has by itself.

        Rows that an earlier attempt had delivered are read, and neither published nor dead-lettered.
        """
        done = self._done.pop(progress["batchId"], ())
        dead = sum(item.dead for item in done)
        written = dead + sum(item.good for item in done)
        rows = written + sum(item.skipped for item in done)
        metrics = {layer: {"rows": written, "dead_lettered": dead}}
        return {**progress, "numInputRows": rows, "observedMetrics": metrics}

    def _deliver(self, frame: DataFrame, batch: int) -> tuple[Delivered, ...]:
        logs = self._logs()
        planned = self.checkpoint.ranges(batch)
        tasks = _one_log_each(frame)
        _require_own(planned, dict(tasks), f"{self.checkpoint.prefix}offsets/{batch}")
        spans = {
            log.partition: self._span(log, planned[log.partition], batch) for log in logs if log.partition in planned
        }
        if spans.keys() != planned.keys():
            raise ConflictError(
                "a batch has partitions that the topic has not",
                expected=f"partitions {sorted(log.partition for log in logs)}",
                found=f"partitions {sorted(planned)}",
                where=self.stream.topic,
            )
        rows = classify(records(frame, self.stream), self.stream, self.transform)
        sent = output(rows, self.stream, self.topic_id, record_limits=self.limits, with_coordinates=False)
        done = self._run(sent, [spans[partition] for partition, _ in tasks])
        # What retention took in whole has no task; its marker moves all the same, or it would not fit the next batch.
        gone = [spans[partition] for partition in sorted(planned.keys() - dict(tasks).keys())]
        self._require_gone(gone)
        done += tuple(deliver((), span, self.sink) for span in gone)
        self._logs()  # made again meanwhile, it must not become Spark's done batch
        return done

    def _require_gone(self, spans: list[TaskRange]) -> None:
        """Only of a log that now starts behind its range may nothing be read."""
        for mark, span in zip(
            watermarks(self.settings.kafka_bootstrap, [span.log for span in spans]), spans, strict=True
        ):
            if mark.log_start < span.until:
                raise ConflictError(
                    "a batch does not read what the write-ahead log says",
                    expected=f"[{span.start}, {span.until})",
                    found=f"no offsets, of a log that starts at {mark.log_start}",
                    where=str(span.log),
                )

    def _run(self, sent: DataFrame, spans: list[TaskRange]) -> tuple[Delivered, ...]:
        try:
            with bounded_batches(sent.sparkSession):
                found = (
                    split(sent).mapInArrow(_task(tuple(spans), self.sink, self.stream), "delivered string").collect()
                )
        except (PySparkException, Py4JJavaError) as error:
            raise task_error(error, where=f"speed stream {self.stream.name}") from error
        return tuple(decode(Delivered, json.loads(row.delivered), where="a task's receipt") for row in found)

    def _span(self, log: TopicPartition, planned: OffsetRange, batch: int) -> TaskRange:
        """A log is read for the first time for as long as its position never moved: nothing was delivered of it."""
        if self._initial is None:
            self._initial = self.checkpoint.initial()
        first = planned.start == self._initial.get(log.partition, 0)
        return TaskRange(log=log, start=planned.start, until=planned.end, batch=batch, first=first)

    def _logs(self) -> tuple[TopicPartition, ...]:
        logs = describe_topic(self.settings.kafka_bootstrap, self.stream.topic)
        if logs[0].topic_id != self.topic_id:
            raise made_again(self.stream.topic, self.topic_id, logs[0].topic_id)
        if len(logs) > self.partitions:
            require_partitions(self.stream, self.settings, len(logs))
            ensure_markers(self.sink.bootstrap, self.sink.marker_topic, len(logs))
            self.partitions = len(logs)
        return logs


def made_again(topic: str, expected: str, found: str) -> ConflictError:
    """The error of a stream under which its source was replaced."""
    return ConflictError(
        "the topic was made again while the stream ran",
        expected=f"topic id {expected}",
        found=f"topic id {found}",
        where=topic,
        hint="Start the stream again: it names the checkpoint to remove",
    )


def _task(
    spans: tuple[TaskRange, ...], sink: Sink, stream: Stream
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What each task does; the spans are in the order of the tasks."""
    name, version = stream.name, stream.version

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        span = spans[context.partitionId()]
        rows = (add_coordinates(batch, span.log, name, version) for batch in join(batches, offset="source_offset"))
        done = deliver(rows, span, sink)
        yield pa.record_batch([pa.array([json.dumps(encode(done))])], names=["delivered"])

    return run


def _one_log_each(frame: DataFrame) -> list[tuple[int, OffsetRange]]:
    """Partition and offsets of each task, in the order of the tasks."""
    tasks = tasks_read(frame)
    if any(len(task) != 1 for task in tasks) or len({task[0][0] for task in tasks}) != len(tasks):
        raise ConfigError(
            "exactly-once delivery needs one task per source partition",
            expected="every partition read by a task of its own",
            found="; ".join(", ".join(f"partition {number} {span}" for number, span in task) for task in tasks),
            hint="Remove minPartitions and whatever else splits or joins partitions, or set delivery to at_least_once",
        )
    return [task[0] for task in tasks]


def _require_own(planned: Mapping[int, OffsetRange], read: Mapping[int, OffsetRange], where: str) -> None:
    """The write-ahead log must say what this very query reads: another driver may have put its own plan there."""

    def fits(partition: int, wanted: OffsetRange) -> bool:
        found = read.get(partition)
        # A partition that is new starts at its log's start, where the write-ahead log leaves 0 to be understood.
        later = wanted.start == 0 and (found is None or found.end == wanted.end)
        return found == wanted or later

    if not read.keys() <= planned.keys() or not all(fits(*item) for item in planned.items()):
        raise ConflictError(
            "the write-ahead log has another batch than the one this query reads",
            expected=_told(read),
            found=_told(planned),
            where=where,
            hint="Another driver uses this checkpoint: stop it, then start this one again",
        )


def _told(ranges: Mapping[int, OffsetRange]) -> str:
    return ", ".join(f"partition {partition} {ranges[partition]}" for partition in sorted(ranges)) or "no offsets"
