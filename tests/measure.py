"""What the tests cost: ``make measure-tests`` measures a run, ``python -m tests.measure FILE`` prints its tables.

A thread in each test process watches everything that process started, four times a second: processor time, and what
was started of which kind. A line of JSON per phase of a test and per set-up of a fixture:

    seconds   by the wall clock
    cpu       seconds of processor time of the test process and everything below it
    waiting   seconds in which all of that used less than a tenth of a core
    starts    processes by kind: spark, broker, s3, java (others), airflow, python (with Tidemark's applications)
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.progress import DURATIONS, file_of, read_durations
from tests.tiers import read_tiers

EVERY_S = 0.25
SLOW_S = 10.0  # tests above it have an entry of their own in durations.json
_JAVA = {"kafka.Kafka": "broker", "s3proxy": "s3", "SparkSubmit": "spark"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--measure", metavar="FILE", help="write what each test costs to FILE, for python -m tests.measure"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start watching, where asked to."""
    path = config.getoption("measure")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if path and (worker or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(Measurements(Path(path)), "measurements")


class Measurements:
    """The plugin itself; processes below it that ended between two looks keep what they had used at the last."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._used: dict[tuple[int, float], float] = {}
        self._starts: Counter[str] = Counter()
        self._waiting = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._update()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def pytest_unconfigure(self) -> None:
        self._ended.set()
        self._thread.join()
        self._file.close()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._phase("setup", item.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._phase("call", item.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._phase("teardown", item.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[Any]:
        return (yield from self._phase("fixture", fixturedef.argname))

    def _phase(self, kind: str, name: str) -> Iterator[Any]:
        began, cpu, waiting, starts = time.monotonic(), *self._now()
        try:
            return (yield)
        finally:
            cpu_after, waiting_after, starts_after = self._now()
            line = {
                "kind": kind,
                "name": name,
                "worker": os.environ.get("PYTEST_XDIST_WORKER", "main"),
                "seconds": round(time.monotonic() - began, 3),
                "cpu": round(cpu_after - cpu, 2),
                "waiting": round(waiting_after - waiting, 2),
                "starts": dict(starts_after - starts),
            }
            self._file.write(json.dumps(line) + "\n")

    def _now(self) -> tuple[float, float, Counter[str]]:
        with self._lock:
            return sum(self._used.values()), self._waiting, Counter(self._starts)

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(EVERY_S):
            cpu = self._update()
            now = time.monotonic()
            with self._lock:
                if cpu < 0.1 * (now - before):
                    self._waiting += now - before
            before = now

    def _update(self) -> float:
        """Update everything. Returns the processor time used since the last update."""
        us = psutil.Process()
        used = 0.0
        for process in (us, *us.children(recursive=True)):
            with suppress(psutil.Error):
                key = process.pid, process.create_time()
                times = process.cpu_times()
                total = times.user + times.system
                with self._lock:
                    if key not in self._used:
                        self._starts[_kind(process)] += 1
                    used += total - self._used.get(key, 0.0)
                    self._used[key] = total
        return used


def _kind(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    if process.name() == "java":
        return next((kind for word, kind in _JAVA.items() if word in line), "java")
    if "airflow" in line and "standalone" in line:
        return "airflow"
    return "python" if "python" in process.name() else "other"


def main(path: str) -> None:
    """Print the tables of a measured run, and keep its files' seconds in ``durations.json``."""
    lines = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    phases = [line for line in lines if line["kind"] != "fixture"]
    _keep_durations(phases)
    fixtures = [line for line in lines if line["kind"] == "fixture"]
    tables = (
        _table("By file", phases, lambda line: file_of(line["name"]).removeprefix("tests/"), 60),
        _table("By test", phases, lambda line: line["name"].removeprefix("tests/"), 60),
        _table("By fixture", fixtures, lambda line: line["name"], 15),
        _table("By process", phases, lambda line: line["worker"], 8),
        _table("Altogether", phases, lambda _: "all", 1),
    )
    sys.stdout.write("\n".join(tables) + "\n")


def _keep_durations(phases: list[dict[str, Any]]) -> None:
    """Files that were not part of the run keep what an earlier one measured."""
    tiers, known = read_tiers(), read_durations()
    measured: dict[str, Counter[str]] = {"default": Counter(), "full": Counter(), "slow": Counter()}
    for line in phases:
        test, seconds = line["name"], line["seconds"]
        measured["full" if tiers.why_full(test) else "default"][file_of(test)] += seconds
        if line["kind"] == "call":  # a set-up's seconds are mostly those of fixtures that others use, too
            measured["slow"][test] += seconds
    durations = {
        kind: {
            name: round(seconds, 1)
            for name, seconds in sorted({**known[kind], **found}.items())
            if (DURATIONS.parents[1] / file_of(name)).exists() and (kind != "slow" or seconds > SLOW_S)
        }
        for kind, found in measured.items()
    }
    DURATIONS.write_text(json.dumps(durations, indent=0) + "\n", encoding="utf-8")


def _table(title: str, lines: list[dict[str, Any]], key: Any, rows: int) -> str:
    sums: dict[str, Counter[str]] = {}
    for line in lines:
        total = sums.setdefault(key(line), Counter())
        total.update({name: line[name] for name in ("seconds", "cpu", "waiting")})
        total.update({"n": 1, **line["starts"]})
    kinds = sorted({kind for line in lines for kind in line["starts"]})
    shown = sorted(sums.items(), key=lambda entry: -entry[1]["seconds"])[:rows]
    head = f"{'seconds':>8} {'cpu':>8} {'waiting':>8} " + " ".join(f"{kind:>7}" for kind in kinds)
    body = [
        f"{total['seconds']:8.1f} {total['cpu']:8.1f} {total['waiting']:8.1f} "
        + " ".join(f"{total[kind]:7.0f}" for kind in kinds)
        + f"  {name}"
        for name, total in shown
    ]
    return "\n".join([f"\n{title}", head, *body])


if __name__ == "__main__":
    main(sys.argv[1])
