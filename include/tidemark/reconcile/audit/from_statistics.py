"""Checks that the statistics of a day's files answer, with the outcome that Great Expectations would have.

None is no answer: the check needs a scan. That is so wherever an example would have to be named, and for values whose
bounds in the files may not be exact.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.audit.expectations import EXAMPLES_MAX
from tidemark.tables.column_statistics import DayStatistics

# Beyond it Spark, which compares a whole number with a float as two floats, may decide otherwise than Python.
_EXACT = 2**53
_BOUNDS = ("min_value", "max_value", "strict_min", "strict_max")


def answer(check: Expected, day: DayStatistics) -> CheckOutcome | None:
    """The outcome of a check on a day, or None. A day without rows is left to the library."""
    known = _ANSWERS.get(check.expectation)
    if known is None or not day.rows:
        return None
    arguments, of = known
    if not check.kwargs.keys() <= set(arguments) or not all(map(_plain, check.kwargs.items())):
        return None
    return of(check, day)


def _plain(argument: tuple[str, Any]) -> bool:
    """Whether an argument has the type that needs no conversion."""
    name, value = argument
    if name == "column":
        return isinstance(value, str)
    if name in {"strict_min", "strict_max"}:
        return isinstance(value, bool)
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _rows(check: Expected, day: DayStatistics) -> CheckOutcome | None:
    if check.expectation == "expect_table_row_count_to_equal":
        return CheckOutcome(expected=check, success=day.rows == check.kwargs.get("value"), observed=day.rows)
    return _observed(check, day.rows)


def _not_null(check: Expected, day: DayStatistics) -> CheckOutcome | None:
    nulls = day.nulls.get(check.kwargs["column"])
    if nulls is None:
        return None
    return CheckOutcome(
        expected=check,
        success=(day.rows - nulls) / day.rows >= check.kwargs.get("mostly", 1),
        observed=_counted(day.rows, nulls),
        examples=(None,) * min(nulls, EXAMPLES_MAX),
    )


def _null(check: Expected, day: DayStatistics) -> CheckOutcome | None:
    if day.nulls.get(check.kwargs["column"]) != day.rows:
        return None
    return CheckOutcome(expected=check, success=True, observed=_counted(day.rows, 0))


def _least(check: Expected, day: DayStatistics) -> CheckOutcome | None:
    bounds = day.bounds.get(check.kwargs["column"])
    return _observed(check, bounds[0]) if bounds else None


def _greatest(check: Expected, day: DayStatistics) -> CheckOutcome | None:
    bounds = day.bounds.get(check.kwargs["column"])
    return _observed(check, bounds[1]) if bounds else None


def _between(check: Expected, day: DayStatistics) -> CheckOutcome | None:
    """Only where every value passes: else the values that do not have to be counted."""
    column = check.kwargs["column"]
    nulls, bounds = day.nulls.get(column), day.bounds.get(column)
    if nulls is None or bounds is None or not all(_within(bound, check.kwargs) for bound in bounds):
        return None
    counts = _counted(day.rows, 0)
    return CheckOutcome(expected=check, success=True, observed={**counts, "missing_count": nulls})


def _observed(check: Expected, value: float) -> CheckOutcome | None:
    within = _within(value, check.kwargs)
    return None if within is None else CheckOutcome(expected=check, success=within, observed=value)


def _within(value: float, kwargs: Mapping[str, Any]) -> bool | None:
    """Whether a value lies between the bounds; None if there are none, which the library refuses."""
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    if low is None and high is None:
        return None
    if any(abs(item) > _EXACT for item in (value, low, high) if item is not None):
        return None
    above = low is None or (value > low if kwargs.get("strict_min") else value >= low)
    below = high is None or (value < high if kwargs.get("strict_max") else value <= high)
    return bool(above and below)


def _counted(rows: int, unexpected: int) -> dict[str, Any]:
    return {
        "element_count": rows,
        "unexpected_count": unexpected,
        "unexpected_percent": unexpected / rows * 100,
    }


_ANSWERS: Mapping[str, tuple[tuple[str, ...], Callable[[Expected, DayStatistics], CheckOutcome | None]]] = {
    "expect_table_row_count_to_equal": (("value",), _rows),
    "expect_table_row_count_to_be_between": (_BOUNDS, _rows),
    "expect_column_values_to_not_be_null": (("column", "mostly"), _not_null),
    "expect_column_values_to_be_null": (("column", "mostly"), _null),
    "expect_column_min_to_be_between": (("column", *_BOUNDS), _least),
    "expect_column_max_to_be_between": (("column", *_BOUNDS), _greatest),
    "expect_column_values_to_be_between": (("column", "mostly", *_BOUNDS), _between),
}
