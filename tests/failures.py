"""A pytest plugin that writes to a file what happened in a run, for ``tests.run_tests``: ``--failures FILE``.

A line of JSON per failure as it happens, so that a run that is killed leaves those before it: ``test`` (a node id, or
the file that can't be collected), ``phase`` (setup, call, teardown, collect, crash) and ``text``. At the end of the run
a line with ``counts``, the number of tests by outcome.
"""

import json
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures", metavar="FILE", help="write each failure to FILE, for python -m tests.run_tests")


def pytest_configure(config: pytest.Config) -> None:
    """Write in the process that hears of every test, not in those below it."""
    path = config.getoption("failures")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(Path(path)), "failures")


class Failures:
    """The plugin itself."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._outcomes[report.nodeid] = "failed"
            # A test process that died reports the test it was in, with no phase of pytest's.
            phase = report.when if report.when in {"setup", "call", "teardown"} else "crash"
            self._write({"test": report.nodeid, "phase": phase, "text": report.longreprtext})
        elif report.when == "call" or report.skipped:
            self._outcomes.setdefault(report.nodeid, report.outcome)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write({"test": report.nodeid, "phase": "collect", "text": report.longreprtext})

    def pytest_unconfigure(self) -> None:
        found = list(self._outcomes.values())
        self._write({"counts": {name: found.count(name) for name in ("passed", "skipped", "failed")}})
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
