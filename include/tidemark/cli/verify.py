"""``tidemark verify``: recompute a sealed day's proof and compare it."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from tidemark.cli.arguments import parse_day
from tidemark.cli.connect import connect_s3
from tidemark.cli.json_output import print_result
from tidemark.cli.output import counted, make_table, open_console, plain
from tidemark.verify.day import verify_day
from tidemark.verify.day_copies import StreamVerification, verify_stream
from tidemark.verify.result import EXIT_CODES, Mismatch, ProofPart, Status, Verdict, Verification

SHOWN_MAX = 20
COLOURS = {"holds": "green", "differs": "red", "unknown": "yellow", "expired": "yellow"}
VERDICTS = {"proven": "green", "disproven": "red", "unknown": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRow:
    """One part of the proof. ``total`` counts its differences, of which the first are listed."""

    name: str
    status: Status
    derived_from: str
    unknown: tuple[str, ...]
    expired: bool
    notes: tuple[str, ...]
    differences: tuple[Mismatch, ...]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """A verification of one version of a day. ``lost`` is the number of offsets that its seal calls lost.

    ``approval`` says who approved the day, when and why.
    """

    verdict: Verdict
    stream: str
    day: str
    version: int
    seal: str
    lost: int
    approval: str | None
    checks: tuple[ProofRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyAllResult:
    """A check of all sealed days of a stream together: each archived record is in exactly one of them.

    ``days`` counts the sealed ones. ``waiting`` is an upper bound of the archived rows that no seal has: late ones, and
    those of days that are not sealed, copies included.
    """

    verdict: Verdict
    stream: str
    days: int
    waiting: int
    checks: tuple[ProofRow, ...]


def verify_result(found: Verification) -> VerifyResult:
    """A verification as it is printed with ``--json``."""
    return VerifyResult(
        verdict=found.verdict,
        stream=found.stream,
        day=found.day,
        version=found.version,
        seal=found.seal,
        lost=found.lost,
        approval=str(found.approval) if found.approval else None,
        checks=_rows(found.checks),
    )


def verify_all_result(found: StreamVerification) -> VerifyAllResult:
    """A check of all days as it is printed with ``--json``."""
    return VerifyAllResult(
        verdict=found.verdict,
        stream=found.stream,
        days=found.days,
        waiting=found.waiting,
        checks=_rows(found.checks),
    )


def _rows(checks: Sequence[ProofPart]) -> tuple[ProofRow, ...]:
    return tuple(
        ProofRow(
            name=item.name,
            status=item.status,
            derived_from=item.derived_from,
            unknown=tuple(item.unknown),
            expired=item.expired,
            notes=tuple(item.notes),
            differences=tuple(item.differences),
            total=item.total,
        )
        for item in checks
    )


def print_all_days(stack: str | None, stream: str, *, as_json: bool) -> int:
    """Check all sealed days together. Return the exit code of the verdict. Raises what ``verify_stream`` raises."""
    settings = connect_s3(stack)
    with Console(stderr=True).status("reading seals and manifests") as status:
        found = verify_stream(settings, stream, progress=lambda text: status.update(f"verifying: {text}"))
    if as_json:
        print_result("verify", verify_all_result(found))
        return EXIT_CODES[found.verdict]
    console = open_console()
    title = f"{found.stream}, all {counted(found.days, 'sealed day')} together: {found.verdict}"
    console.print(plain(title, style=VERDICTS[found.verdict]))
    if found.waiting:
        console.print(plain(f"At most {found.waiting:,} archived rows are late, or of days that are not sealed"))
    print_checks(console, found.checks)
    return EXIT_CODES[found.verdict]


def print_verification(stack: str | None, stream: str, day: str, version: int | None, *, as_json: bool) -> int:
    """Verify and print. Return the exit code of the verdict. Raises what ``verify_day`` raises."""
    settings = connect_s3(stack)
    with Console(stderr=True).status("reading seals and manifests") as status:
        found = verify_day(
            settings, stream, parse_day(day), version, progress=lambda text: status.update(f"verifying: {text}")
        )
    if as_json:
        print_result("verify", verify_result(found))
    else:
        print_proof(open_console(), found)
    return EXIT_CODES[found.verdict]


def print_proof(console: Console, found: Verification) -> None:
    """The verdict, one row per check, and every difference with both sides."""
    title = f"{found.stream} {found.day}, version {found.version}: {found.verdict}"
    console.print(plain(title, style=VERDICTS[found.verdict]))
    if found.lost:
        console.print(plain(f"with a recorded loss: Kafka deleted {found.lost:,} offsets", style="yellow"))
    if found.approval:
        console.print(plain(f"approved by {found.approval}", style="yellow"))
    console.print(plain(found.seal))
    print_checks(console, found.checks)


def print_checks(console: Console, checks: Sequence[ProofPart]) -> None:
    """One row per check, and every difference with both sides."""
    table = make_table("Check", "Result", "Derived from", fold=("Derived from",))
    for check in checks:
        status = f"{check.total:,} differences" if check.status == "differs" else check.status
        table.add_row(check.name, plain(status, style=COLOURS[check.status]), plain(check.derived_from))
    console.print(table)
    for check in checks:
        for item in check.differences[:SHOWN_MAX]:
            text = f"{check.name}: {item.what}: expected {item.expected}, found {item.found} [{item.where}]"
            console.print(plain(text, style="red"))
        if check.total > SHOWN_MAX:
            console.print(
                plain(f"{check.name}: {check.total - SHOWN_MAX:,} more differences; --json shows more of them")
            )
        for line in (*check.unknown, *check.notes):
            console.print(plain(f"{check.name}: {line}", style="yellow" if line in check.unknown else ""))
