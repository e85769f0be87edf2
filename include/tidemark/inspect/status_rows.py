"""A stream's status as plain values: what ``tidemark status --json`` prints, and what is saved for the pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from tidemark.current_view.day_states import DayState
from tidemark.inspect.health import LayerHealth
from tidemark.inspect.last_run import LastRun
from tidemark.inspect.problems import Problem
from tidemark.inspect.status import StreamStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """One layer. ``state`` is null if it never ran; ``lag_*`` are null if Kafka did not answer.

    ``state`` is ``unreadable`` if the heartbeat does not parse; then ``error`` has the reason. ``age_seconds`` is
    negative for a heartbeat from the future, which a wrong clock wrote.

    ``retention_hours_left``: how long Kafka keeps the first unarchived record, null if nothing waits or no limit is
    known.
    """

    layer: str
    alive: bool
    state: str | None
    age_seconds: float | None
    lag_records: int | None
    lag_seconds: float | None
    retention_hours_left: float | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRow:
    """One day. ``version`` and what follows are those of its latest seal, null without one.

    ``waiting_max``: upper bound of the records that are archived and not published. ``lost`` and ``unexplained`` count
    offsets.
    """

    day: date
    state: str
    waiting_max: int
    unproven_run: str | None
    version: int | None
    published: int | None
    quarantined: int | None
    checks: str | None
    lost: int | None
    unexplained: int | None
    rolled_back_to: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """One stream.

    ``running`` is the run that is under way, and since when. ``warnings`` are settings of its topics that can lose
    records; read only for a single stream.
    """

    stream: str
    fine: bool | None
    problems: tuple[Problem, ...]
    layers: tuple[LayerRow, ...]
    days: tuple[DayRow, ...]
    last_sealed: date | None
    overdue: tuple[date, ...]
    unproven: tuple[date, ...]
    waiting: int
    last_run: LastRun | None
    running: str | None
    warnings: tuple[str, ...] = ()


def all_fine(problems: Sequence[Problem]) -> bool | None:
    """Whether there is no problem; None if all problems are ``unknown``."""
    if any(item.kind != "unknown" for item in problems):
        return False
    return None if problems else True


def stream_row(item: StreamStatus, warnings: Sequence[str] = ()) -> StreamRow:
    """A stream's status as it is printed."""
    return StreamRow(
        stream=item.stream,
        fine=all_fine(item.problems),
        problems=item.problems,
        layers=tuple(map(layer_row, item.layers)),
        days=tuple(map(_day_row, item.days)),
        last_sealed=item.last_sealed,
        overdue=item.overdue,
        unproven=item.unproven,
        waiting=item.waiting,
        last_run=item.last_run,
        running=None if item.running is None else str(item.running),
        warnings=tuple(warnings),
    )


def layer_row(item: LayerHealth) -> LayerRow:
    """A layer as it is printed."""
    beat = item.heartbeat
    return LayerRow(
        layer=item.layer,
        alive=item.alive,
        state=beat.state if beat else "unreadable" if item.unreadable else None,
        age_seconds=item.age_seconds if beat else None,
        lag_records=beat.lag_records if beat else None,
        lag_seconds=beat.lag_seconds if beat else None,
        retention_hours_left=item.retention.hours_left if item.retention else None,
        error=beat.error if beat else item.unreadable,
    )


def _day_row(item: DayState) -> DayRow:
    seal = item.sealed
    return DayRow(
        day=item.day,
        state=item.status,
        waiting_max=item.waiting_max,
        unproven_run=item.unproven_run,
        version=seal.version if seal else None,
        published=seal.published if seal else None,
        quarantined=seal.quarantined if seal else None,
        checks=seal.quality if seal else None,
        lost=seal.lost if seal else None,
        unexplained=seal.unexplained if seal else None,
        rolled_back_to=seal.rolled_back_to if seal else None,
    )
