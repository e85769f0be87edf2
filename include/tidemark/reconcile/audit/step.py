"""The audit step: Great Expectations on the audit branch, before anybody can read it.

Severity decides here, not in Great Expectations: a failed warning is kept and shown, a failed or broken critical check
stops the run. The stream's own checks judge each day by itself, so that no day can hide behind another one. A check
that saw no value is unknown, which is no pass, unless the archive itself holds no record of the day.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from operator import itemgetter
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.errors import ConflictError, QualityError
from tidemark.reconcile.audit.checks import LIBRARY_KWARGS, NEEDS_VALUES, CheckOutcome, Expected, observed_text
from tidemark.reconcile.fingerprints import deduplicated_by
from tidemark.reconcile.held_days import may_wait, without_version
from tidemark.reconcile.json_values import clip, safe
from tidemark.run import Run
from tidemark.spark.failures import cause_line
from tidemark.tables.columns import DAY
from tidemark.tables.iceberg import IcebergTable

EXAMPLES_MAX = 5
_NAMED_MAX = 10
_MAP_FIELDS = ("element_count", "missing_count", "unexpected_count", "unexpected_percent")
_KEY = ["_topic_id", "_kafka_partition", "_offset"]


def audit_run(run: Run, spark: SparkSession) -> None:
    """Check the rebuilt days on the run's branch; save every result to audit.json.

    Raises QualityError, after saving, when a critical check failed, could not be evaluated, or had no value to look at.
    Where only days did not pass that late records reopened, they are ``held``, as those are that the rebuild had to
    leave out: readers keep the version they have, and the run goes on with its other days. Raises ConflictError where
    the run has published: what was found before stays.
    """
    with run.step("audit") as out:
        rebuilt = run.require("rebuild")
        days: dict[str, dict[str, int]] = rebuilt["days"]
        table = IcebergTable(spark, run.settings, run.stream.table)
        if days and rebuilt["branch"] not in table.branches():
            out.update(run.load("audit") or {})
            raise ConflictError(
                "the rebuilt rows are not there to be checked",
                expected=f"branch {rebuilt['branch']}",
                found="none of that name: the run has published it, or maintenance has dropped it",
                where=table.identifier,
                hint="Start a new run of the days",
            )
        out |= {"staged_snapshot": rebuilt["staged_snapshot"], "days": list(days), "checks": [], "passed": False}
        out["held"] = left_out = rebuilt.get("held", [])  # not of an earlier version's run
        if not days:
            out |= {"passed": True, "note": "no day was rebuilt, so there is nothing to check"}
            return
        branch = table.read(rebuilt["branch"])
        # A row without a day would otherwise escape every check.
        wanted = F.col(DAY).isin([date.fromisoformat(day) for day in days]) | F.col(DAY).isNull()
        rows = branch.where(wanted)
        own = [Expected.of(item) for item in run.stream.batch.checks]
        outcomes = [
            *(_rows_left(date.fromisoformat(day), counts) for day, counts in days.items()),
            *evaluate(rows, built_in(days, deduplicated_by(run, rebuilt)[0])),
            *(item for day, counts in days.items() for item in _of_day(rows, own, date.fromisoformat(day), counts)),
        ]
        out["checks"] = [item.value() for item in outcomes]
        empty = [day for day, counts in days.items() if counts["read"] == 0]
        if empty:
            out["note"] = f"the archive holds no record of {', '.join(empty)}: empty on purpose"
        failed = [item for item in outcomes if item.blocks]
        may = may_wait(run, {date.fromisoformat(day) for day in days})
        held = _held(failed, may)
        unfit = without_version(run, held)
        if unfit:
            held = {}
        own_held = [{"day": day.isoformat(), "because": _explain_all(of)} for day, of in held.items()]
        out["held"] = sorted([*left_out, *own_held], key=itemgetter("day"))
        out["passed"] = bool(held) or not failed
        sure = [item for item in failed if item.exception is None]
        out["condemned"] = bool(sure) and not _held(sure, may)
        if not out["passed"]:
            raise QualityError(
                "critical checks did not pass",
                expected=f"{sum(item.expected.severity == 'critical' for item in outcomes)} passed",
                found=_explain_all(failed),
                where=run.key("audit"),
                hint=unfit or "The table still shows the days as they were before",
            )


def _held(failed: Sequence[CheckOutcome], may: Mapping[date, bool]) -> dict[date, list[CheckOutcome]]:
    """The days that are held back with what they failed; none where the run can't go on without them."""
    found: dict[date, list[CheckOutcome]] = {}
    for item in failed:
        if item.day is None or not may.get(item.day, False):
            return {}
        found.setdefault(item.day, []).append(item)
    return found if may.keys() - found.keys() else {}


def built_in(days: Mapping[str, Mapping[str, int]], unique_key: Sequence[str] = ()) -> list[Expected]:
    """The checks every stream gets; ``days`` is rebuild.json's, ``unique_key`` the columns it is deduplicated by."""
    values = ", ".join(f"(DATE'{day}', {counts['published']}L)" for day, counts in days.items())
    counted = (
        # Nothing in here comes from outside: days and numbers are rebuild.json's.
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


def _rows_left(day: date, counts: Mapping[str, int]) -> CheckOutcome:
    """Whether a day that had records still has rows: one whose every record was quarantined can't be judged."""
    gone = counts["read"] > 0 and not counts["published"]
    return CheckOutcome(
        expected=Expected(
            expectation="tidemark_rows_to_check",
            kwargs={},
            severity="critical",
            built_in=True,
            about="a day with records has rows to check",
        ),
        day=day,
        success=None if gone else True,
        observed=f"every record of {day} was quarantined" if gone else counts["published"],
    )


def _of_day(rows: DataFrame, own: Sequence[Expected], day: date, counts: Mapping[str, int]) -> Iterator[CheckOutcome]:
    """The stream's own checks on the rows of one day.

    One without a record proves nothing about its values, and is fine so; its table as a whole can be judged.
    """
    empty = not counts["read"]
    for item in evaluate(rows.where(F.col(DAY) == day), own) if own else ():
        name = item.expected.expectation
        judged = item.exception is None or name in NEEDS_VALUES
        if empty and judged and not name.startswith("expect_table_"):
            yield replace(item, day=day, success=True, observed="no row to check", exception=None, examples=())
        else:
            yield replace(item, day=day)


def evaluate(rows: DataFrame, checks: Sequence[Expected]) -> list[CheckOutcome]:
    """Each check's outcome on the rows, in order; a check that can't be built or run is one with an exception."""
    # The library reads this variable when it is imported, which takes seconds: so not at the module's top.
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    # Without persist=False the library caches the rows and leaves them cached.
    source = context.data_sources.add_spark("audit", persist=False)
    batch = (
        source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all").get_batch({"dataframe": rows})
    )
    # The library makes one of equal checks.
    distinct = [number for number, check in enumerate(checks) if _first_alike(checks, check) == number]
    try:
        outcomes = _validated(batch, rows, {number: checks[number] for number in distinct})
    except Exception:  # noqa: BLE001 - one that the library breaks on takes the others with it, unless each is by itself
        outcomes = {}
        for number in distinct:
            try:
                outcomes |= _validated(batch, rows, {number: checks[number]})
            except Exception as error:  # noqa: BLE001 - whatever an expectation raises is its outcome
                outcomes[number] = CheckOutcome(
                    expected=checks[number], success=False, observed=None, exception=_text(error)
                )
    return [replace(outcomes[_first_alike(checks, check)], expected=check) for check in checks]


def _first_alike(checks: Sequence[Expected], wanted: Expected) -> int:
    alike = (wanted.expectation, wanted.kwargs)
    return next(number for number, check in enumerate(checks) if (check.expectation, check.kwargs) == alike)


def _validated(batch: Any, rows: DataFrame, checks: Mapping[int, Expected]) -> dict[int, CheckOutcome]:
    """The outcomes by number; raises whatever the library does where it breaks on a check."""
    import great_expectations as gx
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    outcomes: dict[int, CheckOutcome] = {}
    suite = gx.ExpectationSuite(name="audit")
    for number, check in checks.items():
        unwanted = ", ".join(sorted(LIBRARY_KWARGS & check.kwargs.keys()))
        if unwanted:
            told = f"not for a definition to give: {unwanted}"
            outcomes[number] = CheckOutcome(expected=check, success=False, observed=None, exception=told)
            continue
        try:
            configuration = ExpectationConfiguration(
                type=check.expectation, kwargs=dict(check.kwargs), meta={"check": number}
            )
            suite.add_expectation(configuration.to_domain_obj())
        except (GreatExpectationsError, TypeError, ValueError) as error:  # a wrong name or argument in the YAML
            outcomes[number] = CheckOutcome(expected=check, success=False, observed=None, exception=_text(error))
    if suite.expectations:
        result = batch.validate(
            suite, result_format={"result_format": "SUMMARY", "partial_unexpected_count": EXAMPLES_MAX}
        )
        for item in result.results:
            number = _number(item)
            outcomes[number] = _outcome(checks[number], item, rows)
    return outcomes


def _number(item: Any) -> int:
    """Which check a result belongs to: the library may answer in another order."""
    return int(item.expectation_config.meta["check"])


def _outcome(check: Expected, item: Any, rows: DataFrame) -> CheckOutcome:
    exception = _exception(item.exception_info)
    result: Mapping[str, Any] = item.result or {}
    if "observed_value" in result:
        observed = safe(result["observed_value"])
    else:
        observed = safe({field: result[field] for field in _MAP_FIELDS if field in result}) or None
    examples: Sequence[Any] = result.get("partial_unexpected_list") or ()
    success = bool(item.success) and exception is None
    if exception is None and not check.built_in and _saw_nothing(result):
        return CheckOutcome(expected=check, success=None, observed=observed)
    if check.built_in and not success and exception is None and "unexpected_rows_query" in check.kwargs:
        found = rows.sparkSession.sql(check.kwargs["unexpected_rows_query"], batch=rows)
        examples = found.limit(EXAMPLES_MAX).collect()
    return CheckOutcome(
        expected=check,
        success=success,
        observed=observed,
        exception=exception,
        examples=tuple(safe(value) for value in examples[:EXAMPLES_MAX]),
    )


def _saw_nothing(result: Mapping[str, Any]) -> bool:
    """Whether a check had no value to look at, which the library calls a success where it goes value by value."""
    if "element_count" in result:
        return result["element_count"] in {0, result.get("missing_count")}
    return "observed_value" in result and result["observed_value"] in (None, [])


def _exception(info: Any) -> str | None:
    """The message in an ``exception_info``, which is one entry or a dict of them by metric."""
    if not info:
        return None
    entries = [info] if "raised_exception" in info else list(info.values())
    raised = [item for item in entries if isinstance(item, Mapping) and item.get("raised_exception")]
    return clip(cause_line(str(raised[0].get("exception_message")))) if raised else None


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


def _text(error: Exception) -> str:
    return clip(f"{type(error).__name__}: {error}".replace("\n", " "))
