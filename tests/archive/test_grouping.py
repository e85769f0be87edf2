"""Which objects a compaction puts together (no server)."""

from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import cast

import pytest

from tests.core.worlds import LAYOUT as WORLDS
from tests.core.worlds import log, manifest_of, span
from tidemark.archive.ledger.history import CommittedRef, History
from tidemark.core.layout import DataName, Layout
from tidemark.core.manifest import DataFile, DayRows, Replaced
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.sections import Archive
from tidemark.definitions.stream import Stream
from tidemark.maintenance import compaction
from tidemark.maintenance.compaction import CompactedFiles, Compaction
from tidemark.maintenance.grouping import Input, group_inputs
from tidemark.s3 import ObjectStore

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


@pytest.mark.parametrize(("at_once", "reads"), [(100, 1), (12, 1), (5, 3), (1, 3)])
def test_a_manifest_is_read_once_for_all_its_logs(monkeypatch: pytest.MonkeyPatch, at_once: int, reads: int) -> None:
    monkeypatch.setattr(compaction, "_AT_ONCE", at_once)
    logs = [log(partition) for partition in range(3)]
    made = [
        manifest_of(
            "q", batch, dict.fromkeys(logs, span(2 * batch, 2 * batch + 2)), dict.fromkeys(logs, (DAY,) * 8), ""
        )
        for batch in range(4)
    ]
    bodies = {WORLDS.manifest_key("q", item.batch): item.to_json() for item in made}
    asked: list[str] = []

    def get(key: str) -> bytes | None:
        asked.append(key)
        return bodies.get(key)

    refs = tuple(CommittedRef(writer="q", batch=batch, range=span(2 * batch, 2 * batch + 2)) for batch in range(4))
    history = SimpleNamespace(
        neighbours_with_holes=lambda *_: 0, small_neighbours=lambda *_: iter([(item, refs) for item in logs])
    )
    counts, checked = CompactedFiles(), list[int]()
    work = Compaction(
        store=cast("ObjectStore", SimpleNamespace(get=get)),
        layout=WORLDS,
        stream=cast("Stream", SimpleNamespace(archive=Archive(), archive_settings=made[0].settings)),
        now=datetime(2013, 1, 15, tzinfo=UTC),
        checked=checked.append,
    )
    groups = list(work._groups(cast("History", history), counts))
    assert [(group.log, group.range, len(group.files)) for group in groups] == [(item, span(0, 8), 4) for item in logs]
    assert [item.replaced.batch for group in groups for item in group.inputs] == [0, 1, 2, 3] * 3
    assert checked == sorted(set(checked))
    assert (checked[-1], len(checked)) == (12, len(asked))
    assert (sorted(set(asked)), max(map(asked.count, asked))) == (sorted(bodies), reads)
