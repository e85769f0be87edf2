"""Exactly-once delivery of one task's rows: each Kafka transaction holds records and the new marker.

The order of the steps is the guarantee:

1. A new producer's ``init_transactions`` fences every earlier attempt, and ends the transaction that it left open.
2. The marker is read. Rows before it are skipped.
3. Each transaction commits records, and the marker after the last of them.
4. After any error the producer is dropped and the task fails. Its next attempt starts at step 1.

A consumer that reads committed records only sees each record once.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from threading import Thread
from time import monotonic, time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from tidemark.connections.client_errors import forget_errors
from tidemark.core.errors import ConfigError, ConflictError, PositionError, ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.kafka.failures import hear, with_cause
from tidemark.speed.exactly_once.marker import Sink, TaskRange, marker_offset, marker_reader, read_marker, resume_at
from tidemark.speed.exactly_once.row_records import accepted_times, row_records

# The most bytes waiting for the brokers' answers, unless one record is larger.
QUEUE_KIB = 64 * 1024
# Rows between two checks of the delivery reports and of the clock.
SLICE_ROWS = 5_000
_ABORT_S = 10.0
_POLL_S = 0.1
# These are public names of the library, in spite of their underscores.
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001
_NO_REASON = {KafkaError._STATE, KafkaError._FATAL, KafkaError._INCONSISTENT}  # noqa: SLF001
# The errors of queued records when a transaction fails for another reason.
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # noqa: SLF001


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The rows of ``[start, until)`` that one call wrote: ``good`` rows, and ``dead`` ones (dead letters).

    ``skipped`` rows were delivered by an earlier attempt.
    """

    log: TopicPartition
    start: int
    until: int
    skipped: int
    good: int
    dead: int
    transactions: int


def deliver(batches: Iterable[pa.RecordBatch], span: TaskRange, sink: Sink) -> Delivered:
    """Write the range's rows and its marker to the sink: each row once, however often this is called.

    ``batches`` have the columns of ``tidemark.speed.output``, one row per offset, ordered by source_offset. All of them
    are consumed. Afterwards the marker is at ``until``, even without a row.

    Raises PositionError for rows or a marker that contradict the range, ConflictError if a later attempt fenced this
    one, ConfigError for a record or a time-out that Kafka refuses, ServiceError for what a retry may solve.
    """
    forget_errors()
    with marker_reader(sink) as consumer:
        task = _Task(span, sink, consumer)
        try:
            return task.run(batches)
        except KafkaException as error:
            raise task.explained(error.args[0]) from error
        finally:
            task.drop()


class _Task:
    """One producer, from its first transaction to its last."""

    def __init__(self, span: TaskRange, sink: Sink, consumer: Consumer) -> None:
        self._span, self._sink, self._consumer = span, sink, consumer
        self._producer = Producer(
            sink.kafka.client(
                {
                    "transactional.id": sink.transactional_id(span.log),  # implies acks=all and idempotence
                    "transaction.timeout.ms": int(sink.timeout_s * 1000),  # limits a record's delivery, too
                    "topic.metadata.propagation.max.ms": int(sink.timeout_s * 250),  # for a topic that no broker knows
                    "batch.size": sink.batch_bytes,
                    "queue.buffering.max.kbytes": max(QUEUE_KIB, 2 * sink.record_bytes // 1024),
                    "message.max.bytes": sink.record_bytes,
                    "linger.ms": 5,
                    "partitioner": "murmur2_random",  # Java's: both delivery modes choose the same partition
                    "delivery.report.only.error": True,
                }
            )
        )
        self._position = span.start  # every offset below it was produced or skipped
        self._in_transaction = 0  # records
        self._began_at: float | None = None  # of the open transaction
        self._stuck = False
        self._failure: tuple[KafkaError, Message, pa.RecordBatch] | None = None
        self._skipped = self._good = self._dead = self._transactions = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> Delivered:
        span, sink = self._span, self._sink
        self._bounded("init_transactions")  # before the marker is read: after this, no earlier attempt can move it
        found = read_marker(self._consumer, sink, span.log)
        resumed = resume_at(found, span, sink)
        for batch in batches:
            self._check(batch)
            self._write(self._undelivered(batch, resumed))
        if self._began_at is not None or found is None or max(self._position, resumed) < span.until:
            self._commit(span.until)
        return Delivered(
            log=span.log,
            start=span.start,
            until=span.until,
            skipped=self._skipped,
            good=self._good,
            dead=self._dead,
            transactions=self._transactions,
        )

    def drop(self) -> None:
        """Abort the open transaction, and end the producer's threads, so that nothing can still write."""
        if self._began_at is not None and not self._stuck:
            with suppress(KafkaException, ServiceError):  # otherwise the next attempt's init_transactions aborts it
                self._bounded("abort_transaction", timeout_s=min(_ABORT_S, self._sink.timeout_s))
        self._producer.purge()
        # Not close(): if no broker answers, it waits for its own abort_transaction for ever.
        del self._producer

    def _bounded(self, name: str, *arguments: Any, timeout_s: float | None = None) -> None:
        """Call the producer on a thread, and abandon the call if it does not return in time.

        librdkafka 2.16 may never return from send_offsets_to_transaction after its broker was killed, in spite of the
        time-out. An abandoned call does no harm: the next attempt fences its producer before the marker is read.
        """
        timeout_s = timeout_s or self._sink.timeout_s
        outcome: list[BaseException | None] = []

        def call(method: Callable[..., None]) -> None:
            try:
                method(*arguments, timeout_s)
            except BaseException as error:  # noqa: BLE001  # the caller raises it
                outcome.append(error.with_traceback(None))  # the traceback would keep the producer alive
            else:
                outcome.append(None)

        producer_id = self._sink.transactional_id(self._span.log)
        title = f"{name} of {producer_id}"
        thread = Thread(target=call, args=(getattr(self._producer, name),), name=title, daemon=True)
        thread.start()
        thread.join(timeout_s + _ABORT_S)
        if not outcome:
            self._stuck = True
            raise ServiceError(
                "Kafka's client did not return from a call",
                expected=f"an answer within {timeout_s:g} s",
                where=f"{title} at {self._sink.kafka}",
                hint="The next attempt starts after the last committed transaction",
            )
        if outcome[0] is not None:
            raise outcome[0]

    def _check(self, batch: pa.RecordBatch) -> None:
        """Raise PositionError unless the rows are in the range, and follow the rows before them."""
        if not batch.num_rows:
            return
        log, span = self._span.log, self._span
        partitions = set(batch.column("source_partition").unique().to_pylist())
        if partitions != {log.partition}:
            raise PositionError(
                "rows of other source partitions", expected=log.partition, found=partitions, where=str(log)
            )
        offsets = [self._position - 1, *batch.column("source_offset").to_numpy().tolist()]
        for before, offset in pairwise(offsets):
            if not before < offset < span.until:
                raise PositionError(
                    "rows are not in offset order",
                    expected=f"an offset in [{before + 1}, {span.until})",
                    found=offset,
                    where=f"{log}, batch {span.batch}",
                )
        self._position = offsets[-1] + 1

    def _undelivered(self, batch: pa.RecordBatch, resumed: int) -> pa.RecordBatch:
        done = pc.sum(pc.less(batch.column("source_offset"), resumed)).as_py() or 0
        self._skipped += done
        return batch.slice(done)

    def _write(self, batch: pa.RecordBatch) -> None:
        """Produce the rows, and commit after every ``records`` of them."""
        while batch.num_rows:
            if self._began_at is None:
                self._producer.begin_transaction()
                self._began_at = monotonic()
            rows = batch.slice(0, min(SLICE_ROWS, self._sink.records - self._in_transaction))
            batch = batch.slice(rows.num_rows)
            self._produce(rows)
            self._in_transaction += rows.num_rows
            # Long before the broker would abort a transaction that fills slowly.
            late = monotonic() - self._began_at > self._sink.timeout_s / 3
            if self._in_transaction >= self._sink.records or late:
                self._commit(rows.column("source_offset")[-1].as_py() + 1)

    def _produce(self, rows: pa.RecordBatch) -> None:
        on_report = partial(self._keep_failure, rows)
        times = accepted_times(rows.column("timestamp"), self._sink, now_ms=round(time() * 1000))
        for row, (topic, partition, key, value, headers, timestamp) in enumerate(row_records(rows, times)):
            while True:
                try:
                    self._producer.produce(topic, value, key, partition, on_report, None, timestamp, headers)
                except BufferError:
                    self._producer.poll(0.1)
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                        size = len(key or b"") + len(value or b"")
                        raise self._too_large(rows, row, size, f"{self._sink.record_bytes} bytes at most") from error
                    raise
                else:
                    break
        dead = pc.sum(pc.invert(rows.column("_good"))).as_py()
        self._dead += dead
        self._good += rows.num_rows - dead
        self._producer.poll(0)

    def _commit(self, position: int) -> None:
        """Commit the open transaction, or an empty one, with the marker at ``position``."""
        if self._began_at is None:
            self._producer.begin_transaction()
            self._began_at = monotonic()
        self._flush()
        group = self._consumer.consumer_group_metadata()
        offset = marker_offset(self._span, self._sink, position)
        self._bounded("send_offsets_to_transaction", [offset], group)
        self._bounded("commit_transaction")
        self._began_at, self._in_transaction = None, 0
        self._transactions += 1

    def _flush(self) -> None:
        """Wait for Kafka's answer to each record, or for the first refusal. The next call raises a refusal.

        commit_transaction ignores refusals: with records in flight after one, it waits for its whole time-out.
        """
        until = monotonic() + self._sink.timeout_s
        while self._failure is None and monotonic() < until:
            if not self._producer.flush(_POLL_S):
                return

    def _keep_failure(self, rows: pa.RecordBatch, error: KafkaError | None, message: Message) -> None:
        """Keep the first delivery failure. After it, the transaction can only be aborted."""
        if error is not None and error.code() not in _PURGED and self._failure is None:
            self._failure = (error, message, rows)

    def explained(self, error: KafkaError) -> ConfigError | ConflictError | ServiceError:
        """The error that explains a refusal, and says what to do."""
        if self._failure is None:
            with suppress(KafkaException):
                self._producer.poll(1)  # the record's report may come after the transaction's error
        error = self._cause(error)
        span, sink = self._span, self._sink
        where = f"{span.log} [{span.start}, {span.until}) to {sink.kafka} as {sink.transactional_id(span.log)}"
        if error.code() in _FENCED:
            return self._fenced(error, where)
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return ConfigError(
                "Kafka refuses a transaction that may take so long",
                expected="at most the brokers' transaction.max.timeout.ms",
                found=f"{sink.timeout_s:g} s",
                where=where,
            )
        if self._failure is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            _, message, rows = self._failure
            size = len(message.key() or b"") + len(message.value() or b"")
            row = _row(rows, message)
            return self._too_large(rows, row, size, f"max.message.bytes of topic {message.topic()}")
        if self._failure is not None and error.code() == KafkaError.INVALID_TIMESTAMP:
            _, message, rows = self._failure
            row = _row(rows, message)
            return ConfigError(
                "a topic refuses the timestamp of a record",
                expected="a timestamp within message.timestamp.before.max.ms and message.timestamp.after.max.ms"
                f" of topic {message.topic()}",
                found=rows.column("timestamp")[row],
                where=f"source {span.log} offset {rows.column('source_offset')[row]}",
                hint="These settings were changed while the stream ran, or the brokers' clocks are more than a minute"
                " off. Restart the stream: such a record then gets the time of its delivery",
            )
        if self._failure is not None:
            where += f"; a record for topic {self._failure[1].topic()}"
        kind = "permanently" if error.fatal() else "for now"
        hear(self._producer)
        found, _ = with_cause(error)
        return ServiceError(
            f"Kafka refused a transaction {kind}",
            found=found,
            where=where,
            hint="No reader sees its records; the next attempt starts after the last committed transaction",
        )

    def _fenced(self, error: KafkaError, where: str) -> ConflictError:
        sink = self._sink
        open_s = 0.0 if self._began_at is None else monotonic() - self._began_at
        if open_s > sink.timeout_s:
            hint = f"Its transaction was open for {open_s:.0f} s, longer than its time-out of {sink.timeout_s:g} s"
        else:
            hint = (
                "The latest attempt continues, and nothing is lost or duplicated. If you started no other attempt, find"
                " out who else uses this transactional id, and stop all but one"
            )
        return ConflictError(
            "another attempt uses the transactional id now",
            expected=f"{sink.transactional_id(self._span.log)} used by this attempt only",
            found=error.name(),
            where=where,
            hint=hint,
        )

    def _too_large(self, rows: pa.RecordBatch, row: int, size: int, limit: str) -> ConfigError:
        log = self._span.log
        return ConfigError(
            "a record is too large for Kafka",
            expected=limit,
            found=f"{size} bytes of key and value",
            where=f"source {log} offset {rows.column('source_offset')[row]}",
            hint="Raise max.message.bytes of its output topic",
        )

    def _cause(self, error: KafkaError) -> KafkaError:
        """Why the transaction failed. After the first refusal, the client itself reports only its invalid state."""
        if error.code() not in _NO_REASON:
            return error
        try:
            self._producer.poll(0)
            if self._failure is not None:
                return self._failure[0]
            # Kafka refuses this call with the reason. If it did not, the offset would be aborted with the rest.
            offset = marker_offset(self._span, self._sink, self._span.start)
            group = self._consumer.consumer_group_metadata()
            self._bounded("send_offsets_to_transaction", [offset], group, timeout_s=_ABORT_S)
        except KafkaException as refused:
            reason: KafkaError = refused.args[0]
            return reason
        except ServiceError:
            return error
        return error


def _row(rows: pa.RecordBatch, message: Message) -> int:
    """The row that became the message."""
    wanted = (message.topic(), message.key(), message.value())
    records = enumerate(row_records(rows, rows.num_rows * [-1]))
    return next(row for row, (topic, _, key, value, *_) in records if (topic, key, value) == wanted)
