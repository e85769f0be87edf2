"""A person's decision to publish days that failed warnings or that lack records."""

from dataclasses import dataclass

from tidemark.core.days import utc_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person's decision on what a run would publish.

    - by: name of the person.
    - at_us: when, in µs since the epoch.
    - words: what the person wrote. May be empty.
    """

    by: str
    at_us: int
    words: str

    def __str__(self) -> str:
        at = utc_second(self.at_us)
        return f"{self.by}, {at}: {self.words}" if self.words else f"{self.by}, {at}"

    @property
    def sentence(self) -> str:
        """The same as a sentence. A person's words may already end as one."""
        return f"Approved by {str(self).removesuffix('.')}."
