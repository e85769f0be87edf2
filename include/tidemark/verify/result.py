"""A verification's result: checks with their differences, and one verdict."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tidemark.core.approval import Approval
from tidemark.core.offsets import OffsetRange, TopicPartition

Status = Literal["holds", "differs", "unknown", "expired"]
Verdict = Literal["proven", "disproven", "unknown"]
EXIT_CODES: dict[Verdict, int] = {"proven": 0, "disproven": 1, "unknown": 2}
NAMED_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One difference: what differs, both sides, and where."""

    what: str
    expected: str
    found: str
    where: str


@dataclass(slots=True, kw_only=True)
class ProofPart:
    """One part of the proof. ``unknown`` says why it could not be checked. ``expired``: retention has deleted its
    sources, and the other parts are valid without it.

    The first ``NAMED_MAX`` differences are kept; ``total`` counts all of them.
    """

    name: str
    derived_from: str = ""
    unknown: list[str] = field(default_factory=list)
    expired: bool = False
    notes: list[str] = field(default_factory=list)
    differences: list[Mismatch] = field(default_factory=list)
    total: int = 0

    @property
    def status(self) -> Status:
        if self.total:
            return "differs"
        if self.unknown:
            return "unknown"
        return "expired" if self.expired else "holds"

    def differs(self, what: str, *, expected: object, found: object, where: object) -> None:
        self.total += 1
        if len(self.differences) < NAMED_MAX:
            self.differences.append(Mismatch(what=what, expected=str(expected), found=str(found), where=str(where)))

    def equal(self, what: str, *, expected: object, found: object, where: object) -> None:
        if expected != found:
            self.differs(what, expected=expected, found=found, where=where)

    def ranges(
        self, what: str, ranges: Iterable[OffsetRange], *, expected: str, found: str, log: TopicPartition
    ) -> None:
        for item in ranges:
            self.differs(what, expected=expected, found=found, where=f"{log}, offsets {item}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The checks of one version of a day, in order. ``lost`` is the number of offsets that its seal calls lost,
    ``approval`` who approved the day.
    """

    stream: str
    day: str
    version: int
    seal: str
    lost: int
    approval: Approval | None = None
    checks: tuple[ProofPart, ...]

    @property
    def verdict(self) -> Verdict:
        """Disproven by one difference, else unknown if a check is unknown or there is none, else proven."""
        return verdict_of(self.checks)


def verdict_of(checks: Sequence[ProofPart]) -> Verdict:
    """The verdict of these checks, by the rule of ``Verification.verdict``."""
    found = {check.status for check in checks}
    if "differs" in found:
        return "disproven"
    return "unknown" if "unknown" in found or not checks else "proven"
