"""The commands. Slow imports stand inside the command that needs them, so that --help is quick."""

import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Literal

import typer
from rich.console import Console

from tidemark.cli.output import plain
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
Secure = Annotated[
    bool, typer.Option("--secure", help="TLS, a user per role with the least rights, encryption, a REST catalog.")
]
StreamName = Annotated[str, typer.Argument(help="The stream's name.")]
Day = Annotated[str, typer.Argument(help="A day, in the stream's time zone.")]


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidemark {version('tidemark')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=lambda wanted: _version(wanted=wanted), is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    pass


@app.command()
def up(
    name: Annotated[str, typer.Option(help="The stack's name: its data is in .tidemark/<name>.")] = "local",
    *,
    streams: Annotated[
        list[str] | None,
        typer.Option(help="Run this stream's archive and speed layer too. May be repeated; 'all' runs every stream."),
    ] = None,
    airflow: Annotated[bool, typer.Option("--airflow", help="Run Airflow with the reconcile DAGs too.")] = False,
    secure: Secure = False,
) -> None:
    """Start a local stack (Kafka and an S3 server), print its addresses, and run it until Ctrl-C."""
    from tidemark.cli.up import run_stack

    run_stack(name, streams=streams or (), with_airflow=airflow, secure=secure)


@app.command()
def streams(stack: Stack = None) -> None:
    """Check every stream's YAML file, transformation and quality checks, without a server.

    With a catalog, it also shows how the next rebuild changes each table. Exits 1 if a stream is wrong.
    """
    from tidemark.cli.streams import check_streams

    if not check_streams(stack):
        raise typer.Exit(1)


@app.command()
def reconcile(
    stream: StreamName,
    *,
    from_day: Annotated[str | None, typer.Option("--from", help="First day. Default: yesterday.")] = None,
    to_day: Annotated[str | None, typer.Option("--to", help="Last day. Default: the same day.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Rebuild days that have nothing new, too.")] = False,
    stack: Stack = None,
) -> None:
    """Rebuild, prove and publish days without Airflow. Exits 1 if a step fails.

    It does every step of a reconcile run, one after the other. If another run of the stream is under way, it waits.
    """
    from tidemark.cli.reconcile import reconcile as run_steps

    run_steps(stack, stream, from_day=from_day, to_day=to_day, force=force)


@app.command()
def where(
    stream: StreamName,
    topic: Annotated[str, typer.Argument(help="Its Kafka topic.")],
    partition: Annotated[int, typer.Argument(min=0, help="The record's partition of the topic.")],
    offset: Annotated[int, typer.Argument(min=0, help="Its offset in the partition.")],
    stack: Stack = None,
) -> None:
    """Show the object, manifest, seal and snapshot that hold one record.

    Also shows whether the record was published, quarantined, or removed as a duplicate by key.
    """
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
    stream: StreamName,
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
    """Show which days are sealed, with version, rows, losses, checks, and archived records that are not published.

    Exits 1 if a day should be sealed and is not.
    """
    from tidemark.cli.days import print_days

    if not print_days(stack, stream, from_day=from_day, to_day=to_day, grace_hours=grace_hours):
        raise typer.Exit(1)


@app.command()
def versions(stream: StreamName, day: Day, stack: Stack = None) -> None:
    """Show every sealed version of a day: rows, snapshots, time, reason, and which version readers see."""
    from tidemark.cli.versions import print_versions

    print_versions(stack, stream, day)


@app.command()
def rollback(
    stream: StreamName,
    day: Day,
    version: Annotated[int, typer.Option("--to", min=1, help="The version whose rows to publish.")],
    stack: Stack = None,
) -> None:
    """Publish the rows of an earlier version of a day again, as a new version, in one atomic step.

    Repeating the command changes nothing.
    """
    from tidemark.cli.versions import roll_back

    roll_back(stack, stream, day, version)


@app.command()
def verify(
    stream: StreamName,
    day: Annotated[str, typer.Argument(help="A sealed day, in the stream's time zone.")],
    *,
    version: Annotated[
        int | None, typer.Option(min=1, help="A version of the day's seal. Default: the latest.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    stack: Stack = None,
) -> None:
    """Recompute the proof of a sealed day from archive, tables and Kafka, and compare it with the seal.

    Exits 1 if something differs. Exits 2 if the command could not find out.
    """
    from tidemark.cli.verify import print_verification

    _exit_with(lambda: print_verification(stack, stream, day, version, as_json=as_json))


@app.command()
def health(
    stream: Annotated[str | None, typer.Argument(help="The stream's name. Default: every stream.")] = None,
    *,
    stale_seconds: Annotated[float, typer.Option(min=0, help="A stream with an older heartbeat is unhealthy.")] = 60,
    stack: Stack = None,
) -> None:
    """Show the health of every stream, and how long Kafka still keeps records that are not archived.

    Exits 1 if a stream is unhealthy.
    """
    from tidemark.cli.health import print_health

    if not print_health(stack, stream, stale_seconds=stale_seconds):
        raise typer.Exit(1)


@app.command()
def doctor(
    stream: Annotated[str | None, typer.Argument(help="The stream's name. Default: every stream.")] = None,
    *,
    role: Annotated[
        Literal["archive", "speed", "reconcile", "reader", "maintenance"] | None,
        typer.Option(help="Check what this role needs. Default: what all of them need."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    stack: Stack = None,
) -> None:
    """Check Kafka, S3, the catalog and this machine before anything runs: reached, permitted, versions, clocks.

    Everything it tries, it also undoes. Exits 1 if a line is FAILED; the line after it says what to do.
    """
    from tidemark.cli.doctor import print_checkup
    from tidemark.inspect.doctor.roles import ROLES

    if not print_checkup(stack, stream, (role,) if role else ROLES, as_json=as_json):
        raise typer.Exit(1)


@app.command()
def topics(stream: StreamName, stack: Stack = None) -> None:
    """Show settings of the source topic, the output topics and their clusters that can lose or refuse records.

    Exits 1 if there is such a setting.
    """
    from tidemark.cli.topics import print_findings

    if not print_findings(stack, stream):
        raise typer.Exit(1)


@app.command()
def acls(
    stream: StreamName,
    *,
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="Only for this role: archive, speed, replay, reconcile, reader, maintenance. May be repeated."
        ),
    ] = None,
    principal: Annotated[
        str | None, typer.Option(help="Who gets the permissions, such as User:tidemark. Default: User:ROLE.")
    ] = None,
    stack: Stack = None,
) -> None:
    """Show the least permissions that a stream needs in Kafka, as commands of kafka-acls.sh.

    It only prints them, and does not ask Kafka.
    """
    from tidemark.cli.acls import print_acls

    print_acls(stack, stream, role or (), principal=principal)


@app.command()
def markers(
    stream: StreamName,
    *,
    positions: Annotated[
        list[str] | None, typer.Option("--set", help="Set a marker, as PARTITION=OFFSET. May be repeated.")
    ] = None,
    copy_from: Annotated[
        str | None, typer.Option(help="Copy the markers of the deployment with this name, such as the former name.")
    ] = None,
    replay: Annotated[bool, typer.Option("--replay", help="Use the markers of the replay of dead letters.")] = False,
    stack: Stack = None,
) -> None:
    """Show how far exactly-once delivery has come in each partition, or set a marker that Kafka lost.

    Stop the stream before you set a marker.
    """
    from tidemark.cli.markers import print_markers

    print_markers(stack, stream, positions or (), copy_from=copy_from, replay=replay)


@app.command()
def adopt(
    stream: StreamName,
    prefix: Annotated[
        str, typer.Option("--from", help="A folder in the archive's bucket: the sink's topics.dir, or one in it.")
    ],
    *,
    offset_field: Annotated[
        str | None, typer.Option(help="The field of the values that holds the record's offset (InsertField).")
    ] = None,
    timestamp_field: Annotated[
        str | None, typer.Option(help="The field of the values that holds the record's timestamp (InsertField).")
    ] = None,
    topic_id: Annotated[
        str | None, typer.Option(help="Confirm that the objects are of this topic, where Kafka can't show it any more.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be imported.")] = False,
    stack: Stack = None,
) -> None:
    """Import what Confluent's S3 sink for Kafka Connect wrote, without offsets that are archived already.

    Reads .json, .json.gz, .bin, .bin.gz, .avro and .parquet, with any partitioner, and the .keys and .headers objects
    beside them. Exits 1 where something was not imported.
    """
    from tidemark.adopt.rows import ValueFields
    from tidemark.cli.adopt import adopt_objects

    fields = ValueFields(offset=offset_field, timestamp=timestamp_field)
    if not adopt_objects(stack, stream, prefix, fields=fields, topic_id=topic_id, dry_run=dry_run):
        raise typer.Exit(1)


@app.command()
def replay(stream: StreamName, stack: Stack = None) -> None:
    """Send a stream's dead letters through its present transformation, after a fix, each exactly once.

    A replay that was killed continues at the next start.
    """
    from tidemark.cli.replay import replay_dead_letters

    replay_dead_letters(stack, stream)


@app.command()
def delivery(
    stream: StreamName,
    *,
    start: Annotated[
        str | None, typer.Option("--from", help="A day or a time, in the stream's time zone. Default: yesterday.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="The last day (inclusive) or a time (exclusive). Default: the same day.")
    ] = None,
    stack: Stack = None,
) -> None:
    """Compare the live topic and the dead-letter topic with the archive: missing, duplicated and unexpected records.

    Exits 1 if there are such records. Exits 2 if the command could not find out.
    """
    from tidemark.cli.delivery import print_delivery

    _exit_with(lambda: print_delivery(stack, stream, start, end))


@app.command()
def maintain(
    stream: StreamName,
    *,
    older_than: Annotated[str, typer.Option(help="Age of uploads and objects: a number and s, m, h or d.")] = "1d",
    clean_tables: Annotated[
        bool,
        typer.Option(
            "--clean-tables",
            help="Drop old audit branches, expire snapshots, delete unused files. Default: only show them.",
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
    """Maintain a stream: abort unfinished uploads, compact the ledger, and show what else there is to clean.

    Without options, the command deletes no object and no row.
    """
    from tidemark.cli.maintain import print_maintenance

    print_maintenance(
        stack, stream, older_than, clean_tables=clean_tables, compact=compact, rebuild_ledger=rebuild_ledger
    )


@app.command()
def demo(
    *,
    leave: Annotated[bool, typer.Option("--exit", help="Exit at the end instead of running until Ctrl-C.")] = False,
    secure: Secure = False,
) -> None:
    """Replay two days of real departures, damage the archive, reconcile it, and prove the days complete.

    Exits 1 if a statement of the demo is false. Exits 130 if it was interrupted.
    """
    from tidemark.demo.run import demo as run_demo

    raise typer.Exit(run_demo(exit_after=leave, secure=secure))


def _exit_with(code: Callable[[], int]) -> None:
    """Exit with the code, or with 2 if an error kept the command from finding out."""
    try:
        raise typer.Exit(code())
    except TidemarkError as error:
        _explain(error)
        raise typer.Exit(2) from error


def main() -> None:
    """The command's entry point. A TidemarkError becomes one paragraph on standard error and exit code 1."""
    try:
        app()
    except TidemarkError as error:
        _explain(error)
        sys.exit(1)


def _explain(error: TidemarkError) -> None:
    console = Console(stderr=True, soft_wrap=True)
    for line in f"{type(error).__name__}: {error}".split("\n"):
        console.print(plain(line, style="red"))
