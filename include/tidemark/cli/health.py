"""``tidemark health``: what every stream last said of itself, and whether that is well."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidemark.cli.connect import connect
from tidemark.core.errors import ConfigError
from tidemark.core.heartbeat import Heartbeat, parse_heartbeat
from tidemark.core.layout import Layout
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.streams import stream_names

LAYERS = ("archive", "speed", "departures")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One layer of one stream; ``heartbeat`` is None where it never wrote any."""

    stream: str
    layer: str
    heartbeat: Heartbeat | None
    age_seconds: float
    well: bool


def print_health(stack: str | None, stream: str | None, *, stale_seconds: float) -> bool:
    """Print the table; whether every heartbeat is there, young enough and not of a failed stream.

    Raises ConfigError where there is no such stream, FormatError for a heartbeat that does not parse.
    """
    settings = connect(stack)
    names = stream_names(settings.streams_dir)
    if not names or (stream is not None and stream not in names):
        raise ConfigError(
            "no such stream" if stream else "no streams",
            expected=f"one of {', '.join(names)}" if names else "<name>.yaml files",
            found=stream,
            where=str(settings.streams_dir),
        )
    found = read_health(settings, [stream] if stream else names, stale_seconds=stale_seconds, now=datetime.now(UTC))
    Console(soft_wrap=True).print(_table(found, stale_seconds))
    return all(item.well for item in found)


def read_health(settings: Settings, streams: Sequence[str], *, stale_seconds: float, now: datetime) -> list[Health]:
    """Each stream's layers; but for the archive, one that never ran is left out: not every deployment has it."""
    store = ObjectStore(settings)
    found = []
    for stream in streams:
        layout = Layout(prefix=settings.prefix, stream=stream)
        for layer in LAYERS:
            key = layout.heartbeat_key(layer)
            body = store.get(key)
            heartbeat = None if body is None else parse_heartbeat(body, where=f"s3://{store.bucket}/{key}")
            if heartbeat is None and layer != "archive":
                continue
            age = (now - heartbeat.time).total_seconds() if heartbeat else 0.0
            well = heartbeat is not None and heartbeat.state != "failed" and age <= stale_seconds
            found.append(Health(stream=stream, layer=layer, heartbeat=heartbeat, age_seconds=age, well=well))
    return found


def _table(found: Sequence[Health], stale_seconds: float) -> Table:
    table = Table("Stream", "Layer", "State", "Age", "Lag", "Last error", title="Streams", title_justify="left")
    for item in found:
        heartbeat = item.heartbeat
        if heartbeat is None:
            table.add_row(item.stream, item.layer, Text("no heartbeat: never started", style="red"))
            continue
        stale = item.age_seconds > stale_seconds
        state = f"{heartbeat.state}, stale" if stale else heartbeat.state
        table.add_row(
            item.stream,
            item.layer,
            Text(state, style="green" if item.well else "red"),
            _duration(item.age_seconds),
            _lag(heartbeat),
            Text(heartbeat.error or ""),  # never taken for markup
        )
    return table


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
