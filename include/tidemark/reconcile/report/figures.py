"""The figures of a report: a title, a description, the numbers as a table, and a chart where one can be drawn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.core.delivery import FINDINGS
from tidemark.core.text import cut
from tidemark.reconcile.report import charts
from tidemark.reconcile.report.drawing import can_draw, draw
from tidemark.reconcile.report.history import DETAILED_DAYS
from tidemark.reconcile.results import PUBLISH

if TYPE_CHECKING:
    import altair as alt

    Chart = alt.Chart | alt.LayerChart | alt.VConcatChart

CHECKS_MAX = 30
RUNWAYS_MAX = 30
_NAME_CHARACTERS = 52
PUBLISHED = "published"
_MARKS = {"passed": "passed", "failed": "failed", "unknown": "unknown", "none": "not checked"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureColumn:
    """A column of a figure's table."""

    name: str
    numeric: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """``svg`` is None where charts can't be drawn: then the table stands for it."""

    title: str
    description: str
    columns: tuple[FigureColumn, ...]
    rows: tuple[tuple[object, ...], ...]
    svg: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The figures by their places in the page. ``drawn``: they have charts."""

    drawn: bool
    rows: Mapping[str, tuple[Figure, ...]]
    hours: tuple[Figure, ...]
    delivered: Mapping[str, tuple[Figure, ...]]
    versions: tuple[Figure, ...]
    late: tuple[Figure, ...]
    checks: tuple[Figure, ...]
    retention: tuple[Figure, ...]


class _Maker:
    """Makes the figures, and draws them if the packages are there."""

    def __init__(self) -> None:
        self.drawing = can_draw()
        self._number = 0

    def figure(
        self,
        title: str,
        description: str,
        columns: Sequence[FigureColumn],
        rows: Sequence[tuple[object, ...]],
        chart: "Callable[[], Chart]",
    ) -> Figure:
        self._number += 1
        name = f"chart-{self._number}"
        svg = draw(chart(), name=name, title=title, description=description) if self.drawing else None
        return Figure(title=title, description=description, columns=tuple(columns), rows=tuple(rows), svg=svg)


def page_figures(report: Mapping[str, Any]) -> Drawn:
    """The figures of a report. Those of single days are of its newest days only."""
    make = _Maker()
    newest = report["days"][-DETAILED_DAYS:]
    names = outcome_names(report)
    rebuilt = [day for day in newest if day["read"] is not None]
    profiled = [day for day in rebuilt if day["profile"] and day["profile"]["hours"]]
    return Drawn(
        drawn=make.drawing,
        rows={day["day"]: (_conserved(make, day, names[day["day"]]),) for day in rebuilt},
        hours=tuple(_hours(make, day) for day in profiled),
        delivered={
            day["day"]: (_delivered(make, day),) for day in profiled if day["delivery"] and day["delivery"]["hours"]
        },
        versions=tuple(_versions(make, [day for day in report["days"] if day["difference"]])),
        late=tuple(_late(make, day, report["reopen_days"]) for day in profiled if day["profile"]["late"]),
        checks=tuple(_checks(make, report["quality"]["history"])),
        retention=tuple(_retention(make, report["retention"])),
    )


def outcome_names(report: Mapping[str, Any]) -> dict[str, str]:
    """What the rows that passed the rebuild are called, by day: the run may not have published them."""
    published = any(step["name"] == PUBLISH.name and step["status"] == "ok" for step in report["steps"])
    return {
        day["day"]: PUBLISHED if published and day["held"] is None else "not published yet" for day in report["days"]
    }


def _conserved(make: _Maker, day: Mapping[str, Any], outcome: str) -> Figure:
    steps = [
        charts.Flow(name="archived", start=0, end=day["archived"], colour="w0"),
        charts.Flow(name="copies trimmed", start=day["read"], end=day["archived"], colour="soft"),
        charts.Flow(name="read", start=0, end=day["read"], colour="w0"),
        charts.Flow(name="quarantined", start=day["read"] - day["quarantined"], end=day["read"], colour="refill"),
        charts.Flow(
            name="duplicates by key",
            start=day["published"],
            end=day["published"] + day["duplicates_removed"],
            colour="overlap",
        ),
        charts.Flow(name=outcome, start=0, end=day["published"], colour="good" if outcome == PUBLISHED else "soft"),
    ]
    return make.figure(
        f"Where the records of {day['day']} went",
        "From the archived rows, copies included, to those in the table. What is taken away has a bar of its own.",
        (FigureColumn(name="Rows", numeric=False), FigureColumn(name="Number")),
        [(item.name, item.end - item.start) for item in steps],
        lambda: charts.waterfall(steps),
    )


def _hours(make: _Maker, day: Mapping[str, Any]) -> Figure:
    found = {item["hour"]: item for item in day["profile"]["hours"]}
    band = {item["hour"]: item for item in day["band"]}
    hours = []
    for hour in range(24):
        rows, usual = found.get(hour), band.get(hour)
        published, quarantined = (rows["published"], rows["quarantined"]) if rows else (0, 0)
        low, high = (usual["low"], usual["high"]) if usual else (None, None)
        hours.append(charts.Hour(hour=hour, published=published, quarantined=quarantined, low=low, high=high))
    unusual = ", ".join(item.label for item in hours if item.unusual)
    if not band:
        about = "Too few of the same weekdays before have a profile to compare with."
    else:
        about = "Wide bars: the range of published rows expected from the same weekdays before. "
        about += f"Red: outside of that, {unusual}." if unusual else "Every hour lies inside."
    if day["quarantined"] or day["duplicates_removed"]:
        about += " Orange: in the quarantine, duplicates by key included."
    return make.figure(
        f"Rows per hour of {day['day']}",
        about,
        (
            FigureColumn(name="Hour"),
            FigureColumn(name="Published"),
            FigureColumn(name="Quarantined"),
            FigureColumn(name="At least"),
            FigureColumn(name="At most"),
            FigureColumn(name="Compared", numeric=False),
        ),
        [(item.label, item.published, item.quarantined, item.low, item.high, item.compared) for item in hours],
        lambda: charts.hours(hours),
    )


def _delivered(make: _Maker, day: Mapping[str, Any]) -> Figure:
    rows = {item["hour"]: item["published"] for item in day["profile"]["hours"]}
    found = {item["hour"]: item for item in day["delivery"]["hours"]}
    counts = ("live", *FINDINGS)
    hours = [
        charts.DeliveredHour(
            hour=hour, table=rows.get(hour, 0), **{name: found[hour][name] if hour in found else 0 for name in counts}
        )
        for hour in range(24)
    ]
    return make.figure(
        f"Live topic against table per hour of {day['day']}",
        "Narrow bars: records on the live topic, each counted once. Wide bars: rows of the table. Below each hour: the"
        " records that the live topic lacks, has more than once, or should not have.",
        (
            FigureColumn(name="Hour"),
            FigureColumn(name="Table"),
            FigureColumn(name="Live topic"),
            FigureColumn(name="Missing"),
            FigureColumn(name="Duplicated"),
            FigureColumn(name="Unexpected"),
        ),
        [(item.label, item.table, item.live, item.missing, item.duplicated, item.unexpected) for item in hours],
        lambda: charts.delivered(hours),
    )


def _versions(make: _Maker, days: Sequence[Mapping[str, Any]]) -> list[Figure]:
    if not days:
        return []
    shown = days[-14:]
    changes = [
        charts.VersionChange(
            day=day["day"], **{name: day["difference"][name] for name in ("added", "removed", "changed")}
        )
        for day in shown
    ]
    figure = make.figure(
        "Rows that a new version changes",
        "Against the version before it. Removed rows are to the left.",
        (
            FigureColumn(name="Day", numeric=False),
            FigureColumn(name="Added"),
            FigureColumn(name="Removed"),
            FigureColumn(name="Changed"),
        ),
        [(item.day, item.added, item.removed, item.changed) for item in changes],
        lambda: charts.versions(changes),
    )
    return [figure]


def _late(make: _Maker, day: Mapping[str, Any], reopen_days: int | None) -> Figure:
    total = day["read"] or 1
    late = [
        charts.Late(within_s=item["within_s"], rows=item["rows"], share=100 * item["rows"] / total)
        for item in day["profile"]["late"]
    ]
    bound = "Any late record reopens its day."
    if reopen_days is not None:
        bound = f"The dashed line is batch.reopen_days: no day more than {reopen_days} days back reopens."
    return make.figure(
        f"How late the records of {day['day']} were",
        f"The share of records whose timestamp is at most this long after their event time. {bound}",
        (FigureColumn(name="Within", numeric=False), FigureColumn(name="Records"), FigureColumn(name="Percent")),
        [(charts.short_duration(item.within_s), item.rows, item.share) for item in late],
        lambda: charts.lateness(late, reopen_days),
    )


def _checks(make: _Maker, rows: Sequence[Mapping[str, Any]]) -> list[Figure]:
    if not rows:
        return []
    shown = rows[:CHECKS_MAX]
    days = [cell["day"] for cell in reversed(shown[0]["cells"])]
    names = [_unique(number, row) for number, row in enumerate(shown)]
    results = {
        (name, cell["day"]): cell["result"] for name, row in zip(names, shown, strict=True) for cell in row["cells"]
    }
    more = "" if len(rows) <= CHECKS_MAX else f" Of {len(rows):,} checks the first {CHECKS_MAX}, what fails first."
    figure = make.figure(
        "Results of the checks by day",
        f"✓ passed, ✗ failed, ? unknown, · not checked. The last column is this run.{more}",
        (FigureColumn(name="Check", numeric=False), *(FigureColumn(name=day, numeric=False) for day in days)),
        [(name, *(_MARKS[results[name, day]] for day in days)) for name in names],
        lambda: charts.heat_strip(names, days, results),
    )
    return [figure]


def _unique(number: int, row: Mapping[str, Any]) -> str:
    name = cut(f"{row['name']} {row['arguments']}".strip(), _NAME_CHARACTERS)
    return f"{number + 1}. {name}"


def _retention(make: _Maker, found: Mapping[str, Any] | None) -> list[Figure]:
    known = [item for item in found["runways"] if item["hours_left"] is not None] if found else []
    if found is None or not known:
        return []
    shown = sorted(known, key=lambda item: (item["hours_left"], item["topic"], item["partition"]))[:RUNWAYS_MAX]
    runways = [
        charts.RunwayBar(name=f"{item['topic']}-{item['partition']}", hours=max(0.0, item["hours_left"]))
        for item in shown
    ]
    alarm = found["alarm_hours"] or 0.0
    figure = make.figure(
        "How long Kafka still keeps what is not archived",
        f"Hours until Kafka may delete the first unarchived record of a partition. Below {alarm:,.1f} hours, the dashed"
        " line, is an alarm.",
        (FigureColumn(name="Partition", numeric=False), FigureColumn(name="Hours left")),
        [(item.name, item.hours) for item in runways],
        lambda: charts.retention(runways, alarm),
    )
    return [figure]
