"""What both continuous streams share: the Kafka source, the checkpoint's place, and running until a stop signal."""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidemark.connections.spark import Layer
from tidemark.core.errors import ConflictError, FormatError, ServiceError
from tidemark.core.layout import Layout
from tidemark.core.manifest import canonical_json
from tidemark.core.offsets import TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.logs import json_logs, log_context, log_line
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.executors import ExecutorWatch
from tidemark.spark.failures import task_error
from tidemark.spark.java import executor_count
from tidemark.spark.kafka_source import source_options
from tidemark.spark.session import spark_session, temporary_conf

POLL_S = 1
FINISH_S = 20.0  # supervisors kill after 30 s or so

# One batch's progress as Spark reports it (``StreamingQueryProgress`` as a dictionary), after the batch.
BatchHook = Callable[[Mapping[str, Any]], None]

# Unlike the default, which renames, it is safe under kill -9 and leaves no temporary files.
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
# Spark asks whether a file exists before it creates and before it closes it. S3A would ask a third time, by two
# requests, of which a LIST costs as much as a write.
_FLAGS = "fs.s3a.performance.flags"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_stop = Event()


def kafka_source(
    spark: SparkSession,
    stream: Stream,
    settings: Settings,
    *,
    fail_on_data_loss: bool,
    starting: Mapping[int, int] | None = None,
    max_offsets_per_trigger: int | None = None,
    min_offsets_per_trigger: int | None = None,
    max_trigger_delay_seconds: float = 0,
) -> DataFrame:
    """The stream's topic from its start, committed records only, headers included; one Spark partition per log.

    A query without a checkpoint starts at ``starting``, the next offsets of all partitions, if given. Without
    ``fail_on_data_loss`` Spark skips offsets that retention deleted, and the caller must report them.
    ``max_trigger_delay_seconds`` limits the wait for ``min_offsets_per_trigger``.
    """
    options = {
        **source_options(settings),
        "subscribe": stream.topic,
        "groupIdPrefix": f"{settings.client_prefix}-{stream.name}",
        "startingOffsets": json.dumps({stream.topic: starting}) if starting else "earliest",
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    if max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    if min_offsets_per_trigger is not None:
        options["minOffsetsPerTrigger"] = str(min_offsets_per_trigger)
        options["maxTriggerDelay"] = f"{round(max_trigger_delay_seconds * 1000)}ms"
    return spark.readStream.format("kafka").options(**options).load()


def trigger(seconds: float, *, available_now: bool) -> dict[str, Any]:
    """Keyword arguments for ``DataStreamWriter.trigger``: read all current records and end, or run periodically."""
    return {"availableNow": True} if available_now else {"processingTime": f"{round(seconds * 1000)} milliseconds"}


def bind_checkpoint(store: ObjectStore, layout: Layout, layer: str, log: TopicPartition) -> str:
    """The URL of the layer's checkpoint, which is bound to the topic's id at its first use.

    Spark's offsets do not name the topic's id. Raises ConflictError if the topic was recreated since: the positions
    would silently skip the new topic's first records.
    """
    prefix = layout.checkpoint_prefix(layer)
    key = f"{prefix}source.json"
    wanted = canonical_json({"topic": log.topic, "topic_id": log.topic_id})
    if not store.put_if_absent(key, wanted):
        found = store.get(key)
        if found != wanted:
            raise ConflictError(
                "a checkpoint belongs to another log",
                expected=wanted.decode().strip(),
                found=(found or b"nothing").decode(errors="replace").strip(),
                where=f"s3://{store.bucket}/{key}",
                hint=f"The topic was recreated: delete s3://{store.bucket}/{prefix} to read the new one",
            )
    return f"s3a://{store.bucket}/{prefix.rstrip('/')}"


def start_query(spark: SparkSession, query: DataStreamWriter) -> StreamingQuery:
    """Start a query that writes its checkpoint atomically to S3.

    The settings are reset after the start; the query keeps them. Other queries of the session must not use them: Spark
    would also apply them to the file list of ``tidemark.spark.file_list``, which is on the driver's disk.
    """
    with temporary_conf(spark, {_FILE_MANAGER: _ABORTABLE, _FLAGS: "create"}):
        return query.start()


@contextmanager
def stream_session(settings: Settings, name: str, layer: Layer, stream: Stream) -> Iterator[SparkSession]:
    """A session for a continuous layer, stopped at the end; from now on SIGTERM and SIGINT only request a stop.

    The JVM starts with both signals ignored, and inherits that: a supervisor signals the whole process group, and the
    JVM would otherwise die in the middle of a batch. A signal during the start waits: Linux keeps a blocked signal even
    while it is ignored. Raises ServiceError if the JVM dies.
    """
    _stop.clear()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        spark = spark_session(settings, name, layer, stream.spark, personal=stream.has_personal)
    finally:
        for number in _SIGNALS:
            signal.signal(number, _ask_to_stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    try:
        with log_context(stream=stream.name, layer=layer):
            yield spark
    except (Py4JNetworkError, ConnectionError) as error:
        raise ServiceError("Spark's JVM died", found=error, where=name) from error
    finally:
        with suppress(Py4JError, OSError):  # the JVM may have died, and that error is raised
            spark.stop()


def await_stop(
    query: StreamingQuery,
    on_batch: BatchHook | None = None,
    on_poll: Callable[[], object] | None = None,
    in_hand: Callable[[], bool] | None = None,
    code: Path | None = None,
    *,
    personal: bool,
) -> None:
    """Wait until the query ends or a signal requests a stop; then the running batch is given up, and nothing is lost.

    With ``in_hand``, which returns whether a batch runs, a stop first waits up to 20 s for the batch. ``on_batch`` is
    called once per batch, in order, on this thread; an error in it stops the query and is raised. ``on_poll`` is called
    about every second. Raises ``task_error`` of the cause, ``code`` and ``personal`` if the query failed, ServiceError
    if the JVM died.
    """
    last, name = -1, query.name
    executors = executor_watch(query)
    try:
        ended = False
        while not (ended or _stop.is_set()):
            ended = bool(query.awaitTermination(POLL_S))
            executors.check()
            last = _report(query, last, on_batch)
            if on_poll is not None:
                on_poll()
        if in_hand is not None:
            _await_batch(query, in_hand)
        _end(query)
        _report(query, last, on_batch)
    except StreamingQueryException as error:
        if in_hand is not None and _stop.is_set():  # the stop refused or ended the batch
            return
        raise task_error(error, where=f"stream {name}", code=code, personal=personal) from error
    except (Py4JError, OSError) as error:
        raise ServiceError("Spark's JVM died", found=error, where=name) from error
    finally:
        _end(query)


def executor_watch(query: StreamingQuery) -> ExecutorWatch:
    """A watch over the executors of the running session, while the query has a batch."""
    spark = SparkSession.active()
    return ExecutorWatch(
        partial(executor_count, spark), lambda: query.status["isTriggerActive"], where=f"stream {query.name}"
    )


def _await_batch(query: StreamingQuery, in_hand: Callable[[], bool]) -> None:
    deadline = time.monotonic() + FINISH_S
    while (in_hand() or query.status["isTriggerActive"]) and time.monotonic() < deadline:
        if query.awaitTermination(POLL_S):
            return


def stop_requested() -> bool:
    """Whether a signal requested a stop of this process."""
    return _stop.is_set()


def log_event(event: str, **fields: Any) -> None:
    """Write one JSON line to standard output and flush it: ``time`` (UTC), ``event``, then the given fields.

    Where logs are JSON, it also has what every log line has.
    """
    if json_logs():
        level = fields.pop("level", "info")
        line = log_line(level, f"tidemark.{fields.get('layer', 'spark')}", event, {"event": event, **fields})
    else:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event, **fields}, default=str)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def batch_fields(progress: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a batch's log line: id, rows, ``[start, end)`` per partition, lag (offsets), time.

    The start is None in a stream's first batch: Spark does not report the log's start.
    """
    started, ends, latest = (_positions(progress, kind) for kind in ("startOffset", "endOffset", "latestOffset"))
    return {
        "batch": progress["batchId"],
        "rows": progress["numInputRows"],
        "offsets": {
            str(partition): [started.get(partition, 0) if started else None, end]
            for partition, end in sorted(ends.items())
        },
        "lag": sum(max(latest.get(partition, end) - end, 0) for partition, end in ends.items()),
        "seconds": progress["durationMs"].get("triggerExecution", 0) / 1000,
    }


def _positions(progress: Mapping[str, Any], kind: str) -> dict[int, int]:
    """Spark's JSON for a Kafka position, ``{"topic": {"0": 17}}``; empty before the first batch."""
    raw = progress["sources"][0].get(kind)
    if not raw:
        return {}
    value = json.loads(raw) if isinstance(raw, str) else raw
    if not isinstance(value, Mapping) or len(value) != 1:
        raise FormatError("not a position of one Kafka topic", found=value, where=f"progress.{kind}")
    return {int(partition): int(offset) for partition, offset in next(iter(value.values())).items()}


def _report(query: StreamingQuery, last: int, on_batch: BatchHook | None) -> int:
    """Call ``on_batch`` for every batch after ``last``; returns the id of the newest one.

    Progress is polled, because an error in a listener would stay in the listener's thread.
    """
    newest = query.lastProgress
    if newest is None or newest["batchId"] <= last:
        return last
    for progress in query.recentProgress:
        # A trigger without data is reported with the next batch's id and without addBatch.
        if progress["batchId"] > last and "addBatch" in progress["durationMs"]:
            last = progress["batchId"]
            if on_batch is not None:
                on_batch(json.loads(progress.json))
    return last


def _end(query: StreamingQuery) -> None:
    # If the JVM has died, or the query fails while it stops, it no longer runs either.
    with suppress(Py4JError, StreamingQueryException, OSError):
        query.stop()


def _ask_to_stop(_number: int, _frame: FrameType | None) -> None:
    _stop.set()
