"""Which objects a compaction puts together (no server)."""

from datetime import date

import pytest

from tidemark.core.layout import DataName, Layout
from tidemark.core.manifest import DataFile, DayRows, Replaced
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.sections import Archive
from tidemark.maintenance.grouping import Input, group_inputs

pytestmark = pytest.mark.conformance(53)

DAY = date(2013, 1, 14)
LOG = TopicPartition(topic="orders", topic_id="id-1", partition=0)
LAYOUT = Layout(prefix="", stream="orders")


def inputs(*sizes: int, rows: int = 10, paths: tuple[str, ...] = ("p",), first: int = 0) -> list[Input]:
    """Adjacent ranges of these sizes; each has a file of that size and of ``rows`` in every folder."""
    made = []
    for number, size in enumerate(sizes, first):
        span = OffsetRange(start=number * 100, end=number * 100 + 100)
        files = tuple(
            DataFile(
                key=LAYOUT.data_key(DataName(path=path, topic="orders", partition=0, range=span, seq=0)),
                log=LOG,
                range=span,
                rows=rows,
                bytes=size // len(paths),
                first_offset=span.start,
                last_offset=span.end - 1,
                min_timestamp_us=number * 60_000_000,
                max_timestamp_us=number * 60_000_000 + 59_000_000,
                days=(DayRows(day=DAY, rows=rows, first_offset=span.start, last_offset=span.end - 1),),
                checksum="",
                sha256="",
            )
            for path in paths
        )
        replaced = Replaced(writer="query-a", batch=number, log=LOG, range=span, files=(), digest="")
        made.append(Input(replaced=replaced, files=files))
    return made


def grouped(items: list[Input], **archive: object) -> list[list[int]]:
    groups = group_inputs(items, Archive.model_validate(archive), LAYOUT)
    return [[item.replaced.batch for item in group.inputs] for group in groups]


@pytest.mark.parametrize(
    ("items", "archive", "expected"),
    [
        (inputs(), {}, []),
        (inputs(1), {}, []),
        (inputs(1, 1), {}, [[0, 1]]),
        (inputs(*[40] * 7), {"max_bytes": 100}, [[0, 1, 2], [3, 4, 5]]),
        (inputs(1, 1) + inputs(1, 1, first=3), {}, [[0, 1], [3, 4]]),  # a gap between them
        (inputs(1, 1) + inputs(1, first=5), {}, [[0, 1]]),
        (inputs(1, 1, rows=10), {"flush_size": 10}, []),  # the settings make them small
        (inputs(*[1] * 10, rows=10), {"flush_size": 50}, [list(range(10))]),
        (inputs(*[1] * 9), {"rotate_interval_seconds": 60}, []),  # a minute each
        (inputs(*[1] * 9), {"rotate_interval_seconds": 600}, [list(range(9))]),
        (inputs(1, 1, paths=("p", "q")), {}, [[0, 1]]),
        (inputs(1, paths=("p",)) + inputs(1, paths=("q",), first=1), {}, []),  # no folder in common
        (inputs(1, rows=10) + inputs(9, 9, 9, rows=3, first=1), {}, [[1, 2, 3]]),
        (inputs(1, rows=9) + inputs(9, 9, 9, rows=3, first=1), {}, [[0, 1, 2, 3]]),
        (inputs(1, rows=20) + inputs(1, rows=10, first=1) + inputs(9, 9, rows=3, first=2), {}, [[2, 3]]),
    ],
)
def test_groups(items: list[Input], archive: dict[str, object], expected: list[list[int]]) -> None:
    assert grouped(items, **archive) == expected
