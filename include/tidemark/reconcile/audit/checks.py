"""A quality check and its outcome as plain values, and their JSON form. No Spark here: the report reads them too."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal, Self

from tidemark.core.masking import MASK, masked_cause
from tidemark.definitions.check_catalogue import named_columns
from tidemark.definitions.sections import Check, FieldTime
from tidemark.definitions.stream import Stream

COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list", "column_set")
# The library divides by the number of values; there are none on an empty day, nor where a definition is tried.
NEEDS_VALUES = {"expect_column_kl_divergence_to_be_less_than"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One check to make: an expectation's snake-case name and arguments."""

    expectation: str
    kwargs: dict[str, Any]
    severity: Literal["critical", "warning"]
    built_in: bool
    about: str = ""

    @classmethod
    def of(cls, check: Check) -> Self:
        """A check of the stream's definition, which must not be switched off."""
        assert check.severity != "none"
        return cls(expectation=check.expectation, kwargs=dict(check.kwargs), severity=check.severity, built_in=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """A check's result over the rows of ``day``, or of all days of the run where that is None.

    ``success`` None is unknown. Every value is fit for JSON. ``without_history``: too few earlier days can be compared
    with. That blocks nothing, because a stream begins without any.
    """

    expected: Expected
    day: date | None = None
    success: bool | None
    observed: Any
    exception: str | None = None
    examples: tuple[Any, ...] = ()
    without_history: bool = False

    @property
    def passes(self) -> bool:
        """Whether there is nothing to act on."""
        return self.success is True or self.without_history

    @property
    def blocks(self) -> bool:
        return self.expected.severity == "critical" and not self.passes


def times_read(day: date, rows: int, unreadable: int, wanted: FieldTime) -> CheckOutcome:
    """Whether no larger share of a day's records than the stream allows has a time field that can't be read."""
    about = f"at most {100 * wanted.unreadable_alarm_share:g} % of the records have no time in {wanted.field}"
    return CheckOutcome(
        expected=Expected(expectation="tidemark_times_read", kwargs={}, severity="warning", built_in=True, about=about),
        day=day,
        success=not rows or unreadable / rows <= wanted.unreadable_alarm_share,
        observed={"element_count": rows, "unexpected_count": unreadable},
    )


def masked(item: CheckOutcome, stream: Stream) -> CheckOutcome:
    """The outcome without values of personal columns: counts stay, examples and observed values do not.

    An expression over several columns may show any of them, as may an error.
    """
    if not stream.has_personal:
        return item
    exception = None if item.exception is None else masked_cause(item.exception)
    if item.expected.built_in:
        return replace(item, exception=exception, examples=tuple(_masked_row(row, stream) for row in item.examples))
    columns = [column for _, column in named_columns(item.expected.expectation, item.expected.kwargs)]
    if "unexpected_rows_query" not in item.expected.kwargs and not any(map(stream.is_personal, columns)):
        return replace(item, exception=exception)
    counts = is_counts(item.observed)
    observed = item.observed if counts or item.observed is None else MASK
    return replace(item, exception=exception, observed=observed, examples=(MASK,) * len(item.examples))


def _masked_row(row: Any, stream: Stream) -> Any:
    """A row that a query of the platform's own has found, whose columns have the table's names."""
    if not isinstance(row, Mapping):
        return row
    return {name: MASK if stream.is_personal(name) else value for name, value in row.items()}


def explain(item: CheckOutcome) -> str:
    """What a check judged, and what it saw, in one line."""
    name = item.expected.about or item.expected.expectation
    columns = columns_text(item.expected.kwargs)
    subject = f"{name} ({columns})" if columns and not item.expected.about else name
    if item.day is not None:
        subject = f"{item.day}: {subject}"
    if item.exception is not None:
        return f"{subject}: could not be evaluated: {item.exception}"
    return f"{subject}: {'unknown' if item.success is None else 'failed'}, observed {observed_text(item.observed)}"


def columns_text(kwargs: Mapping[str, Any]) -> str:
    """The columns that a check's arguments name."""
    values = [kwargs[name] for name in COLUMN_ARGUMENTS if name in kwargs]
    return ", ".join(str(column) for value in values for column in (value if isinstance(value, list) else [value]))


def example_text(value: Any) -> str:
    """A value that a check objects to; a row of several as one text."""
    return ", ".join(f"{name} = {part}" for name, part in value.items()) if isinstance(value, dict) else str(value)


def is_counts(observed: Any) -> bool:
    """Whether a check saw counts of values, and no value."""
    return isinstance(observed, Mapping) and bool(observed.keys() & {"missing_count", "unexpected_count"})


def observed_text(value: Any) -> str:
    """What a check saw, in words where the form is known."""
    if is_counts(value):
        of = f" of {number_text(value['element_count'])}" if "element_count" in value else ""
        unexpected = [f"{number_text(value['unexpected_count'])}{of} unexpected"] if "unexpected_count" in value else []
        missing = value.get("missing_count")
        return ", ".join([*unexpected, *([f"{number_text(missing)} missing"] if missing or not unexpected else [])])
    return number_text(value) if value is None or type(value) is int else str(value)


def number_text(value: int | None) -> str:
    """A number with thousands separators, a dash for None."""
    return "–" if value is None else f"{value:,}"
