"""The quality checks of a day, each with its results on the days before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from tidemark.core.text import excerpt
from tidemark.reconcile.audit.checks import (
    COLUMN_ARGUMENTS,
    CheckOutcome,
    Expected,
    columns_text,
    observed_text,
)
from tidemark.reconcile.results import AuditResult

Result = Literal["passed", "failed", "unknown", "none"]
_ARGUMENT_CHARACTERS, _OBSERVED_CHARACTERS = 80, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCell:
    """A check's result on a day, with what it saw."""

    day: date
    result: Result
    observed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """A check, and its results by day, the newest first. ``examples`` are values that the newest one objects to.

    ``name`` has the columns, and ``arguments`` the others.
    """

    name: str
    arguments: str
    severity: str
    cells: tuple[CheckCell, ...]
    examples: tuple[str, ...]
    exception: str | None


def check_rows(audits: Mapping[date, AuditResult | None]) -> tuple[CheckRow, ...]:
    """A row for each check of the newest day, what failed first. ``audits`` is the audit of each day's run."""
    days = sorted(audits, reverse=True)
    newest = audits[days[0]] if days else None
    if newest is None:
        return ()
    rows = [_row(item, audits, days) for item in _of_day(newest.checks, days[0])]
    order = ("failed", "unknown", "passed", "none")
    return tuple(sorted(rows, key=lambda row: (order.index(row.cells[0].result), row.severity, row.name)))


def newly_failing(item: CheckOutcome, audits: Mapping[date, AuditResult | None]) -> bool:
    """Whether a check does not pass, and passed on the last day before with a result.

    A check of no single day counts as later than all of them.
    """
    if item.passes:
        return False
    before = (day for day in sorted(audits, reverse=True) if item.day is None or day < item.day)
    results = (_result(item.expected, audits[day], day) for day in before)
    last = next((found for found in results if found is not None), None)
    return last is not None and last.success is True


def _row(item: CheckOutcome, audits: Mapping[date, AuditResult | None], days: Sequence[date]) -> CheckRow:
    return CheckRow(
        name=item.expected.about or _name(item.expected),
        arguments="" if item.expected.about else _arguments(item.expected),
        severity=item.expected.severity,
        cells=tuple(_cell(item.expected, audits[day], day) for day in days),
        examples=tuple(excerpt(str(value), _ARGUMENT_CHARACTERS) for value in item.examples),
        exception=item.exception,
    )


def _of_day(checks: Sequence[CheckOutcome], day: date) -> list[CheckOutcome]:
    return [item for item in checks if item.day in {None, day}]


def _cell(expected: Expected, audit: AuditResult | None, day: date) -> CheckCell:
    found = _result(expected, audit, day)
    if found is None:
        return CheckCell(day=day, result="none", observed="")
    result: Result = "unknown" if found.success is None else "passed" if found.success else "failed"
    return CheckCell(day=day, result=result, observed=excerpt(observed_text(found.observed), _OBSERVED_CHARACTERS))


def _result(expected: Expected, audit: AuditResult | None, day: date) -> CheckOutcome | None:
    """A check's outcome on a day. A built-in check's arguments name days and numbers, so its words identify it."""

    def key(check: Expected) -> Expected:
        return replace(check, kwargs={}) if check.built_in else check

    checks = _of_day(audit.checks, day) if audit else []
    return next((item for item in checks if key(item.expected) == key(expected)), None)


def _name(expected: Expected) -> str:
    """The columns first: a profile has the same check for each column."""
    columns, words = columns_text(expected.kwargs), expected.expectation.removeprefix("expect_")
    if not columns:
        return words.replace("_", " ")
    return f"{columns}: {words.removeprefix('column_').replace('_', ' ')}"


def _arguments(expected: Expected) -> str:
    others = {name: value for name, value in expected.kwargs.items() if name not in COLUMN_ARGUMENTS}
    return ", ".join(f"{name} {excerpt(str(value), _ARGUMENT_CHARACTERS)}" for name, value in others.items())
