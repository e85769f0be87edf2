"""Checks what a command printed with ``--json`` against the schema in the documentation."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[1] / "docs" / "reference" / "json"


def valid_result(command: str, printed: str) -> dict[str, Any]:
    """The result in what the command printed."""
    value = _valid(command, printed)
    assert value["error"] is None
    result: dict[str, Any] = value["result"]
    return result


def valid_error(command: str, printed: str) -> dict[str, Any]:
    """The error in what the command printed."""
    value = _valid(command, printed)
    assert value["result"] is None
    error: dict[str, Any] = value["error"]
    return error


def _valid(command: str, printed: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(printed)
    _validator(command).validate(value)
    return value


@cache
def _validator(command: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{command}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)
