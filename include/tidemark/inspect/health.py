"""The health of each layer of a stream: its last heartbeat, and how long Kafka keeps what is not archived."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from tidemark.archive.ledger.ledger import read_archived
from tidemark.archive.retention import Retention, read_retention
from tidemark.core.errors import TidemarkError
from tidemark.core.heartbeat import Heartbeat, parse_heartbeat
from tidemark.core.layout import Layout
from tidemark.definitions.stream import load_stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

LAYERS = ("archive", "speed", "departures")
_STREAMS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerHealth:
    """One layer of one stream. ``heartbeat`` is None if the layer never wrote one.

    ``alive``: the heartbeat is recent and its state is not failed. ``retention`` is about the records that wait for the
    archive: None for other layers, an error if it is unknown. ``exceeded``: records were beyond a bound of the archive,
    and the alarm about them has not ended.
    """

    stream: str
    layer: str
    heartbeat: Heartbeat | None
    age_seconds: float
    alive: bool
    retention: Retention | TidemarkError | None
    exceeded: bool = False

    @property
    def healthy(self) -> bool:
        """Alive, within its bounds, and Kafka still keeps the waiting records for longer than the alarm's limit."""
        if isinstance(self.retention, TidemarkError):
            return False
        return self.alive and not self.exceeded and not (self.retention is not None and self.retention.late)


def read_health(
    settings: Settings, streams: Sequence[str], *, stale_seconds: float, now: datetime
) -> tuple[LayerHealth, ...]:
    """The layers of each stream. A layer other than the archive is left out if it never ran: it is optional.

    Raises FormatError for a heartbeat that does not parse.
    """
    store = ObjectStore(settings)
    with ThreadPoolExecutor(_STREAMS_AT_ONCE, thread_name_prefix="retention") as pool:
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
                LayerHealth(
                    stream=stream,
                    layer=layer,
                    heartbeat=heartbeat,
                    age_seconds=age,
                    alive=alive,
                    retention=retentions[stream] if layer == "archive" else None,
                    exceeded=heartbeat is not None
                    and heartbeat.alarm_until is not None
                    and now < heartbeat.alarm_until,
                )
            )
    return tuple(found)


def _retention(settings: Settings, store: ObjectStore, now: datetime, name: str) -> Retention | TidemarkError:
    """From the archive and Kafka, not from the heartbeat: it matters most when the stream does not run."""
    try:
        stream = load_stream(name, settings.streams_dir)
        history = read_archived(store, Layout(prefix=settings.prefix, stream=name), stream).history()
        return read_retention(settings.kafka, stream, history, now)
    except TidemarkError as error:
        return error
