"""An argument of a check: the values that it takes."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

from tidemark.core.text import did_you_mean, quoted

Kind = Literal["text", "integer", "number", "boolean", "date", "list", "mapping", "null"]
_KIND_WORDS: dict[Kind, str] = {
    "text": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "date": "a date",
    "list": "a list",
    "mapping": "a mapping",
    "null": "null",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of an expectation: the kinds of values it takes, and their bounds.

    ``column``: its value is the name of a column, or a list of them. Without ``choices``, any text is allowed.
    ``default``: its value where it is not given, if it is an argument of Tidemark's own.
    """

    kinds: tuple[Kind, ...]
    required: bool = False
    column: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    default: float | None = None

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value; None if nothing is."""
        fits = bool(_kinds(value) & set(self.kinds))
        if fits and isinstance(value, str) and self.choices:
            fits = value in self.choices
        elif fits and isinstance(value, int | float) and not isinstance(value, bool):
            low, high = self.minimum, self.maximum
            fits = (low is None or value >= low) and (high is None or value <= high)
        if fits:
            return None
        near = did_you_mean(value, self.choices) if isinstance(value, str) else None
        return f"expected {self._expected()}, found {quoted(value)}{f'. {near}' if near else ''}"

    def _expected(self) -> str:
        words = [_KIND_WORDS[kind] for kind in self.kinds if kind != "null" and not (kind == "text" and self.choices)]
        bounds = [f"at least {self.minimum:g}"] if self.minimum is not None else []
        bounds += [f"at most {self.maximum:g}"] if self.maximum is not None else []
        return " or ".join([*words, *self.choices]) + (f", {' and '.join(bounds)}" if bounds else "")


def _kinds(value: Any) -> set[Kind]:
    """The kinds that a value of YAML may count as. An integer is a number, and text may be a date."""
    match value:
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number"}
        case str():
            return {"text", "date"} if _is_date(value) else {"text"}
        case date():
            return {"date"}
        case list():
            return {"list"}
        case dict():
            return {"mapping"}
    return {"null"}


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
