"""Waiting for a condition, with an end."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 180, *, every_s: float = 0.05) -> None:
    """Return once the condition holds; fails the test, naming ``what``, when it does not within the time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(every_s)
