"""What a delivery audit found, for each day and hour: the output topics compared with the archived records."""

from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from tidemark.core.outcome import RunStep

Verdict = Literal["pass", "findings", "unknown"]
FINDINGS = ("missing", "duplicated", "unexpected")


@dataclass(frozen=True, slots=True, kw_only=True)
class HourDelivery:
    """Records with an event time in an hour of the day, from 0 to 23 in the stream's time zone.

    An hour that the clocks show twice has the records of both. ``live`` records arrived on the live topic and
    ``dead_letters`` on the dead-letter topic; each counts once. ``missing`` and ``pending`` records are on neither,
    ``duplicated`` are further copies, and ``unexpected`` are records that should not be there.
    """

    hour: int
    live: int
    dead_letters: int
    missing: int
    pending: int
    duplicated: int
    unexpected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayDelivery:
    """One day. ``archived`` are its archived records. ``hours`` are those with records."""

    day: date
    verdict: Verdict
    sentences: tuple[str, ...]
    archived: int
    hours: tuple[HourDelivery, ...]

    def total(self, name: str) -> int:
        """The sum of a count over the hours."""
        return sum(getattr(item, name) for item in self.hours)

    @property
    def text(self) -> str:
        """The findings in words."""
        if self.verdict == "pass":
            copies = self.total("duplicated")
            return f"every record was delivered{f', with {copies:,} further copies' if copies else ' once'}"
        found = [f"{self.total(name):,} {name}" for name in FINDINGS if self.total(name)]
        return ", ".join([*(["not certain"] if self.verdict == "unknown" else []), *found])


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAudit:
    """An audit of some days. ``details`` are of the whole span.

    ``because`` says why nothing was compared; then there are no ``details``.
    """

    days: tuple[DayDelivery, ...]
    details: dict[str, Any] | None = None
    because: str | None = None


DELIVERY = RunStep("delivery", DeliveryAudit)
# Steps that come when the days are sealed, and say nothing about the table.
FAILS_NO_RUN = frozenset({DELIVERY.name})
