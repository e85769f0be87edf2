"""Sends events to the lineage tool that OpenLineage's standard variables name; without them, nothing is sent.

A thread of its own sends them. A lineage tool that does not answer costs one warning, and neither fails nor slows the
work.
"""

import logging
import os
from collections.abc import Callable
from functools import lru_cache
from queue import Full, Queue
from threading import Condition, Thread, current_thread
from typing import Any

from tidemark.core.masking import masked_addresses
from tidemark.lineage.run_events import LineageEvent, to_openlineage

_LOG = logging.getLogger(__name__)
_PREFIX = "OPENLINEAGE_"
_TRANSPORT = "OPENLINEAGE__TRANSPORT"
_THREAD = "tidemark-lineage"
QUEUE_MAX = 1000
FLUSH_S = 5.0
# They log each retry, and each failure, as a warning.
_NOISY = ("urllib3.connectionpool", "urllib3.util.retry", "openlineage.client.transport.http")


def configured() -> bool:
    """Whether the variables name a place for events."""
    variables = os.environ
    if variables.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = variables.get("OPENLINEAGE_URL") or variables.get("OPENLINEAGE_CONFIG")
    return bool(named) or any(name.startswith(_TRANSPORT) and text for name, text in variables.items())


class Emitter:
    """Sends events in their order, on a thread of its own. Thread-safe."""

    def __init__(self) -> None:
        self._queue: Queue[Callable[[], LineageEvent]] = Queue(QUEUE_MAX)
        self._waiting = 0
        self._change = Condition()
        self._failed = False
        self._warned = False
        self._thread: Thread | None = None

    def send(self, make: Callable[[], LineageEvent]) -> None:
        """Send an event soon. ``make`` is called on the other thread, so it may take its time."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name=_THREAD, daemon=True)
            self._thread.start()
        with self._change:
            self._waiting += 1
        try:
            self._queue.put_nowait(make)
        except Full:
            self._sent(f"more than {QUEUE_MAX} events wait")

    def flush(self) -> None:
        """Wait for the events so far, 5 s at most; not at all after a failure."""
        with self._change:
            answered = self._change.wait_for(lambda: not self._waiting or self._failed, FLUSH_S)
            self._failed |= not answered
        if not answered:
            self._warn(f"no answer for {FLUSH_S:.0f} s")

    def _run(self) -> None:
        for name in _NOISY:
            logging.getLogger(name).addFilter(_not_from_here)
        client: Any = None
        while True:
            make = self._queue.get()
            try:
                if client is None:
                    client = _new_client()
                client.emit(to_openlineage(make()))
            except Exception as error:  # noqa: BLE001  # transports raise many types, and none may stop the work
                self._sent(f"{type(error).__name__}: {error}")
            else:
                self._sent(None)

    def _sent(self, problem: str | None) -> None:
        with self._change:
            self._waiting -= 1
            self._failed = problem is not None
            self._change.notify_all()
        if problem is not None:
            self._warn(problem)

    def _warn(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            _LOG.warning("lineage events are not delivered: %s", masked_addresses(problem)[:500])


def _new_client() -> Any:
    from openlineage.client import OpenLineageClient

    before = set(os.environ)
    client = OpenLineageClient()
    # It writes OPENLINEAGE_URL under other names too, which would outlive a change and reach every child process.
    for name in set(os.environ) - before:
        if name.startswith(_PREFIX):
            del os.environ[name]
    return client


def emitter() -> Emitter:
    """The process's emitter for the variables as they are now."""
    return _emitter(os.getpid(), tuple(sorted(item for item in os.environ.items() if item[0].startswith(_PREFIX))))


@lru_cache(maxsize=1)
def _emitter(_process: int, _variables: tuple[tuple[str, str], ...]) -> Emitter:
    return Emitter()  # a forked process has no thread of its parent's


def _not_from_here(_record: logging.LogRecord) -> bool:
    return current_thread().name != _THREAD
