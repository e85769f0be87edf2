"""What the product's own delivery audit says of a soaked stream, for comparison with the oracle."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.soak.oracle import Verdict
from tidemark.stack.local import PROJECT, LocalStack

TIMEOUT_S = 1800


def disagreements(stack: LocalStack, stream: str, verdict: Verdict) -> list[str]:
    """Archive the source, let ``tidemark delivery`` compare; each count in which it differs from the oracle's."""
    _run(stack, sys.executable, str(PROJECT / "spark_apps" / "archive_stream.py"), stream, "--available-now")
    now = datetime.now(UTC)
    days = ("--from", f"{now - timedelta(days=1):%Y-%m-%d}", "--to", f"{now + timedelta(days=1):%Y-%m-%d}")
    told = _run(stack, str(Path(sys.executable).parent / "tidemark"), "delivery", stream, *days)
    counts = json.loads(told.splitlines()[-1])["counts"]
    wanted = {
        "archived": verdict.expected,
        "duplicated": verdict.duplicates,
        "missing": len(verdict.missing),
        "unexpected": len(verdict.unexpected) + len(verdict.wrong),
    }
    return [
        f"the delivery audit counts {counts[name]} {name}, the oracle {number}"
        for name, number in wanted.items()
        if counts[name] != number
    ]


def _run(stack: LocalStack, *command: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **stack.env}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.stdout.strip(), f"{command} ended with {done.returncode}: {done.stderr[-3000:]}"
    return done.stdout
