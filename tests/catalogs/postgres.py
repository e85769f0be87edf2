"""Debian's PostgreSQL in a temporary folder, with one user and a password."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import setup_postgres
from tidemark.stack.files import free_ports
from tidemark.stack.processes import Processes

USER = "iceberg"
PASSWORD = "p@ss:w/o%rd"  # noqa: S105 - with what URLs escape
DATABASE = "lake"
# PostgreSQL refuses to run as root.
UNPRIVILEGED = "nobody"


@contextmanager
def postgres() -> Iterator[str]:
    """The server's JDBC URL; it is stopped and its data removed at the end."""
    programs = setup_postgres.install()
    root = os.geteuid() == 0
    become = ["setpriv", f"--reuid={UNPRIVILEGED}", "--regid=nogroup", "--clear-groups"] if root else []
    folder = Path(tempfile.mkdtemp(prefix="tidemark-postgres-"))
    processes = Processes()
    try:
        secret = folder / "password"
        secret.write_text(PASSWORD, encoding="utf-8")
        if root:
            for path in (folder, secret):
                shutil.chown(path, UNPRIVILEGED)
        data = folder / "data"
        subprocess.run(
            [*become, programs / "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", f"--pwfile={secret}", "-N"],
            check=True,
            capture_output=True,
            cwd=folder,
        )
        (port,) = free_ports(1)
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        argv = [*become, str(programs / "postgres"), "-D", str(data), "-p", str(port)]
        processes.start(
            "postgres",
            [*argv, *(part for name, value in options.items() for part in ("-c", f"{name}={value}"))],
            env={},
            ready=lambda: _answers(programs, port),
            timeout_s=60,
            log=folder / "postgres.log",
            cwd=folder,
        )
        yield f"jdbc:postgresql://127.0.0.1:{port}/{DATABASE}"
    finally:
        processes.stop(grace_s=1)  # it would wait for Spark's connections
        shutil.rmtree(folder)


def _answers(programs: Path, port: int) -> bool:
    """Whether it made the database, which it can do when it is ready."""
    command = [str(programs / "createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", USER, DATABASE]
    environment = {**os.environ, "PGPASSWORD": PASSWORD}
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0
