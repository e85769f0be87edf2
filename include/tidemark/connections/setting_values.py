"""Settings as their variables have them: texts, JSON objects, and empty for none."""

import json
from typing import Any

from pydantic import BaseModel, Secret, SecretStr


def json_object(value: Any) -> Any:
    """A mapping, which a variable holds as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError("not a JSON object") from error
    if not isinstance(value, dict | BaseModel):
        raise ValueError("not a JSON object")  # noqa: TRY004 - pydantic reports a ValueError
    return value


def json_list(value: Any) -> Any:
    """A list, which a variable holds as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value or "[]")
        except ValueError as error:
            raise ValueError("not a JSON list") from error
    if not isinstance(value, list | tuple):
        raise ValueError("not a JSON list")  # noqa: TRY004 - pydantic reports a ValueError
    return value


def json_texts(value: Any) -> Any:
    """The same; its numbers and truth values become texts."""
    value = json_object(value)
    return {name: json.dumps(item) if isinstance(item, bool | int | float) else item for name, item in value.items()}


def none_if_empty(value: Any) -> Any:
    """The value; None for an empty text."""
    return None if value == "" else value


def plain_text(value: Any) -> str | None:
    """A setting as its variable has it; None for none."""
    if isinstance(value, Secret | SecretStr):
        value = value.get_secret_value()
    if isinstance(value, BaseModel):
        return value.model_dump_json(exclude_defaults=True)
    if isinstance(value, tuple):
        return json.dumps([item.model_dump(by_alias=True) for item in value])
    if isinstance(value, bool | dict):
        return json.dumps(value)
    return None if value is None else str(value)
