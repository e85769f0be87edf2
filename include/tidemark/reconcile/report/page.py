"""The report as one HTML page: no script, no resource from elsewhere, every value escaped, and a bound for its size."""

import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tidemark.core.delivery import FINDINGS
from tidemark.core.text import cut
from tidemark.definitions.own_checks import HOURLY_ROW_COUNTS
from tidemark.reconcile.audit.checks import example_text, number_text, observed_text
from tidemark.reconcile.report.figures import Drawn, outcome_names, page_figures
from tidemark.reconcile.report.offset_axis import draw, writer_colours

SIZE_MAX = 500_000  # bytes
ROWS_MAX = 200
_FEWER = (ROWS_MAX, 60, 20, 5)  # entries of a list, until the page is small enough
_RECTANGLES_MAX = 600  # of all logs together
_TEXT_CHARACTERS, _SHORT_CHARACTERS = 4_000, 300
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CONTENTS = (
    ("use", "May I use it?"),
    ("changes", "What changed"),
    ("missing", "What is missing"),
    ("rejected", "What was rejected"),
    ("late", "How late"),
    ("checks", "Checks"),
    ("todo", "What to do"),
    ("proof", "The proof"),
)
_TONES = {
    "complete": "good",
    "unchanged": "good",
    "complete with losses": "warn",
    "complete with holes": "warn",
    "days held back": "warn",
    "unfinished": "warn",
    "waiting": "warn",
    "failed": "bad",
}


def render(report: Mapping[str, Any]) -> str:
    """The page of a report as ``make_report`` gives it; with fewer entries in its lists if it would be too large."""
    figures = page_figures(report)
    page = ""
    for rows_max in _FEWER:
        page = _render(report, figures, rows_max)
        if len(page.encode()) <= SIZE_MAX:
            break
    return page


@cache
def environment() -> Environment:
    """The templates of the report and of the index, with their filters."""
    found = Environment(
        loader=PackageLoader("tidemark.reconcile.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "number": number_text,
        "seconds": _seconds,
        "writer": short_writer,
        "observed": observed,
        "expectation": expectation,
        "moment": _moment,
        "text": _text,
        "short": _short,
        "examples": _examples,
        "cell": _cell,
        "change": change,
        "weekdays": weekdays,
        "lateness": lateness,
        "delivery": delivery,
    }
    return found


def _render(report: Mapping[str, Any], figures: Drawn, rows_max: int) -> str:
    colours = writer_colours(report["logs"])
    logs = report["logs"][: max(1, rows_max // 5)]
    rectangles = max(20, _RECTANGLES_MAX // max(1, len(logs)))
    checks = report["quality"]["checks"]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            **report,
            contents=CONTENTS,
            tone=_TONES[report["verdict"]["status"]],
            charts=figures,
            drawn=figures.drawn,
            outcome_names=outcome_names(report),
            newest_days=report["days"][-max(1, rows_max // 20) :],
            checks=sorted(checks, key=lambda item: (not item["newly"], item["passes"])),
            newly=newly(checks),
            colours=colours,
            drawn_logs=[(log, draw(log, colours, rectangles_max=rectangles)) for log in logs],
            longest=max((item["seconds"] or 0 for item in report["steps"]), default=0) or 1,
            total=sum(item["seconds"] or 0 for item in report["steps"]),
            rows_max=rows_max,
            log_rows=max(3, rows_max // max(1, len(logs) // 2)),
        )
    )


def short_writer(writer: str) -> str:
    """A streaming query's UUID by its first eight digits; other names as they are."""
    return writer[:8] if _UUID.fullmatch(writer) else writer


def observed(check: Mapping[str, Any]) -> str:
    """What a check saw; a query of unexpected rows saw their number."""
    value = check["observed"]
    if check["expectation"] == "unexpected_rows_expectation" and isinstance(value, int):
        return f"{value:,} deviations" if value else "no deviation"
    return observed_text(value)


def expectation(name: str) -> str:
    """An expectation's name in words."""
    return name.removeprefix("expect_").replace("_", " ")


def newly(checks: list[Mapping[str, Any]]) -> str:
    """How many checks fail, and how many of them newly."""
    failing = [item for item in checks if not item["passes"]]
    new = sum(item["newly"] for item in failing)
    if not checks:
        return ""
    if not failing:
        unknown = sum(item["success"] is None for item in checks)
        more = f" {unknown:,} had too few days to compare with." if unknown else ""
        return f"{len(checks) - unknown:,} of {len(checks):,} checks passed.{more}"
    return f"{len(failing):,} of {len(checks):,} checks did not pass, {new:,} of them newly."


def change(day: Mapping[str, Any]) -> str:
    """The change of a day's rows since the day before, in percent."""
    before = day["before"]["read"] if day["before"] else 0
    return "–" if not before or day["read"] is None else f"{100 * (day['read'] - before) / before:+,.1f} %"


def weekdays(day: Mapping[str, Any]) -> str:
    """The fewest and most rows of the same weekdays before."""
    rows = [item["read"] for item in day["weekdays"]]
    return f"{min(rows):,} to {max(rows):,}" if rows else "not sealed"


def lateness(day: Mapping[str, Any]) -> str:
    """How late the records of a day were, in a sentence."""
    found, rows = day["profile"], day["read"]
    if not found["hours"]:
        return f"{day['day']} has no record."
    if not found["late"]:
        return "The event time is the record's own timestamp, so no record is late by it."
    within = next((item["within_s"] for item in found["late"] if item["rows"] >= 0.99 * rows), None)
    most = f"came within {duration(within)} of their event time" if within else "came at their event time"
    if within is None:
        last = found["late"][-1]
        most = f"came later than {duration(last['within_s'])} after their event time, or earlier"
    return f"99 % of the records {most}. The latest came {duration(found['latest_s'])} after it."


def delivery(day: Mapping[str, Any]) -> str:
    """What the delivery audit of a day counted, in a sentence."""
    hours = day["delivery"]["hours"]
    counts = {name: sum(item[name] for item in hours) for name in ("live", *FINDINGS)}
    others = (
        (sum(item["pending"] for item in hours), "may still be delivered, or Kafka has deleted them"),
        (day["duplicates_removed"] or 0, "were removed from the table as duplicates by key"),
        (day["delivery"]["archived"] - (day["read"] or 0), "were archived after the table was built"),
    )
    more = "".join(f" {number:,} {what}." for number, what in others if number > 0)
    findings = ", ".join(f"{counts[name]:,} {name}" for name in FINDINGS)
    return (
        f"{day['published'] or 0:,} rows in the table, {counts['live']:,} records on the live topic: {findings}.{more}"
    )


def duration(seconds: int) -> str:
    """A time span in its largest unit."""
    for length, unit in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"), (1, "second")):
        if seconds >= length:
            number = round(seconds / length, 1)
            return f"{number:g} {unit}{'' if number == 1 else 's'}"
    return "0 seconds"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f} s" if value < _MINUTE else f"{int(value // _MINUTE)} min {int(value % _MINUTE):02} s"


def _moment(text: str) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"


def _text(value: str) -> str:
    return cut(value, _TEXT_CHARACTERS)


def _short(value: object) -> str:
    return cut(", ".join(map(str, value)) if isinstance(value, list) else str(value), _SHORT_CHARACTERS)


def _examples(check: Mapping[str, Any]) -> list[str]:
    """Each value once, but no null, and no hour: what was observed names those."""
    values = [] if check["expectation"] == HOURLY_ROW_COUNTS else check["examples"]
    return list(dict.fromkeys(_short(example_text(value)) for value in values if value is not None))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else "–" if value is None else str(value)
