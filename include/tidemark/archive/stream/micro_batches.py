"""A micro-batch of the archive stream: read from Kafka, uploaded to S3, committed by its manifest."""

import time
from datetime import UTC, datetime
from threading import Event

from pyspark.sql import DataFrame

from tidemark.archive.loss import RangeOfLog, log_starts, split_at
from tidemark.archive.manifests import commit_batch, find_manifest, last_manifest
from tidemark.archive.stream.log_check import LogCheck
from tidemark.archive.stream.progress import BatchProgress
from tidemark.archive.write.sink import Written, write_range
from tidemark.core.errors import ConflictError, PositionError, ServiceError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.core.manifest import Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic
from tidemark.settings import Settings
from tidemark.spark.checkpoint import Checkpoint
from tidemark.spark.client_source import with_any_time
from tidemark.spark.kafka_source import read_ranges
from tidemark.spark.kafka_tasks import ranges_read
from tidemark.spark.lease import Lease
from tidemark.spark.monitor import Monitor
from tidemark.spark.records import records
from tidemark.spark.streaming import log_event, stop_requested


class Batches:
    """One stream's batches, archived on Spark's thread.

    The main thread reads ``busy`` and ``refused``. It sets ``pause`` to refuse the next batch, which the next query
    repeats.
    """

    def __init__(
        self,
        stream: Stream,
        settings: Settings,
        checkpoint: Checkpoint,
        lease: Lease,
        monitor: Monitor,
        *,
        log_check: LogCheck,
    ) -> None:
        self.pause = Event()
        self.busy = Event()
        self.refused = Event()
        self.failure: TidemarkError | None = None
        self._stream, self._settings = stream, settings
        self._store, self._layout = checkpoint.store, Layout(prefix=settings.prefix, stream=stream.name)
        self._checkpoint = checkpoint
        self._lease = lease
        self._log_check = log_check
        self._progress = BatchProgress(checkpoint.store, self._layout, monitor)
        self._writer: str | None = None
        self._start_checked = False  # Spark continues where the archived batch ends

    def begin(self) -> None:
        """Reset before a new query starts."""
        self.pause.clear()
        self.refused.clear()
        self.failure = None
        self._start_checked = False

    def archive(self, frame: DataFrame, batch: int) -> None:
        """For ``foreachBatch``. Checks the lease before it reads, before it writes the manifest, and before Spark may
        commit."""
        self.busy.set()
        try:
            if stop_requested() or self.pause.is_set():
                # After a return Spark would commit a batch that was not written. The next query repeats it.
                self.refused.set()
                raise ServiceError("the stream is stopping", where=f"batch {batch}")
            self._lease.check()
            self._archive(frame, batch)
            self._lease.check()
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
                "the checkpoint of a running stream is missing",
                expected="metadata with the query's id",
                found="nothing",
                where=f"s3://{self._store.bucket}/{self._checkpoint.prefix}",
            )
        logs = self._logs(writer, batch)
        planned = self._checkpoint.ranges(batch)
        self._require_own(planned, ranges_read(frame), batch)
        if batch > 0 and not self._start_checked:
            # A zombie's request may have replaced the plan of a finished batch. Spark then starts after the zombie's
            # range, whose end is not archived. Within one query the line above detects it.
            self._manifest(writer, batch - 1, _by_log(self._checkpoint.ranges(batch - 1), logs))
            self._start_checked = True
        ranges = _by_log(planned, logs)
        manifest = self._manifest(writer, batch, ranges)
        repeated = manifest is not None
        if manifest is None:
            held, written = self._read(frame, batch, ranges)
            if not ranges.keys() <= set(self._logs(writer, batch)):  # recreated during the read
                raise ConflictError("the topic changed while a batch was read", where=f"{self._stream.topic}, {batch=}")
            last = self._log_check.before_commit(held, written)
            self._lease.check()
            manifest = commit_batch(
                self._store,
                self._layout,
                self._stream,
                writer=writer,
                batch=batch,
                ranges=held,
                files=written.files,
                now_us=int(datetime.now(UTC).timestamp() * 1_000_000),
                last=last,
            )
        self._log_check.committed(manifest)
        self._progress.batch(manifest, seconds=time.monotonic() - started, repeated=repeated)

    def _manifest(self, writer: str, batch: int, ranges: RangeOfLog) -> Manifest | None:
        """The batch's manifest, if there is one; raises ConflictError if it differs from the write-ahead log."""
        return find_manifest(
            self._store,
            self._layout,
            writer=writer,
            batch=batch,
            ranges=ranges,
            log_starts=lambda: log_starts(self._settings.kafka, ranges),
        )

    def _read(self, frame: DataFrame, batch: int, ranges: RangeOfLog) -> tuple[RangeOfLog, Written]:
        """Write the files. Returns the ranges whose records are all in them, and the files.

        That is all of ``ranges``, or the batch fails. Under ``on_loss: continue`` it is what Kafka still holds of them,
        read by a query of its own: the streaming query would silently skip offsets that retention deletes, while this
        one fails. After a failure that retention explains, the rest is read again.
        """
        if self._stream.archive.on_loss == "stop":
            return ranges, self._write(frame, batch, ranges)
        while True:
            ranges, lost = split_at(log_starts(self._settings.kafka, ranges), ranges)
            self._report(batch, lost)
            try:
                rows = read_ranges(frame.sparkSession, self._settings, ranges) if ranges else frame
                return ranges, self._write(rows, batch, ranges)
            except ServiceError:
                if not split_at(log_starts(self._settings.kafka, ranges), ranges)[1]:
                    raise

    def _write(self, frame: DataFrame, batch: int, ranges: RangeOfLog) -> Written:
        if not ranges:
            return Written(files=(), last=())
        clock_us = self._checkpoint.batch_time_us(batch)

        def write(source: DataFrame) -> Written:
            rows, on_task = records(source, self._stream), self._progress.task
            return write_range(rows, ranges, self._stream, self._settings, clock_us=clock_us, on_task=on_task)

        return with_any_time(write, frame, self._settings, lambda: ranges)

    def _report(self, batch: int, lost: RangeOfLog) -> None:
        for log, item in lost.items():
            log_event(
                "lost",
                level="error",
                layer="archive",
                stream=self._stream.name,
                batch=batch,
                topic=log.topic,
                partition=log.partition,
                start=item.start,
                end=item.end,
            )

    def _require_own(self, planned: dict[int, OffsetRange], read: dict[int, OffsetRange], batch: int) -> None:
        """Raise ConflictError unless the write-ahead log has the ranges that this query reads.

        Another writer may have replaced its file, because Spark's creation of it is not atomic on S3.
        """
        # Spark starts a new partition at its log's start, but the write-ahead log implies 0.
        may_start_later = self._stream.archive.on_loss == "continue"
        if not read.keys() <= planned.keys() or not all(
            read.get(partition) == item
            or (may_start_later and item.start == 0 and read.get(partition, item).end == item.end)
            for partition, item in planned.items()
        ):
            raise ConflictError(
                "the write-ahead log has other ranges than this query reads",
                expected=_format_ranges(read),
                found=_format_ranges(planned),
                where=f"s3://{self._store.bucket}/{self._checkpoint.prefix}offsets/{batch}",
                hint="Another writer uses this checkpoint: stop it, then start this one again. Nothing of this batch is"
                " archived yet",
            )

    def _logs(self, writer: str, batch: int) -> tuple[TopicPartition, ...]:
        """The topic's current logs; raises ConflictError unless the writer archived these."""
        logs = describe_topic(self._settings.kafka, self._stream.topic)
        require_same_topic(last_manifest(self._store, self._layout, writer, before=batch), logs)
        return logs


def require_same_topic(last: Manifest | None, logs: tuple[TopicPartition, ...]) -> None:
    """Raise ConflictError unless this is the topic that the writer has archived: its positions belong to that log."""
    archived = {(item.log.topic, item.log.topic_id) for item in last.ranges} if last else set()
    now = (logs[0].topic, logs[0].topic_id)
    if last is None or not archived or archived == {now}:
        return
    same_name = {topic for topic, _ in archived} == {logs[0].topic}
    raise ConflictError(
        "the topic was recreated" if same_name else "a checkpoint belongs to another topic",
        expected=", ".join(f"topic {topic}, id {topic_id}" for topic, topic_id in sorted(archived)),
        found=f"topic {now[0]}, id {now[1]}",
        where=f"archive of {last.stream}, after batch {last.batch}",
        hint="Delete the archive's checkpoint to read the topic from its start; what is archived stays",
    )


def _by_log(ranges: dict[int, OffsetRange], logs: tuple[TopicPartition, ...]) -> RangeOfLog:
    known = {log.partition: log for log in logs}
    missing = ranges.keys() - known.keys()
    if missing:
        raise PositionError(
            "a batch has partitions that the topic does not have",
            expected=f"partitions {sorted(known)}",
            found=f"partitions {sorted(ranges)}",
            where=logs[0].topic,
        )
    return {known[partition]: item for partition, item in ranges.items()}


def _format_ranges(ranges: dict[int, OffsetRange]) -> str:
    return ", ".join(f"partition {partition} {ranges[partition]}" for partition in sorted(ranges)) or "no offsets"
