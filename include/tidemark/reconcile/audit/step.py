"""The audit step: Great Expectations on the audit branch, before anybody can read it.

Severity decides here, not in Great Expectations: a failed warning is kept and shown, a failed or broken critical check
stops the run. The stream's own checks judge each day by itself, so that other days can't cover up a bad one. A check
that saw no value is unknown, which is no pass, unless the archive holds no record of the day.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.errors import ConflictError, QualityError
from tidemark.reconcile.audit.checks import NEEDS_VALUES, CheckOutcome, Expected, observed_text
from tidemark.reconcile.audit.expectations import evaluate
from tidemark.reconcile.held_days import may_wait, without_version
from tidemark.reconcile.json_values import safe
from tidemark.reconcile.results import AUDIT, REBUILD, AuditResult, DayCounts, HeldDay, RebuildResult
from tidemark.run import Run
from tidemark.tables.columns import DAY
from tidemark.tables.iceberg import IcebergTable

_NAMED_MAX = 10
_KEY = ["_topic_id", "_kafka_partition", "_offset"]


def audit_run(run: Run, spark: SparkSession) -> None:
    """Check the rebuilt days on the run's branch, and save every check's outcome.

    Raises QualityError, after saving, when a critical check failed, could not be evaluated, or saw no value. Days
    that late records reopened are ``held`` if only such days failed, as are those that the rebuild left out: readers
    keep the version they have, and the run continues with its other days. Raises ConflictError where
    the run has published: the earlier audit's result stays.
    """
    with run.step(AUDIT) as attempt:
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
        outcomes = _outcomes(run, table.read(rebuilt.branch), rebuilt)
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


def _outcomes(run: Run, branch: DataFrame, rebuilt: RebuildResult) -> list[CheckOutcome]:
    # A row without a day would otherwise escape every check.
    rows = branch.where(F.col(DAY).isin([item.day for item in rebuilt.days]) | F.col(DAY).isNull())
    own = [Expected.of(item) for item in run.stream.batch.checks]
    return [
        *(_rows_left(item) for item in rebuilt.days),
        *evaluate(rows, built_in(rebuilt.days, rebuilt.deduplicated_by.key)),
        *(outcome for item in rebuilt.days for outcome in _of_day(rows, own, item)),
    ]


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
    values = ", ".join(f"(DATE'{item.day}', {item.published}L)" for item in days)
    counted = (
        # Nothing in here comes from outside: days and numbers are the rebuild's.
        f"SELECT d.day, d.expected, count(b._day) AS found FROM VALUES {values} AS d(day, expected) "  # noqa: S608
        "LEFT JOIN {batch} b ON b._day = d.day GROUP BY d.day, d.expected HAVING count(b._day) <> d.expected"
    )
    key = ", ".join(_KEY)
    unique = f"SELECT {key}, count(*) AS copies FROM {{batch}} GROUP BY {key} HAVING count(*) > 1"  # noqa: S608 - constants
    by_key = []
    if unique_key:
        names = [f"`{name}`" for name in unique_key]
        columns, whole = ", ".join([DAY, *names]), " AND ".join(f"{name} IS NOT NULL" for name in names)
        twice = (
            f"SELECT {columns}, count(*) AS copies FROM {{batch}} WHERE {whole} "  # noqa: S608 - columns of the table
            f"GROUP BY {columns} HAVING count(*) > 1"
        )
        about = f"no two rows of a day have the same {', '.join(unique_key)}"
        by_key = [_critical("unexpected_rows_expectation", {"unexpected_rows_query": twice}, about)]
    return [
        *by_key,
        _critical("unexpected_rows_expectation", {"unexpected_rows_query": unique}, "every record occurs once"),
        _critical(
            "unexpected_rows_expectation", {"unexpected_rows_query": counted}, "each day has the rows the rebuild wrote"
        ),
        _critical("expect_column_values_to_not_be_null", {"column": DAY}, "every row has a day"),
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


def _of_day(rows: DataFrame, own: Sequence[Expected], counts: DayCounts) -> Iterator[CheckOutcome]:
    """The stream's own checks on the rows of one day.

    A day without a record has no values to check, and passes; its table as a whole can be judged.
    """
    day, empty = counts.day, not counts.read
    for item in evaluate(rows.where(F.col(DAY) == day), own) if own else ():
        name = item.expected.expectation
        judged = item.exception is None or name in NEEDS_VALUES
        if empty and judged and not name.startswith("expect_table_"):
            yield replace(item, day=day, success=True, observed="no row to check", exception=None, examples=())
        else:
            yield replace(item, day=day)


def _explain(item: CheckOutcome) -> str:
    name = item.expected.about or item.expected.expectation
    column = item.expected.kwargs.get("column")
    subject = f"{name} ({column})" if column and not item.expected.about else name
    if item.day is not None:
        subject = f"{item.day}: {subject}"
    if item.exception is not None:
        return f"{subject}: could not be evaluated: {item.exception}"
    return f"{subject}: {'unknown' if item.success is None else 'failed'}, observed {observed_text(item.observed)}"


def _explain_all(failed: Sequence[CheckOutcome]) -> str:
    named = "; ".join(_explain(item) for item in failed[:_NAMED_MAX])
    return named if len(failed) <= _NAMED_MAX else f"{named}; and {len(failed) - _NAMED_MAX} more"
