"""Readable messages for pydantic's errors."""

from typing import Any

from pydantic import BaseModel, ValidationError

Location = tuple[int | str, ...]


def explanations(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line per problem: the key, what was found there, and what is allowed."""
    return [_explain(item, model) for item in error.errors()]


def _explain(item: Any, model: type[BaseModel]) -> str:
    key = ".".join(str(part) for part in item["loc"]) or "(top level)"
    if item["type"] == "extra_forbidden":
        allowed = sorted(_at(item["loc"][:-1], model).get("properties", {}))
        return f"{key}: unknown key, found {item['input']!r}, allowed keys: {', '.join(allowed)}"
    if item["type"] == "missing":
        return f"{key}: missing, expected a value"
    if item["type"] in ("union_tag_invalid", "union_tag_not_found"):
        tag = item["ctx"]["discriminator"].strip("'")
        allowed = sorted(_at(item["loc"], model)["discriminator"]["mapping"])
        found = repr(item["input"][tag]) if isinstance(item["input"], dict) and tag in item["input"] else "nothing"
        return f"{key}.{tag}: found {found}, allowed: {', '.join(allowed)}"
    if item["type"] == "value_error" and not item["loc"]:  # of the whole definition, with what was found
        return str(item["ctx"]["error"])
    return f"{key}: {item['msg']}, found {item['input']!r}"


def _at(location: Location, model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a place. ``location`` names members of a union by their tag."""
    schema = model.model_json_schema()
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
