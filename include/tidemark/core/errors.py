"""The exceptions of Tidemark."""

from datetime import date
from typing import ClassVar

from tidemark.core.text import printable


class TidemarkError(Exception):
    """Any failure Tidemark explains: what went wrong, both sides of it, where, and what to do.

    The message reads ``problem: expected X, found Y [where]. hint``; parts not given are left out. Control characters
    are escaped, because a part may hold text from a record. Only the hint may have several lines.

    ``days`` are the days and ``objects`` the keys of the data objects that it is about, for code that acts on them. A
    continuous application of ``spark_apps/`` that fails with it ends with ``exit_code``.
    """

    exit_code: ClassVar[int] = 1

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
        text = printable(text)
        if self.hint:  # may end with lines of a log
            text += ". " + "\n".join(map(printable, self.hint.split("\n")))
        return text


class ConfigError(TidemarkError):
    """A setting or a stream definition is wrong.

    Correct the named file or variable. A retry without a change fails again.
    """


class RequestError(TidemarkError):
    """A command or a form asks for something that does not exist, or does not say enough. No setting is wrong.

    Correct what you asked for, or create it first. The error says what there is.
    """


class FormatError(TidemarkError):
    """Persisted text or a data object does not parse: a key, manifest, seal, plan, or Parquet.

    Check the named object. Restore it from a copy of the bucket if it is damaged.
    """


class PositionError(TidemarkError):
    """An offset does not fit its neighbour. The message names both.

    Compare both positions. A checkpoint or marker from an earlier time is a common cause.
    """


class ConflictError(TidemarkError):
    """Someone else wrote durable state that disagrees with this process.

    Check both sides. A second application or a recreated topic is a common cause.
    """


class DisplacedError(ConflictError):
    """Another writer of the same stream started later and continues. This one has ended, with exit code 10.

    Do not restart it. Find out what started the other one, and run one writer per stream.
    """

    exit_code: ClassVar[int] = 10


class IncompleteError(TidemarkError):
    """A day can't be proven complete: offsets are missing, or rows are not conserved.

    Check the named ranges. Restore them, or accept the loss in the stream definition.
    """


class QualityError(TidemarkError):
    """A quality check of severity `critical` did not pass. Readers keep the rows that they had.

    Open the run's report, which lists each failed check.
    """


class ApprovalError(TidemarkError):
    """A person has to approve what the run would publish, or did not approve it. Readers keep the rows that they had.

    Read what is asked, and approve it. After a rejection mend the cause, then start a new run of the days.
    """


class TransformError(TidemarkError):
    """A stream's transformation raises an error on a record. The paragraph names the record, and the line of the file.

    Correct that line: return null instead of failing, and a reason in the column `reject`. A retry fails again.
    """

    def of(self, record: str) -> "TransformError":
        """The same error, of this record."""
        return TransformError(
            self.problem, expected=self.expected, found=f"{record}: {self.found}", where=self.where, hint=self.hint
        )


class ServiceError(TidemarkError):
    """Kafka, S3 or the catalog is unreachable, or refused the call.

    Read the service's own message, which follows. Retry when the service is available.
    """


class StackError(TidemarkError):
    """A process of the local stack, or a tool that it needs, is missing or died.

    Read the named log file.
    """
