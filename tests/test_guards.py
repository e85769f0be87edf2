"""The list of guards matches the code, and a broken run does not count as a noticed guard (no server)."""

import pytest

from tests.guards import GUARDS
from tests.guards.guard import Guard, StaleGuardError
from tests.run_guards import Verdict, judged, stale


def test_there_are_at_least_forty_guards_with_distinct_names() -> None:
    names = [guard.name for guard in GUARDS]
    assert len(names) == len(set(names)) >= 40


@pytest.mark.conformance(58)
def test_every_guards_edit_fits_its_file_and_leaves_python() -> None:
    assert stale(GUARDS) == []


def guard(**changes: object) -> Guard:
    fields: dict[str, object] = {
        "name": "a-guard",
        "promise": "It holds.",
        "path": "a.py",
        "old": "if wrong:",
        "new": "if False:",
        "tests": ("tests/test_a.py::test_it[one]",),
    }
    return Guard(**{**fields, **changes})  # type: ignore[arg-type]  # some are invalid


def test_a_guard_is_switched_off_by_its_edit_only() -> None:
    assert guard().switched_off("if wrong:\n    raise\nif late:\n") == "if False:\n    raise\nif late:\n"


@pytest.mark.parametrize(("text", "times"), [("if late:\n", 0), ("if wrong:\nif wrong:\n", 2)])
def test_an_edit_that_matches_nowhere_or_twice_is_an_error(text: str, times: int) -> None:
    with pytest.raises(StaleGuardError, match=rf"guard a-guard: .* once in a\.py, found it {times} times"):
        guard().switched_off(text)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "A guard"}, "'A guard': expected a name of lower-case words"),
        ({"new": "if wrong:"}, "a-guard: expected an edit"),
        ({"tests": ()}, "a-guard: expected at least one test"),
        ({"tests": ("tests/test_a.py",)}, "a-guard: expected 'tests/<file>.py::test_<name>'"),
    ],
)
def test_an_invalid_guard_is_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        guard(**changes)


def report(*cases: str) -> str:
    inner = "".join(f'<testcase classname="tests.core.test_a" name="test_it[1]">{case}</testcase>' for case in cases)
    return f"<testsuites><testsuite>{inner}</testsuite></testsuites>"


FAILED = '<failure message="AssertionError: assert 1 == 2&#10;  more">…</failure>'
TEST = "tests/core/test_a.py::test_it[1]"


@pytest.mark.parametrize(
    ("code", "text", "verdict"),
    [
        (0, report(""), Verdict()),
        (1, report("", FAILED), Verdict(noticed_by=TEST, why="AssertionError: assert 1 == 2")),
        (
            1,
            report('<error message="failed on setup with a reason"/>'),
            Verdict(problem="no test failed in its own code, only around it"),
        ),
        (
            1,
            report("<failure message=\"NameError: name 'x' is not defined\"/>"),
            Verdict(problem="the patch breaks the code: NameError: name 'x' is not defined"),
        ),
        (
            1,
            report('<failure message="Failed: Timeout (&gt;180.0s) from pytest-timeout."/>'),
            Verdict(problem="a test took too long: Failed: Timeout (>180.0s) from pytest-timeout."),
        ),
        (1, None, Verdict(problem="pytest ended with 1, expected 0 or 1")),
        (2, report(FAILED), Verdict(problem="pytest ended with 2, expected 0 or 1")),
        (4, None, Verdict(problem="pytest ended with 4, expected 0 or 1")),
        (-9, None, Verdict(problem="pytest ended with -9, expected 0 or 1")),
    ],
    ids=[
        "all pass",
        "one fails",
        "set-up",
        "broken code",
        "hangs",
        "no report",
        "collection",
        "no such test",
        "killed",
    ],
)
def test_only_a_failure_in_the_tests_own_code_counts_as_noticed(code: int, text: str | None, verdict: Verdict) -> None:
    assert judged(code, text) == verdict
