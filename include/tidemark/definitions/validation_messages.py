"""Readable messages for pydantic's errors."""

from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from tidemark.core.text import SHOWN_MAX, excerpt, quoted

Location = tuple[int | str, ...]


@cache
def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model. It is not to be changed."""
    return model.model_json_schema()


def explanations(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line per problem: the key, what was found there, and what is allowed."""
    return [_explain(item, model) for item in error.errors()]


def _explain(item: Any, model: type[BaseModel]) -> str:
    key = excerpt(".".join(str(part) for part in item["loc"])) or "(top level)"
    if item["type"] == "missing":
        return f"{key}: missing, expected a value"
    if item["type"] in ("union_tag_invalid", "union_tag_not_found"):
        tag = item["ctx"]["discriminator"].strip("'")
        allowed = sorted(_at(item["loc"], model)["discriminator"]["mapping"])
        found = quoted(item["input"][tag]) if isinstance(item["input"], dict) and tag in item["input"] else "nothing"
        return f"{key}.{tag}: found {found}, allowed: {', '.join(allowed)}"
    if item["type"] == "value_error" and not item["loc"]:  # of the whole definition, with what was found
        return excerpt(str(item["ctx"]["error"]), 2 * SHOWN_MAX)
    text = str(item["ctx"]["error"]) if item["type"] == "value_error" else item["msg"]
    return f"{key}: {excerpt(text, 2 * SHOWN_MAX)}, found {quoted(item['input'])}"


def _at(location: Location, model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a place. ``location`` names members of a union by their tag."""
    schema = json_schema(model)
    node: dict[str, Any] = schema
    for part in location:
        if part in node.get("properties", {}):
            node = node["properties"][part]
        elif "items" in node:
            node = node["items"]
        elif "discriminator" in node:
            node = {"$ref": node["discriminator"]["mapping"][part]}
        while "$ref" in node:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
    return node
