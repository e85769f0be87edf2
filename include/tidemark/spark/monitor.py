"""Monitoring of a stream: its heartbeat object in S3, its metrics, and its lineage."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Self

from tidemark.core import instruments
from tidemark.core.errors import DisplacedError, FormatError, ServiceError
from tidemark.core.heartbeat import Heartbeat, State, parse_heartbeat
from tidemark.core.layout import Layout
from tidemark.core.log_extents import LogExtents, widen
from tidemark.core.masking import failure_text
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import LogRange
from tidemark.core.unreadable_times import LastHour
from tidemark.definitions.sections import FieldTime
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import backlog
from tidemark.kafka.topics import logs_of
from tidemark.lineage.stream_run import StreamLineage
from tidemark.s3 import ObjectStore, s3_client
from tidemark.settings import Settings
from tidemark.spark.streaming import log_event
from tidemark.telemetry.export import Telemetry

BEAT_S = 10.0
LAG_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """A stream's lag as in its heartbeat; None if Kafka did not answer."""

    records: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFigures:
    """The figures of one batch; ``ends`` are the next offsets of the partitions that it read.

    A figure that a layer does not have keeps its default. A batch that an earlier attempt committed counts zero.
    """

    batch: int
    ends: Mapping[int, int]
    seconds: float
    records: int = 0
    dead_letters: int = 0
    bytes: int = 0
    files: int = 0
    open_files: int = 0
    upload_seconds: tuple[float, ...] = ()
    retries: int = 0
    overflow_rows: int = 0
    out_of_bounds_rows: int = 0
    unreadable_times: int = 0


class Monitor:
    """One run of one layer, as a context manager: the heartbeat's state is running, then stopped, or failed with the
    error. A displaced writer leaves the heartbeat to the other one.

    ``batch`` may be called on another thread, everything else only on the driver's main thread. Nothing here stops the
    stream: a failed write of the heartbeat is logged, and an unknown lag is left out.

    A heartbeat keeps the extents of the one before: no other place may know the end of a topic that was deleted since.
    It also keeps an alarm that has not ended, with its counts: a restart must not end it.
    """

    def __init__(self, stream: Stream, settings: Settings, *, layer: str) -> None:
        self._stream, self._settings, self._layer = stream, settings, layer
        self._store = ObjectStore(settings)
        self._store.client = s3_client(settings, attempts=1, read_timeout_s=10)  # the next beat is the retry
        self._key = Layout(prefix=settings.prefix, stream=stream.name).heartbeat_key(layer)
        self._telemetry = Telemetry(
            deployment=settings.deployment, stream=stream.name, layer=layer, warn=self._warn_of_metrics
        )
        self._lineage = StreamLineage(stream, settings, layer)
        self._lock = Lock()
        self._writer: str | None = None
        self._batch: int | None = None
        self._positions: dict[int, int] = {}
        self._lag = Lag(records=None, seconds=None)
        self._topic_id: str | None = None
        self._extents: LogExtents = ()
        self._before_read = False
        self._overflow_rows = self._out_of_bounds_rows = 0
        self._alarm_until: datetime | None = None
        self._unreadable_times, self._last_hour = 0, LastHour()
        self._unreadable_times_until: datetime | None = None
        self._news = False
        self._beaten_at = 0.0

    def __enter__(self) -> Self:
        self._write("running")
        self._lineage.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            self._write("stopped")
        elif not isinstance(error, DisplacedError):  # the heartbeat is the other writer's now
            self._write("failed", failure_text(error, named=True))
        self._lineage.end(error)
        self._telemetry.close()

    def _warn_of_metrics(self, error: str, collector: str) -> None:
        fields = {"layer": self._layer, "stream": self._stream.name, "collector": collector, "error": error}
        log_event("metrics not exported", level="warning", **fields)

    def started(self, writer: str, positions: Mapping[int, int], topic_id: str | None = None) -> None:
        """The query has started at these next offsets by partition; a partition without one is unread.

        With its topic's id, heartbeats say which offsets Kafka has of that topic.
        """
        with self._lock:
            self._writer = writer
            self._topic_id = topic_id
            self._positions = {**positions, **self._positions}
            self._news = True

    def batch(self, figures: BatchFigures) -> Lag:
        """Record a committed batch, and return the lag after it."""
        record = self._telemetry.record
        record(instruments.BATCHES, 1)
        record(instruments.BATCH_DURATION, figures.seconds)
        record(instruments.RECORDS, figures.records)
        record(instruments.DEAD_LETTERS, figures.dead_letters)
        record(instruments.IO, figures.bytes)
        record(instruments.FILES, figures.files)
        record(instruments.OPEN_FILES, figures.open_files)
        record(instruments.RETRIES, figures.retries)
        record(instruments.OVERFLOW_ROWS, figures.overflow_rows)
        record(instruments.OUT_OF_BOUNDS_ROWS, figures.out_of_bounds_rows)
        record(instruments.UNREADABLE_TIMES, figures.unreadable_times)
        for seconds in figures.upload_seconds:
            record(instruments.UPLOAD_DURATION, seconds)
        self._lineage.batch(records=figures.records, dead_letters=figures.dead_letters)
        now = datetime.now(UTC)
        until = now + timedelta(hours=self._stream.archive.bounds_alarm_hours)
        with self._lock:
            self._batch = figures.batch
            self._positions.update(figures.ends)
            if figures.overflow_rows or figures.out_of_bounds_rows:
                self._overflow_rows += figures.overflow_rows
                self._out_of_bounds_rows += figures.out_of_bounds_rows
                self._alarm_until = until
            self._unreadable_times += figures.unreadable_times
            self._last_hour.add(now, figures.records, figures.unreadable_times)
            wanted = self._stream.event_time
            if isinstance(wanted, FieldTime) and self._last_hour.exceeds(wanted.unreadable_alarm_share):
                self._unreadable_times_until = until
            self._news = True
        return self._measure()

    def beat(self) -> None:
        """Write the heartbeat if something changed or the last one is 10 s old. Call it about every second."""
        idle = time.monotonic() - self._beaten_at >= BEAT_S
        if idle:
            self._measure()
        if idle or self._news:
            self._write("running")

    def _measure(self) -> Lag:
        with self._lock:
            positions = dict(self._positions)
        try:
            found = backlog(self._settings.kafka, self._stream.topic, positions, timeout_s=LAG_TIMEOUT_S)
        except ServiceError:
            lag = Lag(records=None, seconds=None)
        else:
            age = 0.0 if found.oldest_ms is None else max(time.time() - found.oldest_ms / 1000, 0)
            lag = Lag(records=found.offsets, seconds=round(age, 3))
            self._telemetry.record(instruments.LAG_RECORDS, found.offsets)
            self._telemetry.record(instruments.LAG_TIME, age)
            self._see(found.extents)
        with self._lock:
            self._lag = lag
        return lag

    def _see(self, extents: Mapping[int, tuple[int, int]]) -> None:
        """Keep what Kafka has of the topic, unless it was recreated: the id is asked for after the offsets."""
        if self._topic_id is None:
            return
        try:
            logs = logs_of(self._settings.kafka, self._stream.topic)
        except ServiceError:
            return  # the next beat asks again
        seen = []
        for log in logs:
            start, end = extents.get(log.partition, (0, 0))
            if log.topic_id == self._topic_id and start < end:
                seen.append(LogRange(log=log, range=OffsetRange(start=start, end=end)))
        with self._lock:
            self._extents = widen(self._extents, seen)

    def _read_before(self) -> None:
        """Extents and alarm of the heartbeat before, which the next one replaces."""
        body = self._store.get(self._key)
        before = None
        try:
            before = None if body is None else parse_heartbeat(body, where=self._key)
        except FormatError as error:
            log_event(
                "heartbeat not read", level="warning", layer=self._layer, stream=self._stream.name, error=str(error)
            )
        with self._lock:
            self._before_read = True
            if before is None:
                return
            self._extents = widen(self._extents, before.extents)
            if before.alarm_until is not None and before.alarm_until > datetime.now(UTC):
                self._alarm_until = self._alarm_until or before.alarm_until
                self._overflow_rows += before.overflow_rows
                self._out_of_bounds_rows += before.out_of_bounds_rows
            if before.unreadable_times_until is not None and before.unreadable_times_until > datetime.now(UTC):
                self._unreadable_times_until = self._unreadable_times_until or before.unreadable_times_until
                self._unreadable_times += before.unreadable_times

    def _write(self, state: State, error: str | None = None) -> None:
        self._beaten_at = time.monotonic()
        self._news = False
        try:
            if not self._before_read:
                self._read_before()
            self._store.put(self._key, self._heartbeat(state, error).to_json(), content_type="application/json")
        except ServiceError as refused:
            log_event(
                "heartbeat not written",
                level="warning",
                layer=self._layer,
                stream=self._stream.name,
                error=str(refused),
            )

    def _heartbeat(self, state: State, error: str | None) -> Heartbeat:
        with self._lock:
            return Heartbeat(
                deployment=self._settings.deployment,
                stream=self._stream.name,
                layer=self._layer,
                state=state,
                time=datetime.now(UTC),
                version=self._stream.version,
                writer=self._writer,
                batch=self._batch,
                positions=tuple(sorted(self._positions.items())),
                lag_records=self._lag.records,
                lag_seconds=self._lag.seconds,
                overflow_rows=self._overflow_rows,
                out_of_bounds_rows=self._out_of_bounds_rows,
                alarm_until=self._alarm_until,
                error=error,
                extents=self._extents,
                unreadable_times=self._unreadable_times,
                unreadable_times_share=self._last_hour.share(datetime.now(UTC)),
                unreadable_times_until=self._unreadable_times_until,
            )
