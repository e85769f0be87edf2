"""The archive stream as a separate process, which tests start, await, kill and read."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from tidemark.installation import PROJECT
from tidemark.stack.local import LocalStack

TIMEOUT_S = 240  # a start takes 10 s on an idle machine


class ArchiveApp:
    """``spark_apps/archive_stream.py`` in a session of its own. Its output goes to a file; ``endpoint`` replaces the S3
    server's address, for a proxy in between, ``master`` Spark's, for another number of tasks at a time."""

    def __init__(
        self,
        stack: LocalStack,
        stream: str,
        log: Path,
        *,
        endpoint: str | None = None,
        master: str | None = None,
        forever: bool = False,
    ) -> None:
        self._log = log
        self._from = log.stat().st_size if log.exists() else 0
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TIDEMARK_")}
        environment = {**inherited, **stack.env}
        if endpoint is not None:
            environment["TIDEMARK_S3_ENDPOINT"] = endpoint
        if master is not None:
            environment["TIDEMARK_SPARK_MASTER"] = master
        mode = [] if forever else ["--available-now"]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(PROJECT / "spark_apps" / "archive_stream.py"), stream, *mode],
                env=environment,
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.wait(30)

    def kill(self) -> None:
        """Kill -9 of the driver, its JVM and its Python workers, which are separate process groups."""
        self.signal_all(signal.SIGKILL)

    def signal_all(self, number: signal.Signals) -> None:
        """Signal every process of its session, as the local stack does."""
        for process in psutil.process_iter():
            with suppress(ProcessLookupError):
                if os.getsid(process.pid) == self._process.pid:
                    os.kill(process.pid, number)

    def wait(self) -> int:
        """The exit code; fails with the output after a time-out."""
        try:
            return self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"the application did not end: {self.output}") from error

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition while the application runs."""
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            assert self._process.poll() is None, f"the application ended by itself: {self.output}"
            assert time.monotonic() < deadline, f"not so within {TIMEOUT_S} s: {self.output}"
            time.sleep(0.05)

    @property
    def output(self) -> str:
        with self._log.open("rb") as file:
            file.seek(self._from)
            return file.read().decode(errors="replace")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Its JSON log lines of one event."""
        lines = [json.loads(line) for line in self.output.splitlines() if line.startswith('{"time"')]
        return [line for line in lines if line["event"] == name]
