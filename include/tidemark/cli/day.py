"""``tidemark status STREAM DAY``: a day's versions, with their checks, losses and reports."""

from rich.console import Console

from tidemark.cli.arguments import parse_day
from tidemark.cli.connect import connect_s3
from tidemark.cli.json_output import print_result
from tidemark.cli.output import open_console, plain, print_fields
from tidemark.cli.report import report_place
from tidemark.cli.root import FINE, WRONG
from tidemark.cli.status_result import StatusResult, VersionRow, day_versions_row
from tidemark.core.layout import Layout
from tidemark.core.seal import Difference
from tidemark.definitions.stream import load_stream
from tidemark.tables.day_publications import DayPublication
from tidemark.tables.versions import Version, day_versions

REASONS = {
    "scheduled": "rebuilt as scheduled",
    "requested": "rebuilt on request",
    "late": "rebuilt for late records",
    "unproven": "rebuilt, because it was published and not sealed",
    None: "rebuilt",
}


def print_day(stack: str | None, stream_name: str, day: str, *, as_json: bool) -> int:
    """Print every version of the day. Return the exit code. Raises what ``day_versions`` raises."""
    wanted, settings = parse_day(day), connect_s3(stack)
    stream = load_stream(stream_name, settings.streams_dir)
    with Console(stderr=True).status("reading seals and tables"):
        found = day_versions(settings, stream, wanted)
    rows = day_versions_row(found, Layout(prefix=settings.prefix, stream=stream.name))
    proven = found.unsealed is None
    if as_json:
        print_result("status", StatusResult(fine=proven, day=rows))
        return FINE if proven else WRONG
    console = open_console()
    answer = (
        f"Yes, proven: {wanted} of {stream.name}."
        if proven
        else f"No, published and not proven: {wanted} of {stream.name}."
    )
    console.print(plain(answer, style="green" if proven else "red"))
    for item, row in zip(found.versions, rows.versions, strict=True):
        fields = _fields(item, row, report_place(settings, row.report))
        print_fields(console, _title(item), fields, style="bold green" if item.published else "bold")
    if found.unsealed:
        console.print(plain(_unsealed(found.unsealed), style="yellow"))
    return FINE if proven else WRONG


def _unsealed(seen: DayPublication) -> str:
    if seen.is_half:
        return f"Readers see {seen}. The stream's next run rebuilds and seals the day."
    return f"Readers see {seen}, which has not sealed them. The stream's next run rebuilds and seals the day."


def _title(item: Version) -> str:
    seal = item.seal
    why = REASONS[seal.reason] if seal.rolled_back_to is None else f"rolled back to version {seal.rolled_back_to}"
    current = ", current" if item.published else ""
    return f"Version {seal.version}: {why}{current}{', snapshots expired' if item.expired else ''}"


def _fields(item: Version, row: VersionRow, report: str) -> dict[str, str]:
    seal = item.seal
    return {
        "rows": f"{seal.rows_published:,}",
        "quarantined": f"{seal.rows_quarantined:,}",
        **({"duplicates removed": f"{seal.rows_removed:,}"} if seal.deduplicated else {}),
        **({f"against version {seal.version - 1}": _changes(seal.difference)} if seal.version > 1 else {}),
        "snapshot": str(item.snapshot_id or seal.snapshot_id),
        "quarantine snapshot": str(item.quarantine_snapshot_id or seal.quarantine_snapshot_id),
        "checks": seal.quality,
        **({"approved by": str(seal.approval)} if seal.approval else {}),
        **({"offsets lost": f"{row.lost:,}"} if row.lost else {}),
        **({"offsets unexplained": f"{row.unexplained:,}"} if row.unexplained else {}),
        "sealed": row.sealed_at.isoformat(),
        "run": seal.run,
        "seal": row.seal,
        "report": report,
    }


def _changes(found: Difference | None) -> str:
    if found is None:
        return "unknown: its snapshots had expired when this version was sealed"
    return f"{found.added:,} added, {found.removed:,} removed, {found.changed:,} changed"
