"""``tidemark rollback``: publish the rows of an earlier version of a day again."""

from dataclasses import dataclass
from datetime import UTC, date, datetime

from rich.console import Console

from tidemark.cli.arguments import parse_day
from tidemark.cli.connect import connect_s3
from tidemark.cli.json_output import print_result
from tidemark.cli.output import open_console, plain
from tidemark.reconcile.results import ROLLBACK
from tidemark.run import Run, run_name


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """The day's new version. ``already``: its latest version had these rows before, and nothing was published."""

    stream: str
    day: date
    rolled_back_to: int
    already: bool
    version: int
    rows_published: int
    snapshot_id: int | None
    run: str
    saved: str


def roll_back(stack: str | None, stream_name: str, day: str, version: int, *, as_json: bool) -> None:
    """Roll the day back and print its new version. Raises what ``rollback_day`` raises."""
    from tidemark.cli.spark import command_spark
    from tidemark.reconcile.rollback import rollback_day

    wanted, settings = parse_day(day), connect_s3(stack)
    run = Run.open(stream_name, run_name(f"rollback-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"), settings)
    console = Console(stderr=True) if as_json else open_console()
    with command_spark(settings, f"tidemark-rollback-{stream_name}", console) as spark, console.status("rolling back"):
        seal = rollback_day(run, spark, day=wanted, version=version)
    already = run.require(ROLLBACK).already
    saved = f"s3://{run.store.bucket}/{run.key(ROLLBACK.name)}"
    if as_json:
        result = RolledBack(
            stream=stream_name,
            day=wanted,
            rolled_back_to=version,
            already=already,
            version=seal.version,
            rows_published=seal.rows_published,
            snapshot_id=seal.snapshot_id,
            run=run.name,
            saved=saved,
        )
        print_result("rollback", result)
        return
    verb = "already has the rows of" if already else "is rolled back to"
    console.print(plain(f"{wanted} of stream {stream_name} {verb} version {version}"))
    console.print(plain(f"version {seal.version}: {seal.rows_published:,} rows in snapshot {seal.snapshot_id}"))
    console.print(plain(f"saved as {saved}"))
