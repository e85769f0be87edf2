"""The audit step: Great Expectations on the audit branch, before anybody can read it.

Severity decides here, not in Great Expectations: a failed warning is kept and shown, a failed or broken critical check
stops the run. The stream's own checks judge each day by itself, so that other days can't cover up a bad one. A check
that saw no value is unknown, which is no pass, unless the archive holds no record of the day.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, tzinfo
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.errors import ConflictError, QualityError
from tidemark.definitions.own_checks import HISTORY_CHECKS, HOURLY_ROW_COUNTS, OWN_CHECKS, ROW_COUNT, STREAM_CHECKS
from tidemark.definitions.sections import FieldTime
from tidemark.definitions.stream import Stream
from tidemark.reconcile.audit.checks import NEEDS_VALUES, CheckOutcome, Expected, explain, masked, times_read
from tidemark.reconcile.audit.data_docs import write_data_docs
from tidemark.reconcile.audit.expectations import evaluate
from tidemark.reconcile.audit.figures import DayFigures
from tidemark.reconcile.audit.from_statistics import answer
from tidemark.reconcile.audit.history import Past, compared_days, judge
from tidemark.reconcile.audit.measure import day_figures
from tidemark.reconcile.audit.other_streams import against_streams
from tidemark.reconcile.audit.past import past_figures
from tidemark.reconcile.audit.profile import checks_of
from tidemark.reconcile.held_days import may_wait, without_version
from tidemark.reconcile.json_values import safe
from tidemark.reconcile.lineage import step_with_lineage
from tidemark.reconcile.results import AUDIT, REBUILD, AuditResult, DayCounts, HeldDay, RebuildResult, final_plan
from tidemark.run import Run
from tidemark.spark.session import shuffles_for
from tidemark.tables.column_statistics import DayStatistics, added_days
from tidemark.tables.columns import DAY
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.reader import load_table

_NAMED_MAX = 10


def audit_run(run: Run, spark: SparkSession) -> None:
    """Check the rebuilt days on the run's branch, and save every check's outcome.

    Raises QualityError, after saving, when a critical check failed, could not be evaluated, or saw no value. Days
    that late records reopened are ``held`` if only such days failed, as are those that the rebuild left out: readers
    keep the version they have, and the run continues with its other days. Raises ConflictError where
    the run has published: the earlier audit's result stays.
    """
    with step_with_lineage(run, AUDIT) as attempt:
        rebuilt = run.require(REBUILD)
        table = IcebergTable(spark, run.settings, run.stream.table)
        if rebuilt.days and rebuilt.branch not in table.branches():
            earlier = run.outcome(AUDIT)
            attempt.result = earlier.result if earlier else None
            raise ConflictError(
                "the rebuilt rows are not there to be checked",
                expected=f"branch {rebuilt.branch}",
                found="none of that name: the run has published it, or maintenance has dropped it",
                where=table.identifier,
                hint="Start a new run of the days",
            )
        attempt.result = result = AuditResult(
            staged=rebuilt.staged.snapshot if rebuilt.staged else None, passed=not rebuilt.days, held=rebuilt.held
        )
        if rebuilt.branch is None or not rebuilt.days:
            attempt.result = replace(result, note="no day was rebuilt, so there is nothing to check")
            return
        with shuffles_for(spark, sum(item.published for item in rebuilt.days), run.spark_sizes):
            outcomes, figures = _outcomes(run, table.read(rebuilt.branch), rebuilt)
        docs = write_data_docs(run, outcomes, [item.day for item in rebuilt.days])
        result = replace(result, figures=figures, data_docs=docs)
        attempt.result = result = _judged(run, result, rebuilt, outcomes)
        if not result.passed:
            may = may_wait(run, {item.day for item in rebuilt.days})
            failed = [item for item in outcomes if item.blocks]
            raise QualityError(
                "critical checks did not pass",
                expected=f"{sum(item.expected.severity == 'critical' for item in outcomes)} passed",
                found=_explain_all(failed),
                where=run.key(AUDIT.name),
                hint=without_version(run, _held(failed, may)) or "The table still shows the days as they were before",
            )


def _outcomes(run: Run, branch: DataFrame, rebuilt: RebuildResult) -> tuple[list[CheckOutcome], tuple[DayFigures, ...]]:
    """Every check's outcome, and the figures of the days."""
    # A row without a day would otherwise escape every check.
    rows = branch.where(F.col(DAY).isin([item.day for item in rebuilt.days]) | F.col(DAY).isNull())
    stream = run.stream
    days = [item.day for item in rebuilt.days]
    checks = [Expected.of(item) for item in checks_of(stream, rows.schema)]
    compared = [item for item in checks if item.expectation in HISTORY_CHECKS]
    of_streams = [item for item in checks if item.expectation in STREAM_CHECKS]
    own = [item for item in checks if item.expectation not in OWN_CHECKS]
    table = load_table(run.settings, stream.table)
    counted = added_days(table, rebuilt.staged.snapshot) if table is not None and rebuilt.staged else {}
    figures = day_figures(rows, rebuilt, counted, compared, stream)
    past = past_figures(run, compared_days(compared, days))
    outcomes = [
        *(_rows_left(item) for item in rebuilt.days),
        *(masked(item, stream) for item in evaluate(rows, built_in(rebuilt.days, rebuilt.deduplicated_by.key))),
    ]
    if isinstance(stream.event_time, FieldTime):
        plan = final_plan(run)
        for item in rebuilt.days:
            unreadable = plan.unreadable_times(item.day)
            if unreadable is not None:
                outcomes.append(times_read(item.day, item.read, unreadable, stream.event_time))
    for counts, measured in zip(rebuilt.days, figures, strict=True):
        outcomes += _of_day(rows, own, counts, counted.get(counts.day), stream)
        outcomes += _against_history(compared, counts, measured, past, stream.zone)
        outcomes += against_streams(run, rows.sparkSession, rows, of_streams, counts)
    return outcomes, figures


def _judged(run: Run, result: AuditResult, rebuilt: RebuildResult, outcomes: Sequence[CheckOutcome]) -> AuditResult:
    """The result with the outcomes, the days they hold back, and whether the others pass."""
    empty = [str(item.day) for item in rebuilt.days if item.read == 0]
    failed = [item for item in outcomes if item.blocks]
    may = may_wait(run, {item.day for item in rebuilt.days})
    held = _held(failed, may)
    if without_version(run, held):
        held = {}
    own_held = (HeldDay(day=day, because=_explain_all(of)) for day, of in held.items())
    sure = [item for item in failed if item.exception is None]
    return replace(
        result,
        checks=tuple(
            replace(item, expected=replace(item.expected, kwargs=safe(item.expected.kwargs))) for item in outcomes
        ),
        note=f"the archive holds no record of {', '.join(empty)}: empty on purpose" if empty else None,
        held=tuple(sorted([*rebuilt.held, *own_held], key=lambda item: item.day)),
        passed=bool(held) or not failed,
        rows_failed=bool(sure) and not _held(sure, may),
    )


def _held(failed: Sequence[CheckOutcome], may: Mapping[date, bool]) -> dict[date, list[CheckOutcome]]:
    """The days that are held back with what they failed; none where the run can't continue without them."""
    found: dict[date, list[CheckOutcome]] = {}
    for item in failed:
        if item.day is None or not may.get(item.day, False):
            return {}
        found.setdefault(item.day, []).append(item)
    return found if may.keys() - found.keys() else {}


def built_in(days: Sequence[DayCounts], unique_key: Sequence[str] = ()) -> list[Expected]:
    """The checks every stream gets; ``unique_key`` are the columns it is deduplicated by."""
    rows = {
        str(item.day): {"read": item.read, "quarantined": item.quarantined, "removed": item.duplicates_removed}
        for item in days
    }
    about = f"no two rows of a day have the same {', '.join(unique_key)}"
    by_key = [_critical("expect_key_to_be_unique", {"columns": [DAY, *unique_key]}, about)] if unique_key else []
    return [
        *by_key,
        _critical("expect_kafka_records_to_be_unique", {}, "every record occurs once"),
        _critical("expect_rows_to_be_conserved", {"days": rows}, "each day has the rows the rebuild wrote"),
    ]


def _critical(expectation: str, kwargs: dict[str, Any], about: str) -> Expected:
    return Expected(expectation=expectation, kwargs=kwargs, severity="critical", built_in=True, about=about)


def _rows_left(counts: DayCounts) -> CheckOutcome:
    """Whether a day that had records still has rows: one whose every record was quarantined can't be judged."""
    none_left = counts.read > 0 and not counts.published
    return CheckOutcome(
        expected=_critical("tidemark_rows_to_check", {}, "a day with records has rows to check"),
        day=counts.day,
        success=None if none_left else True,
        observed=f"every record of {counts.day} was quarantined" if none_left else counts.published,
    )


def _of_day(
    rows: DataFrame, own: Sequence[Expected], counts: DayCounts, files: DayStatistics | None, stream: Stream
) -> Iterator[CheckOutcome]:
    """The stream's own checks on the rows of one day, those in a scan that the statistics of its files do not answer.

    A day without a record has no values to check, and passes; its table as a whole can be judged.
    """
    day, empty = counts.day, not counts.read
    whole = files if files is not None and files.rows == counts.published else None
    answers = [answer(item, whole) if whole is not None else None for item in own]
    left = [item for item, found in zip(own, answers, strict=True) if found is None]
    scanned = iter(evaluate(rows.where(F.col(DAY) == day), left) if left else ())
    for found in (next(scanned) if item is None else item for item in answers):
        item = masked(found, stream)
        name = item.expected.expectation
        judged = item.exception is None or name in NEEDS_VALUES
        if empty and judged and not name.startswith("expect_table_"):
            yield replace(item, day=day, success=True, observed="no row to check", exception=None, examples=())
        else:
            yield replace(item, day=day)


def _against_history(
    checks: Sequence[Expected], counts: DayCounts, measured: DayFigures, past: Past, zone: tzinfo
) -> Iterator[CheckOutcome]:
    """The checks of a day against earlier ones. Without a record, only the numbers of rows can be judged."""
    for item in checks:
        if not counts.read and item.expectation not in {ROW_COUNT, HOURLY_ROW_COUNTS}:
            yield CheckOutcome(expected=item, day=counts.day, success=True, observed="no row to check")
        else:
            yield judge(item, measured, past, zone)


def _explain_all(failed: Sequence[CheckOutcome]) -> str:
    named = "; ".join(explain(item) for item in failed[:_NAMED_MAX])
    return named if len(failed) <= _NAMED_MAX else f"{named}; and {len(failed) - _NAMED_MAX} more"
