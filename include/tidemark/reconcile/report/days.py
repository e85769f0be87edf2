"""The days of a run, as the report has them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta, tzinfo

from tidemark.core.layout import Layout
from tidemark.definitions.own_checks import HOURLY_ROW_COUNTS, with_defaults
from tidemark.reconcile.audit.figures import HOURS
from tidemark.reconcile.audit.history import HourBand, hour_bands
from tidemark.reconcile.day_profile import DayProfile
from tidemark.reconcile.report.delivered import compared
from tidemark.reconcile.report.history import DaysBefore, same_weekdays
from tidemark.reconcile.report.outcomes import Outcomes
from tidemark.reconcile.report.values import DayBefore, DayReport, RowsChanged
from tidemark.reconcile.results import AUDIT, REBUILD, SEAL, AuditResult

_COUNTS = ("read", "published", "quarantined", "duplicates_removed", "duplicates_trimmed", "conserved")
BAND_MIN = 2  # days: of one alone the band would be a line that says nothing


def day_reports(outcomes: Outcomes, history: DaysBefore, layout: Layout, zone: tzinfo) -> tuple[DayReport, ...]:
    """Each day of the plan, with its counts as far as the run came, compared with the days before."""
    rebuilt, sealed, audit = outcomes.result(REBUILD), outcomes.result(SEAL), outcomes.result(AUDIT)
    counts = {item.day: item for item in rebuilt.days} if rebuilt else {}
    profiles = {item.day: item for item in rebuilt.profiles} if rebuilt else {}
    recovered = {item.day: item for item in rebuilt.recovered} if rebuilt else {}
    seals = {item.day: item for item in sealed.seals} if sealed else {}
    held = {item.day: item.because for item in audit.held} if audit else {}
    delivered = compared(outcomes)
    days = []
    for item in outcomes.plan.days if outcomes.plan else ():
        rows, seal = counts.get(item.day), seals.get(item.day)
        difference = rebuilt.difference(item.day) if rebuilt else None
        days.append(
            DayReport(
                day=item.day,
                version=item.version,
                reason=item.reason,
                archived=item.archived_rows,
                **{name: getattr(rows, name) if rows else None for name in _COUNTS},
                difference=RowsChanged.of(difference.rows, difference.examples) if difference else None,
                held=held.get(item.day),
                seal=seal.key if seal else None,
                seal_sha256=seal.sha256 if seal else None,
                certificate=layout.certificate_key(item.day, item.version) if seal else None,
                delivery=delivered.get(item.day),
                profile=profiles.get(item.day),
                recovered=recovered.get(item.day),
                before=history.before(item.day),
                weekdays=history.weekdays(item.day),
                band=_band(item.day, history.profiles, _deviation(audit), zone),
            )
        )
    return tuple(_with_own(item, days) for item in days)


def _with_own(item: DayReport, days: Sequence[DayReport]) -> DayReport:
    """The day compared with the day before, if the run rebuilds that one, too."""
    yesterday = next((other for other in days if other.day == item.day - timedelta(days=1)), None)
    if yesterday is None or yesterday.read is None or yesterday.held is not None:
        return item
    before = DayBefore(
        day=yesterday.day,
        version=yesterday.version,
        read=yesterday.read,
        published=yesterday.published or 0,
        quarantined=yesterday.quarantined or 0,
    )
    return replace(item, before=before)


def _band(day: date, profiles: Mapping[date, DayProfile], deviation: float, zone: tzinfo) -> tuple[HourBand, ...]:
    """The band of the same weekdays before that have a profile, as the check of rows per hour has it."""
    earlier = {}
    for item in same_weekdays(day):
        if item in profiles:
            published = {hour.hour: hour.published for hour in profiles[item].hours}
            earlier[item] = [published.get(hour, 0) for hour in range(HOURS)]
    return hour_bands(day, earlier, deviation, zone) if len(earlier) >= BAND_MIN else ()


def _deviation(audit: AuditResult | None) -> float:
    """How far an hour may deviate: what the stream's check says, or its default."""
    checks = audit.checks if audit else ()
    given = (item.expected.kwargs for item in checks if item.expected.expectation == HOURLY_ROW_COUNTS)
    return float(with_defaults(HOURLY_ROW_COUNTS, next(given, {}))["deviation"])
