"""Child processes: started one after the other, watched, and stopped in reverse order.

Each child leads its own session, so that a signal reaches everything it started, and Ctrl-C in a terminal reaches only
the supervisor. A guard process ends the children if the supervisor is killed.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tidemark.core.errors import StackError
from tidemark.stack import guard

POLL_S = 0.1
LOG_LINES = 15
_DIED = "a process of the local stack died"


@dataclass(eq=False, repr=False, kw_only=True)
class Managed:
    """One process: its command, and its current or last execution."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    ready: Callable[[], bool]
    timeout_s: float
    log: Path
    cwd: Path | None
    essential: bool
    owner: "Processes"
    _process: subprocess.Popen[bytes] | None = None
    _wanted: bool = False

    @property
    def pid(self) -> int:
        """The id of the process and of its session. Raises StackError before the first start."""
        if self._process is None:
            raise StackError("a process was never started", where=self.name)
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code (negative: the signal that ended it), None while the process runs."""
        return None if self._process is None else self._process.poll()

    @property
    def died(self) -> bool:
        """Whether it ended without ``stop`` or ``kill``."""
        return self._wanted and self.returncode is not None

    def launch(self) -> None:
        """Start the process and wait until it is ready."""
        if self._process is not None and self.returncode is None:
            raise StackError("a process is running already", found=f"pid {self.pid}", where=self.name)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # Settings of another deployment in this shell must not reach the stack's processes.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TIDEMARK_")}
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self.argv,
                    env={**inherited, **self.env},
                    cwd=self.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise StackError("a process could not be started", found=error, where=self.name) from error
        self._wanted = True
        self.owner.register(self.pid)
        try:
            self._await_ready()
        except BaseException:
            self.stop(grace_s=5)
            raise

    def _await_ready(self) -> None:
        deadline = time.monotonic() + self.timeout_s
        while not self.ready():
            if self.died:
                raise self.failure("a process ended before it was ready")
            # It may wait for a dead server until its time is up.
            if death := self.owner.essential_death():
                raise death
            if time.monotonic() > deadline:
                raise self.failure(f"a process was not ready within {self.timeout_s:g} s")
            time.sleep(POLL_S)

    def failure(self, problem: str) -> StackError:
        """A StackError that names the process, its exit code, its log and the log's last lines."""
        state = "still running" if self.returncode is None else _ending(self.returncode)
        return StackError(problem, found=f"{self.name}: {state}", where=f"log: {self.log}", hint=_tail(self.log))

    def stop(self, grace_s: float = 30) -> None:
        """Send SIGTERM to its session, and SIGKILL after ``grace_s`` seconds. May be called after it ended."""
        self._end(signal.SIGTERM, grace_s)

    def kill(self) -> None:
        """Send SIGKILL to its session."""
        self._end(signal.SIGKILL, 0)

    def restart(self) -> None:
        """Stop the process if it runs, and start it again. Raises what ``launch`` raises."""
        self.stop()
        self.launch()

    def _end(self, number: signal.Signals, grace_s: float) -> None:
        self._wanted = False
        if self._process is None:
            return
        self._signal(number)
        deadline = time.monotonic() + grace_s
        while self._signal(0) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        while self._signal(signal.SIGKILL):
            time.sleep(POLL_S)
        self._process.wait()
        self.owner.forget(self.pid)

    def _signal(self, number: int) -> bool:
        """Send a signal (0: none) to every process of its session. Return whether there are any.

        A process group is not enough: Airflow gives each task its own group.
        """
        assert self._process is not None
        self._process.poll()  # reaps the leader
        found = [process for process in psutil.process_iter() if _in_session(process, self.pid)]
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
        return bool(found)


class Processes:
    """A stack of processes. ``keep_open``: file descriptors that the guard holds until all processes ended."""

    def __init__(self, *, keep_open: Sequence[int] = ()) -> None:
        self._managed: list[Managed] = []
        self._sessions: set[int] = set()
        self._keep_open = tuple(keep_open)
        self._guard: subprocess.Popen[str] | None = None

    def __iter__(self) -> Iterator[Managed]:
        return iter(tuple(self._managed))

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        ready: Callable[[], bool],
        timeout_s: float,
        log: Path,
        cwd: Path | None = None,
        essential: bool = False,
    ) -> Managed:
        """Start a process and wait until ``ready()``; ``env`` is added to this process's environment.

        Once an ``essential`` process has died, no other one becomes ready: the wait for it ends at once.
        """
        managed = Managed(
            name=name,
            argv=argv,
            env=env,
            ready=ready,
            timeout_s=timeout_s,
            log=log,
            cwd=cwd,
            essential=essential,
            owner=self,
        )
        managed.launch()
        self._managed.append(managed)
        return managed

    def check(self) -> None:
        """Raise StackError if a process died, with its exit code, log and last log lines."""
        for managed in self._managed:
            if managed.died:
                raise managed.failure(_DIED)

    def essential_death(self) -> StackError | None:
        """The error of ``check`` for an essential process; None while all of them run."""
        return next((item.failure(_DIED) for item in self._managed if item.essential and item.died), None)

    def stop(self, grace_s: float = 30) -> None:
        """Stop every process, the last started first, and the guard."""
        while self._managed:
            self._managed[-1].stop(grace_s)
            self._managed.pop()
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None

    def register(self, session: int) -> None:
        """Report a new session to the guard."""
        self._sessions.add(session)
        self._report(f"+{session}\n")

    def forget(self, session: int) -> None:
        """Report to the guard that a session has ended."""
        self._sessions.discard(session)
        self._report(f"-{session}\n")

    def _report(self, line: str) -> None:
        try:
            self._write(line)
        except BrokenPipeError:  # the guard was killed: a new one gets all sessions
            self._guard = None
            for session in self._sessions:
                self._write(f"+{session}\n")

    def _write(self, line: str) -> None:
        if self._guard is None:
            self._guard = subprocess.Popen(
                [sys.executable, "-S", "-E", guard.__file__],
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,
                pass_fds=self._keep_open,
            )
        assert self._guard.stdin is not None
        self._guard.stdin.write(line)
        self._guard.stdin.flush()


def _in_session(process: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.Error):
        return False


def _ending(returncode: int) -> str:
    if returncode < 0:
        return f"ended by signal {signal.Signals(-returncode).name}"
    return f"exit code {returncode}"


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:] if log.exists() else []
    return "Its last log lines:\n" + "\n".join(lines) if lines else "Its log is empty"
