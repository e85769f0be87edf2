"""The axis of a log's offsets: which ranges prove it, as rectangles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.core.manifest import REFILL

WIDTH = 1000.0
_SLIVER = 1.5
_WRITER_COLOURS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class BarSegment:
    """One rectangle of a log's bar. ``x`` and ``width`` in the drawing's units; ``kind`` is its CSS class."""

    kind: str
    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A log's bar: the main lane, the lane of overlaps below it, ticks for holes, and the labelled positions.

    ``about`` says in words what is drawn.
    """

    about: str
    segments: tuple[BarSegment, ...]
    overlaps: tuple[BarSegment, ...]
    holes: tuple[BarSegment, ...]
    marks: tuple[tuple[float, str, str], ...]


def writer_colours(logs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A CSS class per writer, in the order they first appear; every refill has the same one."""
    colours: dict[str, str] = {}
    streams = 0
    for log in logs:
        for used in log["used"]:
            writer = used["writer"]
            if writer in colours:
                continue
            if writer.startswith(REFILL):
                colours[writer] = "refill"
            else:
                colours[writer] = f"w{streams % _WRITER_COLOURS}"
                streams += 1
    return colours


def draw(log: Mapping[str, Any], colours: Mapping[str, str], *, rectangles_max: int = 500) -> Drawing:
    """The log's bar over ``[start, high watermark)``. Neighbours of one writer are drawn as one range.

    Where there are many, only one of a kind is drawn in each of ``rectangles_max`` parts of the bar.
    """
    low, high = log["start"], max(log["high_watermark"], log["end"], log["start"] + 1)
    scale = WIDTH / (high - low)

    def segment(kind: str, start: int, end: int, title: str) -> BarSegment:
        width = max((end - start) * scale, _SLIVER)
        x = min((start - low) * scale, WIDTH - width)
        return BarSegment(kind=kind, x=round(x, 2), width=round(width, 2), title=f"[{start:,}, {end:,}) {title}")

    segments = [
        segment(colours[writer], start, end, f"{ranges} range{'s' if ranges > 1 else ''} of {writer}")
        for start, end, writer, ranges in _merged(log["used"])
    ]
    for name, title in (
        ("lost", "lost"),
        ("unfilled", "not refilled"),
        ("pending", "after this run's end"),
    ):
        segments += [segment(name, item["start"], item["end"], title) for item in log[name]]
    overlaps = [
        segment("overlap", item["start"], item["end"], f"archived {item['copies']} times") for item in log["overlaps"]
    ]
    holes = [
        segment("hole", item["start"], item["end"], f"{item['missing']:,} without a record: {item['cause']}")
        for item in log["holes"]
    ]
    return Drawing(
        about=_about(log),
        segments=_thinned(segments, rectangles_max),
        overlaps=_thinned(overlaps, rectangles_max),
        holes=_thinned(holes, rectangles_max),
        marks=_marks(log, low, scale),
    )


def _thinned(segments: Sequence[BarSegment], parts: int) -> tuple[BarSegment, ...]:
    """The segments; of more than ``parts`` the widest of a kind in each part."""
    if len(segments) <= parts:
        return tuple(segments)
    widest: dict[tuple[str, int], BarSegment] = {}
    for item in segments:
        place = (item.kind, int(item.x / WIDTH * parts))
        if place not in widest or widest[place].width < item.width:
            widest[place] = item
    return tuple(widest.values())


def _merged(used: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, str, int]]:
    ranges: list[tuple[int, int, str, int]] = []
    for item in used:
        if ranges and ranges[-1][1] == item["start"] and ranges[-1][2] == item["writer"]:
            start, _, writer, number = ranges[-1]
            ranges[-1] = (start, item["end"], writer, number + 1)
        else:
            ranges.append((item["start"], item["end"], item["writer"], 1))
    return ranges


def _about(log: Mapping[str, Any]) -> str:
    counts = log["offsets"]
    states = (
        ("used", "used by the proof"),
        ("lost", "lost"),
        ("unfilled", "not refilled"),
        ("overlapping", "archived more than once"),
        ("holes", "without a record"),
        ("pending", "after the end of this run"),
    )
    found = ", ".join(f"{counts[name]:,} {words}" for name, words in states if counts[name])
    ends = f"{log['start']:,} to the high watermark {log['high_watermark']:,}"
    return f"The offsets from {ends}, coloured by their state: {found or 'none'}."


def _marks(log: Mapping[str, Any], low: int, scale: float) -> tuple[tuple[float, str, str], ...]:
    """``(x, text anchor, label)`` of the positions below the bar; the end is left out where it is the watermark."""
    marks = [(0.0, "start", f"start {low:,}")]
    end = round((log["end"] - low) * scale, 2)
    if log["high_watermark"] > log["end"]:
        anchor = "middle" if WIDTH * 0.15 < end < WIDTH * 0.7 else "start" if end < WIDTH / 2 else "end"
        if end > WIDTH * 0.15:
            marks.append((min(WIDTH * 0.7, end), anchor, f"end of this run {log['end']:,}"))
        marks.append((WIDTH, "end", f"high watermark {log['high_watermark']:,}"))
    else:
        marks.append((WIDTH, "end", f"end of this run = high watermark {log['end']:,}"))
    return tuple(marks)
