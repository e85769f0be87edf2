"""The gate as a process of the local stack."""

import ssl
import sys
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from tidemark.stack.processes import Managed, Processes
from tidemark.stack.s3_gate.config import GateConfig

READY_S = 30


def start_s3_gate(processes: Processes, file: Path, *, config: GateConfig, ca: Path, log: Path) -> Managed:
    """Write the configuration to ``file`` and start the gate with it; ``ca`` is what clients trust."""
    config.write(file)
    return processes.start(
        "s3-gate",
        [sys.executable, "-m", "tidemark.stack.s3_gate.server", str(file)],
        env={},
        ready=lambda: _answers(config.port, ca),
        timeout_s=READY_S,
        log=log,
        essential=True,
    )


def _answers(port: int, ca: Path) -> bool:
    """Whether it refuses a request without a signature."""
    connection = HTTPSConnection("127.0.0.1", port, timeout=5, context=ssl.create_default_context(cafile=str(ca)))
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 403
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
