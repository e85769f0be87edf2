"""Checks by Great Expectations: each expectation's outcome on some rows."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from tidemark.core.text import printable
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.json_values import clip, safe
from tidemark.spark.failures import cause_line

EXAMPLES_MAX = 5
_MAP_FIELDS = ("element_count", "missing_count", "unexpected_count", "unexpected_percent")


def evaluate(rows: DataFrame, checks: Sequence[Expected]) -> list[CheckOutcome]:
    """Each check's outcome on the rows, in order; a check that can't be built or run is one with an exception."""
    # The library reads this variable when it is imported, which takes seconds: so not at the module's top.
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    import tidemark.expectations  # noqa: F401 - registers Tidemark's own

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
        outcomes = _validated(batch, {number: checks[number] for number in distinct})
    except Exception:  # noqa: BLE001 - one that the library breaks on takes the others with it, unless each is by itself
        outcomes = {}
        for number in distinct:
            try:
                outcomes |= _validated(batch, {number: checks[number]})
            except Exception as error:  # noqa: BLE001 - whatever an expectation raises is its outcome
                outcomes[number] = CheckOutcome(
                    expected=checks[number], success=False, observed=None, exception=_text(error)
                )
    return [replace(outcomes[_first_alike(checks, check)], expected=check) for check in checks]


def _first_alike(checks: Sequence[Expected], wanted: Expected) -> int:
    alike = (wanted.expectation, wanted.kwargs)
    return next(number for number, check in enumerate(checks) if (check.expectation, check.kwargs) == alike)


def _validated(batch: Any, checks: Mapping[int, Expected]) -> dict[int, CheckOutcome]:
    """The outcomes by number; raises whatever the library does where it breaks on a check."""
    import great_expectations as gx
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    outcomes: dict[int, CheckOutcome] = {}
    suite = gx.ExpectationSuite(name="audit")
    for number, check in checks.items():
        try:
            configuration = ExpectationConfiguration(
                type=check.expectation, kwargs=_kwargs(check), meta={"check": number}
            )
            suite.add_expectation(configuration.to_domain_obj())
        except (GreatExpectationsError, TypeError, ValueError) as error:  # a wrong name or argument in the YAML
            outcomes[number] = CheckOutcome(expected=check, success=False, observed=None, exception=_text(error))
    if suite.expectations:
        result = batch.validate(
            suite, result_format={"result_format": "SUMMARY", "partial_unexpected_count": EXAMPLES_MAX}
        )
        for item in result.results:
            number = int(item.expectation_config.meta["check"])  # the library may answer in another order
            outcomes[number] = _outcome(checks[number], item)
    return outcomes


def _kwargs(check: Expected) -> dict[str, Any]:
    """The arguments as the library takes them. It warns of a condition that is a text of SQL."""
    from great_expectations.expectations.row_conditions import PassThroughCondition

    condition = check.kwargs.get("row_condition")
    own = {} if condition is None else {"row_condition": PassThroughCondition(pass_through_filter=condition)}
    return {**check.kwargs, **own}


def _outcome(check: Expected, item: Any) -> CheckOutcome:
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
    return CheckOutcome(
        expected=check,
        success=success,
        observed=observed,
        exception=exception,
        examples=tuple(safe(value) for value in examples[:EXAMPLES_MAX]),
    )


def _saw_nothing(result: Mapping[str, Any]) -> bool:
    """Whether a check saw no value. The library calls that a success where it checks value by value."""
    if "element_count" in result:
        return result["element_count"] in {0, result.get("missing_count")}
    return "observed_value" in result and result["observed_value"] in (None, [])


def _exception(info: Any) -> str | None:
    """The message in an ``exception_info``, which is one entry or a dict of them by metric."""
    if not info:
        return None
    entries = [info] if "raised_exception" in info else list(info.values())
    raised = [item for item in entries if isinstance(item, Mapping) and item.get("raised_exception")]
    return clip(printable(cause_line(str(raised[0].get("exception_message"))))) if raised else None


def _text(error: Exception) -> str:
    return clip(printable(f"{type(error).__name__}: {error}".replace("\n", " ")))
