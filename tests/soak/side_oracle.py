"""What a small stream must have after a fault, computed without the product's code.

The fault comes once in the life of a stream. Records after it have numbers from ``AFTER`` on, but their times continue.
A record's time is in its timestamp and in the field ``t`` of its value.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from tests.soak.days_oracle import DAY_MS, EPOCH, FIRST_DAY, Ends, Place, ends_of

AFTER = 1_000_000
DAY_RECORDS = 600
Lost = Mapping[int, tuple[int, int]]  # the range of lost offsets, by partition
Row = tuple[date, int, int, int]  # day, partition, offset, number


def moment_ms(n: int) -> int:
    """The timestamp of the n-th record, in ms since the epoch."""
    return (FIRST_DAY - EPOCH).days * DAY_MS + n % AFTER * DAY_MS // DAY_RECORDS


def day_of(n: int) -> date:
    return EPOCH + timedelta(milliseconds=moment_ms(n))


@dataclass(frozen=True, slots=True)
class DaysKey:
    """What decides days: the field ``t`` if it is at most ``distance`` days from the timestamp, else the timestamp.

    Without a distance it is the timestamp alone.
    """

    distance: int | None

    @property
    def section(self) -> dict[str, str | int]:
        """The definition's ``event_time``."""
        if self.distance is None:
            return {"extractor": "record"}
        field = {"extractor": "record_field", "field": "$.t", "format": "epoch_ms"}
        return {**field, "max_distance_days": self.distance}

    @property
    def settings(self) -> frozenset[str]:
        """What an error must show of it."""
        return frozenset(f"event_time.{key}={value}" for key, value in self.section.items()) | {"time_zone=UTC"}


BY_TIMESTAMP = DaysKey(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldShift:
    """Each ``every``-th record has the field ``t`` so many ``days`` after its timestamp."""

    days: int
    every: int

    def field_ms(self, n: int) -> int:
        """The field of the n-th record, in ms since the epoch."""
        return moment_ms(n) + self._days(n) * DAY_MS

    def day_of(self, n: int, key: DaysKey) -> date:
        """The day of the n-th record by this key."""
        far = key.distance is None or abs(self._days(n)) > key.distance
        return day_of(n) + timedelta(days=0 if far else self._days(n))

    def _days(self, n: int) -> int:
        return self.days if n % self.every == 0 else 0


Keys = tuple[DaysKey, DaysKey]  # before and after the change
Sides = frozenset[tuple[date, frozenset[str]]]  # both days of records, each with the settings that give it
Conflicts = dict[tuple[int, str, Sides], tuple[int, int]]  # by partition, error and sides: records, first offset


def rows_of(acknowledged: Mapping[Place, int], dated: Callable[[int], date] = day_of) -> list[Row]:
    """The rows of records, by partition and offset."""
    return [(dated(n), partition, offset, n) for (partition, offset), n in acknowledged.items()]


def after_rewrite(
    before: Mapping[Place, int], after: Mapping[Place, int], archived: Ends, lost: Lost
) -> dict[Place, int]:
    """The archive's records in the end: it keeps those that a log lost, and has the log's later ones after them."""
    return {
        **{place: n for place, n in before.items() if place[0] not in lost or place[1] < archived[place[0]]},
        **{place: n for place, n in after.items() if place[1] >= archived[place[0]]},
    }


def rewritten(archived: Ends, truncated: Ends) -> dict[int, tuple[int, int]]:
    """The archived offsets that Kafka lost, by partition. ``truncated``: the logs' ends after the fault."""
    return {partition: (end, archived[partition]) for partition, end in truncated.items() if end < archived[partition]}


def days_at(records: Mapping[Place, int], lost: Lost) -> set[date]:
    """The days of the records at rewritten offsets."""
    places = {(partition, offset) for partition, (start, end) in lost.items() for offset in range(start, end)}
    return {day_of(n) for place, n in records.items() if place in places}


def wrong_rows(found: Iterable[Row], due: Iterable[Row]) -> Iterator[str]:
    """The errors of rows: each due one must be there once, and no other."""
    there, wanted = Counter(found), Counter(due)
    for what, wrong in (("not due or twice", there - wanted), ("missing", wanted - there)):
        if wrong:
            yield f"{wrong.total()} rows are {what}, such as {min(wrong)}"


def wrong_ending(line: str, expected: str, topic: str, lost: Lost) -> Iterator[str]:
    """The errors of the last line of a process that had to stop: the error that must begin it, and the lost ranges."""
    if not line.startswith(expected):
        yield f"ended with {line!r}, expected {expected!r}"
    named = re.findall(rf"{re.escape(topic)}-(\d+) \[(\d+), (\d+)\)", line)
    if sorted({tuple(map(int, found)) for found in named}) != sorted((log, *span) for log, span in lost.items()):
        yield f"names the ranges {named}, expected {dict(lost)}, in {line!r}"


def unnamed_records(line: str, topic: str, lost: Lost) -> Iterator[str]:
    """The errors of a rewritten log's message: the archive's last record must be named, and Kafka's there."""
    for partition, (_, end) in lost.items():
        found = line.count(f"{topic}-{partition} offset {end - 1} of ")
        if found != 2:
            yield f"names {found} records at offset {end - 1} of partition {partition}, expected 2, in {line!r}"


def wrong_gaps(seal: Mapping[str, Any], lost: Lost) -> Iterator[str]:
    """The errors of the losses that a seal's JSON names: exactly the lost ranges, of the topic that was deleted."""
    found = {
        item["log"]["partition"]: [(*gap["range"], gap["topic_deleted"]) for gap in item["gaps"]]
        for item in seal["logs"]
        if item["gaps"]
    }
    if found != {partition: [(*span, True)] for partition, span in lost.items()}:
        yield f"the seal of {seal['day']} names the losses {found}, expected {dict(lost)}"


def lost_objects(manifests: Sequence[Mapping[str, Any]], there: set[str]) -> Iterator[str]:
    """Missing objects that a manifest lists, except those of ranges that a compaction replaced."""
    replaced = {
        (item["writer"], item["batch"], item["partition"]) for one in manifests for item in one.get("replaces", ())
    }
    for one in manifests:
        for file in one["files"]:
            if file["key"] not in there and (one["writer"], one["batch"], file["partition"]) not in replaced:
                yield f"{file['key']} is missing, which batch {one['batch']} of writer {one['writer']} lists"


def seen_ends_lost(seen: Ends, ends: Ends) -> dict[int, tuple[int, int]]:
    """The offsets that logs had and lost, by partition. ``ends``: the logs' ends now."""
    return {partition: (ends[partition], end) for partition, end in seen.items() if ends[partition] < end}


def wrong_lost_ends(line: str, expected: str, topic: str, lost: Lost, archived: Ends) -> Iterator[str]:
    """The errors of a run that must stop: it names each lost end of a log, and the offsets before it in doubt."""
    if not line.startswith(expected):
        yield f"ended with {line!r}, expected {expected!r}"
    log = rf"{re.escape(topic)}-(\d+) \[(\d+), (\d+)\)"
    ranges = {(partition, start, end, end - start) for partition, (start, end) in lost.items()}
    others = {(partition, archived[partition], start) for partition, (start, _) in lost.items()}
    for what, after, due in (
        ("lost", r" lost from the end of the log: at most (\d+) offsets?", ranges),
        ("doubtful", " may have had other records before()", {item for item in others if item[1] < item[2]}),
    ):
        found = [tuple(int(part) for part in parts if part) for parts in re.findall(log + after, line)]
        if sorted(found) != sorted(due):
            yield f"names the {what} ranges {found}, expected {sorted(due)}, in {line!r}"


def wrong_truncations(seal: Mapping[str, Any], lost: Lost, archived: Ends) -> Iterator[str]:
    """The errors of the lost ends of logs that a seal's JSON names: exactly these, and what was archived before."""
    found = sorted((item["log"]["partition"], *item["range"], item["archived"]) for item in seal.get("truncated", ()))
    if found != sorted((partition, *span, archived[partition]) for partition, span in lost.items()):
        yield f"the seal of {seal['day']} by {seal['run']} names the lost ends {found}, expected {dict(lost)}"


def undecided(open_at: Collection[Place], sent: Mapping[Place, int], last: date) -> dict[int, tuple[int, int, int]]:
    """What an open transaction hides of days up to ``last``: first offset, log's end, and first record of these days.

    ``open_at`` are the places of its records, ``sent`` all records in the logs. Logs where it hides none are left out.
    """
    ends, found = ends_of(sent), {}
    for log in {partition for partition, _ in open_at}:
        start = min(offset for partition, offset in open_at if partition == log)
        own = [at for (partition, at), n in sent.items() if partition == log and at >= start and day_of(n) <= last]
        if own:
            found[log] = start, ends[log], min(own)
    return found


def wrong_undecided(line: str, expected: str, topic: str, due: Mapping[int, tuple[int, int, int]]) -> Iterator[str]:
    """The errors of a run that must stop at an open transaction: it names what ``undecided`` finds."""
    if not line.startswith(expected):
        yield f"ended with {line!r}, expected {expected!r}"
    named = rf"{re.escape(topic)}-(\d+) undecided from offset (\d+) to (\d+) \(offset (\d+) may be of these days\)"
    found = [tuple(map(int, parts)) for parts in re.findall(named, line)]
    if sorted(found) != sorted((log, *span) for log, span in due.items()):
        yield f"names the hidden offsets {found}, expected {dict(due)}, in {line!r}"


def conflicts_of(
    records: Mapping[Place, int], shift: FieldShift, keys: Keys, sealed: Collection[date], planned: Collection[date]
) -> Conflicts:
    """The records that several days would have, or none, if a run sealed the ``planned`` days by the second key.

    ``sealed`` days have read all of the records by the first key. The archive has every record by both.
    """
    found: Conflicts = {}
    for (partition, offset), n in records.items():
        old, new = (shift.day_of(n, key) for key in keys)
        if old == new or not {old, new} & {*planned}:
            continue
        having = (old in sealed and old not in planned) + (new in planned)
        if having == 2 or (not having and {old, new} <= {*sealed, *planned}):
            sides = frozenset(((old, keys[0].settings), (new, keys[1].settings)))
            key = partition, "in several sealed days" if having else "in no sealed day", sides
            number, first = found.get(key, (0, offset))
            found[key] = number + 1, min(first, offset)
    return found


def days_together(
    records: Mapping[Place, int], shift: FieldShift, keys: Keys, sealed: Collection[date], day: date
) -> set[date]:
    """The days that a run of this day must rebuild together, so that each record is in one of them."""
    days, known = {day}, set[date]()
    while days != known:
        known = set(days)
        days |= {day for _, _, sides in conflicts_of(records, shift, keys, sealed, known) for day, _ in sides}
    return days


def wrong_conflicts(line: str, expected: str, topic: str, due: Conflicts) -> Iterator[str]:
    """The errors of a run that must stop: it names records and first offset, both days and both settings."""
    if not line.startswith(expected):
        yield f"ended with {line!r}, expected {expected!r}"
    side = r"(\d{4}-\d\d-\d\d) in batch \d+ of \S+ \(([^)]*)\)"
    named = rf"([\d,]+) records of {re.escape(topic)}-(\d+) (in [a-z ]+), the first at offset (\d+): {side}; {side}"
    found: Conflicts = {}
    for records, partition, how, offset, *sides in re.findall(named, line):
        days = frozenset((date.fromisoformat(sides[at]), _shown(sides[at + 1])) for at in (0, 2))
        number, first = found.get((int(partition), how, days), (0, int(offset)))
        found[int(partition), how, days] = number + int(records.replace(",", "")), min(first, int(offset))
    if found != due:
        yield f"names the records {found}, expected {due}, in {line!r}"


def _shown(settings: str) -> frozenset[str]:
    """The settings of an error that decide days. ``value_format`` is the same always."""
    return frozenset(part for part in settings.split(", ") if part != "value_format=json")
