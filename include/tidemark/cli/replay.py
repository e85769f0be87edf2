"""``tidemark replay``: a stream's dead letters, processed again by its current transformation."""

from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tidemark.cli.connect import connect_s3
from tidemark.cli.json_output import print_result
from tidemark.cli.output import make_table, open_console, plain
from tidemark.cli.spark import command_spark
from tidemark.run import Run, run_name
from tidemark.speed.replay.replay import REPLAY, Replayed, replay

_KINDS = {
    "unmarked": "without Tidemark's headers, or with broken ones",
    "other_stream": "of another stream",
    "other_log": "of another or a recreated source topic",
    "without_value": "too large for the dead-letter topic: only the archive has the record",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """A replay of dead letters, and where its result is saved."""

    stream: str
    run: str
    saved: str
    replayed: Replayed


def replay_dead_letters(stack: str | None, stream_name: str, *, as_json: bool) -> None:
    """Replay, then print and save the result."""
    settings = connect_s3(stack)
    run = Run.open(stream_name, run_name(f"replay-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"), settings)
    console = Console(stderr=True) if as_json else open_console()
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TextColumn("offsets"), TimeElapsedColumn())
    with (
        command_spark(settings, f"tidemark-replay-{stream_name}", console) as spark,
        Progress(*columns, console=console, transient=True) as bar,
        run.step(REPLAY) as attempt,
    ):
        task = bar.add_task("replay", total=None)
        done = replay(
            run.stream,
            settings,
            spark,
            on_progress=lambda position, total: bar.update(task, completed=position, total=total),
        )
        attempt.result = done.to_value()
    saved = f"s3://{run.store.bucket}/{run.key(REPLAY.name)}"
    if as_json:
        print_result("replay", ReplayResult(stream=stream_name, run=run.name, saved=saved, replayed=done))
    else:
        print_replayed(console, run, done)
        console.print(plain(f"saved as {saved}"))


def print_replayed(console: Console, run: Run, done: Replayed) -> None:
    """The counts, and an example of each kind of record that was skipped."""
    speed = run.stream.speed
    console.print(plain(f"Dead letters of stream {run.stream.name} on {speed.dead_letter_topic}", style="bold"))
    table = make_table("Result", "Records", numbers=("Records",), fold=("Result",))
    for label, count in (
        (f"published to {speed.topic}", done.published),
        (f"dead again, back on {speed.dead_letter_topic}", done.dead_again),
        ("duplicate dead letters", done.duplicates),
        ("not this stream's, skipped", done.not_ours),
    ):
        table.add_row(plain(label), f"{count:,}")
    table.add_section()
    table.add_row("read", f"{done.read:,}")
    console.print(table)
    for item in done.kinds:
        example = f"for example partition {item.partition} offset {item.offset}, {item.found}"
        console.print(plain(f"skipped {item.count:,} {_KINDS[item.kind]}: {example}", style="yellow"))
    if done.earlier:
        console.print(plain(f"{done.earlier:,} of them were delivered by an earlier, interrupted replay."))
    if done.lost:
        console.print(plain(f"Retention deleted {done.lost:,} offsets before any replay.", style="yellow"))
