"""The order of test files, and the estimated time left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.progress import UNKNOWN_S, Work, line, read_durations
from tidemark.installation import PROJECT

DURATIONS = {"tests/test_long.py": 100.0, "tests/test_short.py": 20.0}
TESTS = [*(f"tests/test_long.py::test_{n}" for n in range(10)), "tests/test_short.py::test_0"]


def test_the_time_left_is_the_measured_one_before_a_test_has_ended() -> None:
    assert Work(TESTS, DURATIONS, processes=2).left_s(0) == 60


def test_a_run_at_half_the_measured_pace_takes_nearly_twice_the_measured_time() -> None:
    work = Work(TESTS, {file: 1000 * seconds for file, seconds in DURATIONS.items()}, processes=1)
    for nodeid in TESTS[:5]:
        work.finish(nodeid)
    assert work.done_s == 50_000
    assert work.left_s(100_000) == pytest.approx(140_000, rel=0.01)


def test_a_slow_first_test_hardly_changes_the_time_left() -> None:
    work = Work(TESTS, {file: 10 * seconds for file, seconds in DURATIONS.items()}, processes=2)
    work.finish("tests/test_short.py::test_0")
    assert work.left_s(200) == pytest.approx(500 * 500 / 400)


def test_a_file_without_a_measurement_counts_as_a_minute() -> None:
    work = Work(["tests/test_new.py::test_a", "tests/test_new.py::test_b"], DURATIONS, processes=1)
    assert work.total_s == UNKNOWN_S
    work.finish("tests/test_new.py::test_a")
    assert work.done_s == UNKNOWN_S / 2


def test_the_progress_line_has_tests_share_and_both_times() -> None:
    work = Work(TESTS, DURATIONS, processes=2)
    for nodeid in TESTS[:6]:
        work.finish(nodeid)
    assert line(work, 30) == "  6 of 11 tests, 50% of the work, 30 s so far, about 30 s left"


def test_a_test_is_named_as_soon_as_it_fails(tmp_path: Path) -> None:
    file = tmp_path / "test_two.py"
    file.write_text("def test_bad():\n    assert 0\n\ndef test_good():\n    pass\n", encoding="utf-8")
    options = ("-c", os.devnull, "-v", "--color=no", "-p", "tests.progress", "-p", "no:cacheprovider")
    argv = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(file)]
    done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, check=False)
    named, good = (done.stdout.index(text) for text in ("\n  failed: test_two.py::test_bad (call)\n", "PASSED"))
    assert named < good


def test_every_measured_file_exists() -> None:
    measured = read_durations()
    missing = [file for tier in ("default", "full") for file in measured[tier] if not (PROJECT / file).exists()]
    assert missing == [], "run make measure-tests"
