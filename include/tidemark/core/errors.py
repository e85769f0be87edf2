"""The exception tree.

TidemarkError
├── ConfigError        a setting or stream definition is wrong; fix the file
├── FormatError        persisted text (key, manifest, seal, plan) does not parse
├── PositionError      an offset position does not fit its neighbour
├── ConflictError      durable state written by someone else disagrees with ours
├── IncompleteError    a day can't be proven complete (gaps, losses, rows not conserved)
├── QualityError       a data-quality check of severity "critical" failed
├── ServiceError       Kafka, S3 or the catalog can't be reached or refused the call
└── StackError         a process of the local stack, or a tool it needs, is missing or died
"""

from datetime import date


class TidemarkError(Exception):
    """Any failure Tidemark explains: what went wrong, both sides of it, where, and what to do.

    The message reads ``problem: expected X, found Y [where]. hint``; parts not given are left out. ``days`` are the
    days and ``objects`` the keys of the data objects that it is about, for code that acts on them.
    """

    def __init__(
        self,
        problem: str,
        *,
        expected: object = None,
        found: object = None,
        where: str | None = None,
        hint: str | None = None,
        days: tuple[date, ...] = (),
        objects: tuple[str, ...] = (),
    ) -> None:
        self.problem = problem
        self.expected = expected
        self.found = found
        self.where = where
        self.hint = hint
        self.days = days
        self.objects = objects
        super().__init__(str(self))

    def __str__(self) -> str:
        sides = []
        if self.expected is not None:
            sides.append(f"expected {self.expected}")
        if self.found is not None:
            sides.append(f"found {self.found}")
        text = self.problem
        if sides:
            text += ": " + ", ".join(sides)
        if self.where:
            text += f" [{self.where}]"
        if self.hint:
            text += f". {self.hint}"
        return text


class ConfigError(TidemarkError):
    """A setting or stream definition is wrong."""


class FormatError(TidemarkError):
    """Persisted text does not parse."""


class PositionError(TidemarkError):
    """An offset position does not fit; both positions are in the message."""


class ConflictError(TidemarkError):
    """Durable state written by someone else disagrees with ours."""


class IncompleteError(TidemarkError):
    """A day can't be proven complete."""


class QualityError(TidemarkError):
    """A data-quality check that gates publication failed."""


class ServiceError(TidemarkError):
    """Kafka, S3 or the catalog can't be reached, or refused the call."""


class StackError(TidemarkError):
    """A process of the local stack, or a tool it needs, is missing or died."""
