"""Runs whose steps' results are given, for reports without any service."""

from dataclasses import replace
from datetime import date, timedelta
from math import pi, sin
from typing import Any

from tests.core.worlds import log, span
from tidemark.core.day_summary import DaySummary
from tidemark.core.delivery import DayDelivery, DeliveryAudit, HourDelivery
from tidemark.core.layout import Layout
from tidemark.core.outcome import Outcome
from tidemark.core.plan import DayPlan, Gap, Hole, LateDay, LogPlan, Neighbours, Overlap, Plan, Target, Used
from tidemark.core.seal import Difference
from tidemark.definitions.stream import Stream
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.day_profile import (
    LATE_BOUNDS_S,
    DayProfile,
    HourRows,
    LateRows,
    RejectedRecord,
    RejectionReason,
)
from tidemark.reconcile.report.history import DaysBefore, same_weekdays
from tidemark.reconcile.report.outcomes import Outcomes
from tidemark.reconcile.results import (
    AUDIT,
    FINALIZE_PLAN,
    PLAN,
    PUBLISH,
    REBUILD,
    SEAL,
    ArchiveState,
    AuditResult,
    ChangedRow,
    ChangedValue,
    DayCounts,
    DayDifference,
    DeduplicatedBy,
    FinalizeResult,
    PublishResult,
    RebuildResult,
    RetentionNote,
    Runway,
    SealedVersion,
    SealResult,
)
from tidemark.run import Run

DAY = date(2013, 1, 16)
# What the live topic lacks, has twice, and should not have, by hour.
PLANTED = {9: (2, 0, 0), 17: (0, 1, 0), 20: (0, 0, 3)}
COLUMN: dict[str, Any] = {"expectation": "expect_column_values_to_not_be_null", "kwargs": {"column": "carrier"}}
RANGE: dict[str, Any] = {
    "expectation": "expect_column_values_to_be_between",
    "kwargs": {"column": "distance_miles", "min_value": 1, "max_value": 6000},
}


def make_run(name: str = "scheduled__2013-01-17", **batch: Any) -> Run:
    """A run of a stream by a field's time; it has no store."""
    stream = Stream.model_validate(
        {
            "name": "flights",
            "topic": "flights",
            "time_zone": "America/New_York",
            "value_schema": "id INT",
            "event_time": {"extractor": "record_field", "field": "$.departed_at", "format": "iso8601"},
            "speed": {"topic": "flights.live", "dead_letter_topic": "flights.dead"},
            "batch": {"reopen_days": 7, **batch},
        }
    )
    nothing: Any = None
    return Run(
        stream=stream, settings=nothing, store=nothing, layout=Layout(prefix="tidemark", stream="flights"), name=name
    )


def outcome(result: Any = None, *, at: int = 0, seconds: float = 12.5, error: str | None = None) -> Outcome[Any]:
    """The outcome of the step that began so many minutes after half past midnight."""
    return Outcome(
        started_at=f"2013-01-17T05:{30 + at:02}:00.000+00:00",
        seconds=seconds,
        status="failed" if error else "ok",
        error=error,
        result=result,
    )


def hour_rows(hour: int, *, factor: float = 1.0) -> int:
    """A day of flights: few at night, most in the afternoon."""
    return max(0, round(factor * (520 - 500 * abs(sin((hour - 15) * pi / 24)))))


def profile(day: date, *, factor: float = 1.0, dropped: int | None = None, doubled: int | None = None) -> DayProfile:
    """A day's profile; an hour of it may be missing, another one may occur twice."""
    hours = []
    for hour in range(24):
        rows = hour_rows(hour, factor=factor) * (2 if hour == doubled else 1)
        aside = rows // 40 if hour % 5 == 0 else 0
        if rows and hour != dropped:
            hours.append(HourRows(hour=hour, published=rows - aside, quarantined=aside))
    total = sum(item.rows for item in hours)
    shares = (0.02, 0.1, 0.35, 0.62, 0.8, 0.9, 0.955, 0.972, 0.98, 0.985, 0.99, 0.993, 0.996, 0.998, 1.0, 1.0)
    late = tuple(
        LateRows(within_s=bound, rows=round(total * share)) for bound, share in zip(LATE_BOUNDS_S, shares, strict=True)
    )
    return DayProfile(day=day, hours=tuple(hours), late=late, latest_s=12 * 86_400, reasons=reasons(), reasons_found=2)


def reasons() -> tuple[RejectionReason, ...]:
    return (
        RejectionReason(
            reason="the value is not one JSON object",
            rows=31,
            examples=tuple(
                RejectedRecord(topic_id="id-1", partition=0, offset=120 + at, value='{"carrier": "UA", "flight": 15')
                for at in range(3)
            ),
        ),
        RejectionReason(
            reason="distance_miles is negative",
            rows=4,
            examples=(RejectedRecord(topic_id="id-1", partition=1, offset=77, value=None),),
        ),
    )


def checks(day: date, *, failing: bool = False) -> tuple[CheckOutcome, ...]:
    """A passed check of all days, one of the day that may fail, and a passed one."""
    whole = Expected(
        expectation="unexpected_rows_expectation",
        kwargs={},
        severity="critical",
        built_in=True,
        about="every record occurs once",
    )
    column = Expected(**COLUMN, severity="critical", built_in=False)
    distances = Expected(**RANGE, severity="warning", built_in=False)
    observed = {"element_count": 6000, "unexpected_count": 14 if failing else 0, "missing_count": 0}
    return (
        CheckOutcome(expected=whole, success=True, observed=0),
        CheckOutcome(expected=column, day=day, success=True, observed={"element_count": 6000, "unexpected_count": 0}),
        CheckOutcome(
            expected=distances,
            day=day,
            success=not failing,
            observed=observed,
            examples=(-12, 99_999) if failing else (),
        ),
    )


def audit(day: date, *, failing: bool = False, passed: bool = True) -> AuditResult:
    return AuditResult(staged=2, passed=passed, held=(), checks=checks(day, failing=failing))


def log_plan(partition: int = 0, **findings: Any) -> LogPlan:
    """A log that two writers have archived, with an overlap; its other findings as given."""
    own: dict[str, Any] = {
        "used": (
            Used(range=span(0, 3000), committed=span(0, 3000), writer="4b6e0f5c-8a9c-4b6e-9c11-6a1f0b7c9d2e", batch=0),
            Used(range=span(3000, 3100), committed=span(2900, 3100), writer="refill-first", batch=0),
        ),
        "gaps": (),
        "overlaps": (Overlap(range=span(2900, 3000), copies=2),),
        "holes": (),
        "pending": span(3100, 3400),
    }
    target = Target(log=log(partition), start=0, end=3100, log_start=0, high_watermark=3400)
    return LogPlan(target=target, **{**own, **findings})


def make_plan(*logs: LogPlan, version: int = 2, reason: Any = "scheduled", **others: Any) -> Plan:
    day = DayPlan(day=DAY, version=version, reason=reason, archived_rows=6420)
    return Plan(
        stream="flights",
        run="r",
        days=(day,),
        unchanged=(),
        logs=logs or (log_plan(), log_plan(1)),
        slices=(),
        **others,
    )


def rebuilt(day: date = DAY, found: DayProfile | None = None) -> RebuildResult:
    """The rebuild of a day by its profile."""
    found = found or profile(day)
    published, aside = (sum(getattr(item, name) for item in found.hours) for name in ("published", "quarantined"))
    counts = DayCounts(
        day=day,
        read=published + aside,
        published=published - 3,
        quarantined=aside,
        duplicates_removed=3,
        duplicates_trimmed=6420 - published - aside,
    )
    example = ChangedRow(
        topic_id="id-1",
        partition=0,
        offset=812,
        values=(ChangedValue(column="dep_delay_minutes", before=3.0, after=4.0),),
    )
    difference = DayDifference(day=day, rows=Difference(added=128, removed=4, changed=31), examples=(example,))
    return RebuildResult(
        plan="p",
        inputs="i",
        deduplicated_by=DeduplicatedBy(key=("id",), keep="first"),
        branch="audit_r",
        days=(counts,),
        profiles=(found,),
        differences=(difference,),
    )


def finalized(plan: Plan, **note: Any) -> FinalizeResult:
    retention = RetentionNote(
        **{
            "summary": "41.5 h left",
            "alarm": False,
            "lines": (),
            "alarm_hours": 24.0,
            "runways": (
                Runway(topic="flights", partition=0, hours_left=41.5),
                Runway(topic="flights", partition=1, hours_left=160.2),
            ),
            **note,
        }
    )
    return FinalizeResult(
        planned_at="2013-01-17T05:33:00+00:00",
        force=False,
        plan=plan,
        archive=ArchiveState(manifests=12, broken_links=()),
        holes=None,
        retention=retention,
    )


def history(day: date = DAY) -> DaysBefore:
    """Eight same weekdays and two weeks of audits before the day; the last one is the day before."""
    weeks = same_weekdays(day)
    days = {other: summary(other) for other in (*weeks, day - timedelta(days=1))}
    return DaysBefore(
        days=days,
        profiles={other: profile(other, factor=0.92 + 0.02 * at) for at, other in enumerate(weeks)},
        audits={
            day - timedelta(days=at): audit(day - timedelta(days=at), failing=at == 9) for at in range(1, 14) if at != 4
        },
    )


def summary(day: date) -> DaySummary:
    return DaySummary(
        day=day,
        version=1,
        run=f"run-{day}",
        sealed_at_us=0,
        reason="scheduled",
        quality="passed",
        rows_read=6100 + 10 * day.day,
        published=6080,
        quarantined=20,
        removed=0,
        lost=0,
        lost_of_day=0,
        unexplained=0,
        refilled=0,
        difference=None,
        rolled_back_to=None,
        approved_by=None,
        snapshot_id=1,
    )


def complete(plan: Plan | None = None, **steps: Outcome[Any] | None) -> Outcomes:
    """The outcomes of a run that sealed its day; None takes a step away, others replace it."""
    plan = plan or make_plan()
    seals = (SealedVersion(day=DAY, version=2, key=f"tidemark/seals/flights/{DAY}/0002.json", sha256="5f" * 32),)
    found = {
        PLAN.name: outcome(at=1),
        FINALIZE_PLAN.name: outcome(finalized(plan), at=3),
        REBUILD.name: outcome(rebuilt(), at=4, seconds=95.0),
        AUDIT.name: outcome(audit(DAY), at=6),
        PUBLISH.name: outcome(PublishResult(days=(DAY,), snapshot_id=81, quarantine_snapshot_id=82), at=7),
        SEAL.name: outcome(SealResult(seals=seals), at=8),
        **steps,
    }
    return Outcomes(by_step={name: item for name, item in found.items() if item is not None})


def audited(planted: dict[int, tuple[int, int, int]], *, verdict: Any = "findings", pending: int = 0) -> DayDelivery:
    """A day on which each row of the table is on the live topic, but for the planted ones."""
    hours = []
    for item in profile(DAY).hours:
        missing, duplicated, unexpected = planted.get(item.hour, (0, 0, 0))
        waits = pending if item.hour == 12 else 0
        hours.append(
            HourDelivery(
                hour=item.hour,
                live=item.published - missing - waits,
                dead_letters=item.quarantined,
                missing=missing,
                pending=waits,
                duplicated=duplicated,
                unexpected=unexpected,
            )
        )
    archived = sum(item.rows for item in profile(DAY).hours)
    return DayDelivery(day=DAY, verdict=verdict, sentences=(), archived=archived, hours=tuple(hours))


def delivered() -> Outcomes:
    """A run that sealed its day, and found that the live topic differs."""
    return complete(delivery=outcome(DeliveryAudit(days=(audited(PLANTED),)), at=9))


def broken() -> Outcomes:
    """A run whose audit fails: an hour is missing, another one doubled, records are lost and others unexplained."""
    around = Neighbours(before_us=1_358_330_400_000_000, after_us=1_358_334_000_000_000)
    first = log_plan(
        used=(Used(range=span(0, 2950), committed=span(0, 2950), writer="query-a", batch=0),),
        gaps=(Gap(range=span(2950, 3100), kind="lost", neighbours=around),),
        holes=(Hole(range=span(400, 600), missing=7, cause="unexplained"),),
    )
    second = log_plan(
        1,
        used=(Used(range=span(0, 3000), committed=span(0, 3000), writer="query-a", batch=1),),
        gaps=(Gap(range=span(3000, 3100), kind="refill"),),
    )
    plan = make_plan(first, second, ignored=(LateDay(day=DAY - timedelta(days=30), records_max=12),))
    note = {
        "alarm": True,
        "summary": "5.5 h left",
        "lines": ("flights-0: offset 3,100 is unarchived, its record is of 2013-01-16T23:10:00.000+00:00: 5.5 h left",),
        "runways": (Runway(topic="flights", partition=0, hours_left=5.5),),
    }
    error = "critical checks did not pass: expected 3 passed, found expect_column_values_to_be_between: failed"
    return complete(
        plan,
        finalize_plan=outcome(finalized(plan, **note), at=3),
        rebuild=outcome(rebuilt(found=profile(DAY, dropped=9, doubled=17)), at=4, seconds=95.0),
        audit=outcome(replace(audit(DAY, failing=True), passed=False), at=6, error=error),
        publish=None,
        seal=None,
    )
