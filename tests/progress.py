"""The order of the test files, and how far the run has come.

``durations.json`` has the seconds that each file took in a measured run, by tier, and those of each test above ten
seconds (``make measure-tests`` writes it). Files go to the test processes longest first, so that none of the processes
works alone at the end; and from the share of the seconds that is done follows the time that is left.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.tiers import read_tiers

DURATIONS = Path(__file__).parent / "durations.json"
MACHINE = "tests/test_machine.py"
UNKNOWN_S = 60.0  # a file that was not there when the durations were measured: better early than last and alone
EVERY_S = 30.0
PRIOR_S = 300.0  # the measured pace counts as that much of the run so far: the first tests start all servers


def read_durations() -> dict[str, dict[str, float]]:
    """Seconds in the tiers ``default`` and ``full`` by test file, and by test where it is ``slow``."""
    found: dict[str, dict[str, float]] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return found


def durations_of(nodeids: Iterable[str]) -> dict[str, float]:
    """Seconds by file of the tiers that the tests belong to; files that were never measured are not in it."""
    measured, tiers = read_durations(), read_tiers()
    parts = {(file_of(nodeid), "full" if tiers.why_full(nodeid) else "default") for nodeid in nodeids}
    found: dict[str, float] = {}
    for file, tier in parts:
        if file in measured[tier]:
            found[file] = found.get(file, 0.0) + measured[tier][file]
    return found


def file_of(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


def pytest_configure(config: pytest.Config) -> None:
    """Show progress where a person or CI's log reads it: in the process that prints, not in those below it."""
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        processes = max(1, config.getoption("numprocesses", None) or 1)
        config.pluginmanager.register(Progress(config, processes), "progress")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The machine's file first, then the longest; a file's tests stay together, in their order.

    What uses the stack is marked so.
    """
    durations = durations_of(item.nodeid for item in items)
    for item in items:
        if "stack" in getattr(item, "fixturenames", ()):
            item.add_marker("services")

    def place(item: pytest.Item) -> tuple[bool, float, str]:
        file = file_of(item.nodeid)
        return file != MACHINE, -durations.get(file, UNKNOWN_S), file

    items.sort(key=place)


class Work:
    """How many seconds of measured work a run has, and how many of them are done."""

    def __init__(self, nodeids: Sequence[str], durations: Mapping[str, float], processes: int) -> None:
        tests = Counter(file_of(nodeid) for nodeid in nodeids)
        self._per_test = {file: durations.get(file, UNKNOWN_S) / count for file, count in tests.items()}
        self._processes = processes
        self.tests = len(nodeids)
        self.total_s = sum(self._per_test[file] * count for file, count in tests.items())
        self.done = 0
        self.done_s = 0.0

    def finish(self, nodeid: str) -> None:
        self.done += 1
        self.done_s += self._per_test.get(file_of(nodeid), 0.0)

    def left_s(self, elapsed_s: float) -> float:
        """Seconds by the clock until the end, at the pace of the run so far; at the measured pace to begin with."""
        measured = self.done_s / self._processes
        pace = (elapsed_s + PRIOR_S) / (measured + PRIOR_S)
        return (self.total_s - self.done_s) / self._processes * pace


class Progress:
    """Prints the time that is left, at most every 30 seconds, and at once the name of a test that fails."""

    def __init__(self, config: pytest.Config, processes: int) -> None:
        self._config = config
        self._processes = processes
        self._work: Work | None = None
        self._began = self._shown = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._begin([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        if self._work is None:
            self._begin(ids)

    def _begin(self, nodeids: Sequence[str]) -> None:
        self._work = Work(nodeids, durations_of(nodeids), self._processes)
        self._began = self._shown = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._print(f"  failed: {report.nodeid} ({report.when})")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        now = time.monotonic()
        if self._work is None:
            return
        self._work.finish(nodeid)
        if now - self._shown < EVERY_S:
            return
        self._shown = now
        self._print(line(self._work, now - self._began))

    def _print(self, text: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(text)


def line(work: Work, elapsed_s: float) -> str:
    """What a person sees: ``  412 of 1210 tests, 38 %, 12 min so far, about 20 min left``."""
    share = work.done_s / work.total_s if work.total_s else 1.0
    return (
        f"  {work.done} of {work.tests} tests, {share:.0%} of the work, {_minutes(elapsed_s)} so far,"
        f" about {_minutes(work.left_s(elapsed_s))} left"
    )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
