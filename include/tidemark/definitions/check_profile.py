"""The checks of a stream: those of its definition, and those of its profile."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tidemark.definitions.own_checks import DISTINCT_VALUES, HOURLY_ROW_COUNTS, MEAN, NULL_SHARE, ROW_COUNT
from tidemark.definitions.sections import Batch, Check

NOT_NULL = "expect_column_values_to_not_be_null"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledColumn:
    """A column of the transformation, and what its type holds. ``required``: it has a field's name that is NOT NULL."""

    name: str
    kind: Literal["number", "text", "other"]
    required: bool = False


def stream_checks(batch: Batch, columns: Sequence[ProfiledColumn]) -> tuple[Check, ...]:
    """The checks to make, first those of the definition.

    One of the definition replaces one of the profile with the same expectation and column. Severity ``none`` switches
    it off.
    """
    given = {(item.expectation, item.kwargs.get("column")) for item in batch.checks}
    profile = _default(batch, columns) if batch.profile == "default" else ()
    added = [item for item in profile if (item.expectation, item.kwargs.get("column")) not in given]
    return tuple(item for item in (*batch.checks, *added) if item.severity != "none")


def _default(batch: Batch, columns: Sequence[ProfiledColumn]) -> Iterator[Check]:
    yield Check(expectation=ROW_COUNT, severity="warning")
    yield Check(expectation=HOURLY_ROW_COUNTS, severity="warning")
    required = (column.name for column in columns if column.required)
    for name in dict.fromkeys([*batch.deduplicate.key, *required]):
        yield Check(expectation=NOT_NULL, kwargs={"column": name}, severity="warning")
    for column in columns:
        yield Check(expectation=NULL_SHARE, kwargs={"column": column.name}, severity="warning")
        if column.kind == "text":
            yield Check(expectation=DISTINCT_VALUES, kwargs={"column": column.name}, severity="warning")
        if column.kind == "number":
            yield Check(expectation=MEAN, kwargs={"column": column.name}, severity="warning")
