"""Exactly-once delivery of one task's rows: Kafka transactions that hold the records and the marker's move.

The steps and their order are the guarantee (design.md, "Speed layer"): a new producer's ``init_transactions`` fences
every earlier attempt and settles what it left open; only then is the marker read; what it covers is skipped; each
transaction holds records and the marker behind them. After any doubt the producer is dropped and the task fails: its
next attempt reads the marker. Readers of the topics see each record once if they read committed records only.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise, repeat
from threading import Thread
from time import monotonic
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from tidemark.core.errors import ConfigError, ConflictError, PositionError, ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.speed.exactly_once.marker import (
    Marker,
    Sink,
    TaskRange,
    ensure_markers,
    marker,
    marker_offset,
    marker_reader,
    read_marker,
    resume_at,
)
from tidemark.speed.headers import milliseconds

__all__ = ["Delivered", "Marker", "Sink", "TaskRange", "deliver", "ensure_markers", "marker"]

# The largest record or request the client takes on; the topics' max.message.bytes is the limit that counts.
MAX_BYTES = 16 * 1024 * 1024
# What is on its way to the brokers, at most.
QUEUE_KIB = 64 * 1024
# Rows between two looks at the delivery reports and at the clock.
SLICE_ROWS = 5_000
_SETTLE_S = 10.0
_LOOK_S = 0.1
# Names of the library, for all their underscores.
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001
_NO_REASON = {KafkaError._STATE, KafkaError._FATAL, KafkaError._INCONSISTENT}  # noqa: SLF001
# What becomes of records that wait when a transaction fails for another reason.
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # noqa: SLF001


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What one call wrote for ``[start, until)``: rows for the live topic (``good``) and dead letters (``dead``).

    ``skipped`` rows were there already, by an earlier attempt.
    """

    log: TopicPartition
    start: int
    until: int
    skipped: int
    good: int
    dead: int
    transactions: int


def deliver(batches: Iterable[pa.RecordBatch], span: TaskRange, sink: Sink) -> Delivered:
    """Bring the span's rows and its marker to the sink, each row once however often this is tried.

    ``batches`` have the columns of ``tidemark.speed.output``, ordered by source_offset, one row per offset; they are
    consumed to the end. Afterwards the marker is at ``until``, also without a row.

    Raises PositionError for rows or a marker that do not fit the span, ConflictError where a later attempt took over,
    ConfigError for a record or a time-out that Kafka does not take, ServiceError for what may succeed the next time.
    """
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
            {
                "bootstrap.servers": sink.bootstrap,
                "transactional.id": sink.transactional_id(span.log),  # with it come acks=all and idempotence
                "transaction.timeout.ms": int(sink.timeout_s * 1000),  # bounds a record's delivery, too
                "topic.metadata.propagation.max.ms": int(sink.timeout_s * 250),  # for a topic that no broker knows
                "batch.size": sink.batch_bytes,
                "queue.buffering.max.kbytes": QUEUE_KIB,
                "message.max.bytes": MAX_BYTES,
                "linger.ms": 5,
                "partitioner": "murmur2_random",  # Java's, so that both ways of delivery agree on a key's partition
                "delivery.report.only.error": True,
                "log_level": 3,
            }
        )
        self._position = span.start  # everything below it was produced or skipped
        self._in_transaction = 0  # records
        self._began_at: float | None = None  # of the open transaction
        self._stuck = False
        self._failure: tuple[KafkaError, Message, pa.RecordBatch] | None = None
        self._skipped = self._good = self._dead = self._transactions = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> Delivered:
        span, sink = self._span, self._sink
        self._bounded("init_transactions")  # before the marker is read, or a zombie could still move it
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
        """Leave nothing behind that could still write: abort what is open, and end the producer's threads."""
        if self._began_at is not None and not self._stuck:
            with suppress(KafkaException, ServiceError):  # the next attempt's init_transactions does it else
                self._bounded("abort_transaction", timeout_s=min(_SETTLE_S, self._sink.timeout_s))
        self._producer.purge()
        # Not by close(): where no broker answers, it waits for its own abort_transaction for ever.
        del self._producer

    def _bounded(self, name: str, *arguments: Any, timeout_s: float | None = None) -> None:
        """Call the producer, and leave it behind where it does not come back.

        librdkafka 2.16 may never return from send_offsets_to_transaction after its broker was killed, for all its
        time-out. A call left behind can do no harm: the next attempt fences its producer before the marker is read.
        """
        timeout_s = timeout_s or self._sink.timeout_s
        outcome: list[BaseException | None] = []

        def call(method: Callable[..., None]) -> None:
            try:
                method(*arguments, timeout_s)
            except BaseException as error:  # noqa: BLE001  # it is the caller's
                outcome.append(error.with_traceback(None))  # whose frame would keep the producer
            else:
                outcome.append(None)

        who = self._sink.transactional_id(self._span.log)
        thread = Thread(target=call, args=(getattr(self._producer, name),), name=f"{name} of {who}", daemon=True)
        thread.start()
        thread.join(timeout_s + _SETTLE_S)
        if not outcome:
            self._stuck = True
            raise ServiceError(
                "Kafka's client did not come back from a call",
                expected=f"an answer within {timeout_s:g} s",
                where=f"{name} of {who} at {self._sink.bootstrap}",
                hint="The next attempt begins where the last transaction that was committed ends",
            )
        if outcome[0] is not None:
            raise outcome[0]

    def _check(self, batch: pa.RecordBatch) -> None:
        """Raise PositionError unless the rows are the span's, in order, behind those before them."""
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
                    "a row is not where it must be",
                    expected=f"an offset in [{before + 1}, {span.until}) behind the row before",
                    found=offset,
                    where=f"{log}, batch {span.batch}",
                )
        self._position = offsets[-1] + 1

    def _undelivered(self, batch: pa.RecordBatch, resumed: int) -> pa.RecordBatch:
        done = pc.sum(pc.less(batch.column("source_offset"), resumed)).as_py() or 0
        self._skipped += done
        return batch.slice(done)

    def _write(self, batch: pa.RecordBatch) -> None:
        """Produce the rows, and commit behind every ``records`` of them."""
        while batch.num_rows:
            if self._began_at is None:
                self._producer.begin_transaction()
                self._began_at = monotonic()
            piece = batch.slice(0, min(SLICE_ROWS, self._sink.records - self._in_transaction))
            batch = batch.slice(piece.num_rows)
            self._produce(piece)
            self._in_transaction += piece.num_rows
            # Long before the broker would end a transaction that is filled slowly.
            late = monotonic() - self._began_at > self._sink.timeout_s / 3
            if self._in_transaction >= self._sink.records or late:
                self._commit(piece.column("source_offset")[-1].as_py() + 1)

    def _produce(self, piece: pa.RecordBatch) -> None:
        failed = partial(self._note, piece)
        for row, (topic, partition, key, value, headers, timestamp) in enumerate(_records(piece)):
            while True:
                try:
                    self._producer.produce(topic, value, key, partition, failed, None, timestamp, headers)
                except BufferError:
                    self._producer.poll(0.1)
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                        size = len(key or b"") + len(value or b"")
                        raise self._too_large(piece, row, size, f"{MAX_BYTES} bytes at most") from error
                    raise
                else:
                    break
        dead = pc.sum(pc.invert(piece.column("_good"))).as_py()
        self._dead += dead
        self._good += piece.num_rows - dead
        self._producer.poll(0)

    def _commit(self, position: int) -> None:
        """Commit what is open, or nothing but the marker, with the marker at ``position``."""
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
        """Wait for Kafka's answer to each record, or for the first refusal, whose reason the next call tells.

        commit_transaction does not look at refusals: with records in flight behind one it waits for its whole time-out.
        """
        until = monotonic() + self._sink.timeout_s
        while self._failure is None and monotonic() < until:
            if not self._producer.flush(_LOOK_S):
                return

    def _note(self, piece: pa.RecordBatch, error: KafkaError | None, message: Message) -> None:
        """Keep the first delivery failure; the transaction can only be aborted from then on."""
        if error is not None and error.code() not in _PURGED and self._failure is None:
            self._failure = (error, message, piece)

    def explained(self, error: KafkaError) -> ConfigError | ConflictError | ServiceError:
        """What a refusal means, and what to do."""
        if self._failure is None:
            with suppress(KafkaException):
                self._producer.poll(1)  # the record's own report may come behind the transaction's error
        error = self._cause(error)
        span, sink = self._span, self._sink
        where = f"{span.log} [{span.start}, {span.until}) to {sink.bootstrap} as {sink.transactional_id(span.log)}"
        if error.code() in _FENCED:
            return self._fenced(error, where)
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return ConfigError(
                "Kafka takes no transaction that long",
                expected="at most the brokers' transaction.max.timeout.ms",
                found=f"{sink.timeout_s:g} s",
                where=where,
            )
        if self._failure is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            _, message, piece = self._failure
            size = len(message.key() or b"") + len(message.value() or b"")
            row = _row(piece, message)
            return self._too_large(piece, row, size, f"max.message.bytes of topic {message.topic()}")
        if self._failure is not None:
            where += f"; a record for topic {self._failure[1].topic()}"
        kind = "for good" if error.fatal() else "for now"
        return ServiceError(
            f"Kafka did not take a transaction {kind}",
            found=error,
            where=where,
            hint="Nothing of it can be read; the next attempt begins where the last one that was committed ends",
        )

    def _fenced(self, error: KafkaError, where: str) -> ConflictError:
        sink = self._sink
        open_s = 0.0 if self._began_at is None else monotonic() - self._began_at
        if open_s > sink.timeout_s:
            hint = f"Its transaction was open for {open_s:.0f} s, beyond its time-out of {sink.timeout_s:g} s"
        else:
            hint = (
                "The attempt that started last goes on, and nothing is lost or doubled. If none was started for this"
                " stream, find out who else uses this transactional id, and stop all but one"
            )
        return ConflictError(
            "a transactional id is another attempt's now",
            expected=f"{sink.transactional_id(self._span.log)} to be this one's",
            found=error.name(),
            where=where,
            hint=hint,
        )

    def _too_large(self, piece: pa.RecordBatch, row: int, size: int, limit: str) -> ConfigError:
        log = self._span.log
        return ConfigError(
            "a record is larger than Kafka takes",
            expected=limit,
            found=f"{size} bytes of key and value",
            where=f"source {log} offset {piece.column('source_offset')[row]}",
            hint="Raise max.message.bytes of the topic it goes to",
        )

    def _cause(self, error: KafkaError) -> KafkaError:
        """Why the transaction failed: behind the first refusal the client says only that it is in no state to go on."""
        if error.code() not in _NO_REASON:
            return error
        try:
            self._producer.poll(0)
            if self._failure is not None:
                return self._failure[0]
            # Is refused with the reason; were it not, it would be aborted with the rest.
            offset = marker_offset(self._span, self._sink, self._span.start)
            group = self._consumer.consumer_group_metadata()
            self._bounded("send_offsets_to_transaction", [offset], group, timeout_s=_SETTLE_S)
        except KafkaException as refused:
            reason: KafkaError = refused.args[0]
            return reason
        except ServiceError:
            return error
        return error


def _records(piece: pa.RecordBatch) -> Iterator[tuple[str, int, Any, Any, Any, int]]:
    """Topic, partition (-1: by the key), key, value, headers, and timestamp in ms, row by row."""
    return zip(
        _texts(piece.column("topic")),
        pc.fill_null(piece.column("partition"), -1).to_pylist(),
        _objects(piece.column("key")),
        _objects(piece.column("value")),
        _headers(piece.column("headers")),
        _milliseconds(piece.column("timestamp")),
        strict=True,
    )


def _headers(column: pa.ListArray) -> Iterable[list[tuple[str, bytes | None]]]:
    """Each row's headers. They are most of a record's work, and most are the same in every row: these are made once."""
    entries = column.flatten()
    names = _texts(pc.struct_field(entries, "key"))
    values = _objects(pc.struct_field(entries, "value"))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    width = lengths[0]
    if width and lengths.count(width) == len(lengths):
        return map(list, zip(*(_pairs(names[at::width], values[at::width]) for at in range(width)), strict=True))
    pairs = list(zip(names, values, strict=True))
    return (pairs[start:end] for start, end in pairwise(accumulate(lengths, initial=0)))


def _pairs(names: list[str], values: list[bytes | None]) -> Iterable[tuple[str, bytes | None]]:
    if names.count(names[0]) == len(names) and values.count(values[0]) == len(values):
        return repeat((names[0], values[0]), len(names))
    return zip(names, values, strict=True)


def _texts(column: pa.Array) -> list[str]:
    """Strings, of which few are distinct."""
    coded = column.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    return [texts[code] for code in coded.indices.to_pylist()]


def _objects(column: pa.Array) -> Any:
    return column.to_numpy(zero_copy_only=False).tolist()


def _milliseconds(column: pa.Array) -> Any:
    """Record timestamps as Kafka counts them, none as its -1. The client takes 0 for "now", so that 0 becomes 1."""
    stamps = milliseconds(column)
    return pc.fill_null(pc.if_else(pc.equal(stamps, 0), 1, stamps), -1).to_pylist()


def _row(piece: pa.RecordBatch, message: Message) -> int:
    """The row that became the message."""
    same = ((row, record) for row, record in enumerate(_records(piece)) if record[0] == message.topic())
    return next(row for row, record in same if (record[2], record[3]) == (message.key(), message.value()))
