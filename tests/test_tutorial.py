"""The tutorial, done to the letter: its files written, its commands run in order, its outputs compared."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.pages import Block, blocks
from tidemark.installation import PROJECT
from tidemark.stack.java import BRIEF_JVM

pytestmark = pytest.mark.services
PAGE = PROJECT / "docs" / "tutorial.md"
# What the page asks for once per machine and per terminal, which a test's environment has already.
PREPARED = ("make install\n", ". .venv/bin/activate\n")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder as the reader has it after ``make install``: the project's own code, none of its data."""
    for name in ("include", "spark_apps", "dags"):
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".venv").symlink_to(PROJECT / ".venv")
    (tmp_path / ".tidemark").mkdir()
    (tmp_path / ".tidemark" / "jars").symlink_to(PROJECT / ".tidemark" / "jars")
    return tmp_path


class Terminal:
    """Runs the page's commands as a reader's shell does, without anything of this process's own deployment."""

    def __init__(self, folder: Path) -> None:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(("TIDEMARK_", "AIRFLOW"))}
        path = os.pathsep.join([str(folder / ".venv" / "bin"), inherited["PATH"]])
        own = {"PATH": path, "PYTHONPATH": str(folder / "include"), "COLUMNS": "120", "PYTHONUNBUFFERED": "1"}
        self._folder, self._environment = folder, {**inherited, **BRIEF_JVM, **own}

    def run(self, commands: str) -> str:
        """What the commands print; fails the test where one of them does."""
        done = subprocess.run(
            ["bash", "-euc", commands],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def foreground(self, command: str, until: str) -> Iterator[str]:
        """A command that stays in the foreground of a terminal of its own; what it printed up to a line."""
        with subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as running:
            try:
                printed = ""
                assert running.stdout is not None
                for line in running.stdout:
                    printed += line
                    if line.startswith(until):
                        break
                yield printed
            finally:
                running.send_signal(signal.SIGINT)
                running.communicate(timeout=120)


def shown(printed: str, expected: str) -> bool:
    """Whether the page shows what was printed, apart from blanks; ``…`` is any text of a line, or any lines."""
    lines = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    pattern = "".join(
        r"(?:[^\n]*\n)*" if line == "…" else r"[^\n]*".join(map(re.escape, " ".join(line.split()).split("…"))) + r"\n"
        for line in expected.splitlines()
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def test_the_tutorial_ends_with_a_proven_day_and_prints_what_it_shows(clone: Path) -> None:
    page = blocks(PAGE)
    terminal = Terminal(clone)
    start = next(number for number, block in enumerate(page) if block.text.startswith("tidemark up"))
    follow(page[:start], clone, terminal)
    with terminal.foreground(page[start].text, until="Up.") as printed:
        assert shown(printed, page[start + 1].text), printed
        follow(page[start + 2 :], clone, terminal)


def follow(page: list[Block], folder: Path, terminal: Terminal) -> None:
    printed = ""
    for block in page:
        match block.language:
            case "sh" if block.text not in PREPARED:
                printed = terminal.run(block.text)
            case "text":
                assert shown(printed, block.text), f"the page shows\n{block.text}\nbut the command printed\n{printed}"
            case "yaml" | "python":
                (folder / block.title).write_text(block.text, encoding="utf-8")
