"""The demo, from an empty folder to a proven day: see ``demo``."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tidemark.core.errors import TidemarkError
from tidemark.demo.scenes import Demo
from tidemark.demo.show import Show
from tidemark.stack.airflow import USER
from tidemark.stack.local import PROJECT

INTERRUPTED = 130


def demo(exit_after: bool) -> int:
    """Run the demo; its exit code: 0 where everything it states is true, 1 where not, 130 where it was interrupted.

    Unless ``exit_after``, everything stays up afterwards until Ctrl-C. Whatever happens, nothing is left running.
    """
    with _terminated_as_interrupted(), Show() as show:
        scene = Demo(show, root=PROJECT)
        try:
            passed = scene.play()
            show.console.print(show.times())
            if passed:
                show.say("Everything the demo states is true.", "bold green")
            else:
                show.say("Not everything is true: see the table above.", "bold red")
            _farewell(show, scene)
            if not exit_after:
                show.say("Everything stays up until Ctrl-C.", "bold")
                _stay(show, scene)
        except KeyboardInterrupt:
            show.say("Interrupted.", "yellow")
            return INTERRUPTED
        except TidemarkError as error:
            show.say(f"The demo failed: {scene.cause(error)}", "bold red")
            return 1
        else:
            return 0 if passed else 1
        finally:
            show.doing("stopping everything")
            scene.stop()
            show.say("Everything is stopped. Its data stay: .venv/bin/tidemark up --name demo --airflow")


def _stay(show: Show, scene: Demo) -> None:
    show.quiet()
    try:
        while True:
            scene.supervisor.check()
            time.sleep(1)
    except KeyboardInterrupt:
        show.say("Stopping.")


def _farewell(show: Show, scene: Demo) -> None:
    airflow = scene.airflow
    show.say(f"Airflow   {airflow.api.url}  user {USER}, password in {airflow.password_file}")
    show.say(f"Report    {scene.report_file}")
    show.say(f"Try       {scene.where_command}")


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """A SIGTERM ends the demo as Ctrl-C does: with everything stopped."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(demo("--exit" in sys.argv))
