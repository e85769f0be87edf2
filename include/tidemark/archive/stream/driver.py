"""The archive stream: Kafka to S3, a micro-batch at a time, each committed by its manifest.

Spark fixes a batch's range in its write-ahead log; the tasks upload; the driver writes the manifest; Spark commits. A
crash anywhere repeats the very same range, and finds what is there already.
"""

import time
from contextlib import suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidemark.archive.loss import require_held
from tidemark.archive.manifests import last_manifest
from tidemark.archive.stream.conditional_writes import require_conditional_writes
from tidemark.archive.stream.lease import Lease
from tidemark.archive.stream.micro_batches import Batches, require_same_topic
from tidemark.archive.stream.schedule import Alarm
from tidemark.core.errors import ConflictError, ServiceError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.checkpoint import Checkpoint
from tidemark.spark.failures import task_error
from tidemark.spark.monitor import Monitor
from tidemark.spark.streaming import (
    bind_checkpoint,
    kafka_source,
    log_event,
    start_query,
    stop_requested,
    stream_session,
    trigger,
)

POLL_S = 1
LEASE_CHECK_S = 5  # while no batch comes

# Spark's error class where a file of its write-ahead log is there already.
_PLANNED_TWICE = "CONCURRENT_STREAM_LOG_UPDATE"


def run_archive(stream: Stream, settings: Settings, *, available_now: bool = False) -> None:
    """Run until SIGTERM or SIGINT (the batch in hand is finished first), or until everything there was is archived.

    Raises a TidemarkError that names what stopped the stream; nothing that was committed is ever undone.
    """
    with stream_session(settings, f"tidemark-archive-{stream.name}") as spark:
        archive(spark, stream, settings, available_now=available_now)


def archive(
    spark: SparkSession, stream: Stream, settings: Settings, *, available_now: bool = False, alarm: Alarm | None = None
) -> None:
    """``run_archive`` in a session that is there already; ``alarm`` replaces that of the stream's schedule."""
    with Monitor(stream, settings, layer="archive") as monitor:
        driver = _Driver.start(spark, stream, settings, monitor)
        if available_now:
            driver.run(everything=True)
        else:
            driver.run_on(alarm or Alarm.of(stream))
    log_event("stopped", layer="archive", stream=stream.name)


@dataclass(kw_only=True)
class _Driver:
    """Runs the stream's query, one after another where a schedule wants that, always on the same checkpoint."""

    spark: SparkSession
    stream: Stream
    settings: Settings
    monitor: Monitor
    checkpoint: Checkpoint
    url: str
    lease: Lease
    batches: Batches
    told: bool = False

    @classmethod
    def start(cls, spark: SparkSession, stream: Stream, settings: Settings, monitor: Monitor) -> "_Driver":
        """Check that the checkpoint fits Kafka's topic, then take it over."""
        store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
        require_conditional_writes(store, settings.prefix)
        checkpoint = Checkpoint.of(store, layout, stream.topic)
        logs = describe_topic(settings.kafka_bootstrap, stream.topic)
        writer = checkpoint.writer()
        if writer is not None:
            require_same_topic(last_manifest(store, layout, writer), logs)
        url = bind_checkpoint(store, layout, "archive", logs[0])
        _require_held(checkpoint, stream, settings)
        lease = Lease.take(store, checkpoint.prefix)
        return cls(
            spark=spark,
            stream=stream,
            settings=settings,
            monitor=monitor,
            checkpoint=checkpoint,
            url=url,
            lease=lease,
            batches=Batches(stream, settings, checkpoint, lease, monitor),
        )

    def run_on(self, alarm: Alarm | None) -> None:
        """Until a stop is asked for. Everything there is gets archived at the start, which makes up for moments that
        passed before, and whenever the alarm rings."""
        rang = True
        while rang:
            if alarm is not None:
                alarm.set()  # before the run looks what there is: it serves every moment up to here
                self.run(everything=True)
                if stop_requested():
                    return
            rang = self.run(everything=False, alarm=alarm)

    def run(self, *, everything: bool, alarm: Alarm | None = None) -> bool:
        """One query: until everything there was is archived, or else until a stop or the alarm, which gives True."""
        position = self.checkpoint.position() or {}
        self.batches.begin()
        query = self._query(everything=everything)
        self.monitor.started(str(query.id), position)
        if not self.told:
            self.told = True
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
            raise ServiceError("Spark's JVM is gone", found=error, where=f"archive of {self.stream.name}") from error
        finally:
            with suppress(Py4JError, OSError):  # with the JVM gone there is nothing to stop
                query.stop()
        return self.batches.pause.is_set() and not stop_requested()

    def _query(self, *, everything: bool) -> StreamingQuery:
        archive = self.stream.archive
        source = kafka_source(
            self.spark,
            self.stream,
            self.settings,
            fail_on_data_loss=archive.on_loss == "stop",
            max_offsets_per_trigger=archive.max_offsets_per_trigger,
            # Spark would leave a tail below the minimum even where it is to read all there is.
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
        """Until the query ends, or it is to stop and no batch is in hand any more."""
        batches, looked_at = self.batches, time.monotonic()
        while not query.awaitTermination(POLL_S):
            self.monitor.beat()
            if time.monotonic() - looked_at >= LEASE_CHECK_S:
                looked_at = time.monotonic()
                with suppress(ServiceError):  # the next batch looks again, and can't do without an answer
                    self.lease.check()
            if alarm is not None and alarm.rings():
                batches.pause.set()
            ending = stop_requested() or batches.pause.is_set()
            if ending and not batches.busy.is_set() and not query.status["isTriggerActive"]:
                return

    def _explain(self, error: StreamingQueryException) -> None:
        """Raise what made the query fail, as far as it can be told; return where a stop was asked for anyway."""
        failure = self.batches.failure
        if stop_requested() and isinstance(failure, ServiceError):
            # The signal reached the Python workers too. Nothing of the batch shows; the next start repeats it.
            log_event("batch given up", layer="archive", stream=self.stream.name, cause=str(failure))
            return
        told: TidemarkError = failure or task_error(error, where=f"archive of {self.stream.name}")
        if _PLANNED_TWICE in str(error):
            told = ConflictError(
                "another writer planned this checkpoint's next batch",
                expected="one writer",
                found=told.found,
                where=self.url,
                hint="Stop the other one, then start this one again: it archives that batch first, and nothing is lost",
            )
        # The usual reasons. What can't be asked now does not hide what was told.
        with suppress(ServiceError):
            self.lease.check()
        if isinstance(told, ServiceError):
            with suppress(ServiceError):
                _require_held(self.checkpoint, self.stream, self.settings)
        raise told from error


def _require_held(checkpoint: Checkpoint, stream: Stream, settings: Settings) -> None:
    position = checkpoint.position()
    if position is not None:
        logs = describe_topic(settings.kafka_bootstrap, stream.topic)
        require_held(position, logs, settings.kafka_bootstrap, continue_on_loss=stream.archive.on_loss == "continue")
