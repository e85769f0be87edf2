"""What pydantic found wrong, in words for whoever wrote the file."""

from typing import Any

from pydantic import BaseModel, ValidationError

Location = tuple[int | str, ...]


def explanations(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line per problem: the key, what was found there, and what is allowed; for any model of settings."""
    return [_explain(item, model) for item in error.errors()]


def _explain(item: Any, model: type[BaseModel]) -> str:
    key = ".".join(str(part) for part in item["loc"]) or "(top level)"
    if item["type"] == "extra_forbidden":
        return (
            f"{key}: unknown key, found {item['input']!r}, allowed keys: {', '.join(_allowed_keys(item['loc'], model))}"
        )
    if item["type"] == "missing":
        return f"{key}: missing, expected a value"
    if item["type"] in ("union_tag_invalid", "union_tag_not_found"):
        tag = item["ctx"]["discriminator"].strip("'")
        allowed = _tags(item["loc"], model)
        found = repr(item["input"][tag]) if isinstance(item["input"], dict) and tag in item["input"] else "nothing"
        return f"{key}.{tag}: found {found}, allowed: {', '.join(allowed)}"
    if item["type"] == "value_error" and not item["loc"]:  # of the whole definition, and says itself what it found
        return str(item["ctx"]["error"])
    return f"{key}: {item['msg']}, found {item['input']!r}"


def _allowed_keys(location: Location, model: type[BaseModel]) -> list[str]:
    """The keys a model allows at the place of an unknown one."""
    schema, node = _at(location[:-1], model)
    return sorted(_resolve(schema, node).get("properties", {}))


def _tags(location: Location, model: type[BaseModel]) -> list[str]:
    """The tags of the union at a place."""
    schema, node = _at(location, model)
    return sorted(_resolve(schema, node)["discriminator"]["mapping"])


def _at(location: Location, model: type[BaseModel]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON schema, and its part at a place; union members are named by their tag in ``location``."""
    schema = model.model_json_schema()
    node: dict[str, Any] = schema
    for part in location:
        node = _resolve(schema, node)
        if part in node.get("properties", {}):
            node = node["properties"][part]
        elif "items" in node:
            node = node["items"]
        elif "discriminator" in node:
            node = {"$ref": node["discriminator"]["mapping"][part]}
    return schema, node


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
    return node
