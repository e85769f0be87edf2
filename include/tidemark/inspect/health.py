"""The health of each layer of a stream: its last heartbeat, and how long Kafka keeps what is not archived."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tidemark.archive.heartbeats import read_heartbeat
from tidemark.core.errors import FormatError
from tidemark.core.heartbeat import Heartbeat
from tidemark.core.layout import Layout
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

if TYPE_CHECKING:  # a probe needs none of it, and it takes half a second
    from tidemark.archive.retention import Retention

LAYERS = ("archive", "speed", "departures")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerHealth:
    """One layer of one stream. ``heartbeat`` is None if the layer never wrote one, or if it does not parse:
    ``unreadable`` says why.

    ``alive``: the heartbeat is recent and its state is not failed. ``age_seconds`` is negative for a heartbeat from the
    future: a clock is or was wrong. If it is further ahead than the limit for a recent heartbeat, it is not recent.
    ``retention`` is about the records that wait for the archive: None for other layers, and if it is unknown.
    ``exceeded``: records were beyond a bound of the archive, and the alarm about them has not ended.
    ``times_unreadable``: the same of records whose time field can't be read.
    """

    stream: str
    layer: str
    heartbeat: Heartbeat | None
    age_seconds: float
    alive: bool
    retention: "Retention | None" = None
    exceeded: bool = False
    times_unreadable: bool = False
    unreadable: str | None = None

    @property
    def healthy(self) -> bool:
        """Alive, within its bounds, and Kafka still keeps the waiting records for longer than the alarm's limit."""
        alarm = self.exceeded or self.times_unreadable
        return self.alive and not alarm and not (self.retention is not None and self.retention.late)


def read_layers(
    settings: Settings, store: ObjectStore, stream: str, *, stale_seconds: float, now: datetime
) -> tuple[LayerHealth, ...]:
    """The layers by their heartbeats. One other than the archive is left out if it never ran: it is optional."""
    found = (_layer(store, settings, stream, layer, stale_seconds=stale_seconds, now=now) for layer in LAYERS)
    return tuple(item for item in found if item.heartbeat or item.unreadable or item.layer == "archive")


def read_layer(settings: Settings, stream: str, layer: str, *, stale_seconds: float, now: datetime) -> LayerHealth:
    """One layer by its heartbeat alone: Kafka and the archive are not asked."""
    return _layer(ObjectStore(settings), settings, stream, layer, stale_seconds=stale_seconds, now=now)


def _layer(
    store: ObjectStore,
    settings: Settings,
    stream: str,
    layer: str,
    *,
    stale_seconds: float,
    now: datetime,
) -> LayerHealth:
    heartbeat, unreadable = None, None
    try:
        heartbeat = read_heartbeat(store, Layout(prefix=settings.prefix, stream=stream), layer)
    except FormatError as error:
        unreadable = str(error)
    age = (now - heartbeat.time).total_seconds() if heartbeat else 0.0
    return LayerHealth(
        stream=stream,
        layer=layer,
        heartbeat=heartbeat,
        age_seconds=age,
        alive=heartbeat is not None and heartbeat.state != "failed" and abs(age) <= stale_seconds,
        exceeded=heartbeat is not None and _lasts(heartbeat.alarm_until, now),
        times_unreadable=heartbeat is not None and _lasts(heartbeat.unreadable_times_until, now),
        unreadable=unreadable,
    )


def _lasts(until: datetime | None, now: datetime) -> bool:
    return until is not None and now < until
