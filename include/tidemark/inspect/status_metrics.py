"""Streams' status as metrics for Prometheus: what an alert needs, from S3 and Kafka, also of what does not run.

Every metric is a gauge. The labels are named as Prometheus names OpenTelemetry's attributes, so that both kinds of
metrics of a stream join. Names follow Prometheus' conventions: base units, and times since the epoch in seconds.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, get_args

from tidemark.archive.retention import Retention
from tidemark.core.days import day_end
from tidemark.core.errors import ConfigError
from tidemark.core.heartbeat import State
from tidemark.definitions.stream import load_stream
from tidemark.inspect.health import LayerHealth
from tidemark.inspect.problems import KINDS
from tidemark.inspect.status import StreamStatus
from tidemark.settings import Settings

NEVER_STARTED, UNREADABLE = "never_started", "unreadable"
STATES: Final = (*get_args(State), NEVER_STARTED, UNREADABLE)
_DEPLOYMENT = ("tidemark_deployment",)
_STREAM = (*_DEPLOYMENT, "tidemark_stream")
_LAYER = (*_STREAM, "tidemark_layer")


class StatusMetric(NamedTuple):
    """A gauge, and the names of its labels."""

    name: str
    labels: tuple[str, ...]
    about: str


class Sample(NamedTuple):
    """One value of a metric; ``labels`` in the order of the metric's names."""

    metric: StatusMetric
    labels: tuple[str, ...]
    value: float


READ_AT = StatusMetric("tidemark_status_timestamp_seconds", _DEPLOYMENT, "When the status was read")
READ_TIME = StatusMetric("tidemark_status_duration_seconds", _DEPLOYMENT, "How long reading the status took")
PROBLEM = StatusMetric(
    "tidemark_problem", (*_STREAM, "tidemark_kind"), "Number of problems of each kind, as in `tidemark status`"
)
SEALED_UNTIL = StatusMetric(
    "tidemark_sealed_until_timestamp_seconds", _STREAM, "End of the last sealed day; missing if no day is sealed"
)
OVERDUE = StatusMetric("tidemark_day_overdue", _STREAM, "Number of days that are not sealed after their deadline")
UNPROVEN = StatusMetric("tidemark_day_unproven", _STREAM, "Number of days that readers see and no seal proves")
WAITING = StatusMetric(
    "tidemark_waiting_records", _STREAM, "Upper bound of the late records that the next run publishes"
)
LAST_RUN_AT = StatusMetric(
    "tidemark_last_run_timestamp_seconds", _STREAM, "When the last reconcile run ended; missing if there is none"
)
LAST_RUN = StatusMetric(
    "tidemark_last_run_info", (*_STREAM, "tidemark_verdict"), "Always 1; the label has the last reconcile run's verdict"
)
STATE = StatusMetric(
    "tidemark_layer_state", (*_LAYER, "tidemark_state"), "1 for the state in the layer's last heartbeat, else 0"
)
ALIVE = StatusMetric("tidemark_layer_alive", _LAYER, "1 if the heartbeat is recent and not of a failure, else 0")
HEARTBEAT_AT = StatusMetric("tidemark_heartbeat_timestamp_seconds", _LAYER, "When the layer wrote its last heartbeat")
LAG_RECORDS = StatusMetric("tidemark_layer_lag_records", _LAYER, "Offsets that the layer had not read at that time")
LAG_SECONDS = StatusMetric(
    "tidemark_layer_lag_seconds", _LAYER, "Age of the oldest record that the layer had not read at that time"
)
OVERFLOW = StatusMetric(
    "tidemark_layer_overflow_records", _LAYER, "Records in the overflow folder; 0 once the alarm about them has ended"
)
OUT_OF_BOUNDS = StatusMetric(
    "tidemark_layer_out_of_bounds_records",
    _LAYER,
    "Records with a time field that is too far off; 0 once the alarm about them has ended",
)
UNREADABLE_TIMES = StatusMetric(
    "tidemark_layer_unreadable_times_records",
    _LAYER,
    "Records with a time field that can't be read; 0 once the alarm about them has ended",
)
RUNWAY = StatusMetric(
    "tidemark_retention_runway_seconds",
    _STREAM,
    "Time until Kafka may delete the first record that is not archived; missing if nothing waits, or without a limit",
)
RUNWAY_ALARM = StatusMetric(
    "tidemark_retention_alarm_seconds", _STREAM, "The stream's limit of the time until Kafka may delete that record"
)
STATUS_METRICS: Final = (
    READ_AT,
    READ_TIME,
    PROBLEM,
    SEALED_UNTIL,
    OVERDUE,
    UNPROVEN,
    WAITING,
    LAST_RUN_AT,
    LAST_RUN,
    STATE,
    ALIVE,
    HEARTBEAT_AT,
    LAG_RECORDS,
    LAG_SECONDS,
    OVERFLOW,
    OUT_OF_BOUNDS,
    UNREADABLE_TIMES,
    RUNWAY,
    RUNWAY_ALARM,
)


def status_samples(
    settings: Settings, found: Sequence[StreamStatus], *, now: datetime, seconds: float
) -> Iterator[Sample]:
    """Every value of every stream. ``now`` is when the status was read, ``seconds`` how long that took."""
    own = (settings.deployment,)
    yield Sample(READ_AT, own, now.timestamp())
    yield Sample(READ_TIME, own, seconds)
    for item in found:
        labels = (*own, item.stream)
        kinds = [problem.kind for problem in item.problems]
        for kind in KINDS:
            yield Sample(PROBLEM, (*labels, kind), kinds.count(kind))
        yield from _days(settings, item, labels)
        for layer in item.layers:
            yield from _layer(layer, (*labels, layer.layer))
            if isinstance(layer.retention, Retention):
                yield from _retention(layer.retention, labels)


def _days(settings: Settings, item: StreamStatus, labels: tuple[str, ...]) -> Iterator[Sample]:
    if item.days_known:
        yield Sample(OVERDUE, labels, len(item.overdue))
        yield Sample(UNPROVEN, labels, len(item.unproven))
        yield Sample(WAITING, labels, item.waiting)
    if item.last_sealed is not None:
        try:
            zone = load_stream(item.stream, settings.streams_dir).zone
        except ConfigError:
            pass  # a problem says this
        else:
            yield Sample(SEALED_UNTIL, labels, day_end(item.last_sealed, zone).timestamp())
    if item.last_run is not None:
        yield Sample(LAST_RUN_AT, labels, item.last_run.ended_at.timestamp())
        yield Sample(LAST_RUN, (*labels, item.last_run.verdict), 1)


def _layer(item: LayerHealth, labels: tuple[str, ...]) -> Iterator[Sample]:
    heartbeat = item.heartbeat
    state = heartbeat.state if heartbeat else UNREADABLE if item.unreadable else NEVER_STARTED
    for name in STATES:
        yield Sample(STATE, (*labels, name), float(name == state))
    yield Sample(ALIVE, labels, float(item.alive))
    if heartbeat is None:
        return
    yield Sample(HEARTBEAT_AT, labels, heartbeat.time.timestamp())
    if heartbeat.lag_records is not None and heartbeat.lag_seconds is not None:
        yield Sample(LAG_RECORDS, labels, heartbeat.lag_records)
        yield Sample(LAG_SECONDS, labels, heartbeat.lag_seconds)
    if item.layer == "archive":
        yield Sample(OVERFLOW, labels, heartbeat.overflow_rows if item.exceeded else 0)
        yield Sample(OUT_OF_BOUNDS, labels, heartbeat.out_of_bounds_rows if item.exceeded else 0)
        yield Sample(UNREADABLE_TIMES, labels, heartbeat.unreadable_times if item.times_unreadable else 0)


def _retention(found: Retention, labels: tuple[str, ...]) -> Iterator[Sample]:
    yield Sample(RUNWAY_ALARM, labels, found.alarm_hours * 3600)
    if found.hours_left is not None:
        yield Sample(RUNWAY, labels, found.hours_left * 3600)
