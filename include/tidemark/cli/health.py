"""``tidemark health``: the health of every stream, and its exit code."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from tidemark.archive.retention import Retention
from tidemark.cli.connect import connect_s3
from tidemark.cli.output import fits, make_table, open_console, plain
from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.core.heartbeat import Heartbeat
from tidemark.definitions.stream import stream_names
from tidemark.inspect.health import LayerHealth, read_health


def print_health(stack: str | None, stream: str | None, *, stale_seconds: float) -> bool:
    """Print one row per layer. Return whether every layer is healthy."""
    settings = connect_s3(stack)
    names = stream_names(settings.streams_dir)
    if not names or (stream is not None and stream not in names):
        raise ConfigError(
            "no such stream" if stream else "no streams",
            expected=f"one of {', '.join(names)}" if names else "<name>.yaml files",
            found=stream,
            where=str(settings.streams_dir),
        )
    console = open_console()
    with console.status("reading heartbeats and manifests"):
        found = read_health(settings, [stream] if stream else names, stale_seconds=stale_seconds, now=datetime.now(UTC))
    print_layers(console, found, stale_seconds)
    return all(item.healthy for item in found)


def print_layers(console: Console, found: Sequence[LayerHealth], stale_seconds: float) -> None:
    """One row per layer, then the last errors and the retention alarms, each on a line of its own.

    On a narrow terminal each stream has a table of its own, with its name above it.
    """
    whole = make_table("Stream", "Layer", "State", "Age", "Lag", "Retention", fold=())
    by_stream = {
        item.stream: make_table("Layer", "State", "Age", "Lag", "Retention", fold=("Lag", "Retention"))
        for item in found
    }
    for item in found:
        row = (item.layer, *_state(item, stale_seconds), _retention(item.retention))
        whole.add_row(item.stream, *row)
        by_stream[item.stream].add_row(*row)
    if fits(console, whole):
        console.print(whole)
    else:
        for stream, table in by_stream.items():
            console.print(plain(stream, style="bold"))
            console.print(table)
    for item in found:
        if item.heartbeat is not None and item.heartbeat.error:
            # As Text: an error is never taken for markup.
            console.print(plain(f"Last error of {item.stream} {item.layer}: {item.heartbeat.error}", style="red"))
        for line in _alarms(item):
            console.print(plain(line, style="red"))


def _state(item: LayerHealth, stale_seconds: float) -> tuple[Text, str, str]:
    """State, age and lag."""
    if item.heartbeat is None:
        return plain("never started", style="red"), "", ""
    stale = ", stale" if item.age_seconds > stale_seconds else ""
    state = plain(f"{item.heartbeat.state}{stale}", style="green" if item.alive else "red")
    return state, _duration(item.age_seconds), _lag(item.heartbeat)


def _alarms(item: LayerHealth) -> tuple[str, ...]:
    return (*_bounds(item), *_retention_alarms(item))


def _bounds(item: LayerHealth) -> tuple[str, ...]:
    if not item.exceeded or item.heartbeat is None:
        return ()
    found = (
        (item.heartbeat.overflow_rows, "in the overflow folder, beyond archive.max_folders"),
        (item.heartbeat.out_of_bounds_rows, "with a time field beyond event_time.max_distance_days"),
    )
    end = "" if item.heartbeat.alarm_until is None else f"{item.heartbeat.alarm_until:%Y-%m-%d %H:%M} UTC"
    return tuple(f"{item.stream}: {rows:,} records {what}; alarm until {end}" for rows, what in found if rows)


def _retention_alarms(item: LayerHealth) -> tuple[str, ...]:
    if item.retention is None:
        return ()
    if isinstance(item.retention, TidemarkError):
        return (f"{item.stream}: cannot tell how long Kafka keeps what is not archived: {item.retention}",)
    return item.retention.lines()


def _retention(retention: Retention | TidemarkError | None) -> Text:
    if retention is None:
        return plain("")
    if isinstance(retention, TidemarkError):
        return plain("unknown", style="red")
    return plain(retention.summary, style="red" if retention.late else "green")


def _lag(heartbeat: Heartbeat) -> str:
    if heartbeat.lag_records is None or heartbeat.lag_seconds is None:
        return "unknown"
    return f"{heartbeat.lag_records:,} records, {_duration(heartbeat.lag_seconds)}" if heartbeat.lag_records else "none"


def _duration(seconds: float) -> str:
    """``42 s``, ``3 min``, ``5 h``, ``12 d``: the largest unit that gives at least 2."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
