"""A stream whose cluster gives it no executor ends after a while, as long as it has work."""

import pytest

from tidemark.core.errors import ServiceError
from tidemark.spark.executors import WAIT_S, ExecutorWatch


class Scene:
    """What the watch sees; a test changes it."""

    def __init__(self) -> None:
        self.executors, self.busy, self.now = 0, True, 0.0
        self.watch = ExecutorWatch(
            lambda: self.executors, lambda: self.busy, where="stream rides", clock=lambda: self.now
        )

    def check_at(self, now: float) -> None:
        self.now = now
        self.watch.check()


def test_work_without_an_executor_ends_the_stream_after_the_wait() -> None:
    scene = Scene()
    scene.check_at(10)
    scene.check_at(10 + WAIT_S)
    with pytest.raises(ServiceError, match=r"no executor: expected an executor, found none for 300 s \[stream rides\]"):
        scene.check_at(11 + WAIT_S)


@pytest.mark.parametrize(("executors", "busy"), [(1, True), (0, False)], ids=["an executor", "no work"])
def test_an_executor_or_an_idle_moment_restarts_the_wait(executors: int, busy: bool) -> None:
    scene = Scene()
    scene.check_at(0)
    scene.executors, scene.busy = executors, busy
    scene.check_at(WAIT_S)
    scene.executors, scene.busy = 0, True
    scene.check_at(WAIT_S + 1)
    scene.check_at(2 * WAIT_S)
