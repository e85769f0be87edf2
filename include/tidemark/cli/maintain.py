"""``tidemark maintain``: clean up after crashes, and compact what grows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from tidemark.cli.connect import connect_s3
from tidemark.cli.json_output import print_result
from tidemark.cli.output import open_console, plain
from tidemark.cli.spark import command_spark
from tidemark.core.errors import RequestError
from tidemark.definitions.stream import load_stream
from tidemark.maintenance.archive import Compacted, Maintained, Unfinished
from tidemark.maintenance.run import MaintainedFiles, Maintenance, Step
from tidemark.maintenance.tables import TableMaintenance

_NAMES: dict[type, str] = {Maintained: "archive", Compacted: "ledger", MaintainedFiles: "files"}
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainResult:
    """A maintenance. ``clean_tables``, ``compact``: whether these steps did it, or only show what they would do.

    A step is null, or empty, if the maintenance had nothing for it.
    """

    stream: str
    clean_tables: bool
    compact: bool
    archive: Maintained | None
    tables: tuple[TableMaintenance, ...]
    ledger: Compacted | None
    files: MaintainedFiles | None


def print_maintenance(
    stack: str | None,
    stream_name: str,
    older_than: str,
    *,
    clean_tables: bool,
    compact: bool,
    rebuild_ledger: bool,
    as_json: bool,
) -> None:
    """Maintain one stream, and print each step's result: with ``as_json`` all of them at the end."""
    age = parse_age(older_than)
    settings = connect_s3(stack)
    stream = load_stream(stream_name, settings.streams_dir)
    console = Console(stderr=True) if as_json else open_console()
    done: dict[str, Any] = {"archive": None, "tables": (), "ledger": None, "files": None}
    with console.status("reading manifests") as status:
        maintenance = Maintenance(
            settings=settings,
            stream=stream,
            now=datetime.now(UTC),
            older_than=age,
            open_spark=lambda: command_spark(settings, f"tidemark-maintain-{stream.name}"),
            clean_tables=clean_tables,
            compact=compact,
            rebuild_ledger=rebuild_ledger,
            show_progress=status.update,
        )
        for step in maintenance.steps():
            done[_name(step)] = step
            if not as_json:
                _print_step(console, stream.name, step, maintenance, older_than)
    if as_json:
        result = MaintainResult(stream=stream.name, clean_tables=clean_tables, compact=compact, **done)
        print_result("maintain", result)


def _name(step: Step) -> str:
    return "tables" if isinstance(step, tuple) else _NAMES[type(step)]


def _print_step(console: Console, stream: str, step: Step, maintenance: Maintenance, older_than: str) -> None:
    match step:
        case Maintained():
            console.print(f"Objects and uploads of {stream} older than {older_than}", style="bold")
            _print_archive(console, step)
        case Compacted():
            state = "rebuilt" if maintenance.rebuild_ledger else "agrees with the manifests"
            counts = f"{step.manifests} manifests in {step.segments} segments, {step.new} new"
            console.print(f"Ledger {state}: {counts}")
        case MaintainedFiles():
            _print_files(console, step, done=maintenance.compact)
        case tables:
            for item in tables:
                print_table(console, item)
            if not maintenance.clean_tables:
                console.print("No table was changed. Run with --clean-tables to do what is shown.")


def _print_archive(console: Console, found: Maintained) -> None:
    console.print(f"Unfinished uploads aborted: {len(found.aborted)}; younger ones kept: {len(found.left)}")
    _print_uploads(console, found.aborted)
    size = sum(item.size for item in found.orphans)
    console.print(f"Objects in no manifest: {len(found.orphans)}, {size} bytes; no reader sees them, none was deleted")
    for orphan in found.orphans:
        console.print(plain(f"  {orphan.size:>12}  {orphan.key}"))


def _print_files(console: Console, found: MaintainedFiles, *, done: bool) -> None:
    small, replaced = found.compacted, found.replaced
    would = "" if done else " that would be"
    result = f", into {small.files_written} files of {small.bytes_written} bytes" if done else ""
    console.print(f"Small files{would} compacted: {small.files} of {small.ranges} ranges, {small.bytes} bytes{result}")
    reasons = {
        "younger than a day": small.young,
        "written with other archive settings": small.other_settings,
        "with holes": small.has_holes,
    }
    if skipped := [f"{number} {reason}" for reason, number in reasons.items() if number]:
        console.print(f"  small ranges skipped: {', '.join(skipped)}")
    console.print(
        f"Replaced objects{would} deleted: {replaced.objects}, {replaced.bytes} bytes;"
        f" {replaced.waiting} are too young to delete"
    )
    for item in replaced.kept:
        console.print(plain(f"  kept: {item}"))
    if not done and (small.batches or replaced.objects):
        console.print("No file was changed. Run with --compact to do what is shown.")


def print_table(console: Console, item: TableMaintenance) -> None:
    """What was removed from one table, or would be."""
    would = "" if item.done else " that would be"
    expiry = item.expiry
    console.print(f"Table {item.name}", style="bold")
    console.print(f"Audit branches{would} dropped: {len(expiry.branches)}")
    for branch in expiry.branches:
        console.print(plain(f"  {branch}"))
    files = f"; files deleted with them: {item.deleted}" if item.done else ""
    console.print(f"Snapshots{would} expired: {len(expiry.snapshots)}, kept: {expiry.kept}{files}")
    for day, run in expiry.unsealed:
        console.print(plain(f"  snapshots since run {run} are kept: it published {day} and has not sealed it"))
    console.print(f"Files in no snapshot{would} deleted: {len(item.orphans)}")
    for orphan in item.orphans:
        console.print(plain(f"  {orphan}"))
    console.print(f"Unfinished uploads of files{would} aborted: {len(item.uploads)}")
    _print_uploads(console, item.uploads)


def _print_uploads(console: Console, uploads: Sequence[Unfinished]) -> None:
    for item in uploads:
        console.print(plain(f"  {item.started.astimezone(UTC).isoformat(timespec='seconds')}  {item.key}"))


def parse_age(text: str) -> timedelta:
    """Parse ``90m``, ``12h``, ``1d``, up to ``99999d``. Raises RequestError for other texts."""
    found = re.fullmatch(r"(\d{1,5})([smhd])", text)  # more days would lead beyond the year 1
    if found is None:
        raise RequestError("invalid age", expected="a number up to 99999 and s, m, h or d, such as 12h", found=text)
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
