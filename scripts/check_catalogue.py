"""Write ``check_catalogue.json``: what the installed Great Expectations checks on Spark, and with which arguments."""

import json
import os
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from tidemark.definitions.check_arguments import Kind
from tidemark.definitions.check_catalogue import FILE

os.environ["GX_ANALYTICS_ENABLED"] = "False"  # read at the import below

import great_expectations
from great_expectations.compatibility.pydantic import BaseModel
from great_expectations.expectations import registry
from great_expectations.expectations.metadata_types import SupportedDataSources

# Every expectation has these from the library itself, or they are the audit's to give.
_OF_THE_LIBRARY = {
    "batch_id",
    "catch_exceptions",
    "condition_parser",
    "description",
    "id",
    "library_metadata",
    "meta",
    "notes",
    "rendered_content",
    "result_format",
    "severity",
    "windows",
}
# The library does not say for what it works; on Spark this does not.
_NOT_ON_SPARK = {"expect_column_values_to_be_dateutil_parseable"}
_COLUMNS = {"column", "column_A", "column_B", "column_list", "column_set"}
_KINDS: dict[Any, Kind] = {
    str: "text",
    bool: "boolean",
    int: "integer",
    float: "number",
    datetime: "date",
    date: "date",
    list: "list",
    set: "list",
    Sequence: "list",
    NoneType: "null",
}


def catalogue() -> dict[str, Any]:
    """The catalogue as the file has it."""
    names = registry.list_registered_expectation_implementations()
    expectations = {name: registry.get_expectation_impl(name) for name in sorted(names)}
    return {
        "great_expectations": great_expectations.__version__,
        "expectations": {
            name: {argument: _argument(argument, field) for argument, field in sorted(_fields(expectation).items())}
            for name, expectation in expectations.items()
            if expectation.__module__.startswith("great_expectations.") and _on_spark(name, expectation)
        },
    }


def text() -> str:
    """The file's text, a line for each expectation."""
    found = catalogue()
    version, expectations = found["great_expectations"], found["expectations"]
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(arguments)}" for name, arguments in expectations.items())
    return f'{{\n "great_expectations": {json.dumps(version)},\n "expectations": {{\n{lines}\n }}\n}}\n'


def _fields(expectation: Any) -> dict[str, Any]:
    return {name: field for name, field in expectation.__fields__.items() if name not in _OF_THE_LIBRARY}


def _on_spark(name: str, expectation: Any) -> bool:
    sources = expectation.schema()["properties"]["metadata"]["properties"].get("supported_data_sources")
    return SupportedDataSources.SPARK.value in sources["const"] if sources else name not in _NOT_ON_SPARK


def _argument(name: str, field: Any) -> dict[str, Any]:
    """An argument's properties but for those that are the default."""
    members = list(_members(field.outer_type_)) + [NoneType] * field.allow_none
    found: dict[str, Any] = {"kinds": sorted({kind for member in members if (kind := _kind(name, member, members))})}
    if field.required:
        found["required"] = True
    if name in _COLUMNS:
        found["column"] = True
    if choices := [choice for member in members if get_origin(member) is Literal for choice in get_args(member)]:
        found["choices"] = choices
    for bound, attribute in (("minimum", "ge"), ("maximum", "le")):
        values = {value for member in members if (value := getattr(member, attribute, None)) is not None}
        if values:
            (found[bound],) = values
    return found


def _kind(name: str, member: Any, members: Sequence[Any]) -> Kind | None:
    """The kind of value that a type stands for; None for one that no definition can give."""
    generic = get_origin(member)
    if generic is Literal:
        return "text"
    if member is dict or generic is dict:  # beside others it stands for a parameter of a suite
        return "mapping" if set(members) <= {member, NoneType} else None
    if isinstance(member, type) and issubclass(member, BaseModel):
        return "mapping" if name != "row_condition" else None
    plain = next((item for item in (member, generic, *getattr(member, "__mro__", ())) if item in _KINDS), None)
    if plain is None:
        raise TypeError(f"{name}: no kind for the type {member!r}")
    return _KINDS[plain]


def _members(kind: Any) -> Iterator[Any]:
    """The members of a union, at any depth; a type that is no union is its own."""
    if get_origin(kind) is Annotated:
        yield from _members(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from _members(member)
    else:
        yield kind


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
