"""The index of a stream's reports: its last days with their runs, beside the folders of the runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, Literal

from tidemark.core.day_summary import DaySummary, latest_summaries
from tidemark.core.errors import ConflictError, FormatError
from tidemark.reconcile.report.page import environment
from tidemark.reconcile.report.use import limits_of
from tidemark.run import Run
from tidemark.tables.day_summaries import read_day_summaries
from tidemark.tables.seals import last_sealed

DAYS = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """A day: may it be used, and if not without limits, why. ``summary`` is None for a day without a seal."""

    day: date
    answer: Literal["yes", "limited", "no"]
    because: str
    summary: DaySummary | None


def write_index(run: Run, report: Mapping[str, Any]) -> None:
    """Write the index of the run's stream. What can't be read of the days is said there."""
    problem: str | None = None
    rows: tuple[IndexRow, ...] = ()
    try:
        planned = [date.fromisoformat(item["day"]) for item in report["days"]]
        last = last_sealed(run.store, run.layout, recent=max(planned, default=date.min))
        newest = max([*planned, *([last[0]] if last else [])], default=None)
        if newest is not None:
            first = newest - timedelta(days=DAYS - 1)
            summaries = read_day_summaries(run.store, run.layout, first=first, last=newest)
            rows = with_answers(index_rows(summaries, newest), report)
    except (ConflictError, FormatError) as error:
        problem = str(error)
    run.store.put(
        run.layout.report_index_key,
        render_index(report, rows, problem).encode(),
        content_type="text/html; charset=utf-8",
    )


def index_rows(summaries: Iterable[DaySummary], newest: date) -> tuple[IndexRow, ...]:
    """A row for each of the last days, the newest first, from the first one with a seal."""
    latest = latest_summaries(summaries)
    first = max(min(latest, default=newest), newest - timedelta(days=DAYS - 1))
    days = [newest - timedelta(days=number) for number in range((newest - first).days + 1)]
    return tuple(_row(day, latest.get(day)) for day in days)


def with_answers(rows: Sequence[IndexRow], report: Mapping[str, Any]) -> tuple[IndexRow, ...]:
    """The rows, with the run's own answers for the sealed days of which it left a newer version unsealed."""
    unsealed = {item["day"]: item["version"] for item in report["days"] if item["seal"] is None}
    answers = {item["day"]: item for item in report["use"]}
    found = []
    for row in rows:
        day = str(row.day)
        if row.summary and row.summary.version < unsealed.get(day, 0):
            row = replace(row, answer=answers[day]["answer"], because=answers[day]["because"])  # noqa: PLW2901
        found.append(row)
    return tuple(found)


def _row(day: date, found: DaySummary | None) -> IndexRow:
    if found is None:
        return IndexRow(day=day, answer="no", because="It is not sealed.", summary=None)
    found_limits = limits_of(found)
    answer: Literal["yes", "limited"] = "limited" if found_limits else "yes"
    return IndexRow(day=day, answer=answer, because=" ".join(found_limits), summary=found)


def render_index(report: Mapping[str, Any], rows: Sequence[IndexRow], problem: str | None) -> str:
    """The page, for the run that wrote its report last."""
    template = environment().get_template("index.html.j2")
    return template.render(
        stream=report["stream"],
        run=report["run"],
        time_zone=report["time_zone"],
        verdict=report["verdict"],
        rows=rows,
        problem=problem,
    )
