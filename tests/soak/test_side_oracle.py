"""The oracle of the small streams finds each kind of damage after a fault, and no other."""

import struct
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.soak.days_oracle import FIRST_DAY, Place, ends_of
from tests.soak.side_oracle import (
    AFTER,
    BY_TIMESTAMP,
    DAY_RECORDS,
    Conflicts,
    DaysKey,
    FieldShift,
    Lost,
    Row,
    after_rewrite,
    conflicts_of,
    day_of,
    days_at,
    days_together,
    lost_objects,
    moment_ms,
    rewritten,
    rows_of,
    seen_ends_lost,
    undecided,
    unnamed_records,
    wrong_conflicts,
    wrong_ending,
    wrong_gaps,
    wrong_lost_ends,
    wrong_rows,
    wrong_truncations,
    wrong_undecided,
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


ENDED = (
    "IncompleteError: it lost: expected no gap, found t-0 [30, 50) lost from the end of the log: at most 20 offsets;"
    " t-0 [25, 30) may have had other records before; t-1 [40, 41) lost from the end of the log: at most 1 offset [run]"
)
ENDS: Lost = {0: (30, 50), 1: (40, 41)}
ARCHIVED = {0: 25, 1: 40}


def test_a_log_has_lost_what_was_seen_after_its_end() -> None:
    assert seen_ends_lost({0: 50, 1: 41}, {0: 30, 1: 40}) == ENDS
    assert seen_ends_lost({0: 50, 1: 41}, {0: 50, 1: 90}) == {}


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace("IncompleteError", "ServiceError"),
        lambda line: line.replace("[30", "[31"),
        lambda line: line.replace("t-1", "t-2"),
        lambda line: line.replace("most 20", "most 19"),
        lambda line: line.replace("[25", "[26"),
        lambda line: line.replace("; t-0 [25, 30) may have had other records before", ""),
        lambda line: f"{line}; t-1 [39, 40) may have had other records before",
        lambda line: line.partition("; t-1")[0],
    ],
    ids=["another error", "the start", "the log", "the number", "in doubt", "no doubt", "more doubt", "one log only"],
)
def test_an_error_with_another_lost_end_is_reported(damage: Callable[[str], str]) -> None:
    expected = "IncompleteError: it lost"
    assert list(wrong_lost_ends(ENDED, expected, "t", ENDS, ARCHIVED)) == []
    assert list(wrong_lost_ends(damage(ENDED), expected, "t", ENDS, ARCHIVED))


def truncated(partition: int, start: int, end: int, archived: int) -> dict[str, Any]:
    return {"log": {"partition": partition}, "range": [start, end], "archived": archived, "leader_epoch": 3}


@pytest.mark.parametrize(
    "found",
    [
        [],
        [truncated(0, 30, 50, 25)],
        [truncated(0, 30, 50, 25), truncated(1, 40, 42, 40)],
        [truncated(0, 30, 50, 26), truncated(1, 40, 41, 40)],
        [truncated(0, 30, 50, 25), truncated(1, 40, 41, 40), truncated(1, 60, 70, 40)],
    ],
    ids=["none", "one log only", "longer", "another archived end", "one more"],
)
def test_a_seal_with_other_lost_ends_is_reported(found: list[dict[str, Any]]) -> None:
    seal = {"day": "2013-01-01", "run": "one"}
    right = {**seal, "truncated": [truncated(0, 30, 50, 25), truncated(1, 40, 41, 40)]}
    assert list(wrong_truncations(right, ENDS, ARCHIVED)) == []
    assert list(wrong_truncations({**seal, "truncated": found}, ENDS, ARCHIVED))
    assert list(wrong_truncations(seal, ENDS, ARCHIVED))
    assert list(wrong_truncations(seal, {}, ARCHIVED)) == []


HIDDEN = "IncompleteError: it hides: found t-0 undecided from offset 1 to 4 (offset 2 may be of these days) [stream]"


def test_a_transaction_hides_a_day_from_its_first_record_in_a_log_to_the_logs_end() -> None:
    late, next_day = 2 * AFTER + 5, DAY_RECORDS + 7
    sent = {(0, 0): 0, (0, 1): next_day, (0, 2): late, (0, 3): late + 1, (1, 0): late + 2, (1, 1): next_day + 1}
    assert undecided({(0, 1): next_day}, sent, FIRST_DAY) == {0: (1, 4, 2)}
    assert undecided({(0, 1): next_day, (1, 1): next_day + 1}, sent, FIRST_DAY) == {0: (1, 4, 2)}
    assert undecided({(0, 1): next_day, (1, 1): next_day + 1}, sent, day_of(next_day)) == {0: (1, 4, 1), 1: (1, 2, 1)}
    assert undecided({}, sent, FIRST_DAY) == {}


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace("IncompleteError", "ServiceError"),
        lambda line: line.replace("from offset 1", "from offset 0"),
        lambda line: line.replace("to 4", "to 5"),
        lambda line: line.replace("(offset 2", "(offset 3"),
        lambda line: f"{line}, t-1 undecided from offset 1 to 2 (offset 1 may be of these days)",
        lambda line: line.partition(" undecided")[0],
    ],
    ids=["another error", "the start", "the end", "the record", "another log", "no offset"],
)
def test_an_error_with_other_hidden_offsets_is_reported(damage: Callable[[str], str]) -> None:
    due = {0: (1, 4, 2)}
    assert list(wrong_undecided(HIDDEN, "IncompleteError: it hides", "t", due)) == []
    assert list(wrong_undecided(damage(HIDDEN), "IncompleteError: it hides", "t", due))


KEYS = NEAR, FAR = DaysKey(1), DaysKey(30)
SHIFT = FieldShift(days=3, every=4)  # of the records below, the even offsets of the first log
SENT: dict[Place, int] = {(n % 2, n // 2): n for n in range(DAY_RECORDS)}
DAY, MOVED = FIRST_DAY, FIRST_DAY + timedelta(days=3)
NEAR_TEXT, FAR_TEXT = (
    f"event_time.extractor=record_field, event_time.field=$.t, event_time.format=epoch_ms,"
    f" event_time.max_distance_days={distance}, time_zone=UTC, value_format=json"
    for distance in (1, 30)
)


def conflict(how: str, first: tuple[date, DaysKey], second: tuple[date, DaysKey]) -> Conflicts:
    sides = frozenset((day, key.settings) for day, key in (first, second))
    return {(0, how, sides): (DAY_RECORDS // 4, 0)}


def test_a_field_decides_the_day_if_the_key_lets_it_and_it_is_near_enough() -> None:
    days = {key: [(SHIFT.day_of(n, key) - DAY).days for n in (4, 5)] for key in (BY_TIMESTAMP, DaysKey(3), *KEYS)}
    assert days == {BY_TIMESTAMP: [0, 0], DaysKey(3): [3, 0], NEAR: [0, 0], FAR: [3, 0]}
    assert [SHIFT.field_ms(n) - moment_ms(n) for n in (4, 5)] == [3 * 86_400_000, 0]
    assert BY_TIMESTAMP.section == {"extractor": "record"}
    assert BY_TIMESTAMP.settings == {"event_time.extractor=record", "time_zone=UTC"}
    assert FAR.section["max_distance_days"] == 30
    assert [(day - DAY).days for day, *_ in rows_of({(0, 2): 4}, lambda n: SHIFT.day_of(n, FAR))] == [3]


def test_records_of_two_planned_or_sealed_days_or_of_none_are_conflicts() -> None:
    twice = conflict("in several sealed days", (DAY, NEAR), (MOVED, FAR))
    assert conflicts_of(SENT, SHIFT, KEYS, {DAY}, {MOVED}) == twice
    assert conflicts_of(SENT, SHIFT, KEYS, set(), {MOVED}) == {}  # nobody has sealed them
    assert conflicts_of(SENT, SHIFT, KEYS, {DAY}, {DAY}) == {}  # they wait for the other day
    assert conflicts_of(SENT, SHIFT, KEYS, {DAY}, {DAY, MOVED}) == {}
    assert conflicts_of(SENT, SHIFT, KEYS, {DAY}, {MOVED + timedelta(days=1)}) == {}
    none = conflict("in no sealed day", (DAY, NEAR), (MOVED, FAR))
    assert conflicts_of(SENT, SHIFT, KEYS, {DAY, MOVED}, {DAY}) == none
    back = conflict("in no sealed day", (MOVED, FAR), (DAY, NEAR))
    assert conflicts_of(SENT, SHIFT, (FAR, NEAR), {DAY}, {MOVED}) == back
    twice = conflict("in several sealed days", (MOVED, FAR), (DAY, NEAR))
    assert conflicts_of(SENT, SHIFT, (FAR, NEAR), {DAY, MOVED}, {DAY}) == twice


def test_a_day_is_rebuilt_with_each_day_that_it_exchanges_records_with() -> None:
    assert days_together(SENT, SHIFT, KEYS, {DAY}, MOVED) == {DAY, MOVED}
    assert days_together(SENT, SHIFT, KEYS, {DAY}, DAY) == {DAY}
    two_days = {(n % 2, n // 2): n for n in range(2 * DAY_RECORDS)}
    chain = FieldShift(days=1, every=4)
    sealed = {DAY + timedelta(days=at) for at in range(3)}
    assert days_together(two_days, chain, (BY_TIMESTAMP, FAR), sealed, DAY) == sealed


FIRST_COPY = f"{DAY} in batch 0 of refill-a ({NEAR_TEXT})"
MOVES = (
    "ConflictError: they differ: found 100 records of t-0 in several sealed days, the first at offset 0:"
    f" {FIRST_COPY}; {MOVED} in batch 0 of b ({FAR_TEXT}); 50 records of t-0 in several sealed days, the first at"
    f" offset 200: {FIRST_COPY}; {MOVED} in batch 1 of b ({FAR_TEXT}) [run]"
)


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace("ConflictError", "ServiceError"),
        lambda line: line.replace("100 records", "99 records"),
        lambda line: line.replace("offset 0:", "offset 2:"),
        lambda line: line.replace("in several sealed days", "in no sealed day"),
        lambda line: line.replace(str(MOVED), str(DAY)),
        lambda line: line.replace(NEAR_TEXT, FAR_TEXT),
        lambda line: line.replace("distance_days=30, ", "distance_days=31, "),
        lambda line: line.replace("time_zone=UTC", "time_zone=Asia/Tokyo"),
        lambda line: line.replace("t-0", "t-1"),
        lambda line: line.partition("; 50 records")[0],
        lambda line: line.partition("found")[0],
    ],
    ids=["error", "number", "offset", "how", "day", "settings", "distance", "zone", "log", "a part", "nothing"],
)
def test_an_error_that_names_other_records_days_or_settings_is_reported(damage: Callable[[str], str]) -> None:
    due = conflict("in several sealed days", (DAY, NEAR), (MOVED, FAR))
    assert list(wrong_conflicts(MOVES, "ConflictError: they differ", "t", due)) == []
    assert list(wrong_conflicts(damage(MOVES), "ConflictError: they differ", "t", due))
