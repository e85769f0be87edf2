"""What a small stream must have after a fault that loses records, computed without the product's code.

The fault comes once in the life of a stream. Records after it have numbers from ``AFTER`` on, but their times continue.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from tests.soak.days_oracle import DAY_MS, EPOCH, FIRST_DAY, Ends, Place

AFTER = 1_000_000
DAY_RECORDS = 600
Lost = Mapping[int, tuple[int, int]]  # the range of lost offsets, by partition
Row = tuple[date, int, int, int]  # day, partition, offset, number


def moment_ms(n: int) -> int:
    """The timestamp of the n-th record, in ms since the epoch."""
    return (FIRST_DAY - EPOCH).days * DAY_MS + n % AFTER * DAY_MS // DAY_RECORDS


def day_of(n: int) -> date:
    return EPOCH + timedelta(milliseconds=moment_ms(n))


def rows_of(acknowledged: Mapping[Place, int]) -> list[Row]:
    """The rows of records, by partition and offset."""
    return [(day_of(n), partition, offset, n) for (partition, offset), n in acknowledged.items()]


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
