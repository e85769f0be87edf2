"""Charts as static SVG inside the page, by Altair and vl-convert: for a report's figures, where both are installed.

Every colour is one of the page's custom properties, so that a chart follows the reader's light or dark scheme.
"""

import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    import altair as alt

WIDTH = 720
_FONT_SIZE = 12
_PADDING = 12  # readers' fonts may be wider than the one that labels are measured with
_OPENING = re.compile(r"<svg [^>]*?viewBox=\"(?P<box>0 0 (?P<width>[0-9.]+) [0-9.]+)\"[^>]*>")
_ARIA = re.compile(r" (?:aria-[a-z]+|role)=\"[^\"]*\"")


def can_draw() -> bool:
    """Whether the packages of the extra ``charts`` are there. A report with charts takes 1.5 s and 130 MiB more."""
    try:
        import altair as alt  # noqa: F401 - to see whether it can be
        import vl_convert  # noqa: F401 - as altair
    except ImportError:
        return False
    return True


def draw(chart: "alt.Chart | alt.LayerChart | alt.VConcatChart", *, name: str, title: str, description: str) -> str:
    """The chart as an ``svg`` element with a title and a description. ``name`` is unique within the page."""
    import vl_convert

    soft, line = "var(--soft)", "var(--line)"
    shown = chart.configure(background="transparent", font="DejaVu Sans, sans-serif", aria=False, padding=_PADDING)
    shown = shown.configure_view(stroke=None)
    shown = shown.configure_axis(
        labelColor=soft,
        titleColor=soft,
        gridColor=line,
        domainColor=line,
        tickColor=line,
        labelFontSize=_FONT_SIZE,
        titleFontSize=_FONT_SIZE,
        titleFontWeight="normal",
    )
    drawn = vl_convert.vegalite_to_svg(shown.to_dict())
    opening = (
        f'<svg viewBox="\\g<box>" width="\\g<width>" role="img" aria-labelledby="{name}-title {name}-about">'
        f'<title id="{name}-title">{_raw(title)}</title><desc id="{name}-about">{_raw(description)}</desc>'
    )
    body = _ARIA.sub("", drawn)
    # Ids of clips count from 0 in each chart, and the page has many charts.
    body = re.sub(r"(id=\"|url\(#)(clip|gradient)", rf"\1{name}-\2", body)
    return _OPENING.sub(opening, body, count=1)


def _raw(text: str) -> str:
    return escape(text).replace("\\", "\\\\")
