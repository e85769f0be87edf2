"""One record of a log, to notice that the log was rewritten: truncated, then grown again with other records.

After an unclean leader election or a lost disk, new records take offsets that are archived already. Once the log is
long again its positions show nothing. So an archived record is compared with Kafka's record at the same offset.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC
from hashlib import sha256

from tidemark.core.days import moment_text
from tidemark.core.offsets import OffsetRange, TopicPartition

# Candidates without an answer that a bisection passes over before it searches elsewhere.
_PASSED_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRecord:
    """A record by what identifies it.

    - log: its log.
    - offset: its offset.
    - timestamp_us: its timestamp, in µs since the epoch.
    - digest: first half of the SHA-256 of its key and value.
    - leader_epoch: epoch of the log's leader when the record was archived. Null if Kafka's client did not report it.
    """

    log: TopicPartition
    offset: int
    timestamp_us: int
    digest: str
    leader_epoch: int | None = None

    def __str__(self) -> str:
        epoch = "" if self.leader_epoch is None else f", leader epoch {self.leader_epoch}"
        return f"offset {self.offset} of {moment_text(self.timestamp_us, UTC)}, digest {self.digest}{epoch}"

    def is_same(self, other: "LoggedRecord") -> bool:
        """Whether both are one record. A leader epoch changes without the record, so it does not count."""
        return (self.log, self.offset, self.timestamp_us, self.digest) == (
            other.log,
            other.offset,
            other.timestamp_us,
            other.digest,
        )


def record_digest(key: bytes | None, value: bytes | None) -> str:
    """The digest of a record's key and value; null and empty differ, and it matters which of both has a byte."""
    found = sha256()
    for part in (key, value):
        found.update(b"null;" if part is None else b"%d;" % len(part))
        found.update(part or b"")
    return found.hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffset:
    """What Kafka holds at an archived record's offset: the record, None without one.

    ``log_start`` and ``end`` are the log's first offset and the one after its last. ``compacted``: Kafka may remove
    single records of the topic.
    """

    record: LoggedRecord | None
    log_start: int
    end: int
    compacted: bool


def same_record(archived: LoggedRecord, kafka: AtOffset) -> bool | None:
    """Whether Kafka holds the archived record. None if retention or compaction may have removed it.

    Any other log never loses a record: none at the offset means that the log ends before it, or that a transaction's
    marker has the offset now.
    """
    if kafka.record is not None:
        return archived.is_same(kafka.record)
    if archived.offset < kafka.log_start or (kafka.compacted and archived.offset < kafka.end):
        return None
    return False


def first_different(number: int, same: Callable[[int], bool | None]) -> tuple[int | None, int]:
    """The last of ``number`` candidates that is the same in Kafka, None without one, and the first that is different.

    Candidates are numbered in offset order, and the last one is known to be different. All before some point are the
    same, and all after it differ. ``same`` returns None for a candidate without an answer. Between the two results
    there are only such candidates. Asks for about log2(number) candidates.
    """
    known, low, high = None, -1, number - 1
    while high - low > 1:
        middle = at = (low + high) // 2
        answer = same(at)
        while answer is None and at - 1 > low and middle - at < _PASSED_MAX:
            at -= 1
            answer = same(at)
        if answer is False:
            high = at
        else:  # without any answer there is nothing to learn below
            known, low = (at if answer else known), middle
    return known, high


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenLog:
    """An archived record that Kafka does not hold: ``kafka`` has another one at its offset, None without one.

    ``end`` is the offset after the log's last one. ``range`` holds the archived offsets that were rewritten.
    """

    archived: LoggedRecord
    kafka: LoggedRecord | None
    end: int
    range: OffsetRange

    def sides(self) -> tuple[str, str]:
        """The archived record and what Kafka has, in words."""
        log = self.archived.log
        if self.kafka is not None:
            found = f"{log} {self.kafka}"
        elif self.archived.offset >= self.end:
            found = f"{log} ends at offset {self.end}"
        else:
            found = f"{log} no record at offset {self.archived.offset}, end offset {self.end}"
        return f"{log} {self.archived}", found


def ranges_text(logs: Iterable[RewrittenLog]) -> str:
    """The rewritten offsets of each log."""
    return ", ".join(f"{item.archived.log} {item.range}, topic id {item.archived.log.topic_id}" for item in logs)
