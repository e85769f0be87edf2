"""Watches the demo's processes: what can be restarted is, aloud; without Kafka or S3 the demo ends."""

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from tidemark.core.errors import ServiceError, StackError
from tidemark.demo.show import Show
from tidemark.stack.airflow import MIGRATION
from tidemark.stack.processes import Managed, Processes

RESTARTS_MAX = 3
POLL_S = 0.5
# How long a service may refuse calls (while it restarts, say) before that is an error.
REFUSED_S = 90
T = TypeVar("T")


class Supervisor:
    """Every wait of the demo goes through ``until``, which looks after the processes meanwhile."""

    def __init__(self, processes: Processes, show: Show, *, essential: frozenset[str], deadline: float) -> None:
        """``essential``: names of processes that can't be replaced; ``deadline``: monotonic seconds for everything."""
        self._processes = processes
        self._show = show
        self._essential = essential
        self._deadline = deadline
        self._restarts: Counter[str] = Counter()
        self._background: list[Future[None]] = []

    def follow(self, work: Future[None]) -> None:
        """Raise what this work on another thread raises, at the next check."""
        self._background.append(work)

    def check(self) -> None:
        """Restart what died by itself; raises StackError where that is impossible or was done too often."""
        for work in self._background:
            if work.done():
                work.result()
        for managed in self._processes:
            if managed.name == MIGRATION or not managed.died:
                continue
            if managed.name in self._essential:
                raise managed.failure("the demo can't go on: a process of the local stack died")
            if self._restarts[managed.name] >= RESTARTS_MAX:
                raise managed.failure(f"a process died again after {RESTARTS_MAX} restarts")
            self._restarts[managed.name] += 1
            self._say_death(managed)
            managed.restart()

    def until(self, done: Callable[[], T | None], what: str, *, timeout_s: float) -> T:
        """The first result of ``done`` that is neither None nor False, asked twice a second.

        A ServiceError of ``done`` is waited out for a while. Raises StackError, naming ``what``, when time is up.
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
                self._show.doing(f"{what}; a service refuses calls at the moment: {error.problem}")
            now = time.monotonic()
            if now > min(began + timeout_s, self._deadline):
                limit = f"{timeout_s:g} s" if now > began + timeout_s else "the demo's time limit"
                raise StackError(f"{what}: not done in time", expected=f"within {limit}", found=f"{now - began:.0f} s")
            time.sleep(POLL_S)

    def _say_death(self, managed: Managed) -> None:
        count = self._restarts[managed.name]
        self._show.say(
            f"! {managed.name} died ({managed.failure('').found}); restarting it, {count} of {RESTARTS_MAX} times. "
            f"Log: {managed.log}",
            "yellow",
        )
