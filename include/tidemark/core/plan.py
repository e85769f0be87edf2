"""The plan of a reconcile run. ``tidemark.core.planner`` makes it."""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from tidemark.core.offsets import OffsetRange, TopicPartition

# Why a day is rebuilt: a person or the schedule named it, late records reopened it, or no seal proves what readers see.
Reason = Literal["requested", "scheduled", "late", "unproven"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """Offsets of one log."""

    log: TopicPartition
    range: OffsetRange

    def __str__(self) -> str:
        return f"{self.log} {self.range}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """Offsets that Kafka had at the end of a log and lost, by an unclean leader election or with a disk.

    - log: the log.
    - range: the offsets, from the log's end then to the last end that was seen. Some may never have had a record. Later
      records take these offsets.
    - archived: the end of the archived offsets then. Kafka may have had other records from there to `range`.
    - leader_epoch: epoch of the log's leader then. Null from brokers that do not report it.
    """

    log: TopicPartition
    range: OffsetRange
    archived: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The offsets of one log that a run must prove: ``[start, end)``.

    ``start`` is the first offset that the stream is responsible for: a previous seal's, 0 for a partition added since,
    else the lower of log start and first archived offset. ``log_start`` and ``high_watermark`` are from the time when
    the run was planned. ``deleted``: Kafka no longer has the log, and all three ends are the last known one.
    ``truncated`` are offsets that were seen of the log, also inside the target, and lost before they were archived.
    """

    log: TopicPartition
    start: int
    end: int
    log_start: int
    high_watermark: int
    deleted: bool = False
    truncated: tuple[Truncation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The part of a committed range that the cover uses.

    - range: the offsets used.
    - committed: the whole committed range.
    - writer: writer of its manifest.
    - batch: batch of its manifest.
    - last_batch: null for one range. Else this entry stands for adjacent ranges: all of the writer's batches from
      `batch` to `last_batch`, each complete or with transactional holes only.
    """

    range: OffsetRange
    committed: OffsetRange
    writer: str
    batch: int
    last_batch: int | None = None

    @property
    def last(self) -> int:
        return self.batch if self.last_batch is None else self.last_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Timestamps of the nearest known records around some offsets, which bound the time of the records in between.

    - before_us: timestamp of the record before, in µs since the epoch. Null if there is none.
    - after_us: timestamp of the record after, in µs since the epoch. Null if there is none.
    """

    before_us: int | None = None
    after_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets of the target that no manifest holds.

    - range: the offsets.
    - kind: `refill` while Kafka has them, `lost` once retention has deleted them.
    - neighbours: the records around a loss. Null if no run has searched for them.
    - topic_deleted: the loss is of a topic that was deleted or recreated, up to the last end that was seen of it. Some
      of its offsets may never have had a record.
    """

    range: OffsetRange
    kind: Literal["refill", "lost"]
    neighbours: Neighbours | None = None
    topic_deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Offsets archived more than once, and the number of committed ranges that hold all of them."""

    range: OffsetRange
    copies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The causes of a hole's offsets, as found in Kafka. The three counts add up to all of its offsets.

    - transactional: offsets of transaction markers and of aborted records.
    - compacted: offsets that a compacted topic no longer holds.
    - unexplained: offsets without a proven cause.
    - ranges: the unexplained offsets, in order. If there are many, only the first of them.
    """

    transactional: int
    compacted: int
    unexplained: int
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Offsets inside a used range that have no row.

    A manifest counts the rows of a whole committed range, so a part of one has no exact count.

    - range: the used range.
    - missing: number of offsets without a row. At most this many if `exact` is false.
    - cause: the cause; of several, the one with the weakest proof. Without proof: `unexplained`.
    - exact: whether `missing` is exact.
    - evidence: the exact number of offsets by cause. Null if Kafka has not been asked.
    """

    range: OffsetRange
    missing: int
    cause: Literal["unexplained", "transactional", "compacted"]
    exact: bool = True
    evidence: Evidence | None = None

    @property
    def is_transactional(self) -> bool:
        """Whether all of it is proven transactional, so that no copy can have a row of it."""
        found = self.evidence
        return self.exact and found is not None and found.transactional == self.missing

    @property
    def counts(self) -> dict[str, int]:
        """The number of offsets by cause."""
        found = self.evidence
        if found is None:
            return {"transactional": 0, "compacted": 0, "unexplained": 0, self.cause: self.missing}
        return {name: getattr(found, name) for name in ("transactional", "compacted", "unexplained")}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlan:
    """The findings for one log. ``used`` and ``gaps`` are disjoint and tile the target, and ``overlaps`` are disjoint.
    ``pending`` is ``[end, high watermark)``, None if that is empty."""

    target: Target
    used: tuple[Used, ...]
    gaps: tuple[Gap, ...]
    overlaps: tuple[Overlap, ...]
    holes: tuple[Hole, ...]
    pending: OffsetRange | None

    @property
    def lost(self) -> tuple[OffsetRange, ...]:
        """The offsets that are lost: gaps that Kafka can't fill, and what the log lost from its end."""
        gaps = (gap.range for gap in self.gaps if gap.kind == "lost")
        return (*gaps, *(item.range for item in self.target.truncated))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsOfDay:
    """The number of rows of a day; None if only reading them can show it.

    ``unreadable_times`` of the day's rows in the whole object have a time field that can't be read; None if they were
    not counted.
    """

    day: date
    rows: int | None
    unreadable_times: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Offsets ``range`` of one object; ``whole`` if these are all of its rows, so that no filter is needed.

    ``rows`` are those of the range by the manifest, of any day. If the range has only a part of a day, their number is
    known only if every offset of the day's span is a row. A plan of the current view has no ``rows``. ``bytes`` and
    ``sha256`` are those of the whole object.
    """

    key: str
    log: TopicPartition
    range: OffsetRange
    whole: bool
    bytes: int
    sha256: str
    rows: tuple[RowsOfDay, ...] = ()

    @property
    def counted(self) -> bool:
        return all(item.rows is not None for item in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPlan:
    """A day to rebuild as ``version``. ``archived_rows`` includes copies."""

    day: date
    version: int
    reason: Reason
    archived_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LateDay:
    """A sealed day that its late records, at most ``records_max``, do not reopen: it is too old, or too new."""

    day: date
    records_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBatch:
    """How far a writer had archived when a run was planned: by its own numbers, and by no clock.

    - writer: the writer.
    - batch: its last batch.
    """

    writer: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run's work. ``slices`` are the objects with rows of ``days``. ``unchanged`` are requested days that are sealed
    and have no late records, ``ignored`` are sealed days with late records that are not reopened."""

    stream: str
    run: str
    days: tuple[DayPlan, ...]
    unchanged: tuple[date, ...]
    logs: tuple[LogPlan, ...]
    slices: tuple[Slice, ...]
    ignored: tuple[LateDay, ...] = ()

    @property
    def spans(self) -> tuple[LogRange, ...]:
        """Per log of the slices the offsets from its first slice to its last one, in the order of the logs."""
        return tuple(
            LogRange(
                log=log,
                range=OffsetRange(
                    start=min(item.range.start for item in self.slices if item.log == log),
                    end=max(item.range.end for item in self.slices if item.log == log),
                ),
            )
            for log in sorted({item.log for item in self.slices})
        )

    def unreadable_times(self, day: date) -> int | None:
        """How many rows of a day have a time field that can't be read; None if they were not counted in every object.

        Of an object that is read in part, only the number in the whole of it is known.
        """
        counts: dict[str, int] = {}
        lengths: Counter[str] = Counter()
        for item in self.slices:
            for rows in item.rows:
                if rows.day == day:
                    if rows.unreadable_times is None:
                        return None
                    counts[item.key] = rows.unreadable_times
                    lengths[item.key] += len(item.range)
        return sum(min(number, lengths[key]) for key, number in counts.items())

    def slices_of(self, part: LogRange) -> tuple[Slice, ...]:
        """The slices inside a part of a log, without their rows by day."""
        inside = ((item, item.range.intersect(part.range)) for item in self.slices if item.log == part.log)
        return tuple(
            replace(item, range=span, whole=item.whole and span == item.range, rows=())
            for item, span in inside
            if span is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MainSnapshots:
    """The current snapshots of a stream's tables; None for a table that does not exist yet."""

    published: int | None
    quarantine: int | None
