"""The checks that Great Expectations has not: against earlier days of the stream, and against another stream.

They have names and arguments as its expectations have. ``docs/how-to/compare-with-earlier-days.md`` explains them.
"""

from collections.abc import Mapping
from typing import Any

from tidemark.definitions.check_arguments import Argument

ROW_COUNT = "expect_row_count_to_match_history"
HOURLY_ROW_COUNTS = "expect_hourly_row_counts_to_match_history"
FRESHNESS = "expect_freshness_to_match_history"
NULL_SHARE = "expect_column_null_share_to_match_history"
DISTINCT_VALUES = "expect_column_distinct_values_to_match_history"
MEAN = "expect_column_mean_to_match_history"
ROW_COUNT_OF_STREAM = "expect_row_count_to_match_stream"
VALUES_IN_STREAM = "expect_column_values_to_exist_in_stream"

_COLUMN = Argument(kinds=("text",), required=True, column=True)
_STREAM = Argument(kinds=("text",), required=True)
_WEEKDAYS = {"weekdays": Argument(kinds=("integer",), minimum=1, maximum=52, default=8)}


def _number(default: float, maximum: float | None = None) -> Argument:
    return Argument(kinds=("number",), minimum=0, maximum=maximum, default=default)


HISTORY_CHECKS: Mapping[str, Mapping[str, Argument]] = {
    ROW_COUNT: {**_WEEKDAYS, "deviation": _number(0.5)},
    HOURLY_ROW_COUNTS: {**_WEEKDAYS, "deviation": _number(0.5)},
    FRESHNESS: {**_WEEKDAYS, "hours": _number(1)},
    NULL_SHARE: {**_WEEKDAYS, "column": _COLUMN, "deviation": _number(0.1, 1)},
    DISTINCT_VALUES: {**_WEEKDAYS, "column": _COLUMN, "deviation": _number(0.5)},
    MEAN: {**_WEEKDAYS, "column": _COLUMN, "standard_deviations": _number(0.5)},
}
STREAM_CHECKS: Mapping[str, Mapping[str, Argument]] = {
    ROW_COUNT_OF_STREAM: {"stream": _STREAM, "deviation": _number(0)},
    VALUES_IN_STREAM: {
        "column": _COLUMN,
        "stream": _STREAM,
        "stream_column": Argument(kinds=("text",), required=True),
        "mostly": _number(1, 1),
    },
}
OWN_CHECKS = {**HISTORY_CHECKS, **STREAM_CHECKS}


def with_defaults(expectation: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of one of Tidemark's own checks, those not given by their default."""
    defaults = {name: item.default for name, item in OWN_CHECKS[expectation].items() if item.default is not None}
    return {**defaults, **kwargs}
