"""Replay: decode and transform a stream's dead letters again with its current definition, each exactly once.

The dead-letter topic is the source: the marker counts its offsets, in the protocol of the stream's own exactly-once
delivery (``exactly_once.transactions``). A record that is good now goes to the live topic, with the coordinates of its
source record. A record that is still bad goes back to the dead-letter topic with the next attempt number.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby, pairwise
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.errors import IncompleteError, TransformError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.outcome import RunStep
from tidemark.core.plan import LogRange
from tidemark.definitions.stream import Stream
from tidemark.kafka.committed_ends import committed_ends
from tidemark.kafka.names import delivery_prefix, marker_topic
from tidemark.kafka.positions import open_consumer, watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.failing_record import with_record
from tidemark.spark.failures import task_error
from tidemark.spark.process import Transform, classify, code_file, load_transform
from tidemark.spark.records import records
from tidemark.spark.task_input import whole
from tidemark.speed.exactly_once.batches import ANY_LIMITS, RECEIPT, receipt, receipts
from tidemark.speed.exactly_once.marker import Sink, TaskRange, delivered_until, ensure_markers
from tidemark.speed.exactly_once.transactions import Delivered, deliver
from tidemark.speed.output import output
from tidemark.speed.record_limits import RecordLimits
from tidemark.speed.replay.dead_letters import (
    Kind,
    NotOurs,
    not_ours,
    read_dead_letters,
    select_copies,
    source_rows,
    to_deliver,
)
from tidemark.speed.replay.plan import ReplayPlan, ReplayPlans, next_range
from tidemark.speed.topics import TRANSACTION_TIMEOUT_S, record_limits

REPLAY = RunStep("replay", dict[str, Any])
TIMEOUT_S = 60
POLL_S = 0.5

# Called with the number of finished offsets of the dead-letter topic, and their total.
OnProgress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay: ``read`` dead letters, which is the sum of the four counts after it.

    ``published`` went to the live topic, ``dead_again`` back to the dead-letter topic. ``duplicates`` are further
    copies of a dead letter, ``not_ours`` were skipped. An earlier, interrupted replay delivered ``earlier`` of the
    first two.
    ``lost``: offsets that retention deleted before any replay, dead letters or not.
    """

    plans: tuple[int, ...] = ()
    read: int = 0
    published: int = 0
    dead_again: int = 0
    duplicates: int = 0
    not_ours: int = 0
    kinds: tuple[NotOurs, ...] = ()
    earlier: int = 0
    lost: int = 0
    transactions: int = 0

    def __add__(self, other: "Replayed") -> "Replayed":
        return Replayed(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})

    def to_value(self) -> dict[str, Any]:
        return asdict(self)


def replay(
    stream: Stream, settings: Settings, spark: SparkSession, *, on_progress: OnProgress = lambda _done, _all: None
) -> Replayed:
    """Finish an interrupted replay, then replay from where the last one ended to the topic's current end.

    Raises ConflictError if another replay of the stream runs, IncompleteError if the counts do not balance or the
    transformation drops or multiplies a row, PositionError if marker and plan disagree, ConfigError for a
    transformation that breaks its contract, ServiceError if Kafka or S3 refuses.
    """
    work = _Replay(stream, settings, spark, on_progress)
    last = work.plans.last()
    done = Replayed()
    if last is not None and not work.plans.is_done(last):
        done = work.run(last)
    return done + work.run(work.begin(last))


def replay_sink(stream: Stream, settings: Settings, topic_id: str, limits: RecordLimits = ANY_LIMITS) -> Sink:
    """As ``sink_of``; ``topic_id`` is the dead-letter topic's."""
    return Sink(
        kafka=settings.speed_kafka,
        group=delivery_prefix("replay", stream, settings) + topic_id,
        marker_topic=marker_topic(stream.speed.dead_letter_topic),
        records=stream.speed.transaction_records,
        timeout_s=TIMEOUT_S,
        batch_bytes=min(limits.live, limits.dead_letter, ANY_LIMITS.live),
        record_bytes=limits.client_bytes,
        before_ms=limits.before_ms,
        after_ms=limits.after_ms,
        set_marker=f"tidemark markers {stream.name} --replay --set PARTITION=OFFSET",
    )


class _Replay:
    """One stream, its logs at the start of the replay, and the sink."""

    def __init__(self, stream: Stream, settings: Settings, spark: SparkSession, on_progress: OnProgress) -> None:
        self._stream, self._settings, self._spark, self._on_progress = stream, settings, spark, on_progress
        self._transform: Transform = load_transform(stream, settings.streams_dir)
        self._source_id = describe_topic(settings.kafka, stream.topic)[0].topic_id
        kafka, topic = settings.speed_kafka, stream.speed.dead_letter_topic
        self._logs = describe_topic(kafka, topic)
        # Fixed here, so that dead letters that this replay writes are left for the next one, even after two plans.
        self._ends = watermarks(kafka, self._logs)
        topic_id = self._logs[0].topic_id
        self._limits = record_limits(stream, kafka)
        self._sink = replay_sink(stream, settings, topic_id, self._limits)
        ensure_markers(kafka, self._sink.marker_topic, len(self._logs))
        layout = Layout(prefix=settings.prefix, stream=stream.name)
        self.plans = ReplayPlans(ObjectStore(settings), layout, topic_id)

    def begin(self, last: ReplayPlan | None) -> ReplayPlan:
        """Write the plan of a new replay: from the end of the ``last`` one, which is done, to the logs' fixed ends."""
        before = {} if last is None else {item.log: item.until for item in last.ranges}
        markers = delivered_until(self._sink, self._logs)
        number = 1 if last is None else last.number + 1
        plan = ReplayPlan(
            stream=self._stream.name,
            number=number,
            ranges=tuple(
                next_range(
                    mark.log,
                    number=number,
                    before=before.get(mark.log),
                    marker=markers.get(mark.log.partition),
                    end=mark.high_watermark,
                    where=f"{mark.log} with topic id {mark.log.topic_id}, group {self._sink.group}",
                )
                for mark in self._ends
            ),
        )
        self.plans.begin(plan)
        return plan

    def run(self, plan: ReplayPlan) -> Replayed:
        """Deliver the rest of the plan, check the counts, and record that it is done."""
        log_starts = {mark.log: mark.log_start for mark in watermarks(self._sink.kafka, self._logs)}
        available = {
            item.log: OffsetRange(start=log_starts[item.log], end=item.until)
            for item in plan.ranges
            if log_starts[item.log] < item.until
        }
        lost = sum(max(min(log_starts[item.log], item.until) - item.start, 0) for item in plan.ranges)
        try:
            with self._progress(plan):
                done = self._deliver(plan, available)
        except (PySparkException, Py4JJavaError) as error:
            code = code_file(self._stream, self._settings.streams_dir)
            cause = task_error(
                error, where=f"replay of {self._stream.name}", personal=self._stream.has_personal, code=code
            )
            if isinstance(cause, TransformError):
                parts = [LogRange(log=log, range=span) for log, span in available.items()]
                cause = with_record(cause, self._spark, parts, partial(self._transformed, spans=plan.ranges))
            raise cause from error
        self.plans.finish(plan)
        return done + Replayed(plans=(plan.number,), lost=lost)

    def _deliver(self, plan: ReplayPlan, available: Mapping[TopicPartition, OffsetRange]) -> Replayed:
        spans = {item.log.partition: item for item in plan.ranges}
        if not available:
            return _balanced(plan, {}, (), 0, self._move_markers(plan.ranges))
        starts = {partition: span.start for partition, span in spans.items()}
        dead_letters = self._dead_letters(available)
        wanted = select_copies(dead_letters, starts).persist()  # three more jobs use it; each would read the topic
        try:
            count = wanted.count()
            counts, kinds = not_ours(dead_letters, starts)
            delivered = self._write(dead_letters, wanted, spans) if count else ()
            written = {item.log for item in delivered}
            delivered += self._move_markers(item for item in plan.ranges if item.log not in written)
            done = _balanced(plan, counts, kinds, count, delivered)
            return self._with_earlier(done, plan, wanted) if done.earlier else done
        finally:
            wanted.unpersist()

    def _dead_letters(self, ranges: Mapping[TopicPartition, OffsetRange]) -> DataFrame:
        return read_dead_letters(self._spark, self._stream, self._settings, self._source_id, ranges)

    def _transformed(self, part: LogRange, *, spans: Iterable[TaskRange]) -> DataFrame:
        """The rows of the dead letters at these offsets of the dead-letter topic."""
        dead_letters = self._dead_letters({part.log: part.range})
        wanted = select_copies(dead_letters, {item.log.partition: item.start for item in spans})
        rows = records(source_rows(dead_letters, wanted, self._stream), self._stream)
        return classify(rows, self._stream, self._transform)

    def _write(
        self, dead_letters: DataFrame, wanted: DataFrame, spans: Mapping[int, TaskRange]
    ) -> tuple[Delivered, ...]:
        """Deliver the wanted dead letters."""
        rows = records(source_rows(dead_letters, wanted, self._stream), self._stream)
        classified = classify(rows, self._stream, self._transform)
        made = output(classified, self._stream, self._source_id, record_limits=self._limits)
        ordered = to_deliver(made, wanted, len(spans))
        return receipts(ordered.mapInArrow(_deliverer(dict(spans), self._sink), RECEIPT))

    def _move_markers(self, spans: Iterable[TaskRange]) -> tuple[Delivered, ...]:
        """Move the markers of logs without dead letters to deliver."""
        return tuple(deliver((), span, self._sink) for span in spans)

    def _with_earlier(self, done: Replayed, plan: ReplayPlan, wanted: DataFrame) -> Replayed:
        """Split ``earlier``: an interrupted replay left dead letters with the next attempt after the plan's end."""
        ends = committed_ends(self._sink.kafka, self._logs, patience_s=TRANSACTION_TIMEOUT_S)
        since = {
            item.log: OffsetRange(start=item.until, end=ends[item.log].end)
            for item in plan.ranges
            if item.until < ends[item.log].end
        }
        dead = 0
        if since:
            dead_letters = (
                self._dead_letters(since).where(F.col("kind").isNull()).select("partition", "offset", "attempt")
            )
            next_ones = wanted.select("partition", "offset", (F.col("attempt") + 1).alias("attempt"))
            dead = next_ones.join(dead_letters, ["partition", "offset", "attempt"], "left_semi").count()
        dead_earlier = min(max(dead - done.dead_again, 0), done.earlier)
        return done + Replayed(published=done.earlier - dead_earlier, dead_again=dead_earlier)

    @contextmanager
    def _progress(self, plan: ReplayPlan) -> Iterator[None]:
        """Report the markers' progress every half second, as far as brokers answer."""
        total = sum(item.until - item.start for item in plan.ranges)
        starts = {item.log.partition: item.start for item in plan.ranges}
        over = Event()

        def poll() -> None:
            wanted = [KafkaPartition(self._sink.marker_topic, partition) for partition in starts]
            # It does not wait for open transactions.
            with open_consumer(self._sink.kafka, self._sink.group, committed=False) as consumer:
                while not over.wait(POLL_S):
                    try:
                        found = consumer.committed(wanted, timeout=5)
                    except KafkaException:
                        continue
                    self._on_progress(sum(max(item.offset - starts[item.partition], 0) for item in found), total)

        thread = Thread(target=poll, name="replay-progress")
        self._on_progress(0, total)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        self._on_progress(total, total)


def _balanced(
    plan: ReplayPlan,
    counts: Mapping[Kind | None, int],
    kinds: tuple[NotOurs, ...],
    wanted: int,
    delivered: tuple[Delivered, ...],
) -> Replayed:
    """The plan's counts. Raises IncompleteError unless every dead letter has one outcome."""
    good = sum(item.good for item in delivered)
    dead = sum(item.dead for item in delivered)
    skipped = sum(item.skipped for item in delivered)
    if good + dead + skipped != wanted:
        raise IncompleteError(
            "a replay's counts do not balance",
            expected=f"{wanted} dead letters delivered",
            found=f"{good} published, {dead} dead again, {skipped} delivered earlier",
            where=f"replay {plan.number} of stream {plan.stream}",
        )
    ours = counts.get(None, 0)
    return Replayed(
        read=sum(counts.values()),
        published=good,
        dead_again=dead,
        duplicates=ours - wanted,
        not_ours=sum(counts.values()) - ours,
        kinds=kinds,
        earlier=skipped,
        transactions=sum(item.transactions for item in delivered),
    )


def _deliverer(
    spans: Mapping[int, TaskRange], sink: Sink
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for partition, parts in groupby(_parts(whole(batches)), key=lambda part: part[0]):
            yield receipt(deliver((_complete(rows) for _, rows in parts), spans[partition], sink))

    return write


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows that are ordered by partition, split where the partition changes."""
    for batch in batches:
        if not batch.num_rows:
            continue
        partitions = batch.column("source_partition").to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), batch.num_rows]
        for start, end in pairwise(bounds):
            yield int(partitions[start]), batch.slice(start, end - start)


def _complete(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, if there is one per dead letter. ``deliver`` finds a second one in another batch."""
    topics, offsets = rows.column("topic"), rows.column("source_offset").to_numpy()
    dropped, multiplied = np.flatnonzero(topics.is_null()), np.flatnonzero(np.diff(offsets) == 0)
    for problem, found, places in (("dropped", "none", dropped), ("multiplied", "several", multiplied)):
        if places.size:
            raise IncompleteError(
                f"the transformation {problem} a row",
                expected="one row per row",
                found=f"{found} for the dead letter at offset {offsets[places[0]]} of the dead-letter topic's partition"
                f" {rows.column('source_partition')[0]}",
                hint="Fix the transformation and replay again: no dead letter is lost or replayed twice",
            )
    return rows
