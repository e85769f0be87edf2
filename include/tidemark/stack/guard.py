"""Ends the stack's processes when their supervisor dies without doing it; a script of its own, standard library only.

The supervisor writes ``+<id>`` for each session it starts and ``-<id>`` for each that ended. When the pipe closes,
whatever is left gets SIGTERM, and SIGKILL ten seconds later. Unlike PR_SET_PDEATHSIG this reaches grandchildren, those
with a process group of their own too, and does not depend on which thread started a process.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

GRACE_S = 10


def main() -> None:
    """Read the supervisor's lines until the pipe closes, then end what it left."""
    sessions: set[int] = set()
    for line in sys.stdin:
        session = int(line[1:])
        if line[0] == "+":
            sessions.add(session)
        else:
            sessions.discard(session)
    _signal(sessions, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while _signal(sessions, 0) and time.monotonic() < deadline:
        time.sleep(0.1)
    _signal(sessions, signal.SIGKILL)


def _signal(sessions: set[int], number: int) -> bool:
    """Signal every process of the sessions (0: none of them); whether there were any."""
    found = False
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            # "pid (any name) state parent group session …"; a zombie only waits to be reaped by whoever inherited it
            state, _, _, session, *_ = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(session) in sessions and state != "Z":
                os.kill(int(entry.name), number)
                found = True
    return found


if __name__ == "__main__":
    main()
