"""The archive stream: Kafka to S3 in micro-batches, each committed by its manifest.

Spark fixes a batch's range in its write-ahead log. The tasks upload the objects. The driver writes the manifest. Then
Spark commits. After a crash the same range is repeated, and finds the objects that are there already.
"""

from contextlib import suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidemark.archive.loss import require_held
from tidemark.archive.manifests import last_manifest
from tidemark.archive.stream.conditional_writes import require_conditional_writes
from tidemark.archive.stream.log_check import LogCheck
from tidemark.archive.stream.micro_batches import Batches, require_same_topic
from tidemark.archive.stream.schedule import Alarm
from tidemark.core.batch_size import ARCHIVE_OFFSETS, offsets_per_batch
from tidemark.core.errors import ConflictError, ServiceError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.checkpoint import Checkpoint
from tidemark.spark.failures import task_error
from tidemark.spark.lease import Lease, LeasePoll
from tidemark.spark.monitor import Monitor
from tidemark.spark.same_topic import TopicPoll
from tidemark.spark.streaming import (
    bind_checkpoint,
    executor_watch,
    kafka_source,
    log_event,
    start_query,
    stop_requested,
    stream_session,
    trigger,
)
from tidemark.spark.time_zone import require_same_clocks

POLL_S = 1

# Spark's error class for a file of its write-ahead log that exists already.
_PLANNED_TWICE = "CONCURRENT_STREAM_LOG_UPDATE"


def run_archive(stream: Stream, settings: Settings, *, available_now: bool = False) -> None:
    """Run until SIGTERM or SIGINT, which let the current batch finish; or until all current records are archived.

    Raises a TidemarkError that names what stopped the stream. Nothing committed is ever undone.
    """
    with stream_session(settings, f"tidemark-archive-{stream.name}", "archive", stream) as spark:
        archive(spark, stream, settings, available_now=available_now)


def archive(
    spark: SparkSession, stream: Stream, settings: Settings, *, available_now: bool = False, alarm: Alarm | None = None
) -> None:
    """``run_archive`` in an existing session; ``alarm`` replaces that of the stream's schedule."""
    with Monitor(stream, settings, layer="archive") as monitor:
        driver = _Driver.start(spark, stream, settings, monitor)
        if available_now:
            driver.run(everything=True)
        else:
            driver.run_until_stopped(alarm or Alarm.of(stream))
    log_event("stopped", layer="archive", stream=stream.name)


@dataclass(kw_only=True)
class _Driver:
    """Runs the stream's queries on one checkpoint, one after the other if the stream has a schedule."""

    spark: SparkSession
    stream: Stream
    settings: Settings
    monitor: Monitor
    checkpoint: Checkpoint
    url: str
    topic_id: str
    lease: Lease
    log_check: LogCheck
    batches: Batches
    partitions: int
    start_logged: bool = False

    @classmethod
    def start(cls, spark: SparkSession, stream: Stream, settings: Settings, monitor: Monitor) -> "_Driver":
        """Check that the checkpoint belongs to Kafka's topic, then take its lease."""
        require_same_clocks(spark, stream)
        store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
        require_conditional_writes(store, settings.prefix)
        checkpoint = Checkpoint(store=store, prefix=layout.checkpoint_prefix("archive"), topic=stream.topic)
        logs = describe_topic(settings.kafka, stream.topic)
        writer = checkpoint.writer()
        # The last planned batch may lack its manifest, the one before it has one.
        planned = checkpoint.newest() or 0
        before = None if writer is None else last_manifest(store, layout, writer, near=planned - 2)
        require_same_topic(before, logs)
        url = bind_checkpoint(store, layout, "archive", logs[0])
        log_check = LogCheck.of(stream, settings, store)
        log_check.start(before, logs)
        _require_held(checkpoint, stream, settings)
        lease = Lease.take(store, checkpoint.prefix)
        return cls(
            spark=spark,
            stream=stream,
            settings=settings,
            monitor=monitor,
            checkpoint=checkpoint,
            url=url,
            topic_id=logs[0].topic_id,
            lease=lease,
            log_check=log_check,
            batches=Batches(stream, settings, checkpoint, lease, monitor, log_check=log_check),
            partitions=len(logs),
        )

    def run_until_stopped(self, alarm: Alarm | None) -> None:
        """Run until a stop is requested. With an alarm, archive all records at the start and whenever it rings."""
        rang = True
        while rang:
            if alarm is not None:
                alarm.set()  # before the run reads the topic's end: the run serves all times up to now
                self.run(everything=True)
                if stop_requested():
                    return
            rang = self.run(everything=False, alarm=alarm)

    def run(self, *, everything: bool, alarm: Alarm | None = None) -> bool:
        """Run one query: until all current records are archived, else until a stop or the alarm.

        Returns whether the alarm ended it.
        """
        position = self.checkpoint.position() or {}
        self.batches.begin()
        query = self._query(everything=everything)
        self.monitor.started(str(query.id), position, self.topic_id)
        if not self.start_logged:
            self.start_logged = True
            log_event(
                "started",
                layer="archive",
                stream=self.stream.name,
                writer=str(query.id),
                checkpoint=self.url,
                start=self.lease.epoch,
            )
        try:
            self._await(query, alarm)
        except StreamingQueryException as error:
            if not self.batches.refused.is_set():
                self._explain(error)
        except Py4JError as error:
            raise ServiceError("Spark's JVM died", found=error, where=f"archive of {self.stream.name}") from error
        finally:
            with suppress(Py4JError, OSError):  # without the JVM there is nothing to stop
                query.stop()
        return self.batches.pause.is_set() and not stop_requested()

    def _query(self, *, everything: bool) -> StreamingQuery:
        archive = self.stream.archive
        source = kafka_source(
            self.spark,
            self.stream,
            self.settings,
            fail_on_data_loss=archive.on_loss == "stop",
            max_offsets_per_trigger=offsets_per_batch(
                archive.max_offsets_per_trigger,
                partitions=self.partitions,
                default=ARCHIVE_OFFSETS,
                least=archive.min_offsets_per_trigger,
            ),
            # Even with availableNow Spark would leave a rest below the minimum unread.
            min_offsets_per_trigger=None if everything else archive.min_offsets_per_trigger,
            max_trigger_delay_seconds=archive.max_trigger_delay_seconds,
        )
        query = (
            source.writeStream.queryName(f"archive-{self.stream.name}{'-everything' if everything else ''}")
            .foreachBatch(self.batches.archive)
            .option("checkpointLocation", self.url)
            .trigger(**trigger(archive.trigger_seconds, available_now=everything))
        )
        return start_query(self.spark, query)

    def _await(self, query: StreamingQuery, alarm: Alarm | None) -> None:
        """Wait until the query ends, or until it shall stop and no batch runs."""
        batches, check_lease = self.batches, LeasePoll(self.lease, self.settings)
        check_topic, executors = TopicPoll(self.settings, self.stream.topic, self.topic_id), executor_watch(query)
        while not query.awaitTermination(POLL_S):
            self.monitor.beat()
            check_lease()
            check_topic()
            executors.check()
            if alarm is not None and alarm.rings():
                batches.pause.set()
            ending = stop_requested() or batches.pause.is_set()
            if ending and not batches.busy.is_set() and not query.status["isTriggerActive"]:
                return

    def _explain(self, error: StreamingQueryException) -> None:
        """Raise the cause of the query's failure; return if a stop was requested anyway."""
        failure = self.batches.failure
        if stop_requested() and isinstance(failure, ServiceError):
            # The signal reached the Python workers too. Nothing of the batch is visible; the next start repeats it.
            log_event("batch given up", layer="archive", stream=self.stream.name, cause=str(failure))
            return
        personal = self.stream.has_personal
        cause: TidemarkError = failure or task_error(error, where=f"archive of {self.stream.name}", personal=personal)
        if _PLANNED_TWICE in str(error):
            cause = ConflictError(
                "another writer planned this checkpoint's next batch",
                expected="one writer",
                found=cause.found,
                where=self.url,
                hint="Stop the other one, then start this one again: it archives that batch first, and nothing is lost",
            )
        # A lost lease and retention are usual causes. A check that fails now must not hide the known cause.
        with suppress(ServiceError):
            self.lease.check()
        if isinstance(cause, ServiceError):
            with suppress(ServiceError):
                self.log_check.compare()
                _require_held(self.checkpoint, self.stream, self.settings)
        raise cause from error


def _require_held(checkpoint: Checkpoint, stream: Stream, settings: Settings) -> None:
    position = checkpoint.position()
    if position is not None:
        logs = describe_topic(settings.kafka, stream.topic)
        require_held(position, logs, settings.kafka, allow_loss=stream.archive.on_loss == "continue")
