"""The cases of ``tests/conformance.toml``, and the tests that ``@pytest.mark.conformance`` assigns to them."""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

CASES = Path(__file__).parent.parent / "tests" / "conformance.toml"


def cases() -> list[tuple[int, str]]:
    """Number and text of every case, in order."""
    text = tomllib.loads(CASES.read_text(encoding="utf-8"))
    return [(int(number), case) for number, case in text.items()]


def marked_tests(folder: Path) -> dict[int, dict[str, list[str]]]:
    """The marked tests by case and file; no tests under a file whose module has the marker, because it means all."""
    found: dict[int, dict[str, list[str]]] = defaultdict(dict)
    for path in sorted(folder.rglob("test_*.py")):
        name = path.relative_to(folder.parent).as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                for number in _numbers(node.value):
                    found[number][name] = []
            elif isinstance(node, ast.FunctionDef):
                for number in (number for item in node.decorator_list for number in _numbers(item)):
                    found[number].setdefault(name, []).append(node.name)
    return found


def _numbers(node: ast.expr) -> Iterator[int]:
    """The arguments of every ``pytest.mark.conformance(…)`` in an expression."""
    for item in ast.walk(node):
        if isinstance(item, ast.Call) and ast.unparse(item.func) == "pytest.mark.conformance":
            yield from (ast.literal_eval(argument) for argument in item.args)
