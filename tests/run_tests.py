"""Runs the tests and says what a failure means: ``make test`` and ``make test-all``.

The first pass runs everything. A single failure can be the machine's, so up to ``REPEATED_MAX`` failed tests run once
more, each alone: a new process with a stack and a Spark of its own, and nothing beside it. A test that fails again is a
failure; one that passes is flaky, and named so. Red is: a test that failed twice, more than ``REPEATED_MAX`` failures,
more than ``FLAKY_MAX`` flaky tests, more than one test process that died, and a file that can't be collected.

The last lines are always the machine, the counts, and each FAILED and FLAKY test with the first line of its failure.
``.tidemark/tests.xml`` is the first pass's JUnit report, ``.tidemark/tests-alone-<n>.xml`` those of the repetitions.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
REPEATED_MAX = 3
FLAKY_MAX = 2
# What ``pace_s`` took on the two quiet cores on which the durations in tests/durations.json were measured.
REFERENCE_S = 0.28
_TESTS_FAILED, _INTERRUPTED = 1, 2  # pytest's exit codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed test, or a file that can't be collected; ``text`` is everything pytest said of it."""

    test: str
    phase: str
    text: str

    @property
    def first_line(self) -> str:
        """What failed, in a line: pytest marks the lines of an error with an E."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        marked = [line[1:].strip() for line in lines if line.startswith("E ")]
        return f"{self.phase}: {(marked or lines[-1:] or ['no text'])[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """How one run of pytest ended. ``failures`` are in the order in which they happened, one per test."""

    code: int
    failures: tuple[Failure, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the passes together mean. ``why`` says why the whole is red, and is None where it is green."""

    failed: tuple[Failure, ...] = ()
    flaky: tuple[Failure, ...] = ()
    why: str | None = None


def judged(first: Pass, repeat: Callable[[str, int], Pass]) -> Result:
    """The result of the first pass and of the repetitions, which ``repeat`` runs: of a test, with a number from 1."""
    crashes = [item for item in first.failures if item.phase == "crash"]
    if first.code == 0:
        return Result()
    if first.code != _TESTS_FAILED or not first.failures:
        ended = f"pytest ended with {first.code}, expected 0 or {_TESTS_FAILED}"
        if first.code == _INTERRUPTED:
            ended += ": it was interrupted, took longer than --limit-s, or can't collect a file"
        return Result(failed=first.failures, why=ended)
    if len(crashes) > 1:
        return Result(failed=first.failures, why=f"{len(crashes)} test processes died, at most 1 may")
    if len(first.failures) > REPEATED_MAX:
        return Result(
            failed=first.failures, why=f"{len(first.failures)} tests failed, at most {REPEATED_MAX} are repeated"
        )
    failed, flaky = [], []
    for number, item in enumerate(first.failures, 1):
        second = repeat(item.test, number)
        if second.code == 0 and second.counts.get("passed"):
            flaky.append(item)
        else:
            failed.append(second.failures[0] if second.failures else item)
    why = None
    if failed:
        why = f"{len(failed)} failed twice, the second time alone"
    elif len(flaky) > FLAKY_MAX:
        why = f"{len(flaky)} tests are flaky, at most {FLAKY_MAX} may be"
    return Result(failed=tuple(failed), flaky=tuple(flaky), why=why)


def read_pass(code: int, file: Path) -> Pass:
    """What the plugin ``tests.failures`` wrote; a test that failed in two phases counts once, by the first."""
    failures: dict[str, Failure] = {}
    counts: dict[str, int] = {}
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            if "counts" in found:
                counts = found["counts"]
            else:
                failures.setdefault(found["test"], Failure(**found))
    return Pass(code=code, failures=tuple(failures.values()), counts=counts)


class Machine:
    """Runs pytest, and watches the machine meanwhile: the least free memory, and the pace before and after."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._began = time.monotonic()
        self._paces = [pace_s()]
        self._free_bytes = psutil.virtual_memory().available

    def run(self, name: str, options: Sequence[str]) -> Pass:
        """One run of pytest; its files are called ``name``."""
        failures = self._folder / f"{name}.jsonl"
        failures.unlink(missing_ok=True)
        argv = [
            sys.executable,
            "-m",
            "pytest",
            f"--junitxml={self._folder / name}.xml",
            f"--failures={failures}",
            *options,
        ]
        process = subprocess.Popen(argv)
        try:
            while True:
                try:
                    return read_pass(process.wait(timeout=5), failures)
                except subprocess.TimeoutExpired:
                    self._free_bytes = min(self._free_bytes, psutil.virtual_memory().available)
        except KeyboardInterrupt:  # the terminal has interrupted pytest too, and it stops what it started
            return read_pass(process.wait() or _INTERRUPTED, failures)

    def describe(self) -> str:
        self._paces.append(pace_s())
        pace = " and ".join(f"{REFERENCE_S / seconds:.2f}" for seconds in self._paces)
        minutes = (time.monotonic() - self._began) / 60
        load = " ".join(f"{value:.1f}" for value in os.getloadavg())
        return (
            f"Machine: pace {pace} of the reference before and after, {os.cpu_count()} cores, load {load},"
            f" at least {self._free_bytes / 2**30:.1f} GiB of memory free; {minutes:.1f} min"
        )


def pace_s() -> float:
    """Seconds of a fixed amount of work on one core: the best of three, half of it Python and half of it hashing."""
    found = []
    for _ in range(3):
        began = time.perf_counter()
        sum(number * number % 7 for number in range(2_000_000))
        hashlib.sha256(bytes(128 * 2**20)).hexdigest()
        found.append(time.perf_counter() - began)
    return min(found)


def last_lines(first: Pass, result: Result, machine: str) -> str:
    """What a person reads first, so it stands last."""
    counts = ", ".join(f"{number} {name}" for name, number in first.counts.items())
    texts = [
        f"\n----- flaky: {item.test} failed beside the other tests ({item.phase}) and passed alone -----\n{item.text}"
        for item in result.flaky
    ]
    lines = [
        machine,
        f"Tests: {counts or 'no counts, the run was cut off'}; {len(result.flaky)} of the failed ones are flaky",
        *(f"FAILED {item.test} — {item.first_line}" for item in result.failed),
        *(f"FLAKY {item.test} — first failure: {item.first_line}" for item in result.flaky),
        f"Red: {result.why}" if result.why else "Green",
    ]
    return "\n".join([*texts, "", *lines])


def main(argv: Sequence[str]) -> int:
    """The exit code: 0 is green."""
    parser = argparse.ArgumentParser(prog="tests.run_tests")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mark", default="not soak and not full", help="pytest's -m")
    parser.add_argument("--limit-s", type=int, default=4500, help="no test begins after so many seconds")
    parser.add_argument("tests", nargs="*", default=["tests"])
    asked = parser.parse_args(argv)
    folder = Path(".tidemark")
    folder.mkdir(exist_ok=True)
    for old in folder.glob("tests-alone-*"):
        old.unlink()
    machine = Machine(folder)
    spread = ["--numprocesses", str(asked.workers), "--dist", "loadfile", "--no-loadscope-reorder"]
    limits = ["--max-worker-restart", "1", f"--session-timeout={asked.limit_s}"]
    first = machine.run("tests", [*spread, *limits, "-m", asked.mark, "--durations", "10", *asked.tests])

    def repeat(test: str, number: int) -> Pass:
        print(f"\nOnce more, alone: {test}", flush=True)  # noqa: T201 - a program's output
        return machine.run(f"tests-alone-{number}", ["-m", "", test])

    result = judged(first, repeat)
    print(last_lines(first, result, machine.describe()), flush=True)  # noqa: T201
    return 1 if result.why else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
