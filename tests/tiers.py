"""The two tiers: what ``tests/tiers.toml`` lists gets the marker ``full``, with the reason; the rest is the default."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TIERS = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """The file's content. ``full`` has the reason of each file, test or case of a test in that tier; ``smokes`` are the
    default tests that may be long; ``cases`` has the conformance cases without a default test, with the reason."""

    full: dict[str, str]
    smokes: dict[str, str]
    cases: dict[int, str]

    def why_full(self, nodeid: str) -> str | None:
        """Why only the full tier has the test; None for a default test."""
        return next((self.full[name] for name in names_of(nodeid) if name in self.full), None)


@cache
def read_tiers() -> Tiers:
    """What the file says. Raises ValueError for an entry that is there twice."""
    found = tomllib.loads(TIERS.read_text(encoding="utf-8"))
    entries = [(test, group["why"]) for group in found["full"] for test in group["tests"]]
    full = dict(entries)
    if len(full) < len(entries):
        names = [name for name, _ in entries]
        raise ValueError(f"{TIERS.name}: twice in the full tier: {sorted({n for n in names if names.count(n) > 1})}")
    return Tiers(full=full, smokes=found["smokes"], cases={int(number): why for number, why in found["cases"].items()})


def names_of(nodeid: str) -> tuple[str, str, str]:
    """How an entry can name a test: by its file, with its function, and with its case."""
    return nodeid.split("::", 1)[0], nodeid.split("[", 1)[0], nodeid


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the full tier."""
    tiers = read_tiers()
    for item in items:
        why = tiers.why_full(item.nodeid)
        if why is not None:
            item.add_marker(pytest.mark.full(why))
