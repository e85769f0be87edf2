"""``tidemark versions`` and ``tidemark rollback``: a day's versions, and one of them brought back."""

import os
from datetime import UTC, date, datetime

from rich.console import Console
from rich.text import Text

from tidemark.cli.connect import connect
from tidemark.core.errors import ConfigError
from tidemark.core.seal import Difference
from tidemark.definitions.stream import load_stream
from tidemark.reconcile.results import ROLLBACK
from tidemark.run import Run, run_name
from tidemark.tables.versions import Version, day_versions

REASONS = {"requested": "rebuilt on request", "late": "rebuilt for late records", None: "rebuilt"}


def print_versions(stack: str | None, stream_name: str, day: str) -> None:
    """Print every version of the day; raises what ``day_versions`` raises."""
    settings = connect(stack)
    stream = load_stream(stream_name, settings.streams_dir)
    console = Console(soft_wrap=True)
    with console.status("reading seals and tables"):
        found = day_versions(settings, stream, parse_day(day))
    console.print(f"{found.day} of stream {found.stream}", style="bold")
    for item in found.versions:
        console.print(Text(_title(item), style="bold green" if item.published else "bold"))
        for label, value in _fields(item).items():
            console.print(Text(f"  {label:<21}{value}"))  # never folded: snapshots are there to be copied
    if found.unsealed:
        told = f"The day's rows are those of run {found.unsealed}, not sealed: let it finish, or repeat it."
        console.print(Text(told, style="yellow"))


def _title(item: Version) -> str:
    seal = item.seal
    why = REASONS[seal.reason] if seal.rolled_back_to is None else f"rolled back to version {seal.rolled_back_to}"
    now = ", what readers see now" if item.published else ""
    return f"Version {seal.version}: {why}{now}{', its snapshots have expired' if item.expired else ''}"


def _fields(item: Version) -> dict[str, str]:
    seal = item.seal
    sealed_at = datetime.fromtimestamp(seal.sealed_at_us // 1_000_000, UTC)
    return {
        "rows": f"{seal.rows_published:,}",
        "quarantined": f"{seal.rows_quarantined:,}",
        **({"duplicates removed": f"{seal.rows_removed:,}"} if seal.deduplicated else {}),
        **({f"against version {seal.version - 1}": _changes(seal.difference)} if seal.version > 1 else {}),
        "snapshot": str(item.snapshot_id or seal.snapshot_id),
        "quarantine snapshot": str(item.quarantine_snapshot_id or seal.quarantine_snapshot_id),
        "sealed": sealed_at.isoformat(),
        "run": seal.run,
    }


def _changes(found: Difference | None) -> str:
    if found is None:
        return "unknown: its rows were gone when this version was made"
    return f"{found.added:,} added, {found.removed:,} removed, {found.changed:,} changed"


def roll_back(stack: str | None, stream_name: str, day: str, version: int) -> None:
    """Roll the day back and say which version it has now; raises what ``rollback_day`` raises."""
    from tidemark.reconcile.rollback import rollback_day
    from tidemark.spark.session import quiet_session
    from tidemark.stack.java import BRIEF_JVM, java_command

    wanted, settings = parse_day(day), connect(stack)
    run = Run.open(stream_name, run_name(f"rollback-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"), settings)
    java_command()
    os.environ.update(BRIEF_JVM)
    console = Console(soft_wrap=True)
    with console.status("starting Spark, some ten seconds"):
        spark = quiet_session(settings, f"tidemark-rollback-{stream_name}")
    try:
        with console.status("rolling back"):
            seal = rollback_day(run, spark, day=wanted, version=version)
    finally:
        spark.stop()
    already = run.require(ROLLBACK).already
    now = "has the rows of" if already else "is rolled back to"
    behind = ", nothing to do" if already else ""
    console.print(Text(f"{wanted} of stream {stream_name} {now} version {version}{behind}"))
    console.print(Text(f"version {seal.version}: {seal.rows_published:,} rows in snapshot {seal.snapshot_id}"))
    console.print(Text(f"saved as s3://{run.store.bucket}/{run.key(ROLLBACK.name)}"))


def parse_day(text: str) -> date:
    """An ISO date; raises ConfigError for anything else."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError("not a day", expected="YYYY-MM-DD", found=text) from error
