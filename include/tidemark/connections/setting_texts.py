"""What people read about a setting: its source, and what is wrong with it."""

from collections.abc import Mapping
from typing import Any

from tidemark.connections.sources import Given, variable


def problem_text(item: Any, given: Mapping[str, Given]) -> str:
    """A pydantic error in a line: the setting, its source if that is no variable, and what is wrong."""
    text = str(item["ctx"]["error"]) if item["type"] == "value_error" else item["msg"]
    if not item["loc"]:
        return text
    name, *keys = map(str, item["loc"])
    place = f" ({given[name].source})" if name in given and not given[name].source.startswith("variable") else ""
    return f"{'.'.join([variable(name), *keys])}{place}: {'missing' if item['type'] == 'missing' else text}"


# Settings that others fill, if nothing gives them.
_FILLED_BY = {
    "kafka_bootstrap": "kafka_properties",
    "speed_kafka_bootstrap": "speed_kafka_properties",
    "catalog_uri": "catalog_properties",
    "deployment": "bucket",
}


def source_text(name: str, given: Mapping[str, Given]) -> str:
    """Where a setting comes from, for people."""
    filled_by = _FILLED_BY.get(name, "")
    if name not in given and filled_by in given:
        return f"{filled_by}: {given[filled_by].source}"
    return given[name].source if name in given else "default"
