"""What a verification found: checks, each with its differences, and one verdict over all of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from tidemark.core.offsets import OffsetRange, TopicPartition

Status = Literal["holds", "differs", "unknown", "gone"]
Verdict = Literal["proven", "disproven", "unknown"]
EXIT_CODES: dict[Verdict, int] = {"proven": 0, "disproven": 1, "unknown": 2}
NAMED_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One thing that is not what it should be: what, both sides, and where it was found."""

    what: str
    expected: str
    found: str
    where: str


@dataclass(slots=True, kw_only=True)
class ProofPart:
    """One part of the proof. ``looked_at`` says what it was derived from, ``unknown`` why it can't be told, ``gone``
    that there is nothing left to derive it from, as it must be in time: the other parts stand without it.

    Of many differences the first hundred are kept; ``total`` counts all of them.
    """

    name: str
    looked_at: str = ""
    unknown: list[str] = field(default_factory=list)
    gone: bool = False
    notes: list[str] = field(default_factory=list)
    differences: list[Mismatch] = field(default_factory=list)
    total: int = 0

    @property
    def status(self) -> Status:
        if self.total:
            return "differs"
        if self.unknown:
            return "unknown"
        return "gone" if self.gone else "holds"

    def differs(self, what: str, *, expected: object, found: object, where: object) -> None:
        """Keep a difference."""
        self.total += 1
        if len(self.differences) < NAMED_MAX:
            self.differences.append(Mismatch(what=what, expected=str(expected), found=str(found), where=str(where)))

    def equal(self, what: str, *, expected: object, found: object, where: object) -> None:
        """Keep a difference where the two are not equal."""
        if expected != found:
            self.differs(what, expected=expected, found=found, where=where)

    def ranges(
        self, what: str, ranges: Iterable[OffsetRange], *, expected: str, found: str, log: TopicPartition
    ) -> None:
        """A difference per range of offsets."""
        for item in ranges:
            self.differs(what, expected=expected, found=found, where=f"{log}, offsets {item}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The checks of one version of a day, in the order they were made; ``lost`` are offsets that its seal calls so."""

    stream: str
    day: str
    version: int
    seal: str
    lost: int
    checks: tuple[ProofPart, ...]

    @property
    def verdict(self) -> Verdict:
        """Disproven by one difference, unknown where a part can't be told, proven where all that is left holds."""
        found = {check.status for check in self.checks}
        if "differs" in found:
            return "disproven"
        return "unknown" if "unknown" in found or not self.checks else "proven"

    def to_value(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "stream": self.stream,
            "day": self.day,
            "version": self.version,
            "seal": self.seal,
            "verdict": self.verdict,
            "lost": self.lost,
            "checks": [
                {
                    "name": check.name,
                    "status": check.status,
                    "looked_at": check.looked_at,
                    "unknown": check.unknown,
                    "notes": check.notes,
                    "total": check.total,
                    "differences": [
                        {"what": item.what, "expected": item.expected, "found": item.found, "where": item.where}
                        for item in check.differences
                    ],
                }
                for check in self.checks
            ],
        }
