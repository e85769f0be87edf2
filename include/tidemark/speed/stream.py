"""The speed stream: Kafka → the stream's transformation → Kafka, at least once or exactly once.

At-least-once delivery uses Spark's Kafka sink, which repeats records after a failure and cannot set their timestamp.
After a record whose timestamp Spark's source can't hold, ``at_least_once`` continues. Exactly-once delivery uses
transactions (``exactly_once.batches``). In both modes, headers carry the coordinates and the timestamp of the source
record, so that duplicates can be found and records compared with the archive.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidemark.core.batch_size import SPEED_OFFSETS, offsets_per_batch
from tidemark.core.errors import ServiceError, TidemarkError, TransformError
from tidemark.core.layout import Layout
from tidemark.core.plan import LogRange
from tidemark.definitions.stream import Stream
from tidemark.kafka.names import marker_topic
from tidemark.kafka.positions import Watermarks, watermarks
from tidemark.kafka.topics import describe_topic, ensure_topic, topic_config
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.checkpoint import Checkpoint
from tidemark.spark.failing_record import with_record
from tidemark.spark.failures import TimeRangeError
from tidemark.spark.kafka_source import read_ranges
from tidemark.spark.lease import Lease, LeasePoll
from tidemark.spark.monitor import BatchFigures, Monitor
from tidemark.spark.process import Transform, classify, code_file, load_transform
from tidemark.spark.records import records
from tidemark.spark.same_topic import CHECK_S, same_logs
from tidemark.spark.streaming import (
    await_stop,
    batch_fields,
    bind_checkpoint,
    kafka_source,
    log_event,
    start_query,
    stream_session,
    trigger,
)
from tidemark.spark.time_zone import require_same_clocks
from tidemark.speed.at_least_once import SENT, SinkBatches, sink_options
from tidemark.speed.batches import DeliveryBatches
from tidemark.speed.exactly_once.batches import TransactionBatches, sink_of
from tidemark.speed.exactly_once.marker import ensure_markers
from tidemark.speed.exactly_once.preconditions import require_exactly_once, require_partitions
from tidemark.speed.exactly_once.start import set_delivery_mode
from tidemark.speed.output import output
from tidemark.speed.record_limits import HEADER_ROOM_BYTES, RecordLimits
from tidemark.speed.topics import LIMIT, TIMES, diagnosed, findings, record_limits

LAYER = "speed"
Spans = Mapping[int, Sequence[int]]
RETENTION = "retention.ms"
# The smallest limit of a new dead-letter topic: the source's limit counts compressed bytes, but dead letters are not.
DEAD_LETTER_BYTES = 16 * 1024 * 1024


def run_speed(stream: Stream, settings: Settings, *, available_now: bool = False) -> None:
    """Run the stream until SIGTERM, or with ``available_now`` until all existing records are delivered.

    Creates missing output topics. Raises ConfigError for a transformation that breaks its contract or cannot be
    delivered exactly once, ConflictError for a recreated topic, DisplacedError if another writer of the stream started,
    PositionError if checkpoint and markers contradict each other, ServiceError if Kafka or S3 refuses.
    """
    with stream_session(settings, f"tidemark-speed-{stream.name}", "speed", stream) as spark:
        speed(spark, stream, settings, available_now=available_now)


def speed(spark: SparkSession, stream: Stream, settings: Settings, *, available_now: bool = False) -> None:
    """``run_speed`` in an existing session."""
    with Monitor(stream, settings, layer=LAYER) as monitor:
        _run(spark, stream, settings, monitor, available_now=available_now)
    log_event("stopped", layer=LAYER, stream=stream.name)


def _run(spark: SparkSession, stream: Stream, settings: Settings, monitor: Monitor, *, available_now: bool) -> None:
    transform = _transform(spark, stream, settings)
    logs = describe_topic(settings.kafka, stream.topic)
    layout, store = Layout(prefix=settings.prefix, stream=stream.name), ObjectStore(settings)
    url = bind_checkpoint(store, layout, LAYER, logs[0])
    checkpoint = Checkpoint(store=store, prefix=layout.checkpoint_prefix(LAYER), topic=stream.topic)
    limits = prepare_topics(stream, settings, partitions=len(logs))
    sink = sink_of(stream, settings, logs[0].topic_id, limits)
    check_lease = LeasePoll(Lease.take(store, checkpoint.prefix), settings)
    position = checkpoint.at_start()
    markers = set_delivery_mode(stream, checkpoint, position, watermarks(settings.kafka, logs), sink)
    # Without a checkpoint, batches from the log's start would end before the markers.
    starting = markers if position is None else {}
    # The speed layer does not stop for records that retention deleted; Watch reports them.
    source = kafka_source(
        spark,
        stream,
        settings,
        fail_on_data_loss=False,
        starting=starting or None,
        max_offsets_per_trigger=offsets_per_batch(
            stream.speed.max_offsets_per_trigger, partitions=len(logs), default=SPEED_OFFSETS
        ),
    )
    own: dict[str, Any] = {
        "stream": stream,
        "settings": settings,
        "transform": transform,
        "checkpoint": checkpoint,
        "topic_id": logs[0].topic_id,
        "limits": limits,
    }
    once = stream.speed.delivery == "exactly_once"
    batches = TransactionBatches(**own, sink=sink, partitions=len(logs)) if once else None

    start = partial(_start, spark, source, url, own, available_now=available_now)
    query = start(batches)
    started = {"topic_id": logs[0].topic_id, "query": str(query.id), "delivery": stream.speed.delivery}
    log_event("started", layer=LAYER, stream=stream.name, **started)
    monitor.started(str(query.id), starting if position is None else position.start)
    watch = Watch(stream, settings, logs[0].topic_id, starting)
    by_client: SinkBatches | None = None
    try:
        try:
            _await(query, batches, watch, monitor, check_lease)
        except TimeRangeError as error:
            if once:
                raise
            log_event("read by Kafka's client", level="warning", layer=LAYER, stream=stream.name, cause=str(error))
            by_client = SinkBatches(**own)
            _await(start(by_client), by_client, watch, monitor, check_lease)
    except TidemarkError as error:
        check_lease(now=True)  # another writer is a usual cause
        cause = next((item.failure for item in (batches, by_client) if item is not None and item.failure), error)
        if isinstance(cause, TransformError):
            raise _of_a_record(cause, spark, stream, settings, checkpoint) from error
        raise watch.diagnosed(cause) from error


def _start(
    spark: SparkSession,
    source: DataFrame,
    url: str,
    own: Mapping[str, Any],
    batches: DeliveryBatches | None,
    *,
    available_now: bool,
) -> StreamingQuery:
    """Start the query that delivers the source by ``batches``, or by Spark's sink."""
    stream: Stream = own["stream"]
    writer = _spark_sink(source, **own) if batches is None else source.writeStream.foreachBatch(batches.deliver)
    return start_query(
        spark,
        writer.queryName(f"{stream.name}-{LAYER}")
        .option("checkpointLocation", url)
        .trigger(**trigger(stream.speed.trigger_seconds, available_now=available_now)),
    )


def _transform(spark: SparkSession, stream: Stream, settings: Settings) -> Transform:
    """The stream's transformation, after the checks that need neither Kafka nor S3."""
    require_same_clocks(spark, stream)
    transform = load_transform(stream, settings.streams_dir)
    if stream.speed.delivery == "exactly_once":
        require_exactly_once(spark, stream, transform)
    return transform


def _of_a_record(
    error: TransformError, spark: SparkSession, stream: Stream, settings: Settings, checkpoint: Checkpoint
) -> TransformError:
    """The error with the record of the interrupted batch that it is about."""
    transform = load_transform(stream, settings.streams_dir)

    def transformed(part: LogRange) -> DataFrame:
        return classify(records(read_ranges(spark, settings, {part.log: part.range}), stream), stream, transform)

    try:
        ranges, logs = checkpoint.interrupted(), describe_topic(settings.kafka, stream.topic)
    except TidemarkError:  # the transformation's error matters more
        return error
    spans = [LogRange(log=log, range=ranges[log.partition]) for log in logs if log.partition in ranges]
    return with_record(error, spark, spans, transformed)


def _await(
    query: StreamingQuery,
    batches: DeliveryBatches | None,
    watch: "Watch",
    monitor: Monitor,
    check_lease: Callable[[], None],
) -> None:
    """Report each batch until the query ends. Raises its error."""

    def on_batch(progress: Mapping[str, Any]) -> None:
        counted = progress if batches is None else batches.with_counts(progress, LAYER)
        monitor.batch(figures(counted))
        watch(counted)

    def on_poll() -> None:
        monitor.beat()
        check_lease()
        watch.poll()

    await_stop(
        query, on_batch, on_poll, None if batches is None else batches.busy.is_set, watch.code, personal=watch.personal
    )


def prepare_topics(stream: Stream, settings: Settings, *, partitions: int) -> RecordLimits:
    """Create missing output topics, and return their limits. ``partitions``: the source's number of partitions.

    A new dead-letter topic accepts every record of the source. Raises as ``require_partitions``.
    """
    kafka, speed = settings.speed_kafka, stream.speed
    source = topic_config(settings.kafka, stream.topic)
    room = max(int(source[LIMIT]) + HEADER_ROOM_BYTES, DEAD_LETTER_BYTES)
    # Exactly-once records keep the source's timestamps. With a shorter retention they would go before the source's, and
    # with narrower limits they would not keep them. Another cluster may not have the settings of the limits.
    names = (RETENTION, *(TIMES if kafka == settings.kafka else ())) if speed.delivery == "exactly_once" else ()
    kept = {name: source[name] for name in names if name in source}
    ensure_topic(kafka, speed.topic, partitions=partitions, config=kept)
    ensure_topic(kafka, speed.dead_letter_topic, partitions=partitions, config={**kept, LIMIT: str(room)})
    if speed.delivery == "exactly_once":
        ensure_markers(kafka, marker_topic(speed.topic), partitions)
    for finding in findings(stream, settings):
        log_event("dangerous setting", level="warning", layer=LAYER, stream=stream.name, **asdict(finding))
    require_partitions(stream, settings, partitions)
    return record_limits(stream, kafka)


def figures(progress: Mapping[str, Any]) -> BatchFigures:
    """A batch's numbers for the monitor. Spark repeats whole batches, so records may be counted twice."""
    fields = batch_fields(progress)
    return BatchFigures(
        batch=fields["batch"],
        ends={int(partition): end for partition, (_, end) in fields["offsets"].items()},
        seconds=fields["seconds"],
        records=fields["rows"],
        dead_letters=_dead_lettered(progress),
    )


def _dead_lettered(progress: Mapping[str, Any]) -> int:
    return int(progress["observedMetrics"].get(LAYER, {}).get("dead_lettered", 0))


class Watch:
    """Called after every batch: logs it and reports offsets that retention deleted unread. Detects a recreated topic.

    Spark's source only warns about lost offsets and continues after them. It does not notice a recreated topic.
    """

    def __init__(
        self, stream: Stream, settings: Settings, topic_id: str, starting: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        """``starting``: the first batch's start offsets by partition, where known; Spark does not report them."""
        self.code = code_file(stream, settings.streams_dir)
        self.personal = stream.has_personal
        self._stream = stream
        self._settings = settings
        self._topic_id = topic_id
        self._starting = starting
        self._checked_at = time.monotonic()
        self._suspects: list[tuple[int, Spans]] = []

    def __call__(self, progress: Mapping[str, Any]) -> None:
        fields = batch_fields(progress)
        metrics = progress["observedMetrics"].get(LAYER, {})
        dead = _dead_lettered(progress)
        log_event(
            "batch",
            layer=LAYER,
            stream=self._stream.name,
            **fields,
            published=int(metrics.get("rows", 0)) - dead,
            dead_lettered=dead,
        )
        spans = {}
        for partition, (start, end) in fields["offsets"].items():
            first = self._starting.get(int(partition)) if start is None else start
            if first is not None:
                spans[int(partition)] = (first, end)
        if spans and sum(end - start for start, end in spans.values()) != fields["rows"]:
            self._suspects.append((fields["batch"], spans))
        if self._suspects:
            self._check()

    def poll(self) -> None:
        """Check the topic's id every ``CHECK_S``. Call it about every second: batches may not come, as for a topic that
        was recreated and is not as long as the first one was."""
        if time.monotonic() - self._checked_at >= CHECK_S:
            self._check()

    def diagnosed(self, error: TidemarkError) -> TidemarkError:
        """The error, with what is wrong with the output topics now."""
        speed = self._stream.speed
        return diagnosed(error, self._settings.speed_kafka, (speed.topic, speed.dead_letter_topic))

    def _check(self) -> None:
        """Check the batches with missing records. If a broker does not answer, the next call checks them again."""
        self._checked_at = time.monotonic()
        try:
            logs = same_logs(self._settings, self._stream.topic, self._topic_id)
            marks = watermarks(self._settings.kafka, logs)
        except ServiceError as error:
            log_event("unchecked", level="warning", layer=LAYER, stream=self._stream.name, error=str(error))
            return
        for batch, spans in self._suspects:
            self._report_lost(batch, spans, marks)
        self._suspects.clear()

    def _report_lost(self, batch: int, spans: Spans, marks: Sequence[Watermarks]) -> None:
        """Only offsets before the log's start are lost: aborted transactions and compaction leave holes, too."""
        for mark in marks:
            start, end = spans.get(mark.log.partition, (0, 0))
            if start < min(end, mark.log_start):
                log_event(
                    "lost",
                    level="error",
                    layer=LAYER,
                    stream=self._stream.name,
                    batch=batch,
                    topic=mark.log.topic,
                    partition=mark.log.partition,
                    start=start,
                    end=min(end, mark.log_start),
                    log_start=mark.log_start,
                )


def _spark_sink(
    source: DataFrame,
    *,
    stream: Stream,
    settings: Settings,
    transform: Transform,
    topic_id: str,
    limits: RecordLimits,
    **_: Any,
) -> DataStreamWriter:
    """Spark's Kafka sink, for at-least-once delivery."""
    rows = classify(records(source, stream), stream, transform)
    sent = output(rows, stream, topic_id, record_limits=limits).select(*SENT)
    dead = F.count_if(F.col("topic") == stream.speed.dead_letter_topic)
    observed = sent.observe(LAYER, F.count(F.lit(1)).alias("rows"), dead.alias("dead_lettered"))
    return observed.writeStream.format("kafka").options(**sink_options(settings, limits))
