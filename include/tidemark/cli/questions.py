"""Commands that only read. Slow imports stand inside the command that needs them, so that --help is quick."""

from typing import Annotated, Literal

import typer

from tidemark.cli.root import FINE, WRONG, AnyStream, AsJson, Question, Stack, StreamName, app, exit_with
from tidemark.core.errors import ConfigError

_GRACE = "Hours after its end until a day without a seal is overdue. A stream's batch.sealed_by replaces it."


@app.command(cls=Question)
def status(
    stream: AnyStream = None,
    day: Annotated[str | None, typer.Argument(help="A day of the stream: show its versions.")] = None,
    *,
    from_day: Annotated[
        str | None,
        typer.Option(
            "--from", help="First day to show. Default: the first sealed or archived one, at most 30 days back."
        ),
    ] = None,
    to_day: Annotated[str | None, typer.Option("--to", help="Last day to show. Default: yesterday.")] = None,
    grace_hours: Annotated[int, typer.Option(min=0, max=8760, help=_GRACE)] = 6,
    layer: Annotated[
        Literal["archive", "speed", "departures"] | None,
        typer.Option(help="Only check whether this layer of the stream is alive, by its heartbeat. For probes."),
    ] = None,
    stale_seconds: Annotated[float, typer.Option(min=0, help="A layer with an older heartbeat is stale.")] = 60,
    as_json: AsJson = False,
    stack: Stack = None,
) -> None:
    """Say whether everything is fine, and what needs attention: in all streams, in one stream, or in one day.

    For a stream it shows layers, days, the last run, and settings of its topics that can lose records. For a day it
    shows every sealed version: rows, checks, losses, snapshots, and the place of the report. Exits 1 if something needs
    attention. Exits 2 if the command could not find out.
    """
    if (layer or from_day or to_day or day) and stream is None:
        raise typer.BadParameter("needs a stream", param_hint="STREAM")
    if day is not None and (layer or from_day or to_day):
        raise typer.BadParameter("can't be used with --layer, --from or --to", param_hint="DAY")
    if day is not None:
        from tidemark.cli.day import print_day

        exit_with(print_day(stack, stream or "", day, as_json=as_json))
    if stream is not None and layer is not None:
        from tidemark.cli.probe import print_layer

        exit_with(print_layer(stack, stream, layer, stale_seconds=stale_seconds, as_json=as_json))
    from tidemark.cli import status as views

    if stream is None:
        code = views.print_status(stack, stale_seconds=stale_seconds, grace_hours=grace_hours, as_json=as_json)
    else:
        from tidemark.cli.arguments import parse_day

        code = views.print_stream(
            stack,
            stream,
            first=parse_day(from_day) if from_day else None,
            last=parse_day(to_day) if to_day else None,
            stale_seconds=stale_seconds,
            grace_hours=grace_hours,
            as_json=as_json,
        )
    exit_with(code)


@app.command(cls=Question)
def streams(*, as_json: AsJson = False, stack: Stack = None) -> None:
    """Check every stream's YAML file, transformation and quality checks, without a server.

    With a catalog, it also shows how the next rebuild changes each table. It estimates the costs of a day, and warns
    about costly settings. Exits 1 if a stream is wrong.
    """
    from tidemark.cli.streams import check_streams

    exit_with(FINE if check_streams(stack, as_json=as_json) else WRONG)


@app.command(cls=Question)
def where(
    stream: StreamName,
    topic: Annotated[str | None, typer.Argument(help="The record's Kafka topic.")] = None,
    partition: Annotated[int | None, typer.Argument(min=0, help="Its partition of the topic.")] = None,
    offset: Annotated[int | None, typer.Argument(min=0, help="Its offset in the partition.")] = None,
    *,
    day: Annotated[
        str | None, typer.Option(help="With --key or --rejected: the records' day, in the stream's time zone.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="List the day's records with this key, 100 at a time.")] = None,
    key_is: Annotated[
        Literal["text", "hex"] | None,
        typer.Option(help="With --key: it is given as text (the default), or as bytes in hexadecimal."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="PLACE", help="With --key: continue the list, as the last search printed it."),
    ] = None,
    rejected: Annotated[
        bool, typer.Option("--rejected", help="Count the day's rejected records by reason, and list the first 100.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option(help="With --rejected: only reasons that have this text, in any case.")
    ] = None,
    as_json: AsJson = False,
    stack: Stack = None,
) -> None:
    """Show the object, manifest, seal and snapshot that hold one record, or list a day's records.

    Give TOPIC, PARTITION and OFFSET, or --day with --key or --rejected. Also shows whether a record was published,
    quarantined, or removed as a duplicate by key. Exits 2 if an object could not be read:
    records may be missing from the list then.
    """
    from tidemark.cli.arguments import parse_day
    from tidemark.cli.where import print_location, print_records, print_rejected

    of_day = topic is None and day is not None
    of_a_day = rejected or any(item is not None for item in (day, key, key_is, start, reason))
    if topic is not None and partition is not None and offset is not None and not of_a_day:
        print_location(stack, stream, topic, partition, offset, as_json=as_json)
    elif of_day and key is not None and not (rejected or reason):
        code = print_records(stack, stream, parse_day(day or ""), key, key_is or "text", start=start, as_json=as_json)
        exit_with(code)
    elif of_day and rejected and key is None and key_is is None and start is None:
        print_rejected(stack, stream, parse_day(day or ""), reason, as_json=as_json)
    else:
        raise typer.BadParameter("give TOPIC, PARTITION and OFFSET, or --day with --key or --rejected")


@app.command(cls=Question)
def verify(
    stream: StreamName,
    day: Annotated[str | None, typer.Argument(help="A sealed day, in the stream's time zone.")] = None,
    *,
    version: Annotated[
        int | None, typer.Option(min=1, help="A version of the day's seal. Default: the latest.")
    ] = None,
    all_days: Annotated[
        bool,
        typer.Option(
            "--all", help="Check all sealed days together, without DAY: each archived record must be in exactly one."
        ),
    ] = False,
    as_json: AsJson = False,
    stack: Stack = None,
) -> None:
    """Recompute the proof of a sealed day from archive, tables and Kafka, and compare it with the seal.

    Exits 1 if something differs. Exits 2 if the command could not find out.
    """
    from tidemark.cli.verify import print_all_days, print_verification

    if all_days and day is None and version is None:
        exit_with(print_all_days(stack, stream, as_json=as_json))
    elif day is not None and not all_days:
        exit_with(print_verification(stack, stream, day, version, as_json=as_json))
    else:
        raise typer.BadParameter("give either a DAY, or --all without DAY and --version")


@app.command(cls=Question)
def metrics(
    stream: AnyStream = None,
    *,
    serve: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve them at http://HOST:PORT/metrics. Default: print them once."),
    ] = None,
    stale_seconds: Annotated[float, typer.Option(min=0, help="A layer with an older heartbeat is not alive.")] = 60,
    grace_hours: Annotated[float, typer.Option(min=0, help=_GRACE)] = 6,
    stack: Stack = None,
) -> None:
    """Show the status of every stream as metrics in Prometheus' format, for alerts and dashboards.

    A server that does not answer is a problem in the metrics, not an error.
    """
    try:
        from tidemark.cli.metrics import print_metrics
    except ModuleNotFoundError as error:
        raise ConfigError("a package is missing", found=error, hint="Install tidemark[otel]") from None

    print_metrics(stack, stream, serve=serve, stale_seconds=stale_seconds, grace_hours=grace_hours)


@app.command(cls=Question)
def doctor(
    stream: AnyStream = None,
    *,
    role: Annotated[
        Literal["archive", "speed", "replay", "reconcile", "reader", "maintenance"] | None,
        typer.Option(help="Check what this role needs. Default: what all roles need together."),
    ] = None,
    jars: Annotated[
        bool, typer.Option("--jars", help="First fetch the jars that Spark loads, as 'tidemark jars' does.")
    ] = False,
    as_json: AsJson = False,
    stack: Stack = None,
) -> None:
    """Check connections and permissions in Kafka, S3 and the catalog, and this machine's Java, jars and clock.

    It undoes whatever it tries. Exits 1 if a line is FAILED. The line after it says what to do.
    """
    from tidemark.cli.doctor import print_checkup
    from tidemark.cli.jars import ensure_spark_jars
    from tidemark.inspect.doctor.roles import ROLES

    if jars:
        ensure_spark_jars()
    exit_with(FINE if print_checkup(stack, stream, (role,) if role else ROLES, as_json=as_json) else WRONG)


@app.command(cls=Question)
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
    as_json: AsJson = False,
    stack: Stack = None,
) -> None:
    """Print the least permissions that a stream needs in Kafka, as commands of kafka-acls.sh.

    Runs none of them, and needs no connection to Kafka.
    """
    from tidemark.cli.acls import print_acls

    print_acls(stack, stream, role or (), principal=principal, as_json=as_json)


@app.command(cls=Question)
def delivery(
    stream: StreamName,
    *,
    start: Annotated[
        str | None, typer.Option("--from", help="A day or a time, in the stream's time zone. Default: yesterday.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="The last day (inclusive) or a time (exclusive). Default: the same day.")
    ] = None,
    as_json: AsJson = False,
    stack: Stack = None,
) -> None:
    """Compare the live topic and the dead-letter topic with the archive: missing, duplicated and unexpected records.

    Exits 1 if records are missing or unexpected, or duplicated in spite of exactly_once. Exits 2 if the command could
    not find out.
    """
    from tidemark.cli.delivery import print_delivery

    exit_with(print_delivery(stack, stream, start, end, as_json=as_json))
