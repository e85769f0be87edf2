"""The figures of earlier days, from the audits of the runs that sealed them."""

from collections.abc import Collection, Mapping
from datetime import date

from tidemark.core.day_summary import DaySummary, latest_summaries
from tidemark.core.errors import FormatError
from tidemark.reconcile.audit.figures import DayFigures
from tidemark.reconcile.earlier_runs import read_results
from tidemark.reconcile.results import AUDIT, AuditResult
from tidemark.run import Run
from tidemark.tables.day_summaries import read_day_summaries


def past_figures(run: Run, days: Collection[date]) -> dict[date, DayFigures | str]:
    """The figures of each of the days that is sealed, or why they are missing."""
    if not days:
        return {}
    found = read_day_summaries(run.store, run.layout, min(days), max(days))
    versions = {(item.day, item.version): item for item in found}
    latest = [item for day, item in latest_summaries(found).items() if day in days]
    rebuilt = {item.day: _rebuilt(item, versions) for item in latest}
    audits = read_results(run, AUDIT, (item.run for item in rebuilt.values() if isinstance(item, DaySummary)))
    return {day: _figures(item, audits) if isinstance(item, DaySummary) else item for day, item in rebuilt.items()}


def _rebuilt(sealed: DaySummary, versions: Mapping[tuple[date, int], DaySummary]) -> DaySummary | str:
    """The version whose rows a version has, and so its figures, or why it is missing."""
    while sealed.rolled_back_to is not None:
        earlier = versions.get((sealed.day, sealed.rolled_back_to))
        if earlier is None:
            return f"the seal of version {sealed.rolled_back_to} is missing"
        sealed = earlier
    return sealed


def _figures(sealed: DaySummary, audits: Mapping[str, AuditResult | FormatError | None]) -> DayFigures | str:
    audit = audits[sealed.run]
    if isinstance(audit, FormatError):
        return f"the audit of run {sealed.run} can't be read: {audit.problem}"
    figures = () if audit is None else audit.figures
    found = next((item for item in figures if item.day == sealed.day), None)
    return f"the audit of run {sealed.run} has no figures" if found is None else found
