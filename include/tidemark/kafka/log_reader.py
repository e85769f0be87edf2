"""Read a log offset by offset: which records a client gets now is the evidence for holes."""

import time
from collections.abc import Callable, Iterator
from typing import Self

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.kafka.failures import explained, hear, kafka_errors, reporting
from tidemark.kafka.names import EVIDENCE_GROUP
from tidemark.kafka.times import timestamp_ms

Ints = npt.NDArray[np.int64]
# Reading over fewer records than this takes no longer than a seek.
NEAR_OFFSETS = 50_000
_RECORDS_AT_ONCE = 10_000
_PATIENCE_S = 60
_NOTHING: Ints = np.empty((2, 0), dtype=np.int64)


class LogReader:
    """Reads one log forward, without a consumer group; with ``committed`` only committed records, else all.

    A span that starts shortly after the last one is reached by reading, any other one by a seek. So any number of small
    spans in offset order costs one pass.
    """

    def __init__(
        self,
        kafka: KafkaConnection,
        log: TopicPartition,
        *,
        committed: bool,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.log = log
        self._progress = progress
        self._from = self._at = -1  # all records of [from, at) were read and are in _left; -1 before the first read
        self._ended = False
        self._left = _NOTHING
        self._consumer = Consumer(
            kafka.client(
                {
                    "group.id": EVIDENCE_GROUP,
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",  # a position that retention deleted is an error, not a jump
                    "isolation.level": "read_committed" if committed else "read_uncommitted",
                    "fetch.wait.max.ms": 20,  # how long the broker waits at the log's end before it answers
                    "queued.max.messages.kbytes": 32 * 1024,
                }
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, span: OffsetRange) -> tuple[Ints, Ints, int]:
        """Offsets and timestamps (ms) of the records in the span, and the offset up to which all were read.

        That is the span's end, or the log's end if it comes first. Raises ServiceError also for a deleted start.
        """
        if self._at < 0 or not self._from <= span.start <= self._at + NEAR_OFFSETS:
            self._seek(span.start)
        parts = [self._left]
        while self._at < span.end and not self._ended:
            parts.append(self._more())
        found = np.concatenate(parts, axis=1)
        self._left = found[:, found[0] >= span.end]
        self._from = min(span.end, self._at)
        inside = found[:, (found[0] >= span.start) & (found[0] < span.end)]
        return inside[0], inside[1], min(span.end, self._at)

    def messages(self, span: OffsetRange) -> Iterator[list[Message]]:
        """The records in the span, in offset order and in lists of at most 10,000.

        Raises ServiceError also for a deleted start, and for a log that ends before the span for a minute: a new leader
        may not know the log's end at first.
        """
        self._seek(span.start)
        while self._at < span.end:
            yield [message for message in self._messages() if _offset(message) < span.end]
        self._at = -1  # what was read is not kept for another call

    def first_at(self, timestamp_ms: int) -> int | None:
        """The first offset in the log with this timestamp or a later one; transaction markers count too."""
        wanted = [KafkaPartition(self.log.topic, self.log.partition, timestamp_ms)]
        with kafka_errors("Kafka could not find a position by time", str(self.log)), reporting(self._consumer):
            (found,) = self._consumer.offsets_for_times(wanted, timeout=_PATIENCE_S)
        return found.offset if found.error is None and found.offset >= 0 else None

    def _seek(self, offset: int) -> None:
        with kafka_errors("Kafka could not be read", str(self.log)):
            self._consumer.assign([KafkaPartition(self.log.topic, self.log.partition, offset)])
        self._from = self._at = offset
        self._ended, self._left = False, _NOTHING

    def _more(self) -> Ints:
        """The next records: a row of offsets and a row of timestamps."""
        rows = [(_offset(message), timestamp_ms(message)) for message in self._messages()]
        return np.array(rows, dtype=np.int64).reshape(len(rows), 2).T

    def _messages(self) -> list[Message]:
        """The next records; none at the log's end."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            first = self._consumer.poll(1)
            if first is None:
                continue
            # Only what has arrived: with a time-out it would wait for the full number.
            before, found = self._at, []
            for message in [first, *self._consumer.consume(_RECORDS_AT_ONCE - 1, timeout=0)]:
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # its name in the library
                    self._ended = True
                    self._at = max(self._at, _offset(message))
                else:
                    raise explained("Kafka could not be read", error, str(self.log))
            if found:
                self._at = max(self._at, _offset(found[-1]) + 1)
            if self._progress is not None:
                self._progress(self._at - before)
            return found
        hear(self._consumer)
        text = f"neither records nor the end within {_PATIENCE_S} s, at offset {self._at}"
        raise explained("Kafka did not answer", text, str(self.log))


def _offset(message: Message) -> int:
    return message.offset() or 0
