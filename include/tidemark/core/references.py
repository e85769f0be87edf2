"""References to environment variables in a text: ``${NAME}`` or ``${NAME:-default}``. ``$$`` is a dollar sign."""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:\$|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}|\{)")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with the variables' values. As in a shell, the default also stands for an empty variable.

    Raises ValueError with a variable that is not set, or for what is no reference. It never shows a value.
    """
    return _REFERENCE.sub(lambda found: _value(found, variables), text)


def referenced(text: str) -> list[str]:
    """The names of the variables in the text."""
    return [found["name"] for found in _REFERENCE.finditer(text) if found["name"]]


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    if found[0] == "$$":
        return "$"
    name, default = found["name"], found["default"]
    if name is None:
        raise ValueError("no reference: expected ${NAME} or ${NAME:-default}; a dollar sign before { is written $$")
    value = variables.get(name)
    if default is not None:
        return value or default
    if value is None:
        raise ValueError(f"no value for ${{{name}}}: the variable {name} is not set")
    return value
