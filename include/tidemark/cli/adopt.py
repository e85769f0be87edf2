"""``tidemark adopt``: import what Kafka Connect's S3 sink wrote, and print what was imported and what was not."""

import os
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tidemark.adopt.rows import ValueFields
from tidemark.adopt.run import Imported, import_objects
from tidemark.cli.connect import connect_s3
from tidemark.cli.json_output import print_result
from tidemark.cli.output import plain
from tidemark.core.offsets import OffsetRange
from tidemark.definitions.stream import load_stream
from tidemark.spark.java_command import java_command
from tidemark.spark.session import quiet_session
from tidemark.stack.java import BRIEF_JVM

SHOWN_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedLog:
    """One partition: objects that were read or were archived before, records imported, and offsets not archived."""

    partition: int
    read: int
    archived_before: int
    records: int
    offsets: OffsetRange
    not_archived: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptResult:
    """An import. ``problems`` say what was not imported and why; ``ignored`` has other objects by the reason."""

    stream: str
    prefix: str
    dry_run: bool
    logs: tuple[AdoptedLog, ...]
    problems: tuple[str, ...]
    ignored: dict[str, list[str]]
    compared: int
    manifests: tuple[str, ...]


def adopt_objects(
    stack: str | None,
    stream_name: str,
    prefix: str,
    *,
    fields: ValueFields,
    topic_id: str | None,
    dry_run: bool,
    as_json: bool,
) -> bool:
    """Import what lies below the prefix and print the result. Return whether all of it was imported."""
    settings = connect_s3(stack)
    stream = load_stream(stream_name, settings.streams_dir)
    java_command()
    os.environ.update(BRIEF_JVM)
    console = Console(stderr=as_json, soft_wrap=True)
    with console.status("starting Spark, some ten seconds"):
        spark = quiet_session(settings, "tidemark-adopt", stream.spark)
    columns = (TextColumn("importing objects"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("import", total=None)
            result = import_objects(
                spark,
                settings,
                stream,
                prefix,
                fields=fields,
                topic_id=topic_id,
                dry_run=dry_run,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
    finally:
        spark.stop()
    if as_json:
        print_result("adopt", _adopt_result(result, stream_name, prefix, dry_run=dry_run))
        return not result.problems
    title = "To be imported" if dry_run else "Imported"
    print_imported(console, result, f"{title} into stream {stream_name} from {prefix}")
    return not result.problems


def _adopt_result(result: Imported, stream: str, prefix: str, *, dry_run: bool) -> AdoptResult:
    logs = tuple(
        AdoptedLog(
            partition=item.log.partition,
            read=item.read,
            archived_before=item.known,
            records=item.rows,
            offsets=item.span,
            not_archived=tuple(item.gaps),
        )
        for item in result.logs
    )
    return AdoptResult(
        stream=stream,
        prefix=prefix,
        dry_run=dry_run,
        logs=logs,
        problems=tuple(result.problems),
        ignored=result.ignored,
        compared=result.compared,
        manifests=tuple(result.manifests),
    )


def print_imported(console: Console, result: Imported, title: str) -> None:
    """A row per partition; then what was not imported with the reason, and what else lies below the prefix."""
    table = Table(title=title)
    for name in ("partition", "objects read", "archived before", "records imported"):
        table.add_column(name, justify="right")
    table.add_column("offsets")
    table.add_column("not archived")
    for log in result.logs:
        table.add_row(
            str(log.log.partition),
            f"{log.read:,}",
            f"{log.known:,}",
            f"{log.rows:,}",
            str(log.span),
            _few([str(gap) for gap in log.gaps]) or "none",
        )
    console.print(table)
    if not any(log.rows for log in result.logs):
        console.print("Nothing to import: all records that can be imported are archived")
    for problem in result.problems.values():
        console.print(plain(f"not imported  {problem}", style="red"))
    for reason, keys in result.ignored.items():
        kind = "1 object" if len(keys) == 1 else f"{len(keys):,} objects"
        console.print(plain(f"ignored  {kind}, {reason}: {_few(keys)}", style="yellow"))
    if result.compared:
        console.print(plain(f"{result.compared} values compared with Kafka's, all equal"))
    if result.manifests:
        console.print(plain(f"manifests: {_few(result.manifests)}"))


def _few(texts: list[str]) -> str:
    more = f", and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
    return ", ".join(texts[:SHOWN_MAX]) + more
