"""``tidemark versions`` and ``tidemark rollback``: list a day's versions, and go back to one of them."""

from datetime import UTC, date, datetime

from tidemark.cli.connect import connect_s3
from tidemark.cli.output import open_console, plain, print_fields
from tidemark.core.errors import RequestError
from tidemark.core.seal import Difference
from tidemark.definitions.stream import load_stream
from tidemark.reconcile.results import ROLLBACK
from tidemark.run import Run, run_name
from tidemark.tables.versions import Version, day_versions

REASONS = {
    "scheduled": "rebuilt as scheduled",
    "requested": "rebuilt on request",
    "late": "rebuilt for late records",
    "unproven": "rebuilt, because it was published and not sealed",
    None: "rebuilt",
}


def print_versions(stack: str | None, stream_name: str, day: str) -> None:
    """Print every version of the day. Raises what ``day_versions`` raises."""
    settings = connect_s3(stack)
    stream = load_stream(stream_name, settings.streams_dir)
    console = open_console()
    with console.status("reading seals and tables"):
        found = day_versions(settings, stream, parse_day(day))
    console.print(f"{found.day} of stream {found.stream}", style="bold")
    for item in found.versions:
        print_fields(console, _title(item), _fields(item), style="bold green" if item.published else "bold")
    if found.unsealed:
        text = (
            f"Published, not proven: readers see rows of run {found.unsealed}, which has not sealed them."
            " The stream's next run rebuilds and seals the day."
        )
        console.print(plain(text, style="yellow"))


def _title(item: Version) -> str:
    seal = item.seal
    why = REASONS[seal.reason] if seal.rolled_back_to is None else f"rolled back to version {seal.rolled_back_to}"
    current = ", current" if item.published else ""
    return f"Version {seal.version}: {why}{current}{', snapshots expired' if item.expired else ''}"


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
        return "unknown: its snapshots had expired when this version was sealed"
    return f"{found.added:,} added, {found.removed:,} removed, {found.changed:,} changed"


def roll_back(stack: str | None, stream_name: str, day: str, version: int) -> None:
    """Roll the day back and print its new version. Raises what ``rollback_day`` raises."""
    from tidemark.cli.spark import command_spark
    from tidemark.reconcile.rollback import rollback_day

    wanted, settings = parse_day(day), connect_s3(stack)
    run = Run.open(stream_name, run_name(f"rollback-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"), settings)
    console = open_console()
    with command_spark(settings, f"tidemark-rollback-{stream_name}", console) as spark, console.status("rolling back"):
        seal = rollback_day(run, spark, day=wanted, version=version)
    already = run.require(ROLLBACK).already
    result = "already has the rows of" if already else "is rolled back to"
    console.print(plain(f"{wanted} of stream {stream_name} {result} version {version}"))
    console.print(plain(f"version {seal.version}: {seal.rows_published:,} rows in snapshot {seal.snapshot_id}"))
    console.print(plain(f"saved as s3://{run.store.bucket}/{run.key(ROLLBACK.name)}"))


def parse_day(text: str) -> date:
    """Parse an ISO date. Raises RequestError for anything else."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise RequestError("invalid day", expected="YYYY-MM-DD", found=text) from error
