"""The profile of a rebuilt day: rows per hour, how late its records were, why records were rejected, and which rejected
records of the version before are published now.

The size of a profile has a bound, whatever the day holds.
"""

from dataclasses import dataclass
from datetime import date

REASONS_MAX = 10
EXAMPLES_MAX = 3
# Bounds of the lateness of records: how many came within each.
LATE_BOUNDS_S = (
    *(0, 1, 10, 60, 300, 900),  # to a quarter of an hour
    *(3600, 3 * 3600, 6 * 3600, 12 * 3600),
    *(days * 86_400 for days in (1, 2, 3, 7, 14, 30)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRows:
    """Rows with an event time in an hour of the day, from 0 to 23 in the stream's time zone.

    An hour that the clocks show twice has the rows of both. ``quarantined`` includes duplicates by key.
    """

    hour: int
    published: int
    quarantined: int

    @property
    def rows(self) -> int:
        return self.published + self.quarantined


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRows:
    """The number of rows whose record's timestamp is at most ``within_s`` seconds after their event time."""

    within_s: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRecord:
    """A rejected record by its place in the source, with the start of its value as text."""

    topic_id: str
    partition: int
    offset: int
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionReason:
    """Why ``rows`` records were rejected, with the first of them."""

    reason: str
    rows: int
    examples: tuple[RejectedRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayProfile:
    """One day, published and quarantined rows together.

    ``hours`` are those with rows. ``newest_us`` is the newest event time of a published row, in µs since the epoch.
    ``late`` has an entry for each of LATE_BOUNDS_S and ``latest_s`` is the most that a record was late; without them
    the event time is the record's timestamp. ``reasons`` are the most frequent of ``reasons_found``.
    """

    day: date
    hours: tuple[HourRows, ...]
    newest_us: int | None = None
    late: tuple[LateRows, ...] = ()
    latest_s: int | None = None
    reasons: tuple[RejectionReason, ...] = ()
    reasons_found: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredReason:
    """Of the records that were rejected for a reason, those that are published now."""

    reason: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredRows:
    """Of the ``rejected`` records that the ``version`` before had in quarantine, the ``rows`` that are published now.

    ``reasons`` are the most frequent of the ``reasons_found`` that these were rejected for.
    """

    day: date
    version: int
    rejected: int
    rows: int
    reasons: tuple[RecoveredReason, ...] = ()
    reasons_found: int = 0
