"""The delivery audit of a soaked stream, compared with the oracle."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from tests.soak.oracle import Verdict
from tests.speed.delivered import saved
from tidemark.archive.stream.driver import archive
from tidemark.definitions.stream import Stream
from tidemark.delivery_audit.audit import audit_delivery
from tidemark.delivery_audit.span import parse_span
from tidemark.installation import PROJECT
from tidemark.run import Run
from tidemark.stack.local import LocalStack

TIMEOUT_S = 1800


def disagreements(stack: LocalStack, stream: Stream, verdict: Verdict, spark: SparkSession | None = None) -> list[str]:
    """Archive the source and compare as ``tidemark delivery`` does. Return each count that differs from the oracle's.

    In that session, or by an application and the command. The audited days are those of the soak, without the hostile
    records.
    """
    now = datetime.now(UTC)
    days = tuple(f"{now + timedelta(days=days):%Y-%m-%d}" for days in (-1, 1))
    counts = _by_commands(stack, stream, *days) if spark is None else _in_session(spark, stack, stream, *days)
    wanted = {
        "archived": verdict.expected - verdict.hostile,
        "duplicated": verdict.duplicates - verdict.hostile_duplicates,
        "missing": len(verdict.missing),
        "unexpected": len(verdict.unexpected) + len(verdict.wrong),
    }
    return [
        f"the delivery audit counts {counts[name]} {name}, the oracle {number}"
        for name, number in wanted.items()
        if counts[name] != number
    ]


def _in_session(spark: SparkSession, stack: LocalStack, stream: Stream, first: str, last: str) -> dict[str, int]:
    archive(spark, stream, stack.settings, available_now=True)
    run = Run.open(stream.name, "soak-delivery", stack.settings)
    audit_delivery(run, spark, parse_span(first, last, stream.zone, datetime.now(UTC)))
    counts: dict[str, int] = saved(run)["counts"]
    return counts


def _by_commands(stack: LocalStack, stream: Stream, first: str, last: str) -> dict[str, int]:
    archive_app = str(PROJECT / "spark_apps" / "archive_stream.py")
    _run(stack, sys.executable, archive_app, stream.name, "--available-now", codes=(0,))
    command = str(Path(sys.executable).parent / "tidemark")
    output = _run(stack, command, "delivery", stream.name, "--from", first, "--to", last, "--json")
    counts: dict[str, int] = json.loads(output)["result"]["counts"]
    return counts


def _run(stack: LocalStack, *command: str, codes: tuple[int, ...] = (0, 1)) -> str:
    done = subprocess.run(
        command, env={**os.environ, **stack.env}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    ended = f"{command} ended with {done.returncode}: {done.stderr[-3000:]}"
    assert done.returncode in codes, ended
    assert done.stdout.strip(), ended
    return done.stdout
