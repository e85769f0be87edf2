"""Seals: the proof of one day, one immutable object per version. A later version chains to the one before it."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, TypeVar

from tidemark.core.codec import decode, encode
from tidemark.core.cover import Copy, density
from tidemark.core.errors import FormatError, IncompleteError, PositionError
from tidemark.core.manifest import canonical_json, digest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Gap, Hole, Used

FORMAT = 1
Finding = TypeVar("Finding", Gap, Hole)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLog:
    """What was proven of one log: ``used`` and ``gaps`` tile ``[origin, end)``; the gaps of a seal are losses.

    Each of the three is in offset order; a hole's range is that of the used range it is in.
    """

    log: TopicPartition
    origin: int
    end: int
    used: tuple[Used, ...]
    gaps: tuple[Gap, ...]
    holes: tuple[Hole, ...]

    def __post_init__(self) -> None:
        at = self.origin
        for piece in sorted([item.range for item in self.used] + [item.range for item in self.gaps]):
            if piece.start != at:
                raise PositionError(
                    "a seal's ranges do not tile its log", expected=at, found=piece, where=str(self.log)
                )
            at = piece.end
        if at != self.end:
            raise PositionError(
                "a seal's ranges do not reach its end", expected=self.end, found=at, where=str(self.log)
            )
        unfilled = [item.range for item in self.gaps if item.kind != "lost"]
        if unfilled:
            raise IncompleteError("a gap Kafka still holds can't be sealed", found=unfilled[0], where=str(self.log))

    def use_of(self, offset: int) -> Used | None:
        """The used range that holds the offset; None in a loss or outside ``[origin, end)``."""
        at = bisect_right(self.used, offset, key=lambda item: item.range.start)
        return self.used[at - 1] if at and offset in self.used[at - 1].range else None

    def unseen(self, within: OffsetRange, copy: Copy) -> bool:
        """Whether a copy that has rows inside ``within`` may bring some that the sealed day has not read.

        It does where the seal had no copy at all, and where it used a less dense one with holes that are not settled.
        A copy that was there at sealing is never both: the cover would have used it, or one as dense.
        """
        if within.end > self.end or within.start < self.origin or _touching(self.gaps, within):
            return True
        return any(not hole.settled and copy.density > self._density(hole) for hole in _touching(self.holes, within))

    def _density(self, hole: Hole) -> int:
        """Rows per offset of the copy behind a hole; the most it can be where the seal does not tell."""
        if hole.exact and hole.missing == len(hole.range):
            return 0
        used = self.use_of(hole.range.start)
        size = len(hole.range if used is None else used.committed)
        return density(size - hole.missing, size)


def _touching(found: Sequence[Finding], within: OffsetRange) -> Sequence[Finding]:
    """Those of disjoint findings in offset order that share an offset with ``within``."""
    start = bisect_right(found, within.start, key=lambda item: item.range.end)
    return found[start : bisect_left(found, within.end, key=lambda item: item.range.start)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicated:
    """How many rows were removed because another one with the same values of ``key`` is published; ``keep`` says which
    of them is."""

    key: tuple[str, ...]
    keep: Literal["first", "last"]
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a version changed against the one before, in published rows by topic id, partition and offset."""

    added: int
    removed: int
    changed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """One version of one day.

    Rows: ``read`` = ``published`` + ``quarantined`` + ``deduplicated.removed``, all of this day. ``deduplicated`` is
    None where the stream has no key. ``refilled_offsets`` counts the offsets the run fetched from Kafka for all its
    days. ``quality`` is ``unchecked`` where the stream has no checks. Snapshot ids are None for a table the run had
    nothing to publish to. ``previous`` is the digest of the day's version before. ``difference`` is None for version 1,
    and where the rows of the version before can't be told any more.

    A version is rebuilt for a ``reason`` (None where it was sealed before reasons were), or it is a rollback: its rows,
    their counts and their proof are those of version ``rolled_back_to``, in a snapshot of its own. What was archived
    before ``planned_at_us`` is in it (None where it was sealed before that was told: then before ``sealed_at_us``).
    """

    stream: str
    day: date
    version: int
    run: str
    time_zone: str
    sealed_at_us: int
    previous: str | None
    rows_read: int
    rows_published: int
    rows_quarantined: int
    duplicates_trimmed: int
    refilled_offsets: int
    quality: Literal["passed", "warnings", "unchecked"]
    snapshot_id: int | None
    quarantine_snapshot_id: int | None
    logs: tuple[SealedLog, ...]
    reason: Literal["requested", "late"] | None = None
    rolled_back_to: int | None = None
    deduplicated: Deduplicated | None = None
    difference: Difference | None = None
    planned_at_us: int | None = None

    def __post_init__(self) -> None:
        where = f"{self.stream} {self.day} version {self.version}"
        if self.version < 1:
            raise PositionError("a seal's version starts at 1", found=self.version, where=where)
        if (self.version == 1) != (self.previous is None):
            raise PositionError(
                "a seal chains to the version before it",
                expected="no previous digest" if self.version == 1 else f"the digest of version {self.version - 1}",
                found=self.previous,
                where=where,
            )
        if self.rolled_back_to is not None and not 1 <= self.rolled_back_to < self.version:
            raise PositionError(
                "a day is rolled back to a version before",
                expected=f"1 to {self.version - 1}",
                found=self.rolled_back_to,
                where=where,
            )
        if self.rows_read != self.rows_published + self.rows_quarantined + self.rows_removed:
            raise IncompleteError(
                "rows are not conserved",
                expected=f"{self.rows_read} rows read",
                found=f"{self.rows_published} published + {self.rows_quarantined} quarantined"
                f" + {self.rows_removed} removed as duplicates by key",
                where=where,
            )

    @property
    def rows_removed(self) -> int:
        """Rows removed as duplicates by key."""
        return 0 if self.deduplicated is None else self.deduplicated.removed

    def log(self, log: TopicPartition) -> SealedLog | None:
        """What the seal proves of a log; None for one it does not know (a new partition, a topic made again)."""
        return next((item for item in self.logs if item.log == log), None)

    def to_json(self) -> bytes:
        """Canonical bytes; ``parse_seal`` reads them back to an equal value."""
        return canonical_json({"format": FORMAT, **encode(self)})

    def digest(self) -> str:
        """The SHA-256 of these bytes; ``previous`` of the day's next version holds it."""
        return digest(self.to_json())


def parse_seal(body: bytes, *, where: str) -> Seal:
    """The seal in ``body``; raises FormatError, naming ``where``, for anything else."""
    try:
        raw: Any = json.loads(body)
        form = raw.pop("format")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise FormatError(
            "a seal does not parse", expected=f"format {FORMAT}", found=repr(error), where=where
        ) from error
    if form != FORMAT:
        raise FormatError("unknown seal format", expected=FORMAT, found=form, where=where)
    return decode(Seal, raw, where=where)
