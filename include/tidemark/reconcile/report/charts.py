"""The charts of a report as Altair makes them, from values. Altair is imported when one is made: see ``drawing``."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidemark.reconcile.report.drawing import WIDTH

if TYPE_CHECKING:
    import altair as alt

_ROW = 28  # height of a bar with its space
_NOW = 0.5  # where "at once" lies on a logarithmic axis of seconds
_DAY_S = 86_400
_LABELS = {_NOW: "0", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 21_600: "6 h"}
_LABELS |= {_DAY_S: "1 d", 7 * _DAY_S: "7 d", 30 * _DAY_S: "30 d"}
_FILLS = {"passed": "good-back", "failed": "bad", "unknown": "warn-back", "none": "track"}
_DELIVERED = {"missing": "lost", "duplicated": "overlap", "unexpected": "warn"}
_CELL_MAX = 10_000  # a larger number does not fit into an hour's cell
_GLYPHS = {"passed": ("✓", "good"), "failed": ("✗", "card"), "unknown": ("?", "warn"), "none": ("·", "soft")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A bar of the waterfall, from ``start`` to ``end`` rows."""

    name: str
    start: int
    end: int
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """Rows of an hour, and the fewest and most published ones that the same weekdays before let expect."""

    hour: int
    published: int
    quarantined: int
    low: int | None
    high: int | None

    @property
    def label(self) -> str:
        return f"{self.hour:02}:00"

    @property
    def unusual(self) -> bool:
        """Whether the hour lies outside of the band."""
        return self.low is not None and self.high is not None and not self.low <= self.published <= self.high

    @property
    def compared(self) -> str:
        if self.low is None:
            return "no band"
        return "outside" if self.unusual else "inside"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredHour:
    """Rows of the table in an hour of the day, and what the delivery audit counted in it."""

    hour: int
    table: int
    live: int
    missing: int
    duplicated: int
    unexpected: int

    @property
    def label(self) -> str:
        return f"{self.hour:02}:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    """Rows that a day's new version changes."""

    day: str
    added: int
    removed: int
    changed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """Records within a bound of lateness, and their share in percent."""

    within_s: int
    rows: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunwayBar:
    """Hours until Kafka may delete the first unarchived record of a partition."""

    name: str
    hours: float


def waterfall(flows: Sequence[Flow]) -> "alt.LayerChart":
    """Bars from the archived rows to the published ones, with their numbers."""
    import altair as alt

    values = [{**asdict(item), "rows": item.end - item.start, "fill": _var(item.colour)} for item in flows]
    base = alt.Chart(_data(values)).encode(y=_names(flows))
    bars = base.mark_bar(height=18).encode(
        x=alt.X("start:Q", title="Rows", axis=alt.Axis(tickCount=5, format=",d")),
        x2="end:Q",
        color=alt.Color("fill:N", scale=None),
    )
    numbers = base.mark_text(align="left", dx=5, fontSize=12, color=_var("ink")).encode(
        x="end:Q", text=alt.Text("rows:Q", format=",d")
    )
    return alt.LayerChart(layer=[bars, numbers], width=WIDTH - 160, height=_ROW * len(flows))


def hours(found: Sequence[Hour]) -> "alt.LayerChart":
    """A bar per hour, published and quarantined rows stacked, before the band of the same weekdays."""
    import altair as alt

    bars, bands = [], []
    for item in found:
        fill = "lost" if item.unusual else "w0"
        bars.append({"hour": item.label, "from": 0, "to": item.published, "fill": _var(fill)})
        if item.quarantined:
            total = item.published + item.quarantined
            bars.append({"hour": item.label, "from": item.published, "to": total, "fill": _var("refill")})
        if item.low is not None:
            # An hour without rows has no bar to be red.
            edge = _var("lost" if item.unusual else "band")
            bands.append({"hour": item.label, "from": item.low, "to": item.high, "edge": edge})
    x = alt.X("hour:O", title="Hour of the day", axis=alt.Axis(labelAngle=0, labelOverlap=True, grid=False))
    y = alt.Y("from:Q", title="Rows", axis=alt.Axis(tickCount=4, format=",d"))
    rows = alt.Chart(_data(bars)).mark_bar(width=12)
    layers = [rows.encode(x=x, y=y, y2="to:Q", color=alt.Color("fill:N", scale=None))]
    if bands:
        band = alt.Chart(_data(bands)).mark_bar(width=26, color=_var("band"), strokeWidth=1.5)
        layers.insert(0, band.encode(x=x, y=y, y2="to:Q", stroke=alt.Stroke("edge:N", scale=None)))
    return alt.LayerChart(layer=layers, width=WIDTH, height=200)


def delivered(found: Sequence[DeliveredHour]) -> "alt.VConcatChart":
    """Records on the live topic before the rows of the table, and a number for each finding below its hour."""
    import altair as alt

    names = [item.label for item in found]
    x = alt.X(
        "hour:O",
        title="Hour of the day",
        scale=alt.Scale(domain=names),
        axis=alt.Axis(labelAngle=0, labelOverlap=True, grid=False),
    )
    y = alt.Y("rows:Q", title="Records", axis=alt.Axis(tickCount=4, format=",d"))
    bars = [
        alt.Chart(_data([{"hour": item.label, "rows": getattr(item, name)} for item in found]))
        .mark_bar(width=width, color=_var(colour))
        .encode(x=x, y=y)
        for name, width, colour in (("table", 26, "band"), ("live", 12, "w0"))
    ]
    cells = []
    for kind, colour in _DELIVERED.items():
        for item in found:
            number = getattr(item, kind)
            fill, ink = (colour, "card") if number else ("track", "soft")
            text = "·" if not number else f"{number}" if number < _CELL_MAX else f"{number // 1000:,}k"
            cells.append({"hour": item.label, "kind": kind, "text": text, "fill": _var(fill), "ink": _var(ink)})
    base = alt.Chart(_data(cells)).encode(
        x=alt.X("hour:O", title=None, scale=alt.Scale(domain=names), axis=None),
        y=alt.Y(
            "kind:N",
            title=None,
            scale=alt.Scale(domain=list(_DELIVERED)),
            axis=alt.Axis(grid=False, ticks=False, domain=False),
        ),
    )
    squares = base.mark_rect(stroke=_var("card"), strokeWidth=2).encode(color=alt.Color("fill:N", scale=None))
    numbers = base.mark_text(fontSize=11).encode(text="text:N", color=alt.Color("ink:N", scale=None))
    return alt.VConcatChart(
        vconcat=[
            alt.LayerChart(layer=bars, width=WIDTH, height=180),
            alt.LayerChart(layer=[squares, numbers], width=WIDTH, height=24 * len(_DELIVERED)),
        ]
    )


def versions(changes: Sequence[VersionChange]) -> "alt.LayerChart":
    """Removed rows to the left of zero, added and changed rows to the right, per day."""
    import altair as alt

    values = []
    for item in changes:
        for kind, rows, colour in (
            ("added", item.added, "good"),
            ("changed", item.changed, "w0"),
            ("removed", -item.removed, "lost"),
        ):
            value = {"name": f"{item.day} {kind}", "rows": rows, "at": max(rows, 0), "number": abs(rows)}
            values.append({**value, "fill": _var(colour)})
    base = alt.Chart(_data(values)).encode(
        y=alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=220, grid=False, ticks=False))
    )
    x = alt.X("rows:Q", title="Rows", axis=alt.Axis(tickCount=5, format=",d"))
    bars = base.mark_bar(height=14).encode(x=x, color=alt.Color("fill:N", scale=None))
    numbers = base.mark_text(align="left", dx=5, fontSize=12, color=_var("ink")).encode(
        x="at:Q", text=alt.Text("number:Q", format=",d")
    )
    return alt.LayerChart(layer=[bars, numbers], width=WIDTH - 220, height=20 * len(values))


def lateness(found: Sequence[Late], reopen_days: int | None) -> "alt.LayerChart":
    """The curve of the share of records that had come, over a logarithmic time, with the re-open bound."""
    import altair as alt

    values = [{"time": max(item.within_s, _NOW), "share": item.share} for item in found]
    bound = None if reopen_days is None else max(reopen_days * _DAY_S, _NOW)
    last = max(item.within_s for item in found)
    ticks = [at for at in _LABELS if at <= last]
    expression = " : ".join(f"datum.value == {at} ? '{_LABELS[at]}'" for at in ticks) + " : ''"
    x = alt.X(
        "time:Q",
        title="After the event time",
        scale=alt.Scale(type="log", domain=[_NOW, max(last, bound or 0)], nice=False),
        axis=alt.Axis(values=ticks, labelExpr=expression, grid=False, labelOverlap=False),
    )
    y = alt.Y("share:Q", title="Records, in percent", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(tickCount=4))
    curve = alt.Chart(_data(values)).encode(x=x, y=y)
    layers = [
        curve.mark_line(color=_var("w0"), strokeWidth=2, interpolate="step-after"),
        curve.mark_point(color=_var("w0"), filled=True, size=36, opacity=1),
    ]
    if bound is not None:
        rule = alt.Chart(_data([{"time": bound, "text": "batch.reopen_days"}]))
        layers.append(rule.mark_rule(color=_var("bad"), strokeDash=[5, 4], strokeWidth=1.5).encode(x=x))
        label = rule.mark_text(color=_var("bad"), align="right", dx=-5, dy=-8, baseline="bottom", fontSize=12)
        layers.append(label.encode(x=x, y=alt.value(190), text="text:N"))
    return alt.LayerChart(layer=layers, width=WIDTH, height=200)


def heat_strip(names: Sequence[str], days: Sequence[str], results: Mapping[tuple[str, str], str]) -> "alt.LayerChart":
    """A cell for each check and day. A glyph says the same as the colour."""
    import altair as alt

    values = []
    for (name, day), result in results.items():
        glyph, colour = _GLYPHS[result]
        values.append(
            {"name": name, "day": day[5:], "fill": _var(_FILLS[result]), "glyph": glyph, "colour": _var(colour)}
        )
    base = alt.Chart(_data(values)).encode(
        x=alt.X(
            "day:O",
            sort=None,
            title="Day",
            scale=alt.Scale(domain=[day[5:] for day in days]),
            axis=alt.Axis(labelAngle=0, orient="top", grid=False, ticks=False, domain=False),
        ),
        y=alt.Y(
            "name:N",
            title=None,
            scale=alt.Scale(domain=list(names)),
            axis=alt.Axis(labelLimit=360, grid=False, ticks=False, domain=False),
        ),
    )
    cells = base.mark_rect(stroke=_var("card"), strokeWidth=2).encode(color=alt.Color("fill:N", scale=None))
    glyphs = base.mark_text(fontSize=13).encode(text="glyph:N", color=alt.Color("colour:N", scale=None))
    return alt.LayerChart(layer=[cells, glyphs], width=44 * len(days), height=26 * len(names))


def retention(runways: Sequence[RunwayBar], alarm_hours: float) -> "alt.LayerChart":
    """A bar for each partition, and the bound of the alarm."""
    import altair as alt

    values = [
        {"name": item.name, "hours": item.hours, "fill": _var("lost" if item.hours < alarm_hours else "w0")}
        for item in runways
    ]
    base = alt.Chart(_data(values)).encode(
        y=alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=220, grid=False, ticks=False))
    )
    x = alt.X("hours:Q", title="Hours left", axis=alt.Axis(tickCount=6))
    bars = base.mark_bar(height=14).encode(x=x, color=alt.Color("fill:N", scale=None))
    numbers = base.mark_text(align="left", dx=5, fontSize=12, color=_var("ink")).encode(
        x=x, text=alt.Text("hours:Q", format=",.1f")
    )
    rule = alt.Chart(_data([{"hours": alarm_hours}])).mark_rule(color=_var("bad"), strokeDash=[5, 4], strokeWidth=1.5)
    return alt.LayerChart(layer=[bars, numbers, rule.encode(x="hours:Q")], width=WIDTH - 160, height=22 * len(values))


def short_duration(seconds: int) -> str:
    """A bound of lateness in its unit."""
    for length, unit in ((_DAY_S, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= length:
            return f"{seconds / length:g} {unit}"
    return "at once"


def _names(flows: Sequence[Flow]) -> "alt.Y":
    import altair as alt

    names = [item.name for item in flows]
    return alt.Y(
        "name:N", title=None, scale=alt.Scale(domain=names), axis=alt.Axis(grid=False, ticks=False, labelLimit=200)
    )


def _data(values: Sequence[Mapping[str, Any]]) -> "alt.InlineData":
    import altair as alt

    return alt.InlineData(values=list(values))


def _var(name: str) -> str:
    return f"var(--{name})"
