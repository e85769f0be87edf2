"""Files and ports of the local stack."""

import atexit
import json
import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

PORTS = range(20_000, 32_768)  # Linux gives outgoing connections those from 32768 on, others from 49152 on
_CLAIMS: dict[int, socket.socket] = {}  # this process's, until it ends


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that only its owner can read, atomically: a reader sees the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    draft.replace(path)


def env_text(variables: Mapping[str, str]) -> str:
    """The text of an env file. Values are in single quotes, so that a path may contain spaces or ``#``."""
    quoted = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in variables.items()}
    return "".join(f"{name}='{value}'\n" for name, value in quoted.items())


def properties_text(values: Mapping[str, str]) -> str:
    """The text of a Java properties file. Java reads it as Latin-1, so other characters are escaped, as in JSON."""
    return "".join(f"{name}={json.dumps(value)[1:-1]}\n" for name, value in values.items())


def free_ports(count: int, *, wanted: tuple[int, ...] = ()) -> tuple[int, ...]:
    """``count`` different free ports of 127.0.0.1: each ``wanted`` one if it is free (0: none wanted), or else another.

    While this process lives, no other process gets them, because a server needs a second to listen. They are below the
    range for outgoing connections: otherwise a connection could take the port of a server that restarts.
    """
    sockets: list[socket.socket] = []
    try:
        for index in range(count):
            bound = _bound(wanted[index]) if index < len(wanted) and wanted[index] else None
            while bound is None:
                port = secrets.choice(PORTS)
                bound = None if port in _CLAIMS else _bound(port)
            sockets.append(bound)
        return tuple(int(item.getsockname()[1]) for item in sockets)
    finally:
        for item in sockets:
            item.close()


def _bound(port: int) -> socket.socket | None:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As for servers: a port with old connections in TIME_WAIT counts as free.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
        _claim(port)
    except OSError:
        bound.close()
        return None
    return bound


def _claim(port: int) -> None:
    """Claim the port against other processes until this one ends. Raises OSError if another process claimed it."""
    if port not in _CLAIMS:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0tidemark-port-{port}")  # an abstract name of Linux, not a file
        except OSError:
            claim.close()
            raise
        atexit.register(claim.close)
        _CLAIMS[port] = claim
