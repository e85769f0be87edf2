"""``tidemark health``: what every stream last said of itself, how long Kafka keeps the rest, and if that is well."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidemark.archive.ledger.ledger import read_archived
from tidemark.archive.retention import Retention, read_retention
from tidemark.cli.connect import connect
from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.core.heartbeat import Heartbeat, parse_heartbeat
from tidemark.core.layout import Layout
from tidemark.definitions.stream import load_stream, stream_names
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

LAYERS = ("archive", "speed", "departures")
_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One layer of one stream; ``heartbeat`` is None where it never wrote any.

    ``retention`` is what waits to be archived: of the archive layer only, and an error where it can't be told.
    """

    stream: str
    layer: str
    heartbeat: Heartbeat | None
    age_seconds: float
    alive: bool
    retention: Retention | TidemarkError | None

    @property
    def well(self) -> bool:
        """Alive, and with time left."""
        if isinstance(self.retention, TidemarkError):
            return False
        return self.alive and not (self.retention is not None and self.retention.late)


def print_health(stack: str | None, stream: str | None, *, stale_seconds: float) -> bool:
    """Print the table; whether every heartbeat is there, young enough and not of a failed stream, and Kafka keeps what
    is not archived for longer than the stream's alarm says.

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
    console = Console(soft_wrap=True)
    with console.status("reading heartbeats and manifests"):
        found = read_health(settings, [stream] if stream else names, stale_seconds=stale_seconds, now=datetime.now(UTC))
    console.print(_table(found, stale_seconds))
    for line in (line for item in found for line in _alarms(item)):
        console.print(Text(line, style="red"))
    return all(item.well for item in found)


def read_health(settings: Settings, streams: Sequence[str], *, stale_seconds: float, now: datetime) -> list[Health]:
    """Each stream's layers; but for the archive, one that never ran is left out: not every deployment has it."""
    store = ObjectStore(settings)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="retention") as pool:
        retentions = dict(zip(streams, pool.map(partial(_retention, settings, store, now), streams), strict=True))
    found = []
    for stream in streams:
        layout = Layout(prefix=settings.prefix, stream=stream)
        for layer in LAYERS:
            key = layout.heartbeat_key(layer)
            body = store.get(key)
            heartbeat = None if body is None else parse_heartbeat(body, where=f"s3://{store.bucket}/{key}")
            if heartbeat is None and layer != "archive":
                continue
            age = max((now - heartbeat.time).total_seconds(), 0.0) if heartbeat else 0.0
            alive = heartbeat is not None and heartbeat.state != "failed" and age <= stale_seconds
            found.append(
                Health(
                    stream=stream,
                    layer=layer,
                    heartbeat=heartbeat,
                    age_seconds=age,
                    alive=alive,
                    retention=retentions[stream] if layer == "archive" else None,
                )
            )
    return found


def _retention(settings: Settings, store: ObjectStore, now: datetime, name: str) -> Retention | TidemarkError:
    """From the archive and Kafka, not from the heartbeat: a stream that is dead or never ran needs it most."""
    try:
        stream = load_stream(name, settings.streams_dir)
        history = read_archived(store, Layout(prefix=settings.prefix, stream=name), stream).history()
        return read_retention(settings.kafka_bootstrap, stream, history, now)
    except TidemarkError as error:
        return error


def _alarms(item: Health) -> Sequence[str]:
    if item.retention is None:
        return ()
    if isinstance(item.retention, TidemarkError):
        return (f"{item.stream}: how long Kafka keeps what is not archived can't be told: {item.retention}",)
    return item.retention.lines()


def _table(found: Sequence[Health], stale_seconds: float) -> Table:
    table = Table(
        "Stream", "Layer", "State", "Age", "Lag", "Retention", "Last error", title="Streams", title_justify="left"
    )
    for item in found:
        heartbeat = item.heartbeat
        if heartbeat is None:
            never = Text("no heartbeat: never started", style="red")
            table.add_row(item.stream, item.layer, never, "", "", _time_left(item.retention))
            continue
        stale = item.age_seconds > stale_seconds
        state = f"{heartbeat.state}, stale" if stale else heartbeat.state
        table.add_row(
            item.stream,
            item.layer,
            Text(state, style="green" if item.alive else "red"),
            _duration(item.age_seconds),
            _lag(heartbeat),
            _time_left(item.retention),
            Text(heartbeat.error or ""),  # never taken for markup
        )
    return table


def _time_left(retention: Retention | TidemarkError | None) -> Text:
    if retention is None:
        return Text("")
    if isinstance(retention, TidemarkError):
        return Text("unknown", style="red")
    return Text(retention.summary, style="red" if retention.late else "green")


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
