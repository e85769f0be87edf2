"""``tidemark verify``: recompute a sealed day's proof and compare it."""

import json
import sys

from rich.console import Console

from tidemark.cli.connect import connect_s3
from tidemark.cli.output import make_table, open_console, plain
from tidemark.cli.versions import parse_day
from tidemark.verify.day import verify_day
from tidemark.verify.result import EXIT_CODES, Verification

SHOWN_MAX = 20
COLOURS = {"holds": "green", "differs": "red", "unknown": "yellow", "expired": "yellow"}
VERDICTS = {"proven": "green", "disproven": "red", "unknown": "yellow"}


def print_verification(stack: str | None, stream: str, day: str, version: int | None, *, as_json: bool) -> int:
    """Verify and print. Return the exit code of the verdict. Raises what ``verify_day`` raises."""
    settings = connect_s3(stack)
    with Console(stderr=True).status("reading seals and manifests") as status:
        found = verify_day(
            settings, stream, parse_day(day), version, progress=lambda text: status.update(f"verifying: {text}")
        )
    if as_json:
        json.dump(found.to_value(), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        print_proof(open_console(), found)
    return EXIT_CODES[found.verdict]


def print_proof(console: Console, found: Verification) -> None:
    """The verdict, one row per check, and every difference with both sides."""
    title = f"{found.stream} {found.day}, version {found.version}: {found.verdict}"
    console.print(plain(title, style=VERDICTS[found.verdict]))
    if found.lost:
        console.print(plain(f"with a recorded loss: Kafka deleted {found.lost:,} offsets", style="yellow"))
    console.print(plain(found.seal))
    table = make_table("Check", "Result", "Derived from", fold=("Derived from",))
    for check in found.checks:
        status = f"{check.total:,} differences" if check.status == "differs" else check.status
        table.add_row(check.name, plain(status, style=COLOURS[check.status]), plain(check.derived_from))
    console.print(table)
    for check in found.checks:
        for item in check.differences[:SHOWN_MAX]:
            text = f"{check.name}: {item.what}: expected {item.expected}, found {item.found} [{item.where}]"
            console.print(plain(text, style="red"))
        if check.total > SHOWN_MAX:
            console.print(
                plain(f"{check.name}: {check.total - SHOWN_MAX:,} more differences; --json shows more of them")
            )
        for line in (*check.unknown, *check.notes):
            console.print(plain(f"{check.name}: {line}", style="yellow" if line in check.unknown else ""))
