"""The reader that the reference shows, on an archive with overlaps, holes, a recreated topic and compaction."""

import re
from datetime import timedelta
from typing import Any

import pytest

from tests.archive.compacting import WEEK, compaction, delete, make
from tests.archive.small import NOW, Small
from tidemark.core.offsets import TopicPartition
from tidemark.installation import PROJECT
from tidemark.s3 import ObjectStore

pytestmark = pytest.mark.conformance(57)

MIDNIGHT = 24  # the first offset of the second day


@pytest.fixture(scope="module")
def read_day() -> Any:
    """``read_day`` as the page has it."""
    page = (PROJECT / "docs" / "reference" / "archive-format.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "archive-format.md", "exec"), names)  # noqa: S102 - the page's own code
    return names["read_day"]


def expected(small: Small, logs: dict[TopicPartition, range]) -> dict[tuple[str, int, int], dict[str, object]]:
    return {
        (log.topic_id, log.partition, offset): row
        for log, offsets in logs.items()
        for offset, row in zip(offsets, small.expected(offsets, log), strict=True)
    }


def test_it_reads_each_record_of_a_day_once_before_and_after_compaction(store: ObjectStore, read_day: Any) -> None:
    small = make(store)
    recreated = TopicPartition(topic="orders", topic_id="id-2", partition=0)
    for start in range(0, 32, 2):
        small.commit(start, start + 2)
    small.commit(0, 30, log=small.log(1), without=frozenset({7, 8}))
    small.commit(5, 28, writer="query-b", log=small.log(1))  # overlaps, and has the rows that the first copy lacks
    small.commit(0, 4, writer="query-b", log=recreated)
    days = {
        "2013-01-14": expected(
            small, {small.log(0): range(MIDNIGHT), small.log(1): range(MIDNIGHT), recreated: range(4)}
        ),
        "2013-01-15": expected(small, {small.log(0): range(MIDNIGHT, 32), small.log(1): range(MIDNIGHT, 30)}),
        "2013-01-16": {},
    }

    def read() -> dict[str, Any]:
        return {day: read_day(store.client, store.bucket, small.prefix, small.stream.name, day) for day in days}

    assert read() == days
    assert compaction(small).run().ranges == 16
    assert read() == days
    assert delete(small, NOW + WEEK + timedelta(days=1)).objects > 0
    assert read() == days
