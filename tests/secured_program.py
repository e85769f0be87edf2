"""Runs programs of Tidemark one after the other in this process, each as it would run in one of its own.

``python -m tests.secured_program FOLDER COMMANDS``, with the commands as JSON: a list of words each. The first is a
file of ``spark_apps``, a command of ``tidemark``, or ``-c`` before the text of a program. Their JVM starts once.
What the nth command prints goes to the files ``n.out`` and ``n.err`` of the folder, its exit code to ``n.code``.
"""

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

from tidemark.cli.app import main
from tidemark.installation import SPARK_APPS


def run(words: list[str]) -> int:
    """The exit code of one command."""
    program, *rest = words
    try:
        if program == "-c":
            text, *rest = rest
            sys.argv = ["-c", *rest]
            exec(compile(text, "-c", "exec"), {"__name__": "__main__"})  # noqa: S102 - the tests' own text
        elif program.endswith(".py"):
            sys.argv = [program, *rest]
            runpy.run_path(str(SPARK_APPS / program), run_name="__main__")
        else:
            sys.argv = ["tidemark", *words]
            main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # noqa: BLE001 - as Python itself ends a program
        traceback.print_exc()
        return 1
    return 0


def run_all(folder: Path, commands: list[list[str]]) -> None:
    """Run each of them, also after one that failed."""
    for number, words in enumerate(commands):
        for place, name in ((1, "out"), (2, "err")):
            with (folder / f"{number}.{name}").open("wb") as file:
                os.dup2(file.fileno(), place)
        code = run(words)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        (folder / f"{number}.code").write_text(str(code), encoding="ascii")


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), json.loads(sys.argv[2]))
