"""The commands. What is slow to import waits inside the command that needs it, so that --help is quick."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tidemark.core.errors import TidemarkError

app = typer.Typer(
    name="tidemark",
    help="Kafka topics in S3 and back in Kafka, with every day proven complete.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Stack = Annotated[
    str | None,
    typer.Option(help="A local stack by name (local, demo). Without it: TIDEMARK_* variables, else the one that runs."),
]


@app.command()
def up(
    name: Annotated[str, typer.Option(help="The stack's name: its data is in .tidemark/<name>.")] = "local",
    *,
    streams: Annotated[
        list[str] | None,
        typer.Option(help="Run this stream's archive and speed layer too. May be repeated; 'all' runs every stream."),
    ] = None,
    airflow: Annotated[bool, typer.Option("--airflow", help="Run Airflow with the reconcile DAGs too.")] = False,
) -> None:
    """Start a local stack (Kafka and an S3 server), say where it is, and keep it up until Ctrl-C."""
    from tidemark.cli.up import run_stack

    run_stack(name, streams=streams or (), with_airflow=airflow)


@app.command()
def streams(stack: Stack = None) -> None:
    """Check every stream's YAML file and transformation."""
    from tidemark.cli.streams import check_streams

    if not check_streams(stack):
        raise typer.Exit(1)


@app.command()
def reconcile(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    *,
    from_day: Annotated[str | None, typer.Option("--from", help="First day. [default: yesterday]")] = None,
    to_day: Annotated[str | None, typer.Option("--to", help="Last day. [default: the same day]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Rebuild days that have nothing new, too.")] = False,
    stack: Stack = None,
) -> None:
    """Rebuild, prove and publish days without Airflow: every step of a reconcile run, one after the other."""
    from tidemark.cli.reconcile import reconcile as run_steps

    run_steps(stack, stream, from_day=from_day, to_day=to_day, force=force)


@app.command()
def where(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    topic: Annotated[str, typer.Argument(help="Its Kafka topic.")],
    partition: Annotated[int, typer.Argument(min=0, help="The record's partition of the topic.")],
    offset: Annotated[int, typer.Argument(min=0, help="Its offset in the partition.")],
    stack: Stack = None,
) -> None:
    """Name the object, manifest, seal and snapshot that hold one record."""
    from tidemark.cli.where import print_location

    print_location(stack, stream, topic, partition, offset)


@app.command()
def report(
    stream: Annotated[str | None, typer.Argument(help="The stream's name; without it, any stream.")] = None,
    stack: Stack = None,
) -> None:
    """Say where the report of the last reconcile run is, and its verdict."""
    from tidemark.cli.report import print_last_report

    print_last_report(stack, stream)


@app.command()
def days(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    *,
    from_day: Annotated[
        str | None, typer.Option("--from", help="First day. [default: of the last 30, the first since one was sealed]")
    ] = None,
    to_day: Annotated[str | None, typer.Option("--to", help="Last day. [default: yesterday]")] = None,
    grace_hours: Annotated[
        int, typer.Option(min=0, max=8760, help="How long after its end a day may be without a seal.")
    ] = 6,
    stack: Stack = None,
) -> None:
    """Show which days are sealed and how, and which are not; 1 when one should be and is not."""
    from tidemark.cli.days import print_days

    if not print_days(stack, stream, from_day=from_day, to_day=to_day, grace_hours=grace_hours):
        raise typer.Exit(1)


@app.command()
def versions(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    day: Annotated[str, typer.Argument(help="A day, in the stream's time zone.")],
    stack: Stack = None,
) -> None:
    """List every sealed version of a day: rows, snapshots, when and why it was made, and which one readers see."""
    from tidemark.cli.versions import print_versions

    print_versions(stack, stream, day)


@app.command()
def rollback(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    day: Annotated[str, typer.Argument(help="A day, in the stream's time zone.")],
    version: Annotated[int, typer.Option("--to", min=1, help="The version whose rows the day shall have.")],
    stack: Stack = None,
) -> None:
    """Make a day's rows those of an earlier version again, as a new version, in one atomic step."""
    from tidemark.cli.versions import roll_back

    roll_back(stack, stream, day, version)


@app.command()
def verify(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    day: Annotated[str, typer.Argument(help="A sealed day, in the stream's time zone.")],
    *,
    version: Annotated[
        int | None, typer.Option(min=1, help="A version of the day's seal. [default: the latest]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    stack: Stack = None,
) -> None:
    """Derive a sealed day's proof anew and compare it; 1 for a difference, 2 where it can't be told."""
    from tidemark.cli.verify import print_verification

    try:
        code = print_verification(stack, stream, day, version, as_json=as_json)
    except TidemarkError as error:
        _explain(error)
        code = 2
    raise typer.Exit(code)


@app.command()
def health(
    stream: Annotated[str | None, typer.Argument(help="The stream's name; without it, every stream.")] = None,
    *,
    stale_seconds: Annotated[float, typer.Option(min=0, help="A heartbeat older than this is not well.")] = 60,
    stack: Stack = None,
) -> None:
    """Show every stream's last word, and how long Kafka keeps what is not archived; 1 when one is not well."""
    from tidemark.cli.health import print_health

    if not print_health(stack, stream, stale_seconds=stale_seconds):
        raise typer.Exit(1)


@app.command()
def topics(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    stack: Stack = None,
) -> None:
    """Name every setting of the stream's output topics and their cluster that can lose records; 1 when there is one."""
    from tidemark.cli.topics import print_findings

    if not print_findings(stack, stream):
        raise typer.Exit(1)


@app.command()
def adopt(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    prefix: Annotated[str, typer.Option("--from", help="The folder in the archive's bucket; topics.dir, or below it.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be adopted.")] = False,
    topic_id: Annotated[
        str | None, typer.Option(help="Vouch that the objects are of this topic, where Kafka can't tell any more.")
    ] = None,
    stack: Stack = None,
) -> None:
    """Make objects that Kafka Connect wrote part of the archive, where they are."""
    from tidemark.cli.adopt import adopt_objects

    adopt_objects(stack, stream, prefix, dry_run=dry_run, topic_id=topic_id)


@app.command()
def replay(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    stack: Stack = None,
) -> None:
    """Send a stream's dead letters through its transformation once more, after a fix."""
    from tidemark.cli.replay import replay_letters

    replay_letters(stack, stream)


@app.command()
def delivery(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    *,
    start: Annotated[
        str | None, typer.Option("--from", help="A day, or a moment, in the stream's time zone. [default: yesterday]")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="The last day, or the moment behind the span. [default: the same day]")
    ] = None,
    stack: Stack = None,
) -> None:
    """Compare the live and the dead-letter topic with the archive; 1 for findings, 2 where it can't be told."""
    from tidemark.cli.delivery import print_delivery

    try:
        code = print_delivery(stack, stream, start, end)
    except TidemarkError as error:
        _explain(error)
        code = 2
    raise typer.Exit(code)


@app.command()
def maintain(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    *,
    older_than: Annotated[str, typer.Option(help="Of uploads and objects: a number and s, m, h or d.")] = "1d",
    clean_tables: Annotated[
        bool,
        typer.Option(
            "--clean-tables",
            help="Drop old audit branches, expire snapshots, delete files of none: else they are only shown.",
        ),
    ] = False,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact",
            help="Write small files anew as large ones, delete those replaced a week ago: else it is only shown.",
        ),
    ] = False,
    rebuild_ledger: Annotated[
        bool, typer.Option("--rebuild-ledger", help="Make the ledger anew, from the manifests alone.")
    ] = False,
    stack: Stack = None,
) -> None:
    """Abort uploads that nobody finished, list objects that no manifest lists, clean the tables, compact ledger and
    files."""
    from tidemark.cli.maintain import print_maintenance

    print_maintenance(
        stack, stream, older_than, clean_tables=clean_tables, compact=compact, rebuild_ledger=rebuild_ledger
    )


@app.command()
def demo(
    *,
    leave: Annotated[bool, typer.Option("--exit", help="Leave at the end instead of staying up until Ctrl-C.")] = False,
) -> None:
    """Replay two days of real departures, damage them, reconcile them, and prove them whole."""
    from tidemark.demo.run import demo as run_demo

    raise typer.Exit(run_demo(exit_after=leave))


def main() -> None:
    """The command's entry point: an explained failure is one paragraph on standard error and exit code 1."""
    try:
        app()
    except TidemarkError as error:
        _explain(error)
        sys.exit(1)


def _explain(error: TidemarkError) -> None:
    Console(stderr=True, soft_wrap=True).print(Text(f"{type(error).__name__}: {error}", style="red"))
