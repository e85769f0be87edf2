"""The documentation against the code: links, commands, keys, tests, errors, headers."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemark.cli.app import app
from tidemark.core import errors
from tidemark.definitions.stream import Stream
from tidemark.orchestration.run_days import BACKFILL_RUNS_MAX
from tidemark.orchestration.steps import SPAN_DAYS_MAX, STEPS
from tidemark.settings import Settings
from tidemark.speed.headers import DEAD_LETTER_HEADERS, HEADERS
from tidemark.stack.local import PROJECT

PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("*.md")])
IDS = [str(page.relative_to(PROJECT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_in_the_index() -> None:
    index = (PROJECT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (PROJECT / "docs").glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"]({name})" in index} == pages


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_make_target_and_command_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
    assert targets <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    commands = set(re.findall(r"(?:`|^)tidemark ([a-z]+)", text, re.MULTILINE))
    assert commands <= {item.name or getattr(item.callback, "__name__", "") for item in app.registered_commands}


def test_operations_names_every_command_and_every_kind_of_error() -> None:
    text = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
    commands = {getattr(item.callback, "__name__", "") for item in app.registered_commands}
    assert set(re.findall(r"^\| `tidemark ([a-z]+)", text, re.MULTILINE)) == commands
    kinds = {
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.TidemarkError) and kind is not errors.TidemarkError
    }
    assert set(re.findall(r"^\| `(\w+Error)`", text, re.MULTILINE)) == kinds


def test_batch_names_every_step_in_order() -> None:
    text = (PROJECT / "docs" / "batch.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \| (?:Python|Spark)", text, re.MULTILINE) == [step.name for step in STEPS]


def test_the_limits_of_both_forms_are_named() -> None:
    for page, limit in (("batch.md", SPAN_DAYS_MAX), ("operations.md", BACKFILL_RUNS_MAX)):
        text = (PROJECT / "docs" / page).read_text(encoding="utf-8")
        assert re.search(rf"`from_day`[^|]+ {limit:,}( runs)? at most", text), page


def test_operations_names_every_setting_with_its_default() -> None:
    text = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(TIDEMARK_[A-Z0-9_]+)` \| (.*?) ?\| ", text, re.MULTILINE)
    settings = {
        f"TIDEMARK_{name.upper()}": "–" if field.is_required() or field.default is None else f"`{field.default}`"
        for name, field in Settings.model_fields.items()
    }
    assert dict(rows) == {**settings, "TIDEMARK_PREFIX": ""}
    assert len(rows) == len(settings)


def test_speed_names_every_header() -> None:
    text = (PROJECT / "docs" / "speed.md").read_text(encoding="utf-8")
    told = {name.removeprefix("tidemark.") for name in re.findall(r"tidemark\.[a-z-]+", text)}
    assert told == {*HEADERS, *DEAD_LETTER_HEADERS}


def test_the_table_of_keys_is_what_the_models_say() -> None:
    text = (PROJECT / "docs" / "streams.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_.]+)` \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    documented = {key: default.strip("`") for key, default, _ in rows}
    assert documented == dict(_keys(Stream.model_json_schema()))
    assert len(rows) == len(documented)
    assert all(field in Stream.model_fields for field in {key.split(".")[0] for key in documented})


def _keys(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every dotted key with its default as the page writes it: ``–`` for one that must be given."""
    yield from _node_keys(schema, schema, "")


def _node_keys(schema: dict[str, Any], node: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in node["properties"].items():
        key = f"{prefix}{name}"
        variants = [schema["$defs"][ref] for ref in _references(field)]
        if variants:
            for variant in variants:
                yield from _node_keys(schema, variant, f"{key}.")
        else:
            yield key, _default(name, field, node)


def _references(field: dict[str, Any]) -> list[str]:
    """The models a field may hold, the default one of a union last, so that its own defaults stand."""
    found = [item["$ref"] for item in [field, field.get("items", {}), *field.get("oneOf", [])] if "$ref" in item]
    default = field.get("default", {})
    first = (
        field.get("discriminator", {})
        .get("mapping", {})
        .get(
            next((value for value in default.values() if isinstance(value, str)), "")
            if isinstance(default, dict)
            else ""
        )
    )
    return [ref.rsplit("/", 1)[1] for ref in sorted(found, key=lambda ref: ref == first)]


def _default(name: str, field: dict[str, Any], node: dict[str, Any]) -> str:
    if name in node.get("required", ()) or "default" not in field:
        return "–"
    value = field["default"]
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def test_every_test_named_exists() -> None:
    text = (PROJECT / "docs" / "conformance.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 30
    assert [f"{path}::{name}" for path, name in named if name not in _tests(PROJECT / path)] == []


def _tests(path: Path) -> set[str]:
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_picture_is_well_formed_and_says_what_it_shows() -> None:
    picture = (PROJECT / "docs" / "flow.svg").read_text(encoding="utf-8")
    assert picture.count("<") == picture.count(">")
    for words in ("<title", "<desc", *(f">{step.name}<" for step in STEPS if step.name not in {"wait", "settle"})):
        assert words in picture
