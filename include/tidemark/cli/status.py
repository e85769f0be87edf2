"""``tidemark status``: one answer to "is it fine?", and its views of a stream, of a day and of a layer."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from rich.console import Console

from tidemark.cli.connect import connect_s3
from tidemark.cli.days import print_states
from tidemark.cli.json_output import print_result
from tidemark.cli.layers import print_layers
from tidemark.cli.output import duration, make_table, open_console, plain
from tidemark.cli.report import report_place
from tidemark.cli.root import FINE, NOT_FOUND_OUT, WRONG
from tidemark.cli.status_result import StatusResult
from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import Stream, load_stream, misnamed_files, stream_names
from tidemark.inspect.problems import Problem
from tidemark.inspect.status import StreamStatus, read_status
from tidemark.inspect.status_rows import LayerRow, StreamRow, all_fine, stream_row
from tidemark.settings import Settings

_EXIT = {True: FINE, False: WRONG, None: NOT_FOUND_OUT}


def print_status(stack: str | None, *, stale_seconds: float, grace_hours: int, as_json: bool) -> int:
    """Every stream in a row. Return the exit code."""
    settings = connect_s3(stack)
    names = stream_names(settings.streams_dir)
    if not names:
        raise ConfigError("no streams", expected="<name>.yaml files", where=str(settings.streams_dir))
    misnamed = misnamed_files(settings.streams_dir)
    found = (*_read(settings, names, stale_seconds, grace_hours), *(_misnamed(*item) for item in misnamed.items()))
    problems = [problem for item in found for problem in item.problems]
    fine = all_fine(problems)
    if as_json:
        print_result("status", StatusResult(fine=fine, streams=tuple(map(stream_row, found))))
        return _EXIT[fine]
    console = open_console()
    _print_answer(console, fine, {item.stream: item.problems for item in found})
    print_streams(console, [stream_row(item) for item in found])
    _print_problems(console, problems)
    return _EXIT[fine]


def print_stream(
    stack: str | None,
    name: str,
    *,
    first: date | None,
    last: date | None,
    stale_seconds: float,
    grace_hours: int,
    as_json: bool,
) -> int:
    """One stream: its layers, its days, its last run, and settings of its topics that can lose records."""
    settings = connect_s3(stack)
    stream = load_stream(name, settings.streams_dir)
    (found,) = _read(settings, [name], stale_seconds, grace_hours, first=first, last=last)
    fine, warnings = all_fine(found.problems), _topic_warnings(stream, settings)
    if as_json:
        print_result("status", StatusResult(fine=fine, streams=(stream_row(found, warnings),)))
        return _EXIT[fine]
    console = open_console()
    _print_answer(console, fine, {name: found.problems})
    _print_problems(console, found.problems)
    print_layers(console, found.layers, stale_seconds)
    print_states(console, stream, found.days)
    _print_run(console, settings, found)
    for text in warnings:
        console.print(plain(f"Can lose records: {text}", style="yellow"))
    return _EXIT[fine]


def _read(
    settings: Settings, names: Sequence[str], stale_seconds: float, grace_hours: int, **days: date | None
) -> tuple[StreamStatus, ...]:
    grace = timedelta(hours=grace_hours)
    with Console(stderr=True).status("asking Kafka, S3 and the catalog"):
        return read_status(settings, names, now=datetime.now(UTC), stale_seconds=stale_seconds, grace=grace, **days)


def _misnamed(name: str, error: ConfigError) -> StreamStatus:
    """A file whose name can't be a stream's, as a stream of which nothing is known."""
    return StreamStatus(
        stream=name,
        layers=(),
        days=(),
        last_sealed=None,
        overdue=(),
        unproven=(),
        waiting=0,
        last_run=None,
        problems=(Problem(kind="definition_invalid", text=str(error), hint="Rename the file"),),
        days_known=False,
        running=None,
    )


def _topic_warnings(stream: Stream, settings: Settings) -> tuple[str, ...]:
    from tidemark.speed.topics import findings

    return tuple(map(str, findings(stream, settings)))


def _print_answer(console: Console, fine: bool | None, by_stream: dict[str, tuple[Problem, ...]]) -> None:
    """Yes or no, and which problems each stream has."""
    named = [
        f"{name} ({', '.join(dict.fromkeys(item.kind for item in problems))})"
        for name, problems in by_stream.items()
        if problems
    ]
    if fine:
        streams = next(iter(by_stream)) if len(by_stream) == 1 else f"all {len(by_stream)} streams"
        console.print(plain(f"Yes, fine: {streams}.", style="green"))
    elif fine is None:
        console.print(plain(f"Cannot tell: {', '.join(named)}.", style="yellow"))
    else:
        console.print(plain(f"No, needs attention: {', '.join(named)}.", style="red"))


def print_streams(console: Console, rows: Sequence[StreamRow]) -> None:
    """One row per stream. On a narrow terminal names, layers and last runs take several lines."""
    table = make_table("Stream", "Fine", "Layers", "Last sealed", "Last run", fold=("Stream", "Layers", "Last run"))
    for item in rows:
        word, style = {True: ("yes", "green"), False: ("no", "red"), None: ("unknown", "yellow")}[item.fine]
        layers = ", ".join(f"{row.layer} {_layer_word(row)}" for row in item.layers)
        run = item.last_run
        ago = (
            "" if run is None else f"{run.verdict}, {duration((datetime.now(UTC) - run.ended_at).total_seconds())} ago"
        )
        table.add_row(
            plain(item.stream), plain(word, style=style), layers, str(item.last_sealed or "none"), ago or "none"
        )
    console.print(table)


def _layer_word(row: LayerRow) -> str:
    if row.state is None:
        return "never started"
    if row.alive or row.state in ("failed", "unreadable"):
        return row.state
    return "stale" if row.age_seconds is None or row.age_seconds >= 0 else "from the future"


def _print_problems(console: Console, problems: Sequence[Problem]) -> None:
    """A line per problem with its kind, and below it what to do."""
    for item in problems:
        console.print(plain(f"{item.kind}: {item.text}", style="yellow" if item.kind == "unknown" else "red"))
        console.print(plain(f"    {item.hint}."))


def _print_run(console: Console, settings: Settings, found: StreamStatus) -> None:
    run = found.last_run
    if found.running is not None:
        console.print(plain(f"Under way: {found.running}. It may seal days that are missing above", style="yellow"))
    if run is None:
        console.print("Last run: none yet")
        return
    console.print(plain(f"Last run: {run.title}", style="red" if run.failed else ""))
    for sentence in run.sentences:
        console.print(plain(f"  {sentence}"))
    console.print(plain(f"  {run.name}, {run.ended_at:%Y-%m-%d %H:%M} UTC"))
    console.print(plain(f"  {report_place(settings, run.report)}"))
