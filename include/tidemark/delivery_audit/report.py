"""The result of an audit: counts, verdict and examples. Plain values; the comparison in Spark fills them.

What became of an archived row of the span, exactly one of:

    delivered   a right copy of it is on the topic it belongs to
    unlike      it is on a topic, but in no right copy: its copies are ``unexpected``
    missing     it is on neither topic
    pending     the same, but it may yet come, or have been there: ``kind`` says why

and of a record read from an output topic:

    delivered     the first right copy of an archived row of the span
    duplicated    a further one
    replayed      a dead letter beside the outcome of its replay
    unexpected    ``kind`` says why
    not_archived  of a source offset that the archive does not hold yet
    outside       of another time
    other_stream  of another stream that has the same output topic, whenever it was
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal

from tidemark.core.errors import IncompleteError

FORMAT = 1
Verdict = Literal["pass", "findings", "unknown"]
EXIT_CODES: dict[str, int] = {"pass": 0, "findings": 1, "unknown": 2}
ROWS = ("delivered", "unlike", "missing", "pending")
RECORDS = ("delivered", "duplicated", "replayed", "unexpected", "not_archived", "outside", "other_stream")
WITHOUT_HOUR = ("outside", "other_stream")
FINDINGS = ("missing", "duplicated", "unexpected")
SHOWN = (*FINDINGS, "pending", "not_archived")
WHY = {
    "not_delivered": "the speed stream has not come to them, or nobody knows how far it is",
    "retention": "Kafka may have deleted them from the output topic since",
    "compacted": "the output topic is compacted, which deletes records",
    "open_transaction": "an open transaction on the output topic hides what is behind it",
}
UNEXPECTED = {
    "no_coordinates": "without the tidemark.* headers that say where a record came from",
    "other_log": "of a source topic id that neither Kafka nor the archive knows",
    "no_such_record": "of an offset that is no record",
    "wrong_topic": "on the live topic instead of the dead-letter topic, or the other way round",
    "wrong_topic_other_version": "on the wrong topic for the definition of today, by another version of it",
    "changed": "with another key or value than the transformation gives",
    "changed_other_version": "with another key or value than the transformation of today gives, by another version",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A source offset, and where its record is on an output topic (``at`` is the offset there); None for a row."""

    offset: int
    topic: str | None
    partition: int | None
    at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordGroup:
    """Rows (``is_row``) or records that share outcome, kind, hour and source partition: their number, and the first and
    the last of them by source offset. ``on_live`` is the topic of records; ``hour_us`` and ``partition`` are None
    outside the span and of another stream."""

    is_row: bool
    outcome: str
    kind: str | None
    on_live: bool | None
    hour_us: int | None
    partition: int | None
    count: int
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unarchived:
    """Source offsets ``[start, end)`` that may belong to the span and that no manifest holds."""

    topic_id: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the manifests and Kafka say, to hold the counts against: rows of the span, and offsets read."""

    rows_min: int
    rows_max: int
    records_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The counts of an audit."""

    groups: tuple[RecordGroup, ...]
    unarchived: tuple[Unarchived, ...]

    def rows(self, outcome: str) -> int:
        return sum(group.count for group in self.groups if group.is_row and group.outcome == outcome)

    def records(self, outcome: str) -> int:
        return sum(group.count for group in self.groups if not group.is_row and group.outcome == outcome)

    def found(self, outcome: str) -> int:
        """Rows, or records, of an outcome that is only of one of the two."""
        return self.rows(outcome) + self.records(outcome)

    def kinds(self, outcome: str) -> dict[str, int]:
        """The outcome's count by kind."""
        found: Counter[str] = Counter()
        for group in self.groups:
            if group.outcome == outcome and group.kind is not None:
                found[group.kind] += group.count
        return dict(sorted(found.items()))

    @property
    def archived(self) -> int:
        """Archived rows of the span."""
        return sum(self.rows(outcome) for outcome in ROWS)

    @property
    def verdict(self) -> Verdict:
        """``unknown`` where something may still be wrong, ``pass`` only where everything was seen and is right."""
        if any(self.found(outcome) for outcome in FINDINGS):
            return "findings"
        open_ends = self.rows("pending") or self.records("not_archived") or self.unarchived
        return "unknown" if open_ends or not self.archived or not self.records("delivered") else "pass"

    def require_balance(self, bounds: Bounds) -> None:
        """Raises IncompleteError where the counts contradict each other, the manifests or Kafka: then none of them can
        be trusted."""
        read = sum(self.records(outcome) for outcome in RECORDS)
        counted = sum(group.count for group in self.groups if not group.is_row)
        for problem, holds, expected, found in (
            (
                "delivered rows and delivered records differ",
                self.rows("delivered") == self.records("delivered"),
                self.rows("delivered"),
                self.records("delivered"),
            ),
            (
                "the span's rows are not those of the manifests",
                bounds.rows_min <= self.archived <= bounds.rows_max,
                f"{bounds.rows_min} to {bounds.rows_max}",
                self.archived,
            ),
            ("more records than offsets were read", read <= bounds.records_max, f"at most {bounds.records_max}", read),
            ("a record has no outcome", read == counted, counted, read),
        ):
            if not holds:
                raise IncompleteError(f"an audit's counts do not balance: {problem}", expected=expected, found=found)

    def counts(self) -> dict[str, int]:
        """Every count by name. The first is the sum of the four that follow it."""
        return {
            "archived": self.archived,
            **{outcome: self.rows(outcome) for outcome in ROWS},
            **{outcome: self.records(outcome) for outcome in RECORDS if outcome != "delivered"},
        }

    def hours(self, zone: tzinfo) -> list[dict[str, Any]]:
        """Per hour and source partition, in order: its counts, and the first and last example of what is wrong."""
        found: dict[tuple[int, int], list[RecordGroup]] = {}
        for group in self.groups:
            if group.hour_us is not None and group.partition is not None:
                found.setdefault((group.hour_us, group.partition), []).append(group)
        return [
            {
                "hour": _local(hour_us, zone),
                "partition": partition,
                **{
                    name: n
                    for name, n in Tally(groups=tuple(own), unarchived=()).counts().items()
                    if name not in WITHOUT_HOUR
                },
                "examples": _examples(own),
            }
            for (hour_us, partition), own in sorted(found.items())
        ]


def _examples(groups: Iterable[RecordGroup]) -> list[dict[str, Any]]:
    wrong = [item for item in groups if item.outcome in SHOWN]
    order = sorted(wrong, key=lambda item: (SHOWN.index(item.outcome), item.kind or "", str(item.on_live)))
    return [
        {"outcome": group.outcome, "kind": group.kind, "count": group.count, **asdict(example)}
        for group in order
        for example in group.examples
    ]


def _local(hour_us: int, zone: tzinfo) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=hour_us)).astimezone(zone).isoformat()


def sentences(tally: Tally) -> list[str]:
    """The verdict in words."""
    said = []
    for outcome, words in (("pending", WHY), ("unexpected", UNEXPECTED)):
        said += [f"{n:,} {outcome}: {words[kind]}" for kind, n in tally.kinds(outcome).items()]
    if tally.records("not_archived"):
        said.append(f"{tally.records('not_archived'):,} delivered records are of offsets that are not archived")
    said += [
        f"offsets [{item.start}, {item.end}) of partition {item.partition} may be of the span and are not archived"
        for item in tally.unarchived
    ]
    if not tally.archived:
        said.append("the archive has no row of the span")
    elif not tally.records("delivered"):
        said.append("no record of the span was found on the output topics")
    return said
