"""The tide: per partition log start, sealed, archived and high watermark on one axis, and what retention takes next."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tidemark.inspect.tide import LogTide
from tidemark.pages.words import plural, span

WIDTH = 1000.0
_NARROWEST = 4.0
_NAMED = 5  # partitions in a sentence
_HOUR_S = 3600
Kind = Literal["sealed", "archived", "lost", "waiting"]
# In the order of offsets: what is archived before a loss, and after it.
_KINDS: tuple[Kind, ...] = ("sealed", "archived", "lost", "archived", "waiting")


@dataclass(frozen=True, slots=True, kw_only=True)
class TideBand:
    """A part of an axis: sealed, archived and not sealed, lost, or waiting in Kafka. An empty one is not drawn."""

    kind: Kind
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TideRow:
    """A partition. ``unsealed``, ``lost`` and ``waiting`` count offsets; ``left`` is the time until retention
    takes the first of those that are not archived. ``text`` says the bands in words."""

    partition: int
    log_start: int
    sealed: int | None
    archived: int
    high_watermark: int
    unsealed: int
    lost: int
    waiting: int
    left: str
    short: bool
    bands: tuple[TideBand, ...]
    text: str


def tide_rows(logs: Sequence[LogTide], alarm_hours: float) -> tuple[TideRow, ...]:
    """A row for each partition, in order."""
    return tuple(_row(item, alarm_hours) for item in sorted(logs, key=lambda item: item.log.partition))


def tide_sentence(rows: Sequence[TideRow]) -> str:
    """What matters of all partitions in one sentence."""
    waiting = [row for row in rows if row.waiting]
    lost = [row for row in rows if row.lost]
    short = [row for row in rows if row.short]
    if lost:
        total = sum(row.lost for row in lost)
        return f"Kafka deleted records of {_partitions(lost)} before they were archived: {plural(total, 'offset')}."
    if short:
        return f"Kafka will soon delete records of {_partitions(short)} that are not archived."
    if waiting:
        total = sum(row.waiting for row in waiting)
        return f"{plural(total, 'offset')} in {plural(len(waiting), 'partition')} wait for the archive."
    return "Everything in Kafka is archived."


def _partitions(rows: Sequence[TideRow]) -> str:
    more = " and others" if len(rows) > _NAMED else ""
    return f"partition{'' if len(rows) == 1 else 's'} " + ", ".join(str(row.partition) for row in rows[:_NAMED]) + more


def _row(item: LogTide, alarm_hours: float) -> TideRow:
    start, archived, end = item.log_start, item.archived, item.high_watermark
    sealed = start if item.sealed is None else item.sealed
    low = min(start, sealed)
    before = max(start - item.lost, sealed)
    after = max(start, sealed)
    edges = [min(edge, end) for edge in (low, sealed, before, after, max(archived, after), end)]
    waiting = max(end - max(archived, start), 0)
    unsealed = max(min(archived, end) - sealed - item.lost, 0)
    lost = f"{plural(item.lost, 'offset')} lost, " if item.lost else ""
    hours = item.hours_left
    left = "–" if hours is None or not waiting else span(hours * _HOUR_S) if hours > 0 else "may be deleted now"
    return TideRow(
        partition=item.log.partition,
        log_start=start,
        sealed=item.sealed,
        archived=item.archived,
        high_watermark=end,
        unsealed=unsealed,
        lost=item.lost,
        waiting=waiting,
        left=left,
        short=bool(waiting) and hours is not None and hours < alarm_hours,
        bands=_bands(edges),
        text=f"{lost}{plural(unsealed, 'offset')} archived and not sealed, {plural(waiting, 'offset')} not archived",
    )


def _bands(edges: Sequence[int]) -> tuple[TideBand, ...]:
    """To scale, but a band that is not empty stays visible: it takes its room from the widest one."""
    sizes = [high - low for low, high in pairwise(edges)]
    total = max(sum(sizes), 1)
    widths = [max(size / total * WIDTH, _NARROWEST) if size else 0.0 for size in sizes]
    excess = sum(widths) - WIDTH
    if excess > 0:
        widest = widths.index(max(widths))
        widths[widest] -= excess
    bands, x = [], 0.0
    for kind, width in zip(_KINDS, widths, strict=True):
        if width:
            bands.append(TideBand(kind=kind, x=round(x, 2), width=round(width, 2)))
        x += width
    return tuple(bands)
