"""What commands print with ``--json``: one object on standard output, also if an error kept them from a result."""

import json
import sys
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter

from tidemark.core.errors import TidemarkError

# Increased when a field is removed or changes its meaning. Fields may be added without it.
VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonError:
    """Why there is no result.

    - kind: kind of the error, such as ServiceError.
    - message: what happened.
    - expected: what was expected. Null if the error does not say it. The same holds for found, where and hint.
    - found: what was found.
    - where: the file, object, service or key that it is about.
    - hint: what to do.
    """

    kind: str
    message: str
    expected: str | None
    found: str | None
    where: str | None
    hint: str | None


def print_result(command: str, result: object) -> None:
    """Print the result of a command: a dataclass."""
    _print(command, json_value(result), None)


def print_error(command: str, error: Exception) -> None:
    """Print the error in place of a result. One that nobody explains has a kind and a message only."""
    kind, parts = type(error).__name__, dict.fromkeys(("expected", "found", "where", "hint"))
    if isinstance(error, TidemarkError):
        parts = {name: None if (value := getattr(error, name)) is None else str(value) for name in parts}
    message = error.problem if isinstance(error, TidemarkError) else str(error)
    _print(command, None, json_value(JsonError(kind=kind, message=message, **parts)))


def json_value(result: object) -> Any:
    """A dataclass as a JSON value, by the types of its fields."""
    return TypeAdapter(type(result)).dump_python(result, mode="json")


def _print(command: str, result: Any, error: Any) -> None:
    text = json.dumps({"version": VERSION, "command": command, "result": result, "error": error}, indent=2)
    sys.stdout.write(f"{text}\n")  # at once: half an object helps nobody
