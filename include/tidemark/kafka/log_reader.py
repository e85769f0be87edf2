"""Read a log offset by offset: which records a client gets now is the evidence for holes."""

import time
from collections.abc import Callable
from typing import Self

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.kafka.names import EVIDENCE_GROUP
from tidemark.kafka.topics import UNAVAILABLE_HINT, kafka_errors

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
                    "log_level": 3,
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

    def first_at(self, timestamp_ms: int) -> int | None:
        """The first offset in the log with this timestamp or a later one; transaction markers count too."""
        wanted = [KafkaPartition(self.log.topic, self.log.partition, timestamp_ms)]
        with kafka_errors("Kafka could not find a position by time", str(self.log)):
            (found,) = self._consumer.offsets_for_times(wanted, timeout=_PATIENCE_S)
        return found.offset if found.error is None and found.offset >= 0 else None

    def _seek(self, offset: int) -> None:
        with kafka_errors("Kafka could not be read", str(self.log)):
            self._consumer.assign([KafkaPartition(self.log.topic, self.log.partition, offset)])
        self._from = self._at = offset
        self._ended, self._left = False, _NOTHING

    def _more(self) -> Ints:
        """The next records: a row of offsets and a row of timestamps."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            first = self._consumer.poll(1)
            if first is None:
                continue
            # Only what has arrived: with a time-out it would wait for the full number.
            messages = [first, *self._consumer.consume(_RECORDS_AT_ONCE, timeout=0)]
            before, rows = self._at, []
            for message in messages:
                error, offset = message.error(), message.offset()
                if error is None:
                    rows.append((offset, message.timestamp()[1]))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # its name in the library
                    self._ended = True
                    self._at = max(self._at, offset or 0)
                else:
                    raise ServiceError(
                        "Kafka could not be read", found=error.str(), where=str(self.log), hint=UNAVAILABLE_HINT
                    )
            found = np.array(rows, dtype=np.int64).reshape(len(rows), 2).T
            if rows:
                self._at = max(self._at, int(found[0, -1]) + 1)
            if self._progress is not None:
                self._progress(self._at - before)
            return found
        raise ServiceError(
            "Kafka did not answer",
            expected=f"records or the end within {_PATIENCE_S} s",
            found="neither",
            where=str(self.log),
            hint=UNAVAILABLE_HINT,
        )
