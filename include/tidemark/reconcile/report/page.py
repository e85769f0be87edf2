"""The report as one HTML page: no script, no resource from elsewhere, every value escaped."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tidemark.core.manifest import REFILL
from tidemark.reconcile.audit.checks import number_text, observed_text

ROWS_MAX = 200
WIDTH = 1000.0
_SLIVER = 1.5
_WRITER_COLOURS = 6
_MINUTE = 60
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BarSegment:
    """One rectangle of a log's bar. ``x`` and ``width`` in the drawing's units; ``kind`` is its CSS class."""

    kind: str
    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A log's bar: the main lane, the lane of overlaps below it, ticks for holes, and the labelled positions."""

    segments: tuple[BarSegment, ...]
    overlaps: tuple[BarSegment, ...]
    holes: tuple[BarSegment, ...]
    marks: tuple[tuple[float, str, str], ...]


def render(report: Mapping[str, Any]) -> str:
    """The page of a report object as ``tidemark.reconcile.report.report`` makes it."""
    environment = Environment(
        loader=PackageLoader("tidemark.reconcile.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number_text, "seconds": _seconds, "writer": short_writer, "observed": observed}
    colours = writer_colours(report["logs"])
    longest = max((item["seconds"] or 0 for item in report["steps"]), default=0) or 1
    return environment.get_template("report.html.j2").render(
        **report,
        colours=colours,
        drawings=[draw(log, colours) for log in report["logs"]],
        longest=longest,
        total=sum(item["seconds"] or 0 for item in report["steps"]),
        rows_max=ROWS_MAX,
    )


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


def draw(log: Mapping[str, Any], colours: Mapping[str, str]) -> Drawing:
    """The log's bar over ``[start, high watermark)``. Neighbours of one writer are drawn as one range."""
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
    return Drawing(
        segments=tuple(segments),
        overlaps=tuple(
            segment("overlap", item["start"], item["end"], f"archived {item['copies']} times")
            for item in log["overlaps"]
        ),
        holes=tuple(
            segment("hole", item["start"], item["end"], f"{item['missing']:,} without a record: {item['cause']}")
            for item in log["holes"]
        ),
        marks=_marks(log, low, scale),
    )


def _merged(used: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, str, int]]:
    ranges: list[tuple[int, int, str, int]] = []
    for item in used:
        if ranges and ranges[-1][1] == item["start"] and ranges[-1][2] == item["writer"]:
            start, _, writer, number = ranges[-1]
            ranges[-1] = (start, item["end"], writer, number + 1)
        else:
            ranges.append((item["start"], item["end"], item["writer"], 1))
    return ranges


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


def short_writer(writer: str) -> str:
    """A streaming query's UUID by its first eight digits; other names as they are."""
    return writer[:8] if _UUID.fullmatch(writer) else writer


def observed(check: Mapping[str, Any]) -> str:
    """What a check saw; a query of unexpected rows saw their number."""
    value = check["observed"]
    if check["expectation"] == "unexpected_rows_expectation" and isinstance(value, int):
        return f"{value:,} deviations" if value else "no deviation"
    return observed_text(value)


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f} s" if value < _MINUTE else f"{int(value // _MINUTE)} min {int(value % _MINUTE):02} s"
