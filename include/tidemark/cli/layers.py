"""A stream's layers as a table."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tidemark.cli.output import duration, make_table, plain
from tidemark.core.heartbeat import Heartbeat
from tidemark.inspect.health import LayerHealth


def print_layers(console: Console, found: Sequence[LayerHealth], stale_seconds: float) -> None:
    """One row per layer. On a narrow terminal lag and retention take several lines."""
    table = make_table("Layer", "State", "Age", "Lag", "Retention", fold=("State", "Lag", "Retention"))
    for item in found:
        table.add_row(item.layer, *_state(item, stale_seconds), _retention(item))
    console.print(table)


def _state(item: LayerHealth, stale_seconds: float) -> tuple[Text, str, str]:
    """State, age and lag."""
    if item.unreadable:
        return plain("unreadable", style="red"), "", ""
    if item.heartbeat is None:
        return plain("never started", style="red"), "", ""
    stale = ", stale" if item.age_seconds > stale_seconds else ""
    future = ", from the future" if item.age_seconds < -stale_seconds else ""
    state = plain(f"{item.heartbeat.state}{stale}{future}", style="green" if item.alive else "red")
    return state, age_text(item.age_seconds), _lag(item.heartbeat)


def age_text(seconds: float) -> str:
    """A heartbeat's age, or how far ahead it is if it is from the future."""
    return f"{duration(-seconds)} ahead" if seconds <= -1 else duration(max(seconds, 0.0))


def _retention(item: LayerHealth) -> Text:
    retention = item.retention
    if retention is None:
        return plain("unknown" if item.layer == "archive" else "")
    return plain(retention.summary, style="red" if retention.late else "green")


def _lag(heartbeat: Heartbeat) -> str:
    if heartbeat.lag_records is None or heartbeat.lag_seconds is None:
        return "unknown"
    return f"{heartbeat.lag_records:,} records, {duration(heartbeat.lag_seconds)}" if heartbeat.lag_records else "none"
