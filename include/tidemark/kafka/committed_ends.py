"""Where logs end for read-committed consumers, once the transactions that are open now have ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic, sleep

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.offsets import TopicPartition
from tidemark.kafka.positions import watermarks

_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedEnd:
    """A log's first offset, and the offset after its last committed record.

    ``hides_records``: a transaction is still open that hides records which were written before the question.
    """

    log_start: int
    end: int
    hides_records: bool


def committed_ends(
    kafka: KafkaConnection, logs: Sequence[TopicPartition], *, patience_s: float
) -> dict[TopicPartition, CommittedEnd]:
    """The ends of logs, after at most ``patience_s`` for open transactions.

    A running exactly-once stream always has some. Brokers also write the end of a transaction after they have answered
    its producer, so that a committed record may be hidden for a moment.
    """
    # Read these first: a record that was written by now is hidden if it lies after the read-committed end.
    written = {mark.log: mark.high_watermark for mark in watermarks(kafka, logs, committed=False)}
    deadline = monotonic() + patience_s
    while True:
        ends = watermarks(kafka, logs)
        waiting = {mark.log for mark in ends if written[mark.log] > mark.high_watermark}
        if not waiting or monotonic() > deadline:
            return {
                mark.log: CommittedEnd(
                    log_start=mark.log_start, end=mark.high_watermark, hides_records=mark.log in waiting
                )
                for mark in ends
            }
        sleep(_POLL_S)
