"""The names and arguments that a check may have, without Great Expectations: Airflow's workers lack it.

``check_catalogue.json`` beside this file has those of Great Expectations, written from the installed library by
``scripts/check_catalogue.py``. A test compares the two.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tidemark.core.text import did_you_mean, excerpt, quoted
from tidemark.definitions.check_arguments import Argument
from tidemark.definitions.own_checks import OWN_CHECKS
from tidemark.definitions.sections import Check

FILE = Path(__file__).with_suffix(".json")
_SUGGESTIONS_MAX = 100  # each costs a millisecond, and no error shows so many


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The arguments of each expectation, Tidemark's own included, and the version of Great Expectations."""

    version: str
    expectations: Mapping[str, Mapping[str, Argument]]


@cache
def catalogue() -> Catalogue:
    """Every expectation that a definition may name."""
    raw = json.loads(FILE.read_text(encoding="utf-8"))
    expectations = {
        name: {argument: _argument(of) for argument, of in arguments.items()}
        for name, arguments in raw["expectations"].items()
    }
    return Catalogue(version=raw["great_expectations"], expectations={**expectations, **OWN_CHECKS})


def _argument(raw: Mapping[str, Any]) -> Argument:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}
    return Argument(**values)


def check_problems(checks: Sequence[Check]) -> list[str]:
    """One line per unknown name, wrong argument or repeated check, as of the keys of a definition."""
    lines: list[str] = []
    first: dict[str, int] = {}
    for number, check in enumerate(checks):
        key = f"batch.checks.{number}"
        lines += _problems(check, key, suggest=len(lines) < _SUGGESTIONS_MAX)
        same = first.setdefault(repr((check.expectation, sorted(check.kwargs.items()))), number)
        if same != number:
            lines.append(f"{key}: the same check as batch.checks.{same}")
    return lines


def _problems(check: Check, key: str, *, suggest: bool) -> Iterator[str]:
    known = catalogue().expectations
    if check.expectation not in known:
        near = did_you_mean(check.expectation, known) if suggest else None
        hint = near or f"Give a name of Great Expectations {catalogue().version} or of Tidemark, in snake case"
        yield f"{key}.expectation: no such expectation, found {quoted(check.expectation)}. {hint}"
        return
    arguments = known[check.expectation]
    for name, value in check.kwargs.items():
        if name not in arguments:
            near = did_you_mean(name, arguments) if suggest else None
            allowed = f"allowed arguments: {', '.join(sorted(arguments))}{f'. {near}' if near else ''}"
            yield f"{key}.kwargs.{excerpt(name)}: unknown argument, {allowed}"
        elif problem := arguments[name].problem(value):
            yield f"{key}.kwargs.{name}: {problem}"
    for name, argument in arguments.items():
        if argument.required and name not in check.kwargs:
            yield f"{key}.kwargs.{name}: missing, expected a value"


def named_columns(expectation: str, kwargs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each argument of a check that names a column, with the column."""
    for name, argument in catalogue().expectations[expectation].items():
        if argument.column and name in kwargs:
            value = kwargs[name]
            for column in value if isinstance(value, list) else [value]:
                yield name, str(column)
