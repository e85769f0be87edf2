"""The demo, from an empty folder to two proven days."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.core.errors import TidemarkError
from tidemark.demo.scenes import Demo
from tidemark.demo.show import Show
from tidemark.installation import PROJECT
from tidemark.stack.airflow import USER

INTERRUPTED = 130


def demo(exit_after: bool, *, secure: bool = False) -> int:
    """Run the demo. Return 0 if every statement is true, 1 if not, 130 if it was interrupted."""
    with _terminated_as_interrupted(), Show() as show:
        scene = Demo(show, root=PROJECT, secure=secure)
        try:
            passed = scene.play()
            show.console.print(show.times())
            if passed:
                show.say("Every statement is true.", "bold green")
            else:
                show.say("Some statements are false: see the table above.", "bold red")
            _print_addresses(show, scene)
            if not exit_after:
                show.say("Everything keeps running until Ctrl-C.", "bold")
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
            show.say("Everything is stopped. To use its data again: .venv/bin/tidemark up --name demo --airflow")


def _stay(show: Show, scene: Demo) -> None:
    show.quiet()
    try:
        while True:
            scene.supervisor.check()
            time.sleep(1)
    except KeyboardInterrupt:
        show.say("Stopping.")


def _print_addresses(show: Show, scene: Demo) -> None:
    airflow = scene.airflow
    show.say(f"Airflow   {airflow.api.url}  user {USER}, password in {airflow.password_file}")
    show.say(f"Streams   {airflow.pages_url}  which days are complete, which are not, and what to do")
    show.say(f"Report    {scene.report_file}")
    show.say(f"Try       {scene.where_command}")
    show.say(f"          .venv/bin/tidemark status --stack {scene.stack.name}")


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the demo like Ctrl-C: it stops everything first."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(demo("--exit" in sys.argv, secure="--secure" in sys.argv))
