"""Rules of the package's structure beyond the import contracts in pyproject.toml (no server)."""

import ast
from collections import defaultdict
from pathlib import Path

import tidemark

PACKAGE = Path(tidemark.__file__).parent
MODULES = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def test_a_class_name_is_used_once_in_the_package() -> None:
    places = defaultdict(list)
    for module, text in MODULES.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert len(places) > 100
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_commands_print_text_only_through_the_function_that_escapes_it() -> None:
    commands = {module for module, text in MODULES.items() if module.startswith("cli/") and "Text(" in text}
    assert commands == {"cli/output.py"}


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
