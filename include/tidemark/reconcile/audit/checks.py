"""A quality check and its outcome as plain values, and their JSON form. No Spark here: the report reads them too."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, Self

from tidemark.definitions.sections import Check

# Arguments every expectation takes from the library itself; a definition has no use for them.
LIBRARY_KWARGS = {"id", "meta", "notes", "rendered_content", "batch_id", "catch_exceptions", "description", "windows"}
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
        """A check of the stream's definition."""
        return cls(expectation=check.expectation, kwargs=dict(check.kwargs), severity=check.severity, built_in=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """A check's result over the rows of ``day``, or of all days of the run where that is None.

    ``success`` None is unknown. Every value is fit for JSON.
    """

    expected: Expected
    day: date | None = None
    success: bool | None
    observed: Any
    exception: str | None = None
    examples: tuple[Any, ...] = ()

    @property
    def blocks(self) -> bool:
        return self.expected.severity == "critical" and self.success is not True


def observed_text(value: Any) -> str:
    """What a check saw, in words where the form is known."""
    if isinstance(value, Mapping) and "unexpected_count" in value:
        text = f"{number_text(value['unexpected_count'])} of {number_text(value.get('element_count'))} unexpected"
        missing = value.get("missing_count")
        return f"{text}, {number_text(missing)} missing" if missing else text
    return number_text(value) if value is None or type(value) is int else str(value)


def number_text(value: int | None) -> str:
    """A number with thousands separators, a dash for None."""
    return "–" if value is None else f"{value:,}"
