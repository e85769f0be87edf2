"""Commands that only read. Slow imports stand inside the command that needs them, so that --help is quick."""

from typing import Annotated, Literal

import typer

from tidemark.cli.root import Day, Stack, StreamName, app, exit_with


@app.command()
def streams(stack: Stack = None) -> None:
    """Check every stream's YAML file, transformation and quality checks, without a server.

    With a catalog, it also shows how the next rebuild changes each table. Exits 1 if a stream is wrong.
    """
    from tidemark.cli.streams import check_streams

    if not check_streams(stack):
        raise typer.Exit(1)


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

    exit_with(lambda: print_verification(stack, stream, day, version, as_json=as_json))


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
        Literal["archive", "speed", "replay", "reconcile", "reader", "maintenance"] | None,
        typer.Option(help="Check what this role needs. Default: what all roles need together."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    stack: Stack = None,
) -> None:
    """Check connections and permissions in Kafka, S3 and the catalog, and this machine's Java, jars and clock.

    It undoes whatever it tries. Exits 1 if a line is FAILED. The line after it says what to do.
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
    """Print the least permissions that a stream needs in Kafka, as commands of kafka-acls.sh.

    Runs none of them, and needs no connection to Kafka.
    """
    from tidemark.cli.acls import print_acls

    print_acls(stack, stream, role or (), principal=principal)


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

    exit_with(lambda: print_delivery(stack, stream, start, end))
