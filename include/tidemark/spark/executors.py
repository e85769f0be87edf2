"""Ends the wait of a stream whose cluster gives it no executor. Spark itself would wait for ever."""

import time
from collections.abc import Callable

from tidemark.core.errors import ServiceError

# Longer than a cluster needs to replace a lost executor. A supervisor then starts the stream as a new application.
WAIT_S = 300.0


class ExecutorWatch:
    """Asked every second or so. ``count`` gives the number of executors, ``busy`` whether there is work for them."""

    def __init__(
        self,
        count: Callable[[], int],
        busy: Callable[[], bool],
        *,
        where: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count, self._busy, self._where, self._clock = count, busy, where, clock
        self._since: float | None = None

    def check(self) -> None:
        """Raises ServiceError if there was work and no executor for ``WAIT_S``."""
        if self._count() > 0 or not self._busy():
            self._since = None
            return
        now = self._clock()
        self._since = now if self._since is None else self._since
        if now - self._since > WAIT_S:
            raise ServiceError(
                "the Spark cluster gives the stream no executor",
                expected="an executor",
                found=f"none for {WAIT_S:g} s",
                where=self._where,
                hint="See on the master's page whether cores and memory are free, and start the stream again: after a"
                " restart, a master may not know what it owes to an application. Nothing acknowledged is lost",
            )
