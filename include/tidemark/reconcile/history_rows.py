"""The rows that sealed versions get in the history tables, from their seals and the results of their run's steps."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tidemark.core.day_summary import summarise
from tidemark.core.days import day_end
from tidemark.core.offsets import count
from tidemark.core.outcome import RunStep
from tidemark.core.seal import Seal
from tidemark.reconcile.audit.checks import CheckOutcome, observed_text
from tidemark.reconcile.results import (
    AUDIT,
    FINALIZE_PLAN,
    PLAN,
    PUBLISH,
    REBUILD,
    REFILL,
    AuditResult,
    RebuildResult,
    RefillResult,
)
from tidemark.run import Run
from tidemark.tables.history import Row, VersionHistory
from tidemark.tables.history_columns import CHECKS, REASONS, RECONCILIATION, RUNS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WORK: tuple[RunStep[Any], ...] = (PLAN, REFILL, FINALIZE_PLAN, REBUILD, AUDIT, PUBLISH)


def sealed_history(run: Run, seals: Sequence[Seal]) -> list[VersionHistory]:
    """The rows of the versions that a run has rebuilt and sealed."""
    outcomes = {step.name: run.outcome(step) for step in _WORK}
    seconds = sum(found.seconds for found in outcomes.values() if found is not None)
    refill = outcomes[REFILL.name]
    refilled = refill.result if refill is not None else None
    audit, rebuilt = run.require(AUDIT), run.require(REBUILD)
    return [
        VersionHistory(
            day=seal.day,
            version=seal.version,
            run=seal.run,
            rows={
                RUNS: [_run_row(seal, seconds)],
                CHECKS: list(_check_rows(seal, audit)),
                RECONCILIATION: list(_log_rows(seal, refilled)),
                REASONS: list(_reason_rows(seal, rebuilt)),
            },
        )
        for seal in seals
    ]


def rollback_history(seal: Seal) -> VersionHistory:
    """The rows of a version that a rollback has made."""
    return VersionHistory(
        day=seal.day,
        version=seal.version,
        run=seal.run,
        rows={RUNS: [_run_row(seal, None)]},
        repeats=seal.rolled_back_to,
    )


def _version(seal: Seal) -> Row:
    return {"stream": seal.stream, "day": seal.day, "version": seal.version, "run": seal.run}


def _run_row(seal: Seal, seconds: float | None) -> Row:
    summary, difference = summarise(seal), seal.difference
    return {
        **_version(seal),
        "day_ended_at": day_end(seal.day, ZoneInfo(seal.time_zone)),
        "planned_at": _moment(seal.planned_at_us),
        "sealed_at": _moment(seal.sealed_at_us),
        "work_seconds": seconds,
        "reason": seal.reason,
        "rolled_back_to": seal.rolled_back_to,
        "quality": seal.quality,
        "approved_by": summary.approved_by,
        "rows_read": seal.rows_read,
        "rows_published": seal.rows_published,
        "rows_quarantined": seal.rows_quarantined,
        "duplicates_removed": seal.rows_removed,
        "duplicates_trimmed": seal.duplicates_trimmed,
        "rows_added": difference.added if difference else None,
        "rows_removed": difference.removed if difference else None,
        "rows_changed": difference.changed if difference else None,
        "refilled_offsets": seal.refilled_offsets,
        "lost_offsets": summary.lost,
        "lost_offsets_of_day": summary.lost_of_day,
        "unexplained_offsets": summary.unexplained,
        "snapshot_id": seal.snapshot_id,
        "quarantine_snapshot_id": seal.quarantine_snapshot_id,
        "seal_sha256": seal.digest(),
    }


def _moment(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_us)


def _check_rows(seal: Seal, audit: AuditResult) -> Iterator[Row]:
    """The checks of the day, and those of all days of the run."""
    for item in audit.checks:
        if item.day in {None, seal.day}:
            yield {**_version(seal), **_check(item)}


def _check(item: CheckOutcome) -> Row:
    expected, observed = item.expected, item.observed
    counts: Mapping[str, Any] = observed if isinstance(observed, Mapping) else {}
    column = expected.kwargs.get("column")
    return {
        "expectation": expected.expectation,
        "column_name": column if isinstance(column, str) else None,
        "arguments": json.dumps(expected.kwargs, sort_keys=True, ensure_ascii=False),
        "about": expected.about or None,
        "severity": expected.severity,
        "built_in": expected.built_in,
        "success": item.success,
        "passes": item.passes,
        "observed": None if observed is None else observed_text(observed),
        "observed_number": float(observed) if _is_number(observed) else None,
        "unexpected_rows": counts.get("unexpected_count"),
        "checked_rows": counts.get("element_count"),
        "error": item.exception,
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _log_rows(seal: Seal, refilled: RefillResult | None) -> Iterator[Row]:
    ranges = refilled.ranges if refilled is not None else ()
    for item in seal.logs:
        causes = [hole.counts for hole in item.holes]
        yield {
            **_version(seal),
            "topic": item.log.topic,
            "topic_id": item.log.topic_id,
            "kafka_partition": item.log.partition,
            "start_offset": item.start,
            "end_offset": item.end,
            "used_offsets": count(part.range for part in item.used),
            "refilled_offsets": count(part.range for part in ranges if part.log == item.log),
            "lost_offsets": count(gap.range for gap in item.gaps),
            **{
                f"{cause}_offsets": sum(counts[cause] for counts in causes)
                for cause in ("transactional", "compacted", "unexplained")
            },
        }


def _reason_rows(seal: Seal, rebuilt: RebuildResult) -> Iterator[Row]:
    """The most frequent reasons, and a row without a reason for the rows of all others."""
    reasons = next((item.reasons for item in rebuilt.profiles if item.day == seal.day), ())
    for item in reasons:
        yield {**_version(seal), "reason": item.reason, "row_count": item.rows}
    others = seal.rows_quarantined - sum(item.rows for item in reasons)
    if others:
        yield {**_version(seal), "reason": None, "row_count": others}
