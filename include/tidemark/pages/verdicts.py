"""The verdict on a stream: one sentence, whether a person is needed, and how urgently."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal

from tidemark.core.days import date_ranges
from tidemark.inspect.last_run import LastRun
from tidemark.inspect.status_rows import LayerRow, StreamRow
from tidemark.pages.needs import URGENCY, stream_needs
from tidemark.pages.words import span

_HOUR_S = 3600
# Whether a person is needed.
State = Literal["good", "attention", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamVerdict:
    """A stream in a line. ``sentence`` is the most important fact, ``rank`` how urgent it is: 0 is the most urgent."""

    stream: str
    state: State
    sentence: str
    rank: int
    open_days: tuple[date, ...]
    last_sealed: date | None
    last_run: LastRun | None
    lag: str
    runway: str
    runway_short: bool
    found_at: datetime


def verdict(status: StreamRow, found_at: datetime) -> StreamVerdict:
    """The verdict on a status that was found out at that time."""
    need = next(iter(stream_needs(status)), None)
    archive = next((item for item in status.layers if item.layer == "archive"), None)
    hours = archive.retention_hours_left if archive else None
    return StreamVerdict(
        stream=status.stream,
        state=_state(status),
        sentence=need.text if need else _fine(status),
        rank=need.rank if need else len(URGENCY) + 1,
        open_days=(*status.overdue, *status.unproven),
        last_sealed=status.last_sealed,
        last_run=status.last_run,
        lag=_lag(archive),
        runway="–" if hours is None else span(hours * _HOUR_S) if hours > 0 else "may be deleted now",
        runway_short=any(item.kind == "retention" for item in status.problems),
        found_at=found_at,
    )


def in_order_of_need(verdicts: Sequence[StreamVerdict]) -> list[StreamVerdict]:
    """The streams that need a person first, the most urgent at the top; then by name."""
    states: tuple[State, ...] = ("attention", "unknown", "good")
    return sorted(verdicts, key=lambda item: (states.index(item.state), item.rank, item.stream))


def _state(status: StreamRow) -> State:
    kinds = {item.kind for item in stream_needs(status)}
    if kinds - {"unknown"}:
        return "attention"
    return "unknown" if kinds else "good"


def _fine(status: StreamRow) -> str:
    last = status.days[-1] if status.days else None
    if last is None:
        return "No day with records is over yet."
    match last.state:
        case "sealed":
            more = f" At most {last.waiting_max:,} late records wait for its next version." if last.waiting_max else ""
            return f"{last.day} is complete.{more}"
        case "quiet":
            return f"There is no record of {last.day} or later. Every day with records is complete."
        case _:
            return f"{last.day} is over and not sealed yet. The day is not overdue."


def _lag(archive: LayerRow | None) -> str:
    if archive is None or archive.state is None:
        return "–"
    if archive.lag_records is None:
        return "not known"
    if not archive.lag_records:
        return "none"
    return f"{archive.lag_records:,} records" + (f", {span(archive.lag_seconds)}" if archive.lag_seconds else "")


def headline(status: StreamRow) -> str:
    """The first sentence of a stream's page."""
    if status.overdue:
        return f"{date_ranges(status.overdue)} {'is' if len(status.overdue) == 1 else 'are'} missing."
    need = next(iter(stream_needs(status)), None)
    return need.text if need else _fine(status)
