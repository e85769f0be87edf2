"""What both delivery modes do with a query's batches, and what they report of each."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tidemark.core.errors import ConflictError, ServiceError, TidemarkError
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings
from tidemark.spark.checkpoint import Checkpoint
from tidemark.spark.failures import task_error
from tidemark.spark.process import Transform, classify, code_file
from tidemark.spark.records import records
from tidemark.spark.streaming import stop_requested
from tidemark.speed.output import output
from tidemark.speed.record_limits import RecordLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """Records of a batch: those read, those written, and the dead letters among the written."""

    read: int = 0
    written: int = 0
    dead: int = 0


@dataclass(kw_only=True)
class DeliveryBatches(ABC):
    """The batches of one stream. Spark's thread calls ``deliver``, the main thread ``busy`` and ``with_counts``.

    ``failure`` is the error of the last batch that failed: of an error in ``foreachBatch`` Spark reports a text.
    """

    stream: Stream
    settings: Settings
    transform: Transform
    checkpoint: Checkpoint
    topic_id: str
    limits: RecordLimits
    busy: Event = field(default_factory=Event)
    failure: TidemarkError | None = None
    _counts: dict[int, BatchCounts] = field(default_factory=dict)

    def deliver(self, frame: DataFrame, batch: int) -> None:
        """For ``foreachBatch``."""
        self.busy.set()
        try:
            if stop_requested():
                # A return would let Spark commit a batch that is not delivered.
                raise ServiceError("the stream is stopping", where=f"batch {batch}")
            self._counts[batch] = self._deliver(frame, batch)
        except TidemarkError as error:
            self.failure = error
            raise
        finally:
            self.busy.clear()

    def with_counts(self, progress: Mapping[str, Any], layer: str) -> dict[str, Any]:
        """Spark's progress of a batch with its counts, as those of an observed query."""
        counts = self._counts.pop(progress["batchId"], BatchCounts())
        metrics = {layer: {"rows": counts.written, "dead_lettered": counts.dead}}
        return {**progress, "numInputRows": counts.read, "observedMetrics": metrics}

    def _of_logs(
        self, planned: Mapping[int, OffsetRange], logs: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetRange]:
        """The planned ranges by log. Raises ConflictError if a log is missing: its records would not be delivered."""
        found = {log: planned[log.partition] for log in logs if log.partition in planned}
        if len(found) < len(planned):
            raise ConflictError(
                "a batch has partitions that the topic does not have",
                expected=f"partitions {sorted(log.partition for log in logs)}",
                found=f"partitions {sorted(planned)}",
                where=self.stream.topic,
            )
        return found

    @abstractmethod
    def _deliver(self, frame: DataFrame, batch: int) -> BatchCounts:
        """Deliver the rows of Spark's Kafka source. After a return Spark commits the batch."""

    def _sent(self, source: DataFrame, *, with_coordinates: bool) -> DataFrame:
        """The rows for the output topics, as ``output`` makes them."""
        rows = classify(records(source, self.stream), self.stream, self.transform)
        return output(rows, self.stream, self.topic_id, record_limits=self.limits, with_coordinates=with_coordinates)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise the cause of a failed job as ``task_error`` names it."""
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            code = code_file(self.stream, self.settings.streams_dir)
            raise task_error(
                error, where=f"speed stream {self.stream.name}", personal=self.stream.has_personal, code=code
            ) from error
