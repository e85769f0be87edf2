"""Checks by Great Expectations: each expectation's outcome on some rows."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from tidemark.core.text import printable
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.json_values import clip, safe
from tidemark.spark.failures import cause_line

EXAMPLES_MAX = 5
_COUNTS = ("element_count", "missing_count", "unexpected_count", "unexpected_percent")
# Their results do not say whether there was a value to judge.
_SILENT = {
    "expect_column_distinct_values_to_be_in_set",
    "expect_column_distinct_values_to_contain_set",
    "expect_column_distinct_values_to_equal_set",
    "expect_column_kl_divergence_to_be_less_than",
}

# An expectation of the library, and what makes it equal to another.
_Distinct = tuple[Any, tuple[str, dict[str, Any]]]


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
    numbered = dict(enumerate(checks))
    try:
        outcomes = _validated(batch, numbered)
    except Exception:  # noqa: BLE001 - one that the library breaks on takes the others with it, unless each is by itself
        outcomes = {}
        for number, check in numbered.items():
            try:
                outcomes |= _validated(batch, {number: check})
            except Exception as error:  # noqa: BLE001 - whatever an expectation raises is its outcome
                outcomes[number] = CheckOutcome(expected=check, success=False, observed=None, exception=_text(error))
    return [outcomes[number] for number in numbered]


def _validated(batch: Any, checks: Mapping[int, Expected]) -> dict[int, CheckOutcome]:
    """The outcomes by number; raises whatever the library does where it breaks on a check."""
    import great_expectations as gx
    from great_expectations.exceptions.exceptions import GreatExpectationsError

    outcomes: dict[int, CheckOutcome] = {}
    distinct: list[_Distinct] = []
    places: dict[int, int] = {}
    any_value: dict[int, int] = {}
    for number, check in checks.items():
        try:
            places[number] = _place(distinct, check.expectation, _kwargs(check))
            if check.expectation in _SILENT:
                any_value[number] = _place(distinct, *_has_value(check))
        except (GreatExpectationsError, TypeError, ValueError) as error:  # a wrong name or argument in the YAML
            outcomes[number] = CheckOutcome(expected=check, success=False, observed=None, exception=_text(error))
    if distinct:
        suite = gx.ExpectationSuite(name="audit", expectations=[made for made, _ in distinct])
        result = batch.validate(
            suite, result_format={"result_format": "SUMMARY", "partial_unexpected_count": EXAMPLES_MAX}
        )
        # The library may answer in another order.
        results = {int(item.expectation_config.meta["place"]): item for item in result.results}
        for number in checks.keys() - outcomes.keys():
            saw_value = number not in any_value or bool(results[any_value[number]].success)
            outcomes[number] = _outcome(checks[number], results[places[number]], saw_value=saw_value)
    return outcomes


def _place(distinct: list[_Distinct], expectation: str, kwargs: Mapping[str, Any]) -> int:
    """The expectation's place among the distinct ones: the library makes one of equal ones, however spelled."""
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    configuration = ExpectationConfiguration(type=expectation, kwargs={**kwargs}, meta={"place": len(distinct)})
    made = configuration.to_domain_obj()
    own = (expectation, made.dict(exclude={"meta"}))
    for place, (_, other) in enumerate(distinct):
        if other == own:
            return place
    distinct.append((made, own))
    return len(distinct) - 1


def _has_value(check: Expected) -> tuple[str, dict[str, Any]]:
    """What the library is asked to learn whether a silent check saw a value."""
    kwargs = {name: value for name, value in _kwargs(check).items() if name in {"column", "row_condition"}}
    return "expect_column_proportion_of_non_null_values_to_be_between", {**kwargs, "min_value": 0, "strict_min": True}


def _kwargs(check: Expected) -> dict[str, Any]:
    """The arguments as the library takes them. It warns of a condition that is a text of SQL."""
    from great_expectations.expectations.row_conditions import PassThroughCondition

    condition = check.kwargs.get("row_condition")
    own = {} if condition is None else {"row_condition": PassThroughCondition(pass_through_filter=condition)}
    return {**check.kwargs, **own}


def _outcome(check: Expected, item: Any, *, saw_value: bool) -> CheckOutcome:
    """The library's verdict, but unknown where there was no value to judge."""
    exception = _exception(item.exception_info)
    result: Mapping[str, Any] = item.result or {}
    observed = safe(result.get("observed_value"))
    if observed is None:
        observed = safe({field: result[field] for field in _COUNTS if field in result}) or None
    examples: Sequence[Any] = result.get("partial_unexpected_list") or ()
    success = bool(item.success) and exception is None
    if exception is None and not check.built_in and (not saw_value or _saw_nothing(check, result)):
        return CheckOutcome(expected=check, success=None, observed=observed)
    return CheckOutcome(
        expected=check,
        success=success,
        observed=observed,
        exception=exception,
        examples=tuple(safe(value) for value in examples[:EXAMPLES_MAX]),
    )


def _saw_nothing(check: Expected, result: Mapping[str, Any]) -> bool:
    """Whether the result says that the check saw no value. The library calls some of those a success."""
    if "element_count" in result:
        return result["element_count"] in {0, result.get("missing_count")}
    if check.expectation in _SILENT or "observed_value" not in result:
        return False
    observed = result["observed_value"]
    if isinstance(observed, Mapping):  # of quantiles
        observed = [value for value in observed.get("values", [observed]) if value is not None]
    return observed is None or (isinstance(observed, list) and not observed)


def _exception(info: Any) -> str | None:
    """The message in an ``exception_info``, which is one entry or a dict of them by metric."""
    if not info:
        return None
    entries = [info] if "raised_exception" in info else list(info.values())
    raised = [item for item in entries if isinstance(item, Mapping) and item.get("raised_exception")]
    return clip(printable(cause_line(str(raised[0].get("exception_message"))))) if raised else None


def _text(error: Exception) -> str:
    return clip(printable(f"{type(error).__name__}: {error}".replace("\n", " ")))
