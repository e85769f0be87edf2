"""The result of an audit: counts, verdict and examples.

An archived row of the span has one of these outcomes:

    delivered   the right topic has a right copy of it
    mismatched  it was delivered, but no copy matches; its copies are ``unexpected``
    missing     it is on neither topic
    pending     it is on neither topic, but may come later or may have been there; ``kind`` is the reason

A record of an output topic has one of these:

    delivered     the first right copy of an archived row of the span
    duplicated    a further right copy
    replayed      a dead letter whose replay has another outcome
    unexpected    ``kind`` is the reason
    not_archived  its source offset is not archived yet
    outside       outside the span
    other_stream  of another stream with the same output topic, at any time
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from tidemark.core.days import day_of
from tidemark.core.delivery import FINDINGS, DayDelivery, HourDelivery, Verdict
from tidemark.core.errors import IncompleteError
from tidemark.delivery_audit.archived import KnownRange

FORMAT = 1
EXIT_CODES: dict[str, int] = {"pass": 0, "findings": 1, "unknown": 2}
ROWS = ("delivered", "mismatched", "missing", "pending")
RECORDS = ("delivered", "duplicated", "replayed", "unexpected", "not_archived", "outside", "other_stream")
WITHOUT_HOUR = ("outside", "other_stream")
SHOWN = (*FINDINGS, "pending", "not_archived")
WHY = {
    "not_delivered": "the speed stream has not delivered them yet, or its position is unknown",
    "retention": "Kafka may have deleted them from the output topic",
    "compacted": "the output topic is compacted, which deletes records",
    "open_transaction": "an open transaction on the output topic hides the records after it",
}
UNEXPECTED = {
    "no_coordinates": "without the tidemark.* headers that name the source record",
    "other_log": "of a source topic id that neither Kafka nor the archive knows",
    "no_such_record": "of a source offset without a record",
    "wrong_topic": "on the live topic instead of the dead-letter topic, or the reverse",
    "wrong_topic_other_version": "on the wrong topic for the current definition, from another version",
    "changed": "with another key or value than the transformation gives",
    "changed_other_version": "with another key or value than the current transformation gives, from another version",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A source offset, and its record's place on an output topic (``at`` is the offset there); None for a row."""

    offset: int
    topic: str | None
    partition: int | None
    at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordGroup:
    """Rows (``is_row``) or records with the same outcome, kind, hour and source partition.

    ``examples`` are the first and the last of them by source offset. ``on_live`` is the topic of records. ``hour_us``
    and ``partition`` are None outside the span and for another stream.
    """

    is_row: bool
    outcome: str
    kind: str | None
    on_live: bool | None
    hour_us: int | None
    partition: int | None
    count: int
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The counts of an audit. ``repeats``: the stream's delivery may repeat records, so copies are no finding."""

    groups: tuple[RecordGroup, ...]
    unarchived: tuple[KnownRange, ...]
    repeats: bool = False

    def rows(self, outcome: str) -> int:
        return sum(group.count for group in self.groups if group.is_row and group.outcome == outcome)

    def records(self, outcome: str) -> int:
        return sum(group.count for group in self.groups if not group.is_row and group.outcome == outcome)

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
        """``unknown`` if something may still be wrong, ``pass`` only if everything was read and is right."""
        # As many copies as records: not batches that were repeated after a restart, but two streams side by side.
        expected = self.repeats and self.records("duplicated") < self.records("delivered")
        findings = set(FINDINGS) - ({"duplicated"} if expected else set())
        if any(self.rows(outcome) + self.records(outcome) for outcome in findings):
            return "findings"
        open_ends = self.rows("pending") or self.records("not_archived") or self.unarchived
        return "unknown" if open_ends or not self.archived or not self.records("delivered") else "pass"

    def require_balance(self, *, rows_min: int, rows_max: int, records_max: int) -> None:
        """Raise IncompleteError if the counts contradict each other, the manifests or Kafka: none is reliable then."""
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
                "the span's rows contradict the manifests",
                rows_min <= self.archived <= rows_max,
                f"{rows_min} to {rows_max}",
                self.archived,
            ),
            ("more records than offsets were read", read <= records_max, f"at most {records_max}", read),
            ("a record has no outcome", read == counted, counted, read),
        ):
            if not holds:
                raise IncompleteError(f"an audit's counts do not balance: {problem}", expected=expected, found=found)

    def counts(self) -> dict[str, int]:
        """Every count by name. The first is the sum of the four after it."""
        return {
            "archived": self.archived,
            **{outcome: self.rows(outcome) for outcome in ROWS},
            **{outcome: self.records(outcome) for outcome in RECORDS if outcome != "delivered"},
        }

    def hours(self, zone: tzinfo) -> list[dict[str, Any]]:
        """Counts and examples of findings per hour and source partition, in order."""
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
    shown = [item for item in groups if item.outcome in SHOWN]
    order = sorted(shown, key=lambda item: (SHOWN.index(item.outcome), item.kind or "", str(item.on_live)))
    return [
        {"outcome": group.outcome, "kind": group.kind, "count": group.count, **asdict(example)}
        for group in order
        for example in group.examples
    ]


def by_day(tally: Tally, days: Sequence[date], zone: tzinfo) -> tuple[DayDelivery, ...]:
    """The counts of each of the days. Offsets that are not archived may be of any of them."""
    found: dict[date, list[RecordGroup]] = {day: [] for day in days}
    for group in tally.groups:
        if group.hour_us is not None:
            found.setdefault(day_of(_moment(group.hour_us), zone), []).append(group)
    return tuple(_day(day, replace(tally, groups=tuple(groups)), zone) for day, groups in found.items())


def _day(day: date, tally: Tally, zone: tzinfo) -> DayDelivery:
    if not tally.groups and not tally.unarchived:
        return DayDelivery(day=day, verdict="pass", sentences=("the day has no record",), archived=0, hours=())
    hours: dict[int, list[RecordGroup]] = {}
    for group in tally.groups:
        if group.hour_us is not None:
            hours.setdefault(_moment(group.hour_us).astimezone(zone).hour, []).append(group)
    return DayDelivery(
        day=day,
        verdict=tally.verdict,
        sentences=tuple(sentences(tally)),
        archived=tally.archived,
        hours=tuple(_hour(hour, Tally(groups=tuple(groups), unarchived=())) for hour, groups in sorted(hours.items())),
    )


def _hour(hour: int, tally: Tally) -> HourDelivery:
    on_live = sum(item.count for item in tally.groups if item.outcome == "delivered" and item.on_live)
    return HourDelivery(
        hour=hour,
        live=on_live,
        dead_letters=tally.records("delivered") - on_live,
        missing=tally.rows("missing"),
        pending=tally.rows("pending"),
        duplicated=tally.records("duplicated"),
        unexpected=tally.records("unexpected"),
    )


def _moment(time_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)


def _local(hour_us: int, zone: tzinfo) -> str:
    return _moment(hour_us).astimezone(zone).isoformat()


def sentences(tally: Tally) -> list[str]:
    """The verdict in words."""
    lines = []
    for outcome, words in (("pending", WHY), ("unexpected", UNEXPECTED)):
        lines += [f"{n:,} {outcome}: {words[kind]}" for kind, n in tally.kinds(outcome).items()]
    if tally.repeats and (repeated := tally.records("duplicated")):
        lines.append(f"{repeated:,} duplicated: expected after a restart, because delivery is at_least_once")
    if tally.records("not_archived"):
        lines.append(f"{tally.records('not_archived'):,} delivered records have source offsets that are not archived")
    lines += [
        f"offsets {item.range} of partition {item.log.partition} may be in the span and are not archived"
        for item in tally.unarchived
    ]
    if not tally.archived:
        lines.append("the archive has no row of the span")
    elif not tally.records("delivered"):
        lines.append("no record of the span was found on the output topics")
    return lines
