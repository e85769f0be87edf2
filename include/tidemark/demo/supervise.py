"""Watches the demo's processes: restarts those that died, and ends the demo without Kafka or S3."""

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from tidemark.core.errors import DisplacedError, ServiceError, StackError
from tidemark.demo.show import Show
from tidemark.stack.airflow import MIGRATION
from tidemark.stack.processes import Processes

RESTARTS_MAX = 3
POLL_S = 0.5
# How long a service may refuse calls, for example while it restarts.
REFUSED_S = 90
T = TypeVar("T")


class Supervisor:
    """Every wait of the demo goes through ``until``, which checks the processes while it waits."""

    def __init__(self, processes: Processes, show: Show, *, essential: frozenset[str], deadline: float) -> None:
        """``essential``: processes that are not restarted. ``deadline``: the demo's end in monotonic seconds."""
        self._processes = processes
        self._show = show
        self._essential = essential
        self._deadline = deadline
        self._restarts: Counter[str] = Counter()
        self._background: list[Future[None]] = []

    def follow(self, work: Future[None]) -> None:
        """Watch work on another thread: the next check raises its error."""
        self._background.append(work)

    def check(self) -> None:
        """Restart dead processes. Raises StackError for an essential process or a displaced stream, and after too many
        restarts."""
        for work in self._background:
            if work.done():
                work.result()
        if death := self.essential_death():
            raise death
        for managed in self._processes:
            if managed.name == MIGRATION or not managed.died:
                continue
            if managed.returncode == DisplacedError.exit_code:
                raise managed.failure("another writer displaced a stream, and a restart would displace that one")
            if self._restarts[managed.name] >= RESTARTS_MAX:
                raise managed.failure(f"a process died again after {RESTARTS_MAX} restarts")
            self._restarts[managed.name] += 1
            ending = f"{managed.name} died ({managed.failure('').found})"
            times = f"{self._restarts[managed.name]} of {RESTARTS_MAX} times"
            self._show.say(f"! {ending}; restarting it, {times}. Log: {managed.log}", "yellow")
            managed.restart()

    def essential_death(self) -> StackError | None:
        """The death of an essential process, None if all of them run."""
        for managed in self._processes:
            if managed.died and managed.name in self._essential:
                return managed.failure("the demo cannot continue: a process of the local stack died")
        return None

    def until(self, done: Callable[[], T | None], what: str, *, timeout_s: float) -> T:
        """Call ``done`` twice a second until its result is neither None nor False, and return that.

        A ServiceError of ``done`` is ignored for a while. Raises StackError, with ``what``, when the time is up.
        """
        self._show.doing(what)
        began = time.monotonic()
        refused_since: float | None = None
        while True:
            self.check()
            try:
                found = done()
                refused_since = None
                if found is not None and found is not False:
                    return found
            except ServiceError as error:
                self.check()
                refused_since = refused_since or time.monotonic()
                if time.monotonic() - refused_since > REFUSED_S:
                    raise
                self._show.doing(f"{what}; a service refuses calls: {error.problem}")
            now = time.monotonic()
            if now > min(began + timeout_s, self._deadline):
                limit = f"{timeout_s:g} s" if now > began + timeout_s else "the demo's time limit"
                raise StackError(f"{what}: not done in time", expected=f"within {limit}", found=f"{now - began:.0f} s")
            time.sleep(POLL_S)
