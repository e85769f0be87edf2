"""Whether copies of the same offsets put a record into several sealed days, or into none.

Each sealed day has its rows from the copies that its latest seal used. If all days used the same copy of an offset, the
record is in exactly one of them, or waits for a day that is not sealed. If they used several copies, which may disagree
about the record's day, the rows decide. Manifests show which offsets are worth reading.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from tidemark.core.committed import Committed, CopyIndex
from tidemark.core.cover import CoverPart
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise
from tidemark.core.plan import Used

UNKNOWN = "settings unknown"  # of copies that were archived before manifests had day settings
ReadDays = Callable[[Committed, OffsetSet], Iterable[tuple[int, date]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedCopy:
    """A copy of some offsets, and the days whose rows at these offsets are from it."""

    copy: Committed
    days: frozenset[date]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contested:
    """Offsets of a log that days have used from several copies."""

    log: TopicPartition
    range: OffsetRange
    copies: tuple[UsedCopy, ...]

    @property
    def days(self) -> frozenset[date]:
        """The days that have read these offsets."""
        return frozenset(day for item in self.copies for day in item.days)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One copy's view: the day of its rows, its manifest and its day settings; ``has``: this day has read this copy."""

    day: date
    writer: str
    batch: int
    day_settings: str | None
    has: bool

    def __str__(self) -> str:
        return f"{self.day} in batch {self.batch} of {self.writer} ({self.day_settings or UNKNOWN})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DayConflict:
    """Records of a log, the first of them at ``offset``, that are in several days, or in none."""

    log: TopicPartition
    offset: int
    records: int
    sides: tuple[Side, ...]

    @property
    def days(self) -> tuple[date, ...]:
        """The days that the copies name, in order."""
        return tuple(sorted({side.day for side in self.sides}))

    @property
    def twice(self) -> bool:
        """Whether the records are in several days, and not in none."""
        return any(side.has for side in self.sides)

    def __str__(self) -> str:
        where = "in several sealed days" if self.twice else "in no sealed day"
        sides = "; ".join(map(str, self.sides))
        return f"{self.records:,} records of {self.log} {where}, the first at offset {self.offset}: {sides}"


def find_contested(
    log: TopicPartition,
    within: OffsetSet,
    copies: Sequence[Committed],
    uses: Mapping[date, Sequence[Used]],
    *,
    all_settings: bool = False,
) -> Iterator[Contested]:
    """The offsets inside ``within`` that days have used from copies that may disagree.

    ``uses`` has the used ranges by day, each in offset order. Copies with equal known day settings agree, unless
    ``all_settings``.
    """
    index = CopyIndex(copies)
    groups: dict[tuple[CoverPart, ...], set[date]] = {}
    for day, used in uses.items():
        groups.setdefault(tuple(index.parts(_touching(used, within), within)), set()).add(day)
    boundaries = sorted({at for parts in groups for part in parts for at in (part.range.start, part.range.end)})
    found: dict[int, dict[int, set[date]]] = {}
    for parts, days in groups.items():
        for part in parts:
            first = bisect_right(boundaries, part.range.start) - 1
            for at in range(first, bisect_right(boundaries, part.range.end) - 1):
                found.setdefault(at, {}).setdefault(part.index, set()).update(days)
    for at, by_copy in sorted(found.items()):
        settings = {copies[number].day_settings for number in by_copy}
        if len(by_copy) > 1 and (all_settings or len(settings) > 1 or None in settings):
            yield Contested(
                log=log,
                range=OffsetRange(start=boundaries[at], end=boundaries[at + 1]),
                copies=tuple(
                    UsedCopy(copy=copies[number], days=frozenset(days)) for number, days in sorted(by_copy.items())
                ),
            )


def doubtful(item: Contested, about: Collection[date]) -> OffsetSet:
    """The offsets at which copies may disagree about a day in ``about``, as far as the manifests show."""
    spans = [
        (part, number, rows.day)
        for number, used in enumerate(item.copies)
        for file in used.copy.files
        for rows in file.days
        if (part := item.range.intersect(OffsetRange(start=rows.first_offset, end=rows.last_offset + 1)))
    ]
    if _same_objects(item):
        return ()
    boundaries = sorted({at for part, _, _ in spans for at in (part.start, part.end)})
    days: dict[int, set[date]] = {}
    for part, _, day in spans:
        for at in range(bisect_right(boundaries, part.start) - 1, bisect_right(boundaries, part.end) - 1):
            days.setdefault(at, set()).add(day)
    return normalise(
        OffsetRange(start=boundaries[at], end=boundaries[at + 1])
        for at, found in days.items()
        if len(found) > 1 and not found.isdisjoint(about) and not found.isdisjoint(item.days)
    )


def find_conflicts(contested: Iterable[Contested], about: Collection[date], read: ReadDays) -> tuple[DayConflict, ...]:
    """The records that several days have, or that none has although all days that the copies name are sealed.

    Only records that some copy puts into a day of ``about`` count. ``read`` gets a copy and offsets, and returns offset
    and day of each of its rows there. It is called only where the manifests do not show that all is well.
    """
    found: dict[tuple[TopicPartition, tuple[Side, ...]], tuple[int, int]] = {}
    for item in contested:
        wanted = doubtful(item, about)
        if not wanted:
            continue
        claims: dict[int, list[tuple[UsedCopy, date]]] = {}
        for used in item.copies:
            for offset, day in read(used.copy, wanted):
                claims.setdefault(offset, []).append((used, day))
        for offset, own in sorted(claims.items()):
            if _conflict(own, item.days) and any(day in about for _, day in own):
                key = item.log, tuple(_side(used, day) for used, day in own)
                first, records = found.get(key, (offset, 0))
                found[key] = min(first, offset), records + 1
    conflicts = (
        DayConflict(log=log, offset=first, records=records, sides=sides)
        for (log, sides), (first, records) in found.items()
    )
    return tuple(sorted(conflicts, key=lambda item: (item.log, item.offset)))


def _conflict(claims: Sequence[tuple[UsedCopy, date]], sealed: frozenset[date]) -> bool:
    """Whether the copies disagree about one record so that several days have it, or none.

    Where a copy names a day that has not read this offset, the record waits for that day.
    """
    if len({day for _, day in claims}) < 2:
        return False
    having = sum(day in used.days for used, day in claims)
    return having > 1 or (not having and all(day in sealed for _, day in claims))


def _side(used: UsedCopy, day: date) -> Side:
    copy = used.copy
    return Side(day=day, writer=copy.writer, batch=copy.batch, day_settings=copy.day_settings, has=day in used.days)


def _touching(used: Sequence[Used], within: OffsetSet) -> Iterator[Used]:
    """The used ranges, given in offset order, that may share an offset with ``within``."""
    at = 0
    for part in within:
        at = max(at, bisect_right(used, part.start, key=lambda item: item.range.end))
        while at < len(used) and used[at].range.start < part.end:
            yield used[at]
            at += 1


def _same_objects(item: Contested) -> bool:
    """Whether the copies have the very same rows there, by offsets, days and checksums of their objects."""
    rows = {
        tuple(
            sorted(
                (file.first_offset, file.last_offset, file.checksum, tuple((rows.day, rows.rows) for rows in file.days))
                for file in used.copy.files
                if file.first_offset < item.range.end and file.last_offset >= item.range.start
            )
        )
        for used in item.copies
    }
    return len(rows) == 1
