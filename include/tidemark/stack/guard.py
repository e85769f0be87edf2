"""Ends the stack's processes if their supervisor dies. A script that uses the standard library only.

The supervisor writes ``+<id>`` for each session that it starts and ``-<id>`` for each that ended. When the pipe closes,
the remaining sessions get SIGTERM, and SIGKILL ten seconds later. Unlike PR_SET_PDEATHSIG, this reaches grandchildren
in other process groups, and does not depend on the thread that started a process.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

GRACE_S = 10


def main() -> None:
    """Read the supervisor's lines until the pipe closes, then end the remaining sessions."""
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
    """Send a signal (0: none) to every process of the sessions. Return whether there are any."""
    found = False
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            # "pid (any name) state parent group session …"; a zombie has ended already
            state, _, _, session, *_ = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(session) in sessions and state != "Z":
                os.kill(int(entry.name), number)
                found = True
    return found


if __name__ == "__main__":
    main()
