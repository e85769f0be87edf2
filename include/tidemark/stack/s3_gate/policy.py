"""Policies in the language of IAM, as far as the stack's need it. What it does not know it refuses, never skips."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidemark.core.errors import ConfigError

_KNOWN = {"Sid", "Effect", "Action", "Resource", "Condition", "Principal"}


def allows(
    policies: Iterable[Mapping[str, Any]], action: str, resource: str, context: Mapping[str, str] | None = None
) -> bool:
    """Whether one statement allows the action on the resource and none denies it.

    ``context`` has the request's condition keys. Raises ConfigError for a policy with a part that is not known.
    """
    allowed = False
    for policy in policies:
        for statement in _list(policy["Statement"]):
            if _applies(statement, action, resource, context or {}):
                if statement["Effect"] != "Allow":
                    return False
                allowed = True
    return allowed


def _applies(statement: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    if unknown := set(statement) - _KNOWN:
        raise ConfigError("a policy's statement has an unknown part", found=", ".join(sorted(unknown)))
    if statement["Effect"] not in {"Allow", "Deny"} or statement.get("Principal", "*") != "*":
        raise ConfigError("a policy's effect or principal is unknown", found=statement)
    return (
        any(_like(pattern.lower(), action.lower()) for pattern in _list(statement["Action"]))
        and any(_like(pattern, resource) for pattern in _list(statement["Resource"]))
        and all(
            _holds(operator, _list(values), context.get(key))
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _holds(operator: str, values: list[str], found: str | None) -> bool:
    name = operator.removesuffix("IfExists")
    if found is None and name != operator:
        return True
    match name:
        case "StringEquals":
            return found in values
        case "StringNotEquals":  # true if there is none
            return found not in values
        case "StringLike":
            return found is not None and any(_like(pattern, found) for pattern in values)
        case "StringNotLike":
            return found is None or not any(_like(pattern, found) for pattern in values)
        case "Bool":
            return found is not None and found.lower() in [value.lower() for value in values]
        case "Null":
            return str(found is None).lower() in [value.lower() for value in values]
        case _:
            raise ConfigError("a policy's condition has an unknown operator", found=operator)


def _like(pattern: str, text: str) -> bool:
    """Whether the text has the pattern's form: ``*`` is any characters, ``?`` one."""
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
