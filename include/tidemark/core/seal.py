"""Seals: the proof of one day, one immutable object per version, chained to the version and to the day before."""

import json
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from tidemark.core.approval import Approval
from tidemark.core.codec import decode, encode, require_format
from tidemark.core.cover import density
from tidemark.core.errors import ConflictError, FormatError, IncompleteError, PositionError
from tidemark.core.manifest import canonical_json, digest
from tidemark.core.object_list import ObjectList
from tidemark.core.offsets import TopicPartition, normalise
from tidemark.core.plan import Gap, Hole, LastBatch, Reason, Truncation, Used
from tidemark.core.seen import SeenDay, SeenHole, SeenLog

FORMAT = 3
# Such seals have the same bytes as before there were the later fields.
WITHOUT_TRUNCATIONS = 2
WITHOUT_APPROVAL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLog:
    """What is proven of one log: `used` and `gaps` together are exactly its offsets from `start` to `end`.

    - log: the log.
    - start: first offset that the stream is responsible for.
    - end: offset after the last one that this version accounts for.
    - used: the parts of committed ranges that the rows come from, in offset order.
    - gaps: offsets that are lost, in offset order.
    - holes: used ranges in which some offsets have no row, in offset order.
    """

    log: TopicPartition
    start: int
    end: int
    used: tuple[Used, ...]
    gaps: tuple[Gap, ...]
    holes: tuple[Hole, ...]

    def __post_init__(self) -> None:
        at = self.start
        for part in sorted([item.range for item in self.used] + [item.range for item in self.gaps]):
            if part.start != at:
                raise PositionError("a seal's ranges do not tile its log", expected=at, found=part, where=str(self.log))
            at = part.end
        if at != self.end:
            raise PositionError(
                "a seal's ranges do not reach its end", expected=self.end, found=at, where=str(self.log)
            )
        unfilled = [item.range for item in self.gaps if item.kind != "lost"]
        if unfilled:
            raise IncompleteError("a gap Kafka still holds can't be sealed", found=unfilled[0], where=str(self.log))

    def use_of(self, offset: int) -> Used | None:
        """The used range with the offset; None in a loss or outside ``[start, end)``."""
        at = bisect_right(self.used, offset, key=lambda item: item.range.start)
        return self.used[at - 1] if at and offset in self.used[at - 1].range else None

    def seen(self) -> SeenLog:
        """What the sealed day has read of the log."""
        holes = (hole for hole in self.holes if not hole.is_transactional)
        return SeenLog(
            ranges=normalise(item.range for item in self.used),
            holes=tuple(SeenHole(range=hole.range, density=self._density(hole)) for hole in holes),
        )

    def _density(self, hole: Hole) -> int:
        """Rows per offset of the copy with the hole; the highest possible value if the seal does not show it."""
        if hole.exact and hole.missing == len(hole.range):
            return 0
        used = self.use_of(hole.range.start)
        size = len(hole.range if used is None else used.committed)
        return density(size - hole.missing, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicated:
    """Rows removed because another row with the same key is published.

    - key: columns of the key.
    - keep: which row stays.
    - removed: number of rows removed.
    """

    key: tuple[str, ...]
    keep: Literal["first", "last"]
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Published rows compared with the version before, by topic id, partition and offset.

    - added: rows that only this version has.
    - removed: rows that only the version before has.
    - changed: rows that both have, with different values.
    """

    added: int
    removed: int
    changed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousDay:
    """The seal of the day before, as it was when the day was sealed.

    - day: the last day before this one that had a seal. Days in between had none.
    - version: its highest version then.
    - digest: SHA-256 of that version's seal.
    """

    day: date
    version: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """One version of one day: `rows_read` = `rows_published` + `rows_quarantined` + `deduplicated.removed`.

    - stream: name of the stream.
    - day: the day.
    - version: version of the day, from 1.
    - run: name of the run.
    - time_zone: IANA name of the time zone that the day is counted in.
    - sealed_at_us: when the seal was written, in µs since the epoch.
    - previous: SHA-256 of the seal of the version before. Null for version 1.
    - rows_read: rows of the day that the run read from the archive, each record once.
    - rows_published: rows in the published table.
    - rows_quarantined: rejected rows in the quarantine table.
    - duplicates_trimmed: copies of archived records that the run did not read.
    - refilled_offsets: offsets that the run fetched from Kafka, for all of its days.
    - quality: result of the quality checks. `unchecked` if the stream has none.
    - snapshot_id: snapshot of the published table. Null if the run published nothing to it.
    - quarantine_snapshot_id: snapshot of the quarantine table. Null if the run published nothing to it.
    - logs: the proof, by log.
    - reason: why the day was rebuilt: `unproven` if an earlier run had published it and not sealed it. Null for a
      rollback.
    - rolled_back_to: of a rollback, the version whose rows, counts and proof this version repeats.
    - deduplicated: rows removed as duplicates by key. Null if the stream has no key.
    - difference: what changed since the version before. Null for version 1, and if those rows can't be read any more.
    - planned_at_us: when the run was planned, in µs since the epoch.
    - last_batches: the last batch of each writer that was in the archive then. This version has the day's rows of all
      batches up to these, and counts no later copies. No clock decides.
    - objects: the archive's objects that the rows were read from.
    - previous_day: the seal of the day before. Null if no day before was sealed then.
    - approval: the person who let the run publish the day with failed warnings or losses. Not in format 1.
    - truncated: offsets that logs had and lost from their ends before they were archived. Only in format 3.
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
    reason: Reason | None
    rolled_back_to: int | None = None
    deduplicated: Deduplicated | None = None
    difference: Difference | None = None
    planned_at_us: int
    objects: ObjectList
    previous_day: PreviousDay | None = None
    last_batches: tuple[LastBatch, ...] = ()
    approval: Approval | None = None
    truncated: tuple[Truncation, ...] = ()

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
        if self.previous_day is not None and self.previous_day.day >= self.day:
            raise PositionError(
                "a seal chains to a day before its own",
                expected=f"a day before {self.day}",
                found=self.previous_day.day,
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
        return 0 if self.deduplicated is None else self.deduplicated.removed

    def log(self, log: TopicPartition) -> SealedLog | None:
        """The proof of a log; None for an unknown one (a new partition, a recreated topic)."""
        return next((item for item in self.logs if item.log == log), None)

    def to_json(self) -> bytes:
        value, form = encode(self), FORMAT
        if not self.truncated:
            del value["truncated"]
            form = WITHOUT_TRUNCATIONS
            if self.approval is None:
                del value["approval"]
                form = WITHOUT_APPROVAL
        return canonical_json({"format": form, **value})

    def digest(self) -> str:
        """As in ``previous`` of the day's next version."""
        return digest(self.to_json())


def parse_seal(body: bytes, *, where: str) -> Seal:
    """The seal in ``body``. Raises FormatError, with ``where``, for anything else."""
    try:
        raw: Any = json.loads(body)
        form = raw.pop("format")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise FormatError(
            "a seal does not parse", expected=f"format {FORMAT}", found=repr(error), where=where
        ) from error
    if form == WITHOUT_APPROVAL:
        raw = {"approval": None, "truncated": [], **raw}
    elif form == WITHOUT_TRUNCATIONS:
        raw = {"truncated": [], **raw}
    else:
        require_format("unknown seal format", form, known=FORMAT, where=where)
    return decode(Seal, raw, where=where)


def seen_days(seals: Iterable[Seal], *, stream: str, time_zone: str) -> dict[date, SeenDay]:
    """Each sealed day for the planner, whatever the order of the seals.

    The highest version of a day counts. If that is a rollback, the day has read what the last rebuilt version read, or
    the next run would undo the rollback. Raises ConflictError for a seal of another stream or time zone.
    """
    rebuilt: dict[date, Seal] = {}
    versions: dict[date, int] = {}
    for seal in seals:
        where = f"seal of {seal.day} version {seal.version}"
        require_same_stream(stream, time_zone, seal.stream, seal.time_zone, where)
        versions[seal.day] = max(seal.version, versions.get(seal.day, 0))
        if seal.rolled_back_to is None and (seal.day not in rebuilt or seal.version > rebuilt[seal.day].version):
            rebuilt[seal.day] = seal
    return {
        day: SeenDay(
            version=version,
            logs={item.log: item.seen() for item in rebuilt[day].logs} if day in rebuilt else {},
        )
        for day, version in versions.items()
    }


def require_same_stream(stream: str, time_zone: str, found_stream: str, found_zone: str, where: str) -> None:
    """Raises ConflictError if a manifest or seal is of another stream or time zone."""
    if found_stream != stream:
        raise ConflictError("not of this stream", expected=stream, found=found_stream, where=where)
    if found_zone != time_zone:
        raise ConflictError(
            "its days are of another time zone",
            expected=time_zone,
            found=found_zone,
            where=where,
            hint="A stream keeps its time zone; give the stream another name to change it",
        )
