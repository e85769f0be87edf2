"""A day's proof: per log the used ranges, what is lost, and the holes with their causes, drawn on one axis."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from tidemark.core.offsets import count
from tidemark.core.seal import Seal, SealedLog
from tidemark.pages.words import CAUSES, number

WIDTH = 1000.0
_NARROWEST = 6.0
_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSegment:
    """A part of an axis. ``kind`` is its CSS class, ``title`` what it is."""

    kind: Literal["used", "lost", "hole"]
    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProofRow:
    """One log. ``missing`` are the losses and holes in words, the first of them; ``more`` is how many others."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    ranges: int
    lost: int
    without_row: int
    segments: tuple[ProofSegment, ...]
    missing: tuple[str, ...]
    more: int


def proof_rows(seal: Seal) -> tuple[LogProofRow, ...]:
    """The proof of every log in a seal."""
    return tuple(_row(item) for item in seal.logs)


def _row(item: SealedLog) -> LogProofRow:
    missing = [f"{gap.range} lost: {number(len(gap.range))} offsets" for gap in item.gaps]
    missing += [_hole_text(hole.range, hole.missing, hole.counts, exact=hole.exact) for hole in item.holes]
    return LogProofRow(
        topic=item.log.topic,
        topic_id=item.log.topic_id,
        partition=item.log.partition,
        start=item.start,
        end=item.end,
        ranges=len(item.used),
        lost=count(gap.range for gap in item.gaps),
        without_row=sum(hole.missing for hole in item.holes),
        segments=_segments(item),
        missing=tuple(missing[:_SHOWN_MAX]),
        more=max(len(missing) - _SHOWN_MAX, 0),
    )


def _hole_text(where: object, missing: int, counts: dict[str, int], *, exact: bool) -> str:
    causes = Counter({name: value for name, value in counts.items() if value})
    words = ", ".join(f"{number(value)} {CAUSES[name]}" for name, value in causes.items())
    return f"{where}: {'' if exact else 'at most '}{number(missing)} offsets without a row ({words})"


def _segments(item: SealedLog) -> tuple[ProofSegment, ...]:
    scale = WIDTH / max(item.end - item.start, 1)

    def segment(kind: Literal["used", "lost", "hole"], start: int, end: int, title: str) -> ProofSegment:
        width = max((end - start) * scale, _NARROWEST)
        x = min((start - item.start) * scale, WIDTH - width)
        return ProofSegment(kind=kind, x=round(max(x, 0.0), 2), width=round(width, 2), title=title)

    merged: list[tuple[int, int]] = []
    for used in item.used:
        if merged and merged[-1][1] == used.range.start:
            merged[-1] = merged[-1][0], used.range.end
        else:
            merged.append((used.range.start, used.range.end))
    return (
        *(segment("used", start, end, f"[{start:,}, {end:,}) archived") for start, end in merged),
        *(segment("hole", hole.range.start, hole.range.end, f"{hole.range} without rows") for hole in item.holes),
        *(segment("lost", gap.range.start, gap.range.end, f"{gap.range} lost") for gap in item.gaps),
    )
