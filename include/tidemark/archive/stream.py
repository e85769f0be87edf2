"""The archive stream: Kafka to S3, a micro-batch at a time, each committed by its manifest.

Spark fixes a batch's range in its write-ahead log; the tasks upload; the driver writes the manifest; Spark commits. A
crash anywhere repeats the very same range, and finds what is there already.
"""

import time
from contextlib import suppress
from datetime import UTC, datetime
from threading import Event

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidemark.archive.checkpoint import Checkpoint
from tidemark.archive.commit import commit_batch, find_manifest, last_manifest
from tidemark.archive.progress import Progress
from tidemark.archive.sink import task_error, write_range
from tidemark.core.errors import ConflictError, IncompleteError, PositionError, ServiceError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.core.manifest import DataFile, Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.kafka import describe_topic, watermarks
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.monitor import Monitor
from tidemark.spark.records import records
from tidemark.spark.streaming import bind_checkpoint, kafka_source, log_event, stop_requested, stream_session, trigger
from tidemark.streams import Stream

POLL_S = 1


def run_archive(stream: Stream, settings: Settings, *, available_now: bool = False) -> None:
    """Run until SIGTERM or SIGINT (the batch in hand is finished first), or until everything there was is archived.

    Raises a TidemarkError that names what stopped the stream; nothing that was committed is ever undone.
    """
    with stream_session(settings, f"tidemark-archive-{stream.name}") as spark:
        archive(spark, stream, settings, available_now=available_now)


def archive(spark: SparkSession, stream: Stream, settings: Settings, *, available_now: bool = False) -> None:
    """``run_archive`` in a session that is there already."""
    with Monitor(stream, settings, layer="archive") as monitor:
        _run(spark, stream, settings, monitor, available_now=available_now)


def _run(spark: SparkSession, stream: Stream, settings: Settings, monitor: Monitor, *, available_now: bool) -> None:
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    checkpoint = Checkpoint.of(store, layout, stream.topic)
    logs = describe_topic(settings.kafka_bootstrap, stream.topic)
    writer = checkpoint.writer()
    if writer is not None:
        _require_same_topic(last_manifest(store, layout, writer), logs)
    url = bind_checkpoint(store, layout, "archive", logs[0])
    _require_held(checkpoint, logs, settings)
    position = checkpoint.position() or {}
    batches = _Batches(stream, settings, store, layout, monitor)
    source = kafka_source(
        spark,
        stream,
        settings,
        fail_on_data_loss=True,
        max_offsets_per_trigger=stream.archive.max_offsets_per_trigger,
    )
    query = (
        source.writeStream.queryName(f"archive-{stream.name}")
        .foreachBatch(batches.archive)
        .option("checkpointLocation", url)
        .trigger(**trigger(stream.archive.trigger_seconds, available_now=available_now))
        .start()
    )
    monitor.started(str(query.id), position)
    log_event("started", layer="archive", stream=stream.name, writer=str(query.id), checkpoint=url)
    try:
        _await(query, batches, monitor)
    except StreamingQueryException as error:
        if not batches.refused.is_set():
            if stop_requested() and isinstance(batches.failure, ServiceError):
                # The signal reached the Python workers too. Nothing of the batch shows; the next start repeats it.
                log_event("batch given up", layer="archive", stream=stream.name, cause=str(batches.failure))
                return
            if batches.failure is not None:
                raise batches.failure from error
            _require_held(checkpoint, logs, settings)  # the usual reason for the source to fail
            raise task_error(error, where=f"archive of {stream.name}") from error
    except Py4JError as error:
        raise ServiceError("Spark's JVM is gone", found=error, where=f"archive of {stream.name}") from error
    finally:
        with suppress(Py4JError, OSError):  # with the JVM gone there is nothing to stop
            query.stop()
    log_event("stopped", layer="archive", stream=stream.name)


class _Batches:
    """What happens to each micro-batch. Called on Spark's thread; the events tell the main thread how far it is."""

    def __init__(
        self, stream: Stream, settings: Settings, store: ObjectStore, layout: Layout, monitor: Monitor
    ) -> None:
        self.busy = Event()
        self.refused = Event()
        self.failure: TidemarkError | None = None
        self._stream, self._settings, self._store, self._layout = stream, settings, store, layout
        self._checkpoint = Checkpoint.of(store, layout, stream.topic)
        self._progress = Progress(store, monitor)
        self._writer: str | None = None

    def archive(self, frame: DataFrame, batch: int) -> None:
        self.busy.set()
        try:
            if stop_requested():
                # Returning would let Spark commit a batch nobody wrote; it is in the write-ahead log and comes again.
                self.refused.set()
                raise ServiceError("the stream is stopping", where=f"batch {batch}")
            self._archive(frame, batch)
        except TidemarkError as error:
            self.failure = error
            raise
        finally:
            self.busy.clear()

    def _archive(self, frame: DataFrame, batch: int) -> None:
        started = time.monotonic()
        writer = self._writer = self._writer or self._checkpoint.writer()
        if writer is None:
            raise ConflictError(
                "a checkpoint vanished under a running stream",
                expected="metadata with the query's id",
                found="nothing",
                where=f"s3://{self._store.bucket}/{self._checkpoint.prefix}",
            )
        logs = self._logs(writer, batch)
        ranges = _by_log(self._checkpoint.ranges(batch), logs)
        manifest = find_manifest(self._store, self._layout, writer=writer, batch=batch, ranges=ranges)
        again = manifest is not None
        if manifest is None:
            files = self._write(frame, batch, ranges) if ranges else ()
            if self._logs(writer, batch) != logs:  # made again while it was read
                raise ConflictError("the topic changed while a batch was read", where=f"{self._stream.topic}, {batch=}")
            manifest = commit_batch(
                self._store,
                self._layout,
                self._stream,
                writer=writer,
                batch=batch,
                ranges=ranges,
                files=files,
                now_us=int(datetime.now(UTC).timestamp() * 1_000_000),
            )
        self._progress.batch(manifest, seconds=time.monotonic() - started, again=again)

    def _write(self, frame: DataFrame, batch: int, ranges: dict[TopicPartition, OffsetRange]) -> tuple[DataFile, ...]:
        rows = records(frame, self._stream)
        clock_us = self._checkpoint.batch_time_us(batch)
        return write_range(rows, ranges, self._stream, self._settings, clock_us=clock_us, on_task=self._progress.task)

    def _logs(self, writer: str, batch: int) -> tuple[TopicPartition, ...]:
        """The topic's logs as Kafka knows them now; ConflictError where they are not those the writer archived."""
        logs = describe_topic(self._settings.kafka_bootstrap, self._stream.topic)
        _require_same_topic(last_manifest(self._store, self._layout, writer, before=batch), logs)
        return logs


def _await(query: StreamingQuery, batches: _Batches, monitor: Monitor) -> None:
    """Until the query ends, or a stop was asked for and no batch is in hand any more."""
    while not query.awaitTermination(POLL_S):
        monitor.beat()
        if stop_requested() and not batches.busy.is_set() and not query.status["isTriggerActive"]:
            return


def _by_log(ranges: dict[int, OffsetRange], logs: tuple[TopicPartition, ...]) -> dict[TopicPartition, OffsetRange]:
    known = {log.partition: log for log in logs}
    missing = ranges.keys() - known.keys()
    if missing:
        raise PositionError(
            "a batch has partitions that the topic has not",
            expected=f"partitions {sorted(known)}",
            found=f"partitions {sorted(ranges)}",
            where=logs[0].topic,
        )
    return {known[partition]: item for partition, item in ranges.items()}


def _require_same_topic(last: Manifest | None, logs: tuple[TopicPartition, ...]) -> None:
    """Kafka's topic must be the very one this writer archived so far: its positions count that log."""
    archived = {(item.log.topic, item.log.topic_id) for item in last.ranges} if last else set()
    now = (logs[0].topic, logs[0].topic_id)
    if last is None or not archived or archived == {now}:
        return
    same_name = {topic for topic, _ in archived} == {logs[0].topic}
    raise ConflictError(
        "the topic was made again" if same_name else "a checkpoint belongs to another topic",
        expected=", ".join(f"topic {topic}, id {topic_id}" for topic, topic_id in sorted(archived)),
        found=f"topic {now[0]}, id {now[1]}",
        where=f"archive of {last.stream}, after batch {last.batch}",
        hint="Delete the archive's checkpoint to read the topic from its start; what is archived stays",
    )


def _require_held(checkpoint: Checkpoint, logs: tuple[TopicPartition, ...], settings: Settings) -> None:
    """Kafka must still hold everything from the checkpoint's position on."""
    position = checkpoint.position()
    if position is None:
        return
    for mark in watermarks(settings.kafka_bootstrap, tuple(log for log in logs if log.partition in position)):
        wanted = position[mark.log.partition]
        if not mark.log_start <= wanted <= mark.high_watermark:
            lost = f"[{wanted}, {mark.log_start})" if wanted < mark.log_start else f"a log that ends before {wanted}"
            raise IncompleteError(
                "Kafka no longer holds what is to be archived next",
                expected=f"offset {wanted} inside the log",
                found=f"[{mark.log_start}, {mark.high_watermark}), so {lost} is lost",
                where=f"{mark.log}, topic id {mark.log.topic_id}",
                hint="Delete the archive's checkpoint to go on from the log's start; reconcile runs report the loss",
            )
