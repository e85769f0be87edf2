"""Compare the records that Kafka still has of a day with the archive's rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.days import Span
from tidemark.core.errors import ServiceError
from tidemark.core.hole_evidence import RANGES_MAX
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, chunks, count, subtract
from tidemark.kafka.log_reader import LogReader
from tidemark.kafka.offset_evidence import OffsetClassifier, OffsetFindings
from tidemark.kafka.positions import positions_at
from tidemark.kafka.topics import topic_config
from tidemark.objects.bits import OffsetBits
from tidemark.verify.archive import Derived, WindowRows, within
from tidemark.verify.result import ProofPart

_CHUNK = 1_000_000
NAMED = 10
NEAR_OFFSETS = 100_000
LIMIT_OFFSETS = 20_000_000


@dataclass(slots=True, kw_only=True)
class Held:
    """Numbers of one log: checked ``offsets`` that Kafka still has, ``records`` among them, archived rows that were
    ``compared`` with a record by timestamp, and ``holes``, which are offsets without a record on either side.

    Kafka explains some of the holes. ``sealed`` ones have expired in Kafka, and the seal explains them. The rest is
    ``unexplained``; ``ranges`` are the first of these.
    """

    offsets: int = 0
    records: int = 0
    compared: int = 0
    holes: int = 0
    sealed: int = 0
    unexplained: int = 0
    ranges: list[OffsetRange] = field(default_factory=list)

    def add(self, other: "Held") -> None:
        for name in ("offsets", "records", "compared", "holes", "sealed", "unexplained"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def spans(rows: OffsetBits) -> Iterator[OffsetRange]:
    """The stretches of a log with a day's rows. Late rows far from the others are a stretch of their own."""
    held: OffsetRange | None = None
    for item in rows.ranges():
        if held is not None and item.start - held.end <= NEAR_OFFSETS:
            held = OffsetRange(start=held.start, end=item.end)
        else:
            if held is not None:
                yield held
            held = item
    if held is not None:
        yield held


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSide:
    """One log for comparison. ``held`` are the offsets that Kafka has, None if there are none.

    ``archived`` returns the archived rows in a window. ``proven`` returns those of some holes that the
    seal explains, for offsets that retention deleted. ``lost`` are the seal's losses, which are no holes.
    """

    kafka: KafkaConnection
    log: TopicPartition
    held: OffsetRange | None
    lost: OffsetSet
    archived: Callable[[OffsetRange], WindowRows]
    proven: Callable[[OffsetSet], OffsetSet]


def compare_with_kafka(
    side: LogSide, stretches: Iterable[OffsetRange], check: ProofPart, progress: Callable[[str], None]
) -> Held:
    """Read the stretches of a log in Kafka.

    Differences are committed records without an archived row, archived rows with another timestamp than Kafka's record,
    and archived rows without a record, unless the log is compacted or no longer has their offsets. Raises ServiceError
    if Kafka can't be read.
    """
    log, held, found = side.log, side.held, Held()
    compacted = held is not None and "compact" in topic_config(side.kafka, log.topic)["cleanup.policy"]
    findings = OffsetFindings()
    with LogReader(side.kafka, log, committed=True) as reader, OffsetClassifier(side.kafka, log) as classifier:
        for window in chunks(stretches, _CHUNK):
            rows = side.archived(window)
            own = rows.offsets
            there = held.intersect(window) if held is not None else None
            holes = subtract(own.missing(), side.lost)
            if there is not None and found.offsets < LIMIT_OFFSETS:
                offsets, timestamps, _ = reader.read(there)
                kafka, other = OffsetBits(window), OffsetBits(window)
                kafka.add(offsets)
                compared, differing = rows.other_times(offsets, timestamps)
                other.add(differing)
                found.compared += compared
                check.ranges(
                    "Kafka's records have other timestamps than the archive's: the log was rewritten",
                    other.ranges(),
                    expected="the archived timestamps",
                    found="other timestamps in Kafka",
                    log=log,
                )
                found.offsets += len(there)
                found.records += len(offsets)
                _differences(kafka, own, there, log, check, compacted=compacted)
                progress(f"{found.offsets:,} offsets of {log}")
                holes = subtract(holes, kafka.ranges())
            found.holes += count(holes)
            expired = subtract(holes, [there] if there is not None else [])
            left = subtract(expired, side.proven(expired))
            found.sealed += count(expired) - count(left)
            found.unexplained += count(left)
            found.ranges += left[: RANGES_MAX - len(found.ranges)]
            findings = findings.plus(classifier.classify(subtract(holes, expired)))
        evidence = classifier.gap_cause().evidence(findings)
    found.unexplained += evidence.unexplained
    found.ranges = sorted([*found.ranges, *evidence.ranges])[:RANGES_MAX]
    if found.offsets >= LIMIT_OFFSETS:
        check.notes.append(f"{log}: Kafka's records were compared for the first {found.offsets:,} offsets of the day")
    return found


@dataclass(slots=True, kw_only=True)
class KafkaBacklog:
    """The offsets in Kafka (``held``) that no manifest has. ``read`` counts the checked ones."""

    kafka: KafkaConnection
    held: Mapping[TopicPartition, OffsetRange]
    archive: Derived
    progress: Callable[[str], None]
    read: int = 0

    def note(self, day: Sequence[Span], check: ProofPart) -> None:
        """Note the committed records among them with a timestamp of the day: they are late, if not lost.

        At most ``LIMIT_OFFSETS`` are read, from the first record with a timestamp on or after the day. A failure to
        read Kafka is only a note, because it does not contradict the comparison.
        """
        try:
            first = positions_at(self.kafka, tuple(self.held), day[0][0]) if self.held and day else {}
            for log, span in self.held.items() if day else ():
                start = first[log]
                if start is not None and start < span.end:
                    self._note(log, OffsetRange(start=max(start, span.start), end=span.end), day, check)
        except ServiceError as error:
            check.notes.append(f"offsets without a manifest were not checked: {error}")

    def _note(self, log: TopicPartition, window: OffsetRange, day: Sequence[Span], check: ProofPart) -> None:
        number = 0
        named: list[OffsetRange] = []
        with LogReader(self.kafka, log, committed=True) as reader:
            for chunk in chunks(subtract([window], self.archive.committed(log)), _CHUNK):
                if self.read >= LIMIT_OFFSETS:
                    check.notes.append(
                        f"only {self.read:,} offsets without a manifest were checked, up to {log} {chunk}"
                    )
                    break
                offsets, times, _ = reader.read(chunk)
                own = OffsetBits(chunk)
                number += own.add(offsets[within(times, day, unit_us=1000)])
                named += islice(own.ranges(), NAMED - len(named))
                self.read += len(chunk)
                self.progress(f"{self.read:,} offsets without a manifest")
        if number:
            more = ", …" if number > count(named) else ""
            check.notes.append(
                f"{log}: {number:,} records of the day are in Kafka and in no manifest:"
                f" {', '.join(map(str, named))}{more}. They are late: once archived they reopen the day, unless"
                " batch.reopen_days prevents it"
            )


def _differences(
    kafka: OffsetBits, own: OffsetBits, there: OffsetRange, log: TopicPartition, check: ProofPart, *, compacted: bool
) -> None:
    check.ranges(
        "Kafka holds records that the archive lacks",
        kafka.without(own),
        expected="rows of the archive",
        found="committed records in Kafka alone",
        log=log,
    )
    if not compacted:
        below = [OffsetRange(start=own.window.start, end=there.start)] if there.start > own.window.start else []
        above = [OffsetRange(start=there.end, end=own.window.end)] if there.end < own.window.end else []
        check.ranges(
            "the archive has rows that Kafka has no record of",
            subtract(own.without(kafka), [*below, *above]),
            expected="records in Kafka, whose log reaches over them",
            found="none, and the topic's cleanup.policy does not name compact",
            log=log,
        )
