"""One guard of the product, and the edit that switches it off."""

import re
from dataclasses import dataclass

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_TEST = re.compile(r"tests/[a-z0-9_/]+\.py::test_\w+(\[.+\])?")


class StaleGuardError(Exception):
    """A guard's edit no longer fits the file it is for: the list needs an update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A check or condition that keeps a promise of the product.

    ``promise`` is what it protects, in one sentence. In the file ``path`` (below the project's root) ``old`` stands
    exactly once; with ``new`` in its place the guard is off, and the code still runs. ``tests`` are pytest node ids, at
    least one of which must fail then. Raises ValueError for a value that can't be meant.
    """

    name: str
    promise: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"guard {self.name!r}: expected a name of lower-case words with '-' between them")
        if self.old == self.new:
            raise ValueError(f"guard {self.name}: expected an edit, found the same text twice")
        if not self.tests:
            raise ValueError(f"guard {self.name}: expected at least one test")
        for test in self.tests:
            if not _TEST.fullmatch(test):
                raise ValueError(f"guard {self.name}: expected 'tests/<file>.py::test_<name>', found {test!r}")

    def switched_off(self, text: str) -> str:
        """The file's text without the guard; StaleGuardError where ``old`` is not in it exactly once."""
        times = text.count(self.old)
        if times != 1:
            raise StaleGuardError(
                f"guard {self.name}: expected its text once in {self.path}, found it {times} times:\n{self.old}\n"
                "Adapt the guard to the code; if the guard moved to another file, name that one"
            )
        return text.replace(self.old, self.new)
