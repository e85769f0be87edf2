"""Files and ports of the local stack."""

import atexit
import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

_PORTS = range(20_000, 32_768)  # Linux gives outgoing connections those from 32768 on, others from 49152 on
_CLAIMS: dict[int, socket.socket] = {}  # this process's, until it ends


def write_private(path: Path, text: str) -> None:
    """Write a file only its owner can read, in one step: a reader sees the old text or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def env_text(variables: Mapping[str, str]) -> str:
    """The text of an env file. Values stand in single quotes, so that a path may hold spaces or a ``#``."""
    quoted = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in variables.items()}
    return "".join(f"{name}='{value}'\n" for name, value in quoted.items())


def free_ports(count: int, *, wanted: tuple[int, ...] = ()) -> tuple[int, ...]:
    """``count`` different free ports of 127.0.0.1: those ``wanted`` (0 is none) that are free, by place, else others.

    No other process is given them while this one lives: a server takes a second to listen. Those are below the ports
    that systems give to outgoing connections: one of them could take a server's port while the server is down, and it
    would not come back.
    """
    sockets: list[socket.socket] = []
    try:
        for place in range(count):
            bound = _bound(wanted[place]) if place < len(wanted) and wanted[place] else None
            while bound is None:
                port = secrets.choice(_PORTS)
                bound = None if port in _CLAIMS else _bound(port)
            sockets.append(bound)
        return tuple(int(item.getsockname()[1]) for item in sockets)
    finally:
        for item in sockets:
            item.close()


def _bound(port: int) -> socket.socket | None:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As servers do: a port whose last connections linger in TIME_WAIT counts as free.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
        _claim(port)
    except OSError:
        bound.close()
        return None
    return bound


def _claim(port: int) -> None:
    """Tell other processes that the port is given; OSError where another has said so. It ends with the process."""
    if port not in _CLAIMS:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0tidemark-port-{port}")  # a name of Linux's own, which is no file
        except OSError:
            claim.close()
            raise
        atexit.register(claim.close)
        _CLAIMS[port] = claim
