"""Commands that change something. Slow imports stand inside the command that needs them, so that --help is quick."""

from typing import Annotated

import typer

from tidemark.cli.root import FINE, WRONG, Action, AsJson, Day, Secure, Stack, StreamName, app, exit_with

Force = Annotated[bool, typer.Option("--force", help="Rebuild days that have nothing new, too.")]


@app.command(cls=Action)
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


@app.command(cls=Action)
def jars(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also fetch the jars of a local stack's servers.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch the jars that Spark loads from Maven Central, checked by their SHA-256 sums.

    It does nothing if the jars are there already.
    """
    from tidemark.cli.jars import fetch_jars

    fetch_jars(everything=everything, as_json=as_json)


@app.command(cls=Action)
def reconcile(
    stream: StreamName,
    *,
    from_day: Annotated[str | None, typer.Option("--from", help="First day. Default: yesterday.")] = None,
    to_day: Annotated[str | None, typer.Option("--to", help="Last day. Default: the same day.")] = None,
    force: Force = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Seal the days without records that Kafka deleted unarchived.")
    ] = False,
    approve: Annotated[
        str | None,
        typer.Option(
            "--approve", metavar="WORDS", help="Approve what the stream's batch.approval asks for, for this reason."
        ),
    ] = None,
    reassign_days: Annotated[
        bool,
        typer.Option(
            "--reassign-days",
            help="After a change of a key that decides days: rebuild the requested days, and all sealed days"
            " that records move to or from.",
        ),
    ] = False,
    as_json: AsJson = False,
    stack: Stack = None,
) -> None:
    """Rebuild, prove and publish days without Airflow. Exits 1 if a step fails.

    It does every step of a reconcile run, one after the other. If another run of the stream is under way, it waits.
    """
    from tidemark.cli.reconcile import reconcile as run_steps

    code = run_steps(
        stack,
        stream,
        from_day=from_day,
        to_day=to_day,
        force=force,
        accept_loss=accept_loss,
        approve=approve,
        reassign_days=reassign_days,
        as_json=as_json,
    )
    exit_with(code)


@app.command(cls=Action)
def backfill(
    stream: StreamName,
    *,
    from_day: Annotated[str, typer.Option("--from", help="First day.")],
    to_day: Annotated[str, typer.Option("--to", help="Last day, included. It must be over.")],
    days_per_run: Annotated[
        int, typer.Option(min=1, max=92, help="Days per run. A day that fails its checks fails its whole run.")
    ] = 7,
    force: Force = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the days and runs.")] = False,
    as_json: AsJson = False,
    stack: Stack = None,
) -> None:
    """Reconcile many days in several runs, one after the other, without Airflow. Exits 1 if a day is still not sealed.

    It first shows which days are sealed already, and leaves them out. A run that fails does not stop the next one. To
    continue after an interruption, repeat the command.
    """
    from tidemark.cli.arguments import parse_day
    from tidemark.cli.backfill import backfill as run_days

    code = run_days(
        stack,
        stream,
        parse_day(from_day),
        parse_day(to_day),
        days_per_run=days_per_run,
        force=force,
        dry_run=dry_run,
        as_json=as_json,
    )
    exit_with(code)


@app.command(cls=Action)
def rollback(
    stream: StreamName,
    day: Day,
    version: Annotated[int, typer.Option("--to", min=1, help="The version whose rows to publish.")],
    *,
    as_json: AsJson = False,
    stack: Stack = None,
) -> None:
    """Publish the rows of an earlier version of a day again, as a new version, in one atomic step.

    Repeating the command changes nothing.
    """
    from tidemark.cli.rollback import roll_back

    roll_back(stack, stream, day, version, as_json=as_json)


@app.command(cls=Action)
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
    as_json: AsJson = False,
    stack: Stack = None,
) -> None:
    """Show how far exactly-once delivery has come in each partition, or set a marker that Kafka lost.

    Stop the stream before you set a marker.
    """
    from tidemark.cli.markers import print_markers

    print_markers(stack, stream, positions or (), copy_from=copy_from, replay=replay, as_json=as_json)


@app.command(cls=Action)
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
    as_json: AsJson = False,
    stack: Stack = None,
) -> None:
    """Import what Confluent's S3 sink for Kafka Connect wrote, without offsets that are archived already.

    Reads .json, .json.gz, .bin, .bin.gz, .avro and .parquet, with any partitioner, and the .keys and .headers objects
    beside them. Exits 1 if something was not imported.
    """
    from tidemark.adopt.rows import ValueFields
    from tidemark.cli.adopt import adopt_objects

    fields = ValueFields(offset=offset_field, timestamp=timestamp_field)
    complete = adopt_objects(stack, stream, prefix, fields=fields, topic_id=topic_id, dry_run=dry_run, as_json=as_json)
    exit_with(FINE if complete else WRONG)


@app.command(cls=Action)
def replay(stream: StreamName, *, as_json: AsJson = False, stack: Stack = None) -> None:
    """Send a stream's dead letters through its present transformation, after a fix, each exactly once.

    A replay that was killed continues at the next start.
    """
    from tidemark.cli.replay import replay_dead_letters

    replay_dead_letters(stack, stream, as_json=as_json)


@app.command(cls=Action)
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
    as_json: AsJson = False,
    stack: Stack = None,
) -> None:
    """Maintain a stream: abort unfinished uploads, compact the ledger, and show what else there is to clean.

    Without options, the command deletes no object and no row.
    """
    from tidemark.cli.maintain import print_maintenance

    print_maintenance(
        stack,
        stream,
        older_than,
        clean_tables=clean_tables,
        compact=compact,
        rebuild_ledger=rebuild_ledger,
        as_json=as_json,
    )


@app.command(cls=Action)
def demo(
    *,
    leave: Annotated[bool, typer.Option("--exit", help="Exit at the end instead of running until Ctrl-C.")] = False,
    secure: Secure = False,
) -> None:
    """Replay two days of real departures, damage the archive, reconcile it, and prove the days complete.

    Exits 1 if a statement of the demo is false. Exits 130 if it was interrupted.
    """
    from tidemark.demo.run import demo as run_demo

    exit_with(run_demo(exit_after=leave, secure=secure))
