"""``tidemark replay``: a stream's dead letters once more, through its transformation as it is now."""

import os
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tidemark.cli.connect import connect
from tidemark.core.manifest import canonical_json
from tidemark.run import Run, run_name
from tidemark.spark.session import quiet_session
from tidemark.speed.replay.replay import REPLAY, Replayed, replay
from tidemark.stack.java import BRIEF_JVM, java_command

_KINDS = {
    "unmarked": "without Tidemark's headers, or with broken ones",
    "other_stream": "of another stream",
    "other_log": "of another source topic, or of one that was made again",
}


def replay_letters(stack: str | None, stream_name: str) -> None:
    """Replay, and print and save what became of the dead letters; raises what ``replay`` raises."""
    settings = connect(stack)
    run = Run.open(stream_name, run_name(f"replay-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"), settings)
    java_command()
    os.environ.update(BRIEF_JVM)
    console = Console(soft_wrap=True)
    with console.status("starting Spark, some ten seconds"):
        spark = quiet_session(settings, f"tidemark-replay-{stream_name}")
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TextColumn("offsets"), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console, transient=True) as bar, run.step(REPLAY) as attempt:
            task = bar.add_task("replay", total=None)
            done = replay(
                run.stream,
                settings,
                spark,
                on_progress=lambda at, total: bar.update(task, completed=at, total=total),
            )
            attempt.result = out = done.to_value()
    finally:
        spark.stop()
    print_replayed(console, run, done, out)


def print_replayed(console: Console, run: Run, done: Replayed, value: dict[str, Any]) -> None:
    """The table, an example of each kind that was left, and the same as one line of JSON."""
    topic = run.stream.speed.dead_letter_topic
    table = Table(title=f"Dead letters of stream {run.stream.name} on {topic}", title_justify="left")
    table.add_column("what became of them")
    table.add_column("records", justify="right")
    for label, count in (
        (f"published to {run.stream.speed.topic}", done.published),
        (f"dead again, back on {topic}", done.dead_again),
        ("further copies of one letter", done.duplicates),
        ("not this stream's, left there", done.not_ours),
    ):
        table.add_row(Text(label), f"{count:,}")
    table.add_section()
    table.add_row("read", f"{done.read:,}")
    console.print(table)
    for item in done.kinds:
        example = f"e.g. partition {item.partition} offset {item.offset}, {item.found}"
        console.print(Text(f"left  {item.count:,} {_KINDS[item.kind]}: {example}", style="yellow"))
    if done.earlier:
        console.print(Text(f"{done.earlier:,} of them had been delivered by a replay that was cut off."))
    if done.lost:
        console.print(Text(f"{done.lost:,} offsets were taken by retention before any replay.", style="yellow"))
    console.print(Text(f"saved as s3://{run.store.bucket}/{run.key(REPLAY.name)}"))
    console.print(Text(canonical_json({"stream": run.stream.name, "run": run.name, **value}).decode().strip()))
