"""``tidemark adopt``: objects of Kafka Connect become part of the archive, or the reason why not is shown."""

import os

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from tidemark.adopt.run import Adoption, adopt
from tidemark.cli.connect import connect
from tidemark.definitions.stream import load_stream
from tidemark.spark.session import bare_session
from tidemark.stack.java import BRIEF_JVM, java_command

SHOWN_MAX = 5


def adopt_objects(stack: str | None, stream_name: str, prefix: str, *, dry_run: bool, topic_id: str | None) -> None:
    """Adopt what lies below the prefix, and print what became of it; raises what ``adopt`` raises."""
    settings = connect(stack)
    stream = load_stream(stream_name, settings.streams_dir)
    java_command()
    os.environ.update(BRIEF_JVM)
    console = Console(soft_wrap=True)
    with console.status("starting Spark, some ten seconds"):
        master, memory = settings.spark_master, settings.spark_driver_memory
        spark = bare_session("tidemark-adopt", master=master, driver_memory=memory)
    columns = (TextColumn("reading objects"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("read", total=None)
            outcome = adopt(
                spark,
                settings,
                stream,
                prefix,
                topic_id=topic_id,
                dry_run=dry_run,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
    finally:
        spark.stop()
    print_outcome(console, outcome)


def print_outcome(console: Console, outcome: Adoption) -> None:
    """A row per partition; then every refused object with its reason, and what else lies below the prefix."""
    title = "Would be adopted" if outcome.dry_run else "Adopted"
    table = Table(title=f"{title} for stream {outcome.stream} from {outcome.folder or 'the whole bucket'}")
    table.add_column("partition", justify="right")
    for name in ("objects", "before", "refused", "rows", "size"):
        table.add_column(name, justify="right")
    table.add_column("offsets held")
    table.add_column("gaps")
    for log in outcome.logs:
        table.add_row(
            str(log.log.partition),
            f"{log.new:,}",
            f"{log.known:,}",
            f"{len(log.refused):,}",
            f"{log.rows:,}",
            decimal(log.bytes),
            f"[{log.held[0].start}, {log.held[-1].end})" if log.held else "none",
            _few([str(gap) for gap in log.gaps]) or "none",
        )
    console.print(table)
    for log in outcome.logs:
        for refused in log.refused:
            console.print(Text(f"refused  {refused.key}: {refused.reason}", style="red"))
    for ignored in outcome.ignored:
        kind = "1 object" if ignored.count == 1 else f"{ignored.count:,} objects"
        more = ", …" if ignored.count > len(ignored.examples) else ""
        console.print(Text(f"ignored  {kind}, {ignored.reason}: {', '.join(ignored.examples)}{more}", style="yellow"))
    if outcome.compared:
        console.print(Text(f"{outcome.compared} values compared with Kafka's: all alike"))
    if outcome.manifests:
        console.print(Text(f"manifests: {_few(list(outcome.manifests))}"))


def _few(texts: list[str]) -> str:
    more = f", and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
    return ", ".join(texts[:SHOWN_MAX]) + more
