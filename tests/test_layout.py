"""Rules of the package's structure beyond the import contracts in pyproject.toml (no server)."""

import ast
from collections import defaultdict
from pathlib import Path

import tidemark
import tidemark_airflow

PACKAGES = [Path(package.__path__[0]) for package in (tidemark, tidemark_airflow)]
MODULES = {
    str(path.relative_to(package.parent)): path.read_text(encoding="utf-8")
    for package in PACKAGES
    for path in package.rglob("*.py")
}


def test_a_class_name_is_used_once_in_the_packages() -> None:
    places = defaultdict(list)
    for module, text in MODULES.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert len(places) > 100
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_commands_print_text_only_through_the_function_that_escapes_it() -> None:
    commands = {module for module, text in MODULES.items() if module.startswith("tidemark/cli/") and "Text(" in text}
    assert commands == {"tidemark/cli/output.py"}


def test_no_module_is_longer_than_400_lines() -> None:
    assert {module: size for module, text in MODULES.items() if (size := text.count("\n")) > 400} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    sizes = {
        f"{module} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module, text in MODULES.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    }
    assert len(sizes) > 1000
    assert {name: size for name, size in sizes.items() if size > 60} == {}
