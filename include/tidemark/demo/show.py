"""The demo's output: one line per event, with the time since the start."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.table import Table
from rich.text import Text

SILENCE_S = 15
PLAIN_WIDTH = 140


class Show:
    """Lines and a table of phases. On a terminal a spinner shows the current work; elsewhere there are plain lines.

    It may be used from any thread. After 15 s without a line, a thread prints the current work.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _console()
        self.started = time.monotonic()
        self.phases: list[tuple[str, float]] = []
        self._doing = "starting"
        self._said_at = self.started
        self._status = self.console.status("starting") if self.console.is_terminal else None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_talking, name="show", daemon=True)

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.quiet()
        self._thread.join()

    def say(self, text: str, style: str = "") -> None:
        """Print one line. The text is literal, not markup."""
        self._said_at = time.monotonic()
        self.console.print(Text(f"{_clock(self._said_at - self.started)}  ").append(text, style=style))

    def doing(self, text: str) -> None:
        """Set the current work: the spinner shows it, or a line if it takes long."""
        self._doing = text
        if self._status is not None:
            self._status.update(Text(text))

    def quiet(self) -> None:
        """Stop the spinner and the lines about the current work."""
        self._closed.set()
        if self._status is not None:
            self._status.stop()

    @contextmanager
    def phase(self, title: str) -> Iterator[None]:
        """Print a phase's title, and keep its duration, even if it fails."""
        self.say(title, "bold")
        self.doing(title)
        began = time.monotonic()
        try:
            yield
        finally:
            self.phases.append((title, time.monotonic() - began))

    def times(self) -> Table:
        """A table of every phase and its seconds."""
        table = Table(title="Time spent", title_justify="left")
        table.add_column("phase")
        table.add_column("seconds", justify="right")
        for title, seconds in self.phases:
            table.add_row(Text(title), f"{seconds:.1f}")
        table.add_section()
        table.add_row("total", f"{time.monotonic() - self.started:.1f}")
        return table

    def _keep_talking(self) -> None:
        while not self._closed.wait(1):
            if time.monotonic() - self._said_at >= SILENCE_S and self._status is None:
                self.say(f"… waiting: {self._doing}", "dim")


def _console() -> Console:
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02}"
