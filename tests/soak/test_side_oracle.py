"""The oracle of the small streams finds each kind of damage after a fault that loses records, and no other."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.soak.days_oracle import FIRST_DAY, Place, ends_of
from tests.soak.side_oracle import (
    AFTER,
    DAY_RECORDS,
    Lost,
    Row,
    after_rewrite,
    day_of,
    days_at,
    lost_objects,
    rewritten,
    rows_of,
    unnamed_records,
    wrong_ending,
    wrong_gaps,
    wrong_rows,
)
from tests.soak.side_stream import cut_log

pytestmark = pytest.mark.conformance(58)

LOST: Lost = {0: (30, 50), 1: (40, 50)}
# Records before the fault, of which the logs keep 30 and 40 each, and after it.
BEFORE: dict[Place, int] = {(n % 2, n // 2): n for n in range(100)}
AFTERWARDS: dict[Place, int] = {(n % 2, n // 2 + (30, 40)[n % 2]): AFTER + 100 + n for n in range(200)}
DUE = after_rewrite(BEFORE, AFTERWARDS, ends_of(BEFORE), LOST)
ROWS = rows_of(DUE)


def test_a_rewritten_log_keeps_what_is_archived_and_continues_after_it() -> None:
    assert rewritten(ends_of(BEFORE), {0: 30, 1: 40}) == LOST
    assert rewritten(ends_of(BEFORE), {0: 50}) == {}
    assert (DUE[0, 49], DUE[0, 50], DUE[1, 50]) == (98, AFTER + 100 + 40, AFTER + 100 + 21)
    assert len(DUE) == 100 + 200 - 20 - 10
    more = after_rewrite({**BEFORE, (0, 50): 7, (1, 50): 8}, {}, ends_of(BEFORE), {0: LOST[0]})
    assert more == {**BEFORE, (1, 50): 8}  # nobody had archived either record
    late = {place: n + 2 * DAY_RECORDS for place, n in AFTERWARDS.items()}
    assert {(day - FIRST_DAY).days for day in days_at(BEFORE, LOST)} == {0}
    assert {(day - FIRST_DAY).days for day in days_at(late, LOST)} == {2}
    assert day_of(AFTER + DAY_RECORDS) == day_of(DAY_RECORDS) > day_of(DAY_RECORDS - 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: rows[1:],
        lambda rows: [*rows, rows[0]],
        lambda rows: [row for row in rows if row[3] < AFTER],
        lambda rows: [*rows, *rows_of({(0, 45): AFTERWARDS[0, 45]})],
        lambda rows: [*rows_of({(0, 45): AFTERWARDS[0, 45]}), *(row for row in rows if row[1:3] != (0, 45))],
    ],
    ids=["a row", "twice", "nothing after the fault", "a lost record too", "a lost record instead"],
)
def test_other_rows_than_the_due_ones_are_reported(damage: Callable[[list[Row]], list[Row]]) -> None:
    assert list(wrong_rows(reversed(ROWS), ROWS)) == []
    assert list(wrong_rows(damage(ROWS), ROWS))


NAMED = "PositionError: it lost: expected t-0 offset 49 of a, found t-0 offset 49 of b in x, rewritten: t-0 [30, 50)"


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace("PositionError", "ServiceError"),
        lambda line: line.replace("[30", "[31"),
        lambda line: line.replace("50)", "49)"),
        lambda line: f"{line}; t-1 [40, 50)",
        lambda line: line.partition(", rewritten")[0],
        lambda _: "",
    ],
    ids=["another error", "the start", "the end", "another log", "no range", "no error"],
)
def test_an_ending_with_another_error_or_range_is_reported(damage: Callable[[str], str]) -> None:
    lost = {0: LOST[0]}
    assert list(wrong_ending(NAMED, "PositionError: it lost", "t", lost)) == []
    assert list(wrong_ending(damage(NAMED), "PositionError: it lost", "t", lost))


def test_a_rewrite_that_names_one_record_only_is_reported() -> None:
    assert list(unnamed_records(NAMED, "t", {0: LOST[0]})) == []
    assert list(unnamed_records(NAMED.replace("t-0 offset 49 of b", "nothing"), "t", {0: LOST[0]}))
    assert len(list(unnamed_records(NAMED, "t", {0: (30, 49), 1: LOST[1]}))) == 2


def gap(start: int, end: int, *, deleted: bool = True) -> dict[str, Any]:
    return {"range": [start, end], "topic_deleted": deleted}


@pytest.mark.parametrize(
    "gaps",
    [[], [gap(30, 49)], [gap(30, 50, deleted=False)], [gap(30, 40), gap(40, 50)], [gap(30, 50), gap(60, 70)]],
    ids=["none", "shorter", "to retention", "two", "one more"],
)
def test_a_seal_with_other_losses_is_reported(gaps: list[dict[str, Any]]) -> None:
    def seal(gaps: list[dict[str, Any]]) -> dict[str, Any]:
        logs = [{"log": {"partition": 0}, "gaps": gaps}, {"log": {"partition": 1}, "gaps": []}]
        return {"day": "2013-01-01", "logs": logs}

    assert list(wrong_gaps(seal([gap(30, 50)]), {0: LOST[0]})) == []
    assert list(wrong_gaps(seal(gaps), {0: LOST[0]}))
    assert list(wrong_gaps(seal([]), {})) == []


def manifest(writer: str, *keys: str, replaces: tuple[tuple[str, int], ...] = ()) -> dict[str, Any]:
    return {
        "writer": writer,
        "batch": 0,
        "files": [{"key": key, "partition": int(key[0])} for key in keys],
        "replaces": [{"writer": of, "batch": 0, "partition": partition} for of, partition in replaces],
    }


def test_an_object_is_missing_unless_each_range_that_lists_it_is_replaced() -> None:
    first, compaction = manifest("a", "0/x", "1/y"), manifest("compact", "0/z", replaces=(("a", 0),))
    assert list(lost_objects([first, compaction], {"1/y", "0/z"})) == []
    assert len(list(lost_objects([first, compaction], {"0/z"}))) == 1  # the other log's range is not replaced
    assert len(list(lost_objects([first, compaction], {"1/y"}))) == 1
    (lost,) = lost_objects([first, compaction, manifest("b", "0/x")], {"1/y", "0/z"})  # it was created again
    assert "writer b" in lost


@pytest.mark.parametrize(("offset", "end"), [(0, 0), (1, 0), (9, 0), (10, 10), (11, 10), (25, 20), (30, 30)])
def test_a_log_is_cut_before_the_batch_with_the_offset(tmp_path: Path, offset: int, end: int) -> None:
    batches = [struct.pack(">qi11xi", start, 24, 9) + b"records!!" for start in range(0, 30, 10)]
    segment = tmp_path / f"{0:020}.log"
    segment.write_bytes(b"".join(batches))
    (tmp_path / f"{0:020}.index").touch()
    assert cut_log(tmp_path, offset) == end
    assert segment.read_bytes() == b"".join(batches[: end // 10])
    assert list(tmp_path.iterdir()) == [segment]
