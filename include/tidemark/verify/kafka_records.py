"""What Kafka still holds of a day's offsets, record by record, against the offsets the archive has rows of."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from tidemark.core.days import micros
from tidemark.core.errors import ServiceError
from tidemark.core.hole_evidence import RANGES_MAX
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, count, subtract
from tidemark.kafka.log_reader import LogReader
from tidemark.kafka.offset_evidence import OffsetClassifier, OffsetFindings
from tidemark.kafka.positions import positions_at
from tidemark.kafka.topics import topic_config
from tidemark.objects.bits import OffsetBits
from tidemark.verify.archive import Derived
from tidemark.verify.result import ProofPart

Moments = tuple[datetime, datetime]
_PIECE = 1_000_000
NAMED = 10
NEAR_OFFSETS = 100_000
LIMIT_OFFSETS = 20_000_000


@dataclass(slots=True, kw_only=True)
class Held:
    """What was looked at of one log: ``offsets`` that Kafka still holds, ``records`` among them, and ``holes``, which
    are offsets of the day's stretches that neither side has a record of.

    Of the holes Kafka explains some; ``sealed`` it no longer holds, but an earlier look is in the seal; the rest is
    ``unexplained``, and ``ranges`` are the first of them.
    """

    offsets: int = 0
    records: int = 0
    holes: int = 0
    sealed: int = 0
    unexplained: int = 0
    ranges: list[OffsetRange] = field(default_factory=list)

    def add(self, other: "Held") -> None:
        """Count another log's as well."""
        for name in ("offsets", "records", "holes", "sealed", "unexplained"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def spans(rows: OffsetBits) -> Iterator[OffsetRange]:
    """The stretches of a log that a day's rows are in: late rows far from the others make stretches of their own."""
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
    """One log for comparison. ``held`` is what Kafka holds of it, None where that is nothing.

    ``archived`` gives the offsets of a window that the archive has rows of, ``proven`` those of some holes that the
    seal has evidence on: the one word that is taken from it, and only for what retention took. ``lost`` are the losses
    it claims, which are no holes: the check of the losses asks Kafka about them.
    """

    bootstrap: str
    log: TopicPartition
    held: OffsetRange | None
    lost: OffsetSet
    archived: Callable[[OffsetRange], OffsetBits]
    proven: Callable[[OffsetSet], OffsetSet]


def compare_with_kafka(
    side: LogSide, stretches: Iterable[OffsetRange], check: ProofPart, progress: Callable[[str], None]
) -> Held:
    """Read what Kafka holds of the stretches of a log.

    Differences: a committed record that the archive has no row of, and a row that Kafka has no record of although its
    log reaches over it and is not compacted. Raises ServiceError where Kafka can't be read.
    """
    log, held, found = side.log, side.held, Held()
    compacted = held is not None and "compact" in topic_config(side.bootstrap, log.topic)["cleanup.policy"]
    told = OffsetFindings()
    with LogReader(side.bootstrap, log, committed=True) as reader, OffsetClassifier(side.bootstrap, log) as classifier:
        for window in _pieces(stretches):
            own = side.archived(window)
            there = held.intersect(window) if held is not None else None
            holes = subtract(own.missing(), side.lost)
            if there is not None and found.offsets < LIMIT_OFFSETS:
                offsets, _, _ = reader.read(there)
                kafka = OffsetBits(window)
                kafka.add(offsets)
                found.offsets += len(there)
                found.records += len(offsets)
                _differences(kafka, own, there, log, check, compacted=compacted)
                progress(f"{found.offsets:,} offsets of {log}")
                holes = subtract(holes, kafka.ranges())
            found.holes += count(holes)
            gone = subtract(holes, [there] if there is not None else [])
            left = subtract(gone, side.proven(gone))
            found.sealed += count(gone) - count(left)
            found.unexplained += count(left)
            found.ranges += left[: RANGES_MAX - len(found.ranges)]
            told = told.plus(classifier.classify(subtract(holes, gone)))
        evidence = classifier.gap_cause().evidence(told)
    found.unexplained += evidence.unexplained
    found.ranges = sorted([*found.ranges, *evidence.ranges])[:RANGES_MAX]
    if found.offsets >= LIMIT_OFFSETS:
        check.notes.append(f"{log}: Kafka's records were compared for the first {found.offsets:,} offsets of the day")
    return found


@dataclass(slots=True, kw_only=True)
class KafkaBacklog:
    """What Kafka holds of each log (``held``) and no manifest has. ``read`` counts the offsets that were looked at."""

    bootstrap: str
    held: Mapping[TopicPartition, OffsetRange]
    archive: Derived
    progress: Callable[[str], None]
    read: int = 0

    def note(self, day: Moments, check: ProofPart) -> None:
        """Note the committed records among it that are stamped on the day: they are late, if not lost.

        ``LIMIT_OFFSETS`` are read in all, none in front of the first record stamped on the day or later. That Kafka
        can't be read is a note as well: it says nothing against what was compared.
        """
        try:
            first = positions_at(self.bootstrap, tuple(self.held), day[0]) if self.held else {}
            for log, span in self.held.items():
                start = first[log]
                if start is not None and start < span.end:
                    self._note(log, OffsetRange(start=max(start, span.start), end=span.end), day, check)
        except ServiceError as error:
            check.notes.append(f"what no manifest has was not looked at: {error}")

    def _note(self, log: TopicPartition, window: OffsetRange, day: Moments, check: ProofPart) -> None:
        low, high = (micros(moment) // 1000 for moment in day)
        number = 0
        named: list[OffsetRange] = []
        with LogReader(self.bootstrap, log, committed=True) as reader:
            for piece in _pieces(subtract([window], self.archive.committed(log))):
                if self.read >= LIMIT_OFFSETS:
                    check.notes.append(
                        f"of what no manifest has, {self.read:,} offsets were looked at, up to {log} {piece}"
                    )
                    break
                offsets, stamps, _ = reader.read(piece)
                own = OffsetBits(piece)
                number += own.add(offsets[(stamps >= low) & (stamps < high)])
                named += islice(own.ranges(), NAMED - len(named))
                self.read += len(piece)
                self.progress(f"{self.read:,} offsets that no manifest has")
        if number:
            more = ", …" if number > count(named) else ""
            check.notes.append(
                f"{log}: {number:,} records stamped on the day are in Kafka and in no manifest:"
                f" {', '.join(map(str, named))}{more}. They are late: once archived they reopen the day, unless"
                " batch.reopen_days leaves it alone"
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
            found="none",
            log=log,
        )


def _pieces(stretches: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
    for whole in stretches:
        for start in range(whole.start, whole.end, _PIECE):
            yield OffsetRange(start=start, end=min(start + _PIECE, whole.end))
