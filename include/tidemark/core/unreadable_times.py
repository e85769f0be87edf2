"""Decides whether records with a time field that can't be read raise an alarm: by their share of the last hour's."""

from dataclasses import dataclass, field
from datetime import datetime

RECORDS_MIN = 100  # the share of fewer records says little
_MINUTES = 60


@dataclass(slots=True, kw_only=True)
class LastHour:
    """The records of the last hour, to the minute, and those ``unreadable`` among them."""

    minutes: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, now: datetime, records: int, unreadable: int) -> None:
        """Count the records of a batch that was committed ``now``."""
        minute = int(now.timestamp()) // 60
        before, unreadable_before = self.minutes.get(minute, (0, 0))
        self.minutes[minute] = (before + records, unreadable_before + unreadable)
        self._forget(minute)

    @property
    def records(self) -> int:
        return sum(records for records, _ in self.minutes.values())

    @property
    def unreadable(self) -> int:
        return sum(unreadable for _, unreadable in self.minutes.values())

    def share(self, now: datetime) -> float | None:
        """The share of unreadable times in the hour before ``now``; None without records."""
        self._forget(int(now.timestamp()) // 60)
        return self.unreadable / self.records if self.records else None

    def _forget(self, minute: int) -> None:
        """Forget what is older than an hour, and what a clock that was fast has put into the future."""
        self.minutes = {at: counts for at, counts in self.minutes.items() if minute - _MINUTES < at <= minute}

    def exceeds(self, share: float) -> bool:
        """Whether more than this share is unreadable. Fewer than ``RECORDS_MIN`` records count as so many."""
        # Divided, not multiplied: 29 of 100 are exactly 0.29, and 100 × 0.29 is less than 29.
        return self.unreadable / max(self.records, RECORDS_MIN) > share
