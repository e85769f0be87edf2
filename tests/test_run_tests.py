"""What a failure means: repeated alone, flaky, red at once; and what the last lines say (no server)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run_tests import Failure, Pass, Result, judged, last_lines
from tidemark.installation import PROJECT

GOOD = Pass(code=0, counts={"passed": 1, "skipped": 0, "failed": 0})


def failed(*tests: str, phase: str = "call", code: int = 1) -> Pass:
    text = "def test():\n>   assert 1 == 2\nE   assert 1 == 2\nE    + more\n\ntest_a.py:2: AssertionError"
    return Pass(code=code, failures=tuple(Failure(test=test, phase=phase, text=text) for test in tests))


def judge(first: Pass, *repetitions: Pass) -> tuple[Result, list[str]]:
    repeated: list[str] = []

    def repeat(test: str, number: int) -> Pass:
        repeated.append(test)
        return repetitions[number - 1]

    return judged(first, repeat), repeated


def test_a_run_without_a_failure_is_green_and_repeats_nothing() -> None:
    assert judge(GOOD) == (Result(), [])


def test_a_test_that_fails_once_is_flaky_and_the_run_green() -> None:
    result, repeated = judge(failed("a"), GOOD)
    assert ([item.test for item in result.flaky], result.failed, result.why, repeated) == (["a"], (), None, ["a"])


def test_a_test_that_fails_twice_is_red() -> None:
    result, _ = judge(failed("a", "b"), failed("a"), GOOD)
    assert ([item.test for item in result.failed], [item.test for item in result.flaky]) == (["a"], ["b"])
    assert result.why == "1 failed twice, the second time alone"


def test_a_repetition_in_which_nothing_passed_is_red() -> None:
    result, _ = judge(failed("a"), Pass(code=0, counts={"passed": 0, "skipped": 1, "failed": 0}))
    assert [item.test for item in result.failed] == ["a"]


def test_three_flaky_tests_are_red() -> None:
    result, repeated = judge(failed("a", "b", "c"), GOOD, GOOD, GOOD)
    assert (result.why, repeated) == ("3 tests are flaky, at most 2 may be", ["a", "b", "c"])


def test_four_failures_are_red_at_once() -> None:
    result, repeated = judge(failed("a", "b", "c", "d"))
    assert (result.why, repeated) == ("4 tests failed, at most 3 are repeated", [])
    assert len(result.failed) == 4


def test_one_dead_process_is_repeated_and_two_are_red() -> None:
    assert judge(failed("a", phase="crash"), GOOD)[0].why is None
    assert judge(failed("a", "b", phase="crash"))[0].why == "2 test processes died, at most 1 may"


@pytest.mark.parametrize("code", [2, 3, 4, 5, -9])
def test_a_run_that_was_cut_off_is_red_and_repeats_nothing(code: int) -> None:
    result, repeated = judge(failed("a", code=code))
    assert str(result.why).startswith(f"pytest ended with {code}, expected 0 or 1")
    assert ("longer than --limit-s" in str(result.why)) == (code == 2)
    assert repeated == []


def test_the_last_lines_have_machine_counts_and_each_test_with_the_first_line_of_its_failure() -> None:
    first = Pass(code=1, failures=(), counts={"passed": 7, "skipped": 1, "failed": 2})
    two = failed("t::a", "t::b").failures
    text = last_lines(first, Result(failed=two[:1], flaky=two[1:], why="1 failed twice"), "Machine: fine")
    assert text.splitlines()[-5:] == [
        "Machine: fine",
        "Tests: 7 passed, 1 skipped, 2 failed; 1 of the failed ones are flaky",
        "FAILED t::a — call: assert 1 == 2",
        "FLAKY t::b — first failure: call: assert 1 == 2",
        "Red: 1 failed twice",
    ]
    assert "test_a.py:2: AssertionError" in text


def run(folder: Path, text: str) -> tuple[int, str]:
    """The program's own exit code and output, over a file of tests."""
    file = folder / "test_some.py"
    file.write_text(text, encoding="utf-8")
    own = f"-c /dev/null --rootdir={folder} -p no:cacheprovider -p tests.failures"
    program = "import sys; from tests.run_tests import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", program, str(file)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "include")]), "PYTEST_ADDOPTS": own}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def test_for_real_a_test_that_fails_once_is_flaky_and_a_dead_process_is_named(tmp_path: Path) -> None:
    code, output = run(
        tmp_path,
        f"""
import os, pathlib
def once(name):
    path = pathlib.Path({str(tmp_path)!r}, name)
    if path.exists():
        return False
    path.touch()
    return True
def test_flaky(): assert not once("flaky"), "the first time"
def test_good(): pass
def test_dies():
    if once("dies"): os._exit(3)
""",
    )
    assert code == 0, output
    assert "FLAKY test_some.py::test_flaky — first failure: call: AssertionError: the first time" in output
    assert "FLAKY test_some.py::test_dies — first failure: crash:" in output
    assert output.rstrip().endswith("Green")
    assert (tmp_path / ".tidemark" / "tests.xml").exists()
    assert (tmp_path / ".tidemark" / "tests-alone-1.xml").exists()


def test_for_real_a_test_that_fails_twice_is_red(tmp_path: Path) -> None:
    code, output = run(tmp_path, "def test_bad(): assert 1 == 2\ndef test_good(): pass\n")
    assert code == 1
    assert "Machine: pace" in output
    assert "Tests: 1 passed, 0 skipped, 1 failed" in output
    assert output.rstrip().splitlines()[-2:] == [
        "FAILED test_some.py::test_bad — call: assert 1 == 2",
        "Red: 1 failed twice, the second time alone",
    ]
