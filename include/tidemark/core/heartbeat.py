"""Heartbeats: one object per stream and layer. The running application overwrites it every few seconds."""

import json
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, get_args, get_type_hints

from tidemark.core.codec import decode, encode, require_format
from tidemark.core.errors import FormatError, PositionError
from tidemark.core.log_extents import LogExtents, decode_extents
from tidemark.core.manifest import canonical_json

FORMAT = 3
_LACK_IN_2: dict[str, Any] = {"unreadable_times": 0, "unreadable_times_share": None, "unreadable_times_until": None}
# Early heartbeats of format 1 lack these fields: they were added one by one, without a new format number.
_LACK_IN_1 = _LACK_IN_2 | {
    "deployment": "",
    "overflow_rows": 0,
    "out_of_bounds_rows": 0,
    "alarm_until": None,
    "extents": [],
}
_LACK = {1: _LACK_IN_1, 2: _LACK_IN_2}
_UNTIL = ("alarm_until", "unreadable_times_until")
State = Literal["running", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The last report of a stream about itself.

    ``deployment`` is the settings' name, empty if an early version wrote the heartbeat. ``time`` is in UTC.
    ``version`` is the stream definition's. ``writer`` is the streaming query's id, ``batch`` its newest batch, None
    before the first one of this run. ``positions`` are (partition, next offset) in order. ``lag_records`` counts
    unread offsets, ``lag_seconds`` is the age of the oldest unread record, 0 without one; both are None if Kafka
    did not answer. ``overflow_rows`` and ``out_of_bounds_rows`` count the records since the start that were beyond
    a bound of the archive, and those before it whose alarm had not ended; ``alarm_until`` (UTC) ends the alarm
    about them, None without any. ``unreadable_times`` counts in the same way the records whose time field has no time
    that can be read, ``unreadable_times_share`` is their share of the last hour's records, None without records, and
    ``unreadable_times_until`` ends the alarm about them. ``error`` is set only in state ``failed``.
    ``extents`` are the offsets that this layer has ever seen in Kafka, also of topics that were deleted since.
    """

    deployment: str
    stream: str
    layer: str
    state: State
    time: datetime
    version: int
    writer: str | None
    batch: int | None
    positions: tuple[tuple[int, int], ...]
    lag_records: int | None
    lag_seconds: float | None
    overflow_rows: int
    out_of_bounds_rows: int
    alarm_until: datetime | None
    error: str | None
    extents: LogExtents = ()
    unreadable_times: int = 0
    unreadable_times_share: float | None = None
    unreadable_times_until: datetime | None = None

    def to_json(self) -> bytes:
        """Canonical bytes; ``parse_heartbeat`` reads them back to an equal value."""
        positions = {str(partition): offset for partition, offset in self.positions}
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        until = {name: getattr(self, name) and getattr(self, name).isoformat() for name in _UNTIL}
        times = {"time": self.time.isoformat(), **until}
        return canonical_json(
            {"format": FORMAT, **own, **times, "positions": positions, "extents": encode(self.extents)}
        )


def parse_heartbeat(body: bytes, *, where: str) -> Heartbeat:
    """The heartbeat in ``body``, of format 1 to 3. Raises FormatError, with ``where``, for anything else."""
    try:
        raw: Any = json.loads(body)
        if raw["format"] in _LACK:
            raw = {**_LACK[raw["format"]], **raw}
        else:
            require_format("unknown heartbeat format", raw["format"], known=FORMAT, where=where)
        if raw["state"] not in get_args(State):
            raise FormatError("unknown state", expected=", ".join(get_args(State)), found=raw["state"], where=where)
        time = _time(raw["time"], where)
        until = {name: None if raw[name] is None else _time(raw[name], where) for name in _UNTIL}
        positions = tuple(
            sorted((int(partition), decode(int, end, where=where)) for partition, end in raw["positions"].items())
        )
        for name in ("lag_seconds", "unreadable_times_share"):
            if type(raw[name]) is int:
                raw[name] = float(raw[name])
        extents = decode_extents(raw["extents"], where=where)
        special: dict[str, Any] = {"time": time, **until, "positions": positions, "extents": extents}
        own = {
            name: decode(kind, raw[name], where=f"{where} {name}")
            for name, kind in get_type_hints(Heartbeat).items()
            if name not in special
        }
        return Heartbeat(**own, **special)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, PositionError) as error:
        raise FormatError(
            "a heartbeat does not parse", expected=f"format 1 to {FORMAT}", found=repr(error), where=where
        ) from error


def _time(text: str, where: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise FormatError("a time without its zone", expected="UTC", found=text, where=where)
    return time
