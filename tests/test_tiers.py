"""The rule of the two tiers: what the default tier must have, and what it must not (no server)."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence

import pytest

from tests.guards import GUARDS
from tests.measure import SLOW_S
from tests.progress import file_of, read_durations
from tests.tiers import Tiers, names_of, read_tiers
from tidemark.installation import PROJECT

CASES = {int(number) for number in tomllib.loads((PROJECT / "tests" / "conformance.toml").read_text(encoding="utf-8"))}


# A process of its own collects every test outside of the soak, whichever part this run is.
COLLECT = """
import json, sys
import pytest
class Collected:
    def pytest_collection_finish(self, session):
        self.cases = {
            item.nodeid: [case for mark in item.iter_markers("conformance") for case in mark.args]
            for item in session.items
        }
found = Collected()
code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not soak", "tests"], [found])
json.dump(found.cases, open(sys.argv[1], "w"))
sys.exit(code)
"""


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[int]]:
    """The conformance cases of each test, collected by a process of its own."""
    file = tmp_path_factory.mktemp("collected") / "cases.json"
    argv = [sys.executable, "-c", COLLECT, str(file)]
    done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found: dict[str, list[int]] = json.loads(file.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def tiers() -> Tiers:
    return read_tiers()


@pytest.fixture(scope="module")
def default(cases: Mapping[str, Sequence[int]], tiers: Tiers) -> set[str]:
    return {test for test in cases if tiers.why_full(test) is None}


@pytest.mark.conformance(58)
def test_the_default_run_has_every_test_that_a_guard_names(
    cases: Mapping[str, Sequence[int]], default: set[str]
) -> None:
    known = {name for test in cases for name in names_of(test)}
    named = {test for guard in GUARDS for test in guard.tests}
    assert [name for name in sorted(named) if name not in known] == []
    of_guards = {test for test in cases if named.intersection(names_of(test))}
    assert sorted(of_guards - default) == []


def test_each_case_has_a_default_test_or_is_listed_with_its_reason(
    cases: Mapping[str, Sequence[int]], default: set[str], tiers: Tiers
) -> None:
    without = {case for test in cases for case in cases[test]} - {case for test in default for case in cases[test]}
    assert without == set(tiers.cases)
    assert all(tiers.cases.values())
    assert without <= CASES


def test_no_default_test_is_above_ten_seconds_but_the_named_smokes(default: set[str], tiers: Tiers) -> None:
    slow = {test for test, seconds in read_durations()["slow"].items() if seconds > SLOW_S and test in default}
    assert sorted(slow - set(tiers.smokes)) == []


def test_each_smoke_is_a_default_test(default: set[str], tiers: Tiers) -> None:
    assert sorted(set(tiers.smokes) - default) == []


def test_each_entry_of_the_full_tier_is_a_test_and_has_a_reason(
    cases: Mapping[str, Sequence[int]], tiers: Tiers
) -> None:
    known = {name for test in cases for name in names_of(test)}
    assert sorted(set(tiers.full) - known) == []
    assert all(tiers.full.values())


def test_the_time_of_each_file_is_known(cases: Mapping[str, Sequence[int]]) -> None:
    measured = read_durations()
    files = {file_of(test) for test in cases}
    assert sorted(files - set(measured["default"]) - set(measured["full"])) == [], "run make measure-tests"
