"""Waiting for a condition or for work, with an end that says what was waited for."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 180, *, every_s: float = 0.05) -> None:
    """Return once the condition holds; fails the test, naming ``what``, when it does not within the time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(every_s)


@contextmanager
def limited(what: str, timeout_s: float) -> Iterator[None]:
    """End the work below after the time, with a TimeoutError that names ``what``. In the main thread only.

    The test's own limit would end it too, but would blame the test that was the first to need it.
    """

    def end(*_: object) -> None:
        raise TimeoutError(f"not within {timeout_s} s: {what}")

    before = signal.signal(signal.SIGUSR1, end)  # SIGALRM is the test's own limit
    timer = threading.Timer(timeout_s, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, before)
