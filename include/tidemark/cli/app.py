"""The commands. Slow imports stand inside the command that needs them, so that --help is quick."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tidemark.core.errors import TidemarkError

app = typer.Typer(
    name="tidemark",
    help="Archive Kafka topics to S3, deliver them transformed, and prove every day complete.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Stack = Annotated[
    str | None,
    typer.Option(help="A local stack (local, demo). Default: TIDEMARK_* variables, or else the running stack."),
]


@app.command()
def up(
    name: Annotated[str, typer.Option(help="The stack's name: its data is in .tidemark/<name>.")] = "local",
    *,
    streams: Annotated[bool, typer.Option("--streams", help="Run every stream's archive and speed layer too.")] = False,
    airflow: Annotated[bool, typer.Option("--airflow", help="Run Airflow with the reconcile DAGs too.")] = False,
) -> None:
    """Start a local stack (Kafka and an S3 server), print its addresses, and run it until Ctrl-C."""
    from tidemark.cli.up import run_stack

    run_stack(name, with_streams=streams, with_airflow=airflow)


@app.command()
def streams(stack: Stack = None) -> None:
    """Check every stream's YAML file and transformation. Exits 1 if any stream is invalid."""
    from tidemark.cli.streams import check_streams

    if not check_streams(stack):
        raise typer.Exit(1)


@app.command()
def where(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    topic: Annotated[str, typer.Argument(help="Its Kafka topic.")],
    partition: Annotated[int, typer.Argument(min=0, help="The record's partition of the topic.")],
    offset: Annotated[int, typer.Argument(min=0, help="Its offset in the partition.")],
    stack: Stack = None,
) -> None:
    """Show the object, manifest, seal and snapshot that hold one record."""
    from tidemark.cli.where import print_location

    print_location(stack, stream, topic, partition, offset)


@app.command()
def report(
    stream: Annotated[str | None, typer.Argument(help="The stream's name. Default: any stream.")] = None,
    stack: Stack = None,
) -> None:
    """Show the verdict of the last reconcile run, and where its report is."""
    from tidemark.cli.report import print_last_report

    print_last_report(stack, stream)


@app.command()
def days(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    *,
    from_day: Annotated[
        str | None,
        typer.Option("--from", help="First day. Default: the first sealed or archived one, at most 30 days back."),
    ] = None,
    to_day: Annotated[str | None, typer.Option("--to", help="Last day. Default: yesterday.")] = None,
    grace_hours: Annotated[
        int, typer.Option(min=0, max=8760, help="Hours after its end until a day without a seal is overdue.")
    ] = 6,
    stack: Stack = None,
) -> None:
    """Show which days are sealed, and how. Exits 1 if any day is overdue."""
    from tidemark.cli.days import print_days

    if not print_days(stack, stream, from_day=from_day, to_day=to_day, grace_hours=grace_hours):
        raise typer.Exit(1)


@app.command()
def versions(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    day: Annotated[str, typer.Argument(help="A day, in the stream's time zone.")],
    stack: Stack = None,
) -> None:
    """List every sealed version of a day: rows, snapshots, time and reason, and which one is current."""
    from tidemark.cli.versions import print_versions

    print_versions(stack, stream, day)


@app.command()
def rollback(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    day: Annotated[str, typer.Argument(help="A day, in the stream's time zone.")],
    version: Annotated[int, typer.Option("--to", min=1, help="The version to go back to.")],
    stack: Stack = None,
) -> None:
    """Publish an earlier version's rows of a day again, as a new version, in one atomic step."""
    from tidemark.cli.versions import roll_back

    roll_back(stack, stream, day, version)


@app.command()
def verify(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    day: Annotated[str, typer.Argument(help="A sealed day, in the stream's time zone.")],
    *,
    version: Annotated[
        int | None, typer.Option(min=1, help="A version of the day's seal. Default: the latest.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    stack: Stack = None,
) -> None:
    """Recompute a sealed day's proof and compare it. Exits 1 if it differs, 2 if the result is unknown."""
    from tidemark.cli.verify import print_verification

    try:
        code = print_verification(stack, stream, day, version, as_json=as_json)
    except TidemarkError as error:
        _explain(error)
        code = 2
    raise typer.Exit(code)


@app.command()
def health(
    stream: Annotated[str | None, typer.Argument(help="The stream's name. Default: every stream.")] = None,
    *,
    stale_seconds: Annotated[float, typer.Option(min=0, help="Seconds after which a heartbeat is stale.")] = 60,
    stack: Stack = None,
) -> None:
    """Show the health of every stream, and how long Kafka keeps what is not archived. Exits 1 if any is unhealthy."""
    from tidemark.cli.health import print_health

    if not print_health(stack, stream, stale_seconds=stale_seconds):
        raise typer.Exit(1)


@app.command()
def topics(stream: Annotated[str, typer.Argument(help="The stream's name.")], stack: Stack = None) -> None:
    """Show settings of the output topics and their cluster that can lose records. Exits 1 if there are any."""
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
def replay(stream: Annotated[str, typer.Argument(help="The stream's name.")], stack: Stack = None) -> None:
    """Process a stream's dead letters again, after a fix of its transformation."""
    from tidemark.cli.replay import replay_dead_letters

    replay_dead_letters(stack, stream)


@app.command()
def delivery(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    *,
    start: Annotated[
        str | None, typer.Option("--from", help="A day or a time, in the stream's time zone. Default: yesterday.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="The last day (inclusive) or a time (exclusive). Default: the same day.")
    ] = None,
    stack: Stack = None,
) -> None:
    """Compare the output topics with the archive. Exits 1 if there are findings, 2 if the result is unknown."""
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
    older_than: Annotated[str, typer.Option(help="Age of uploads and objects: a number and s, m, h or d.")] = "1d",
    clean_tables: Annotated[
        bool,
        typer.Option(
            "--clean-tables",
            help="Drop old audit branches, expire snapshots, delete orphan files. Without it, only show them.",
        ),
    ] = False,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact", help="Compact small files, and delete those replaced a week ago. Without it, only show them."
        ),
    ] = False,
    rebuild_ledger: Annotated[
        bool, typer.Option("--rebuild-ledger", help="Rebuild the ledger from the manifests.")
    ] = False,
    stack: Stack = None,
) -> None:
    """Abort unfinished uploads, list orphan objects, clean the tables, compact ledger and files."""
    from tidemark.cli.maintain import print_maintenance

    print_maintenance(
        stack, stream, older_than, clean_tables=clean_tables, compact=compact, rebuild_ledger=rebuild_ledger
    )


@app.command()
def demo(
    *, leave: Annotated[bool, typer.Option("--exit", help="Exit at the end instead of running until Ctrl-C.")] = False
) -> None:
    """Stream two days of real departures, damage them, reconcile them, and verify that they are complete."""
    from tidemark.demo.run import demo as run_demo

    raise typer.Exit(run_demo(exit_after=leave))


def main() -> None:
    """The command's entry point. A TidemarkError becomes one paragraph on standard error and exit code 1."""
    try:
        app()
    except TidemarkError as error:
        _explain(error)
        sys.exit(1)


def _explain(error: TidemarkError) -> None:
    Console(stderr=True, soft_wrap=True).print(Text(f"{type(error).__name__}: {error}", style="red"))
