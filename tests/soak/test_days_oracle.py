"""The oracle of the soaked days finds each kind of damage, and no other."""

from collections.abc import Callable
from datetime import date

import numpy as np
import pytest

from tests.soak.days_oracle import (
    CLOCKS,
    DAY_RECORDS,
    EPOCH,
    FIRST_DAY,
    PARTITIONS,
    QUIET,
    WRONG_CLOCKS,
    History,
    Ints,
    RunRequest,
    Snapshot,
    contiguous,
    day_of,
    ends_of,
    is_published,
    moment_ms,
    published,
    quarantined,
    torn_day,
    torn_view,
    twins,
)

pytestmark = pytest.mark.conformance(58)

DAYS = (date(2013, 1, 1), date(2013, 1, 2))
DAY = (FIRST_DAY - EPOCH).days
# Numbers of two days, as the feeder sends them, and those of the third day's first hour.
ACKNOWLEDGED = {(n % PARTITIONS, n // PARTITIONS): n for n in range(2 * DAY_RECORDS + 300)}
LOG = published(ACKNOWLEDGED)
ALL = dict.fromkeys(range(PARTITIONS), DAY_RECORDS + 150)
Damage = Callable[[Ints], Ints]


def _rows(*days: int, ends: dict[int, int] = ALL) -> Ints:
    """The rows of days before those offsets: day, partition, offset, n."""
    parts = [
        np.stack([records[:, 2], np.full(len(records), partition), records[:, 0], records[:, 1]])[
            :, np.isin(records[:, 2], [DAY + day for day in days]) & (records[:, 0] < ends[partition])
        ]
        for partition, records in LOG.items()
    ]
    return np.concatenate(parts, axis=1)


def _problems(*states: Ints, runs: tuple[str, ...] = ("one", "two")) -> list[str]:
    """Check a series of states: the first one is of a run for the first day, the others of runs for both."""
    history = History()
    archived = contiguous([(partition, 0, DAY_RECORDS // 2 + 40) for partition in range(PARTITIONS)])
    asked = {"one": RunRequest(days=DAYS[:1], archived=archived), "two": RunRequest(days=DAYS, archived=ALL)}
    found = []
    for number, (rows, run) in enumerate(zip(states, runs, strict=True)):
        found = list(
            history.problems(Snapshot(identity=number, run=run, rows=rows), LOG, asked, {DAYS[0]: 0}.__getitem__)
        )
    return found


def test_days_are_generated_as_described() -> None:
    lates = [n for n in range(DAY_RECORDS, 2 * DAY_RECORDS) if _day(n) == DAY]
    assert (
        len(lates) == DAY_RECORDS // 10 + DAY_RECORDS // 100
    )  # no record that is two days late belongs to a day before the first
    kept = {n: (day, kept) for n, (day, *_, kept) in zip(_aside(), quarantined(ACKNOWLEDGED), strict=True)}
    assert {n for n in kept if n % 17} == {
        n for n in ACKNOWLEDGED.values() if n % 17 and n % 50 in (9, 23) and (n - (2 if n % 50 == 9 else 10)) % 17
    }
    assert (kept[59][1], kept[17][1]) == (57 // 2, None)


def test_a_quiet_day_is_empty_until_late_records_arrive_two_days_later() -> None:
    quiet = QUIET - 1
    ending = (quiet + 2) * DAY_RECORDS
    assert not [n for n in range(ending) if _day(n) == DAY + quiet]
    assert [n for n in range(ending, ending + DAY_RECORDS) if _day(n) == DAY + quiet] == [
        n for n in range(ending, ending + DAY_RECORDS) if n % 100 == 50
    ]


def test_a_run_need_not_read_unarchived_records_if_values_give_the_day() -> None:
    state = Snapshot(identity=0, run="one", rows=_rows())
    for held in (ends_of(ACKNOWLEDGED), None):
        asked = {"one": RunRequest(days=DAYS[:1], archived=contiguous(()), held=held)}
        problems = list(History().problems(state, LOG, asked, {DAYS[0]: 0}.__getitem__))
        due = [f"{DAYS[0]}, partition {partition}" for partition in range(PARTITIONS)]
        assert [text.partition(":")[0] for text in problems] == due * (held is not None)


@pytest.mark.parametrize("clock", range(1, len(WRONG_CLOCKS)), ids=WRONG_CLOCKS[1:])
def test_a_day_that_ends_at_a_record_of_a_wrong_clock_is_reported(clock: int) -> None:
    sent = [sent for n in range(DAY_RECORDS + 300) for sent in (n, *twins(n, clock))]
    parts = [[n for n in sent if n % PARTITIONS == partition] for partition in range(PARTITIONS)]
    acknowledged = {(partition, offset): n for partition, part in enumerate(parts) for offset, n in enumerate(part)}
    log = published(acknowledged)
    own = {partition: records[records[:, 2] == DAY] for partition, records in log.items()}
    rows = np.concatenate(
        [np.stack([of[:, 2], np.full(len(of), partition), of[:, 0], of[:, 1]]) for partition, of in own.items()], axis=1
    )
    asked = {"one": RunRequest(days=DAYS[:1], archived=contiguous(()), held=ends_of(acknowledged))}

    def problems(state: Ints) -> list[str]:
        snapshot = Snapshot(identity=0, run="one", rows=state)
        return list(History().problems(snapshot, log, asked, {DAYS[0]: 0}.__getitem__))

    assert problems(rows) == []
    stray = [int(of[of[:, 2] != DAY][0, 0]) for of in log.values()]  # the first record of another day
    assert problems(rows[:, rows[2] < np.array(stray)[rows[1]]])


def test_twins_have_the_times_of_their_clocks() -> None:
    assert [n % CLOCKS for n in twins(200, 3)] == list(range(200, 250))
    assert not twins(201, 1)
    fast, ahead, epoch, fine = (moment_ms(clock * CLOCKS + 200) for clock in (1, 2, 3, 4))
    assert (fast - moment_ms(200), ahead - moment_ms(200), epoch) == (600_000, 365 * 86_400_000, 201)
    assert fine == moment_ms(200) * 1_000_000
    assert day_of(4 * CLOCKS + 200) == date(9999, 12, 30)


def _aside() -> list[int]:
    return [n for n in ACKNOWLEDGED.values() if not is_published(n)]


def _day(n: int) -> int:
    return moment_ms(n) // 86_400_000


def test_whole_days_are_not_torn() -> None:
    first = dict.fromkeys(range(PARTITIONS), DAY_RECORDS // 2 + 40)
    assert _problems(_rows(0, ends=first), _rows(0, 1)) == []
    assert list(torn_day(_rows(0, 1), DAY + 1, LOG, ALL)) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: rows[:, :0],
        lambda rows: rows[:, rows[0] != DAY],
        lambda rows: rows[:, rows[0] != DAY + 1],
        lambda rows: rows[:, (rows[0] != DAY) | (rows[1] != 1)],
        lambda rows: rows[:, (rows[0] != DAY + 1) | (rows[2] < DAY_RECORDS * 3 // 4)],
        lambda rows: rows[:, rows[2] != 20],
        lambda rows: np.concatenate([rows, rows[:, 7:8]], axis=1),
        lambda rows: np.concatenate([rows[:3], rows[3:] + (rows[2:3] == 20)]),
        lambda rows: np.concatenate([rows, [[DAY], [0], [17 * 5], [170]]], axis=1),
    ],
    ids=["empty", "a missing day", "the other day", "a partition", "a tail", "a row", "twice", "another", "not due"],
)
def test_a_state_with_less_or_more_than_a_whole_day_is_reported(damage: Damage) -> None:
    assert _problems(_rows(0), damage(_rows(0, 1)))


def test_a_day_that_loses_records_is_reported_unless_it_is_rolled_back() -> None:
    early = dict.fromkeys(range(PARTITIONS), DAY_RECORDS // 2 + 40)
    earlier = {partition: end - 20 for partition, end in ALL.items()}
    states = (_rows(0, ends=early), _rows(0, 1), _rows(0, 1, ends=earlier))
    runs = ("one", "two")
    assert any("was there before" in text for text in _problems(*states, runs=(*runs, "one")))
    back = np.concatenate([_rows(0, ends=early), _rows(1)], axis=1)
    assert _problems(*states[:2], back, runs=(*runs, "rollback-2013-01-01-3-to-1")) == []
    assert any("rolled back" in text for text in _problems(*states, runs=(*runs, "rollback-2013-01-01-3-to-1")))
    assert any("nobody asked" in text for text in _problems(*states[:2], states[1], runs=(*runs, "three")))


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: rows[:, :0],
        lambda rows: rows[:, rows[0] == 0],
        lambda rows: rows[:, rows[1] < DAY_RECORDS],
        lambda rows: rows[:, rows[1] != 20],
        lambda rows: np.concatenate([rows, rows[:, 7:8]], axis=1),
        lambda rows: np.concatenate([rows[:2], rows[2:] + (rows[1:2] == 20)]),
    ],
    ids=["empty", "a partition", "the tail", "a row", "twice", "another"],
)
def test_a_view_with_less_or_more_than_the_archive_is_reported(damage: Damage) -> None:
    everything = [
        np.stack([np.full(len(records), partition), records[:, 0], records[:, 1]]) for partition, records in LOG.items()
    ]
    whole = np.concatenate(everything, axis=1)
    assert list(torn_view(whole, LOG, ALL)) == []
    assert list(torn_view(damage(whole), LOG, ALL))


def test_the_end_of_ranges_is_before_the_first_gap() -> None:
    assert contiguous([(0, 5, 9), (0, 0, 5), (0, 3, 4), (0, 10, 12), (1, 1, 2)]) == {0: 9, 1: 0}
