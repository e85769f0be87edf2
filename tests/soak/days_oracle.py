"""The expected state of the soaked days, computed from what Kafka acknowledged, without the product's code.

A day has ``DAY_RECORDS`` records. One in ten comes a day late, one in a hundred two days late. Two in fifty are copies,
by the key ``pair``, of an earlier record of their day and partition. Each ``QUIET``-th day has only the latest records,
so that it is empty at its end.

Producers with a wrong clock repeat some of the records under other numbers: ``CLOCKS`` times the clock's place in
``WRONG_CLOCKS``, plus the record's own number.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import numpy as np
import numpy.typing as npt

from tests.soak.feed import is_good

PARTITIONS = 2
DAY_RECORDS = 8_000
DAY_MS = 86_400_000
QUIET = 4
CLOCKS = 10**9
WRONG_CLOCKS = ("right", "ten minutes fast", "a year ahead", "at the epoch", "in nanoseconds")
FIRST_DAY = date(2013, 1, 1)
LAST_DAY = date(9999, 12, 30)  # of all later records
EPOCH = date(1970, 1, 1)
PAIR = "CASE WHEN n % 50 = 9 THEN n - 2 WHEN n % 50 = 23 THEN n - 10 ELSE n END"
_ROLLBACK = re.compile(r"rollback-(\d{4}-\d\d-\d\d)-\d+-to-(\d+)")

Place = tuple[int, int]  # partition, offset
Ints = npt.NDArray[np.int64]
Ends = Mapping[int, int]  # the offset after the last one, by partition
State = Mapping[tuple[int, int], int]  # the last offset, by day since the epoch and partition


def moment_ms(n: int) -> int:
    """The timestamp of the n-th record by its producer's clock, in ms since the epoch."""
    clock, n = divmod(n, CLOCKS)
    right = _right_ms(n)
    return (right, right + 600_000, right + 365 * DAY_MS, 1 + n % 1_000, right * 1_000_000)[clock]


def twins(n: int, clock: int) -> range:
    """The numbers that a producer with that wrong clock sends with the n-th record: fifty with each two hundredth."""
    return range(clock * CLOCKS + n, clock * CLOCKS + n + (50 if clock and n % 200 == 0 else 0))


def _right_ms(n: int) -> int:
    index = n // DAY_RECORDS
    late = 2 if n % 100 == 50 else 1 if n % 10 == 3 else 0
    if index % QUIET == QUIET - 1:
        late = max(late, 1)
    elif index % QUIET == 0 and late == 1 and index:
        late = 0
    start = int(datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC).timestamp() * 1000)
    return start + max(n * DAY_MS // DAY_RECORDS - late * DAY_MS, 0)


def day_of(n: int) -> date:
    return LAST_DAY if n >= 4 * CLOCKS else datetime.fromtimestamp(moment_ms(n) / 1000, UTC).date()


def original(n: int) -> int:
    """The record with the same ``pair`` as the n-th one: itself, or the one of which it is a copy."""
    return n - 2 if n % 50 == 9 else n - 10 if n % 50 == 23 else n


def is_published(n: int) -> bool:
    """Whether the n-th record is good; otherwise it is quarantined."""
    return is_good(n) and (original(n) == n or not is_good(original(n)))


def published(acknowledged: Mapping[Place, int]) -> dict[int, Ints]:
    """The good records of each partition: rows of (offset, number, day), by offset."""
    parts: dict[int, list[tuple[int, int, int]]] = {number: [] for number in range(PARTITIONS)}
    for (partition, offset), n in acknowledged.items():
        if is_published(n):
            parts[partition].append((offset, n, (day_of(n) - EPOCH).days))
    return {number: np.array(sorted(rows), dtype=np.int64).reshape(-1, 3) for number, rows in parts.items()}


def quarantined(
    acknowledged: Mapping[Place, int],
) -> Iterator[tuple[date, int, int, int | None, int | None]]:
    """The records that are not published: day, partition, offset, and for a copy the record that is kept."""
    places = {n: place for place, n in acknowledged.items()}
    for (partition, offset), n in acknowledged.items():
        if not is_published(n):
            kept = places[original(n)] if is_good(n) else (None, None)
            yield day_of(n), partition, offset, *kept


def ends_of(acknowledged: Mapping[Place, int]) -> dict[int, int]:
    """The offset after the last acknowledged one, by partition."""
    ends = dict.fromkeys(range(PARTITIONS), 0)
    for partition, offset in acknowledged:
        ends[partition] = max(ends[partition], offset + 1)
    return ends


def contiguous(ranges: Iterable[tuple[int, int, int]]) -> dict[int, int]:
    """The end of the ranges (partition, start, end) without a gap from offset 0 on, by partition."""
    ends = dict.fromkeys(range(PARTITIONS), 0)
    for partition, start, end in sorted(ranges):
        if start <= ends[partition]:
            ends[partition] = max(ends[partition], end)
    return ends


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The days of a run, and the archive's complete end before its first attempt.

    ``held``: the ends of the acknowledged records at that time, if the records' timestamps give their days. Then the
    run reads every record of its days before them, archived or not, whatever timestamps lie between.
    """

    days: Sequence[date]
    archived: Ends
    held: Ends | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A state of the published table; ``rows`` has one column per row: day since the epoch, partition, offset, n."""

    identity: int
    run: str
    rows: Ints


def torn_day(rows: Ints, day: int, log: Mapping[int, Ints], ends: Ends | None = None) -> Iterator[str]:
    """The errors of a day: it must have each partition's records up to some offset, each once, with its number.

    With ``ends``: exactly the records before those.
    """
    for partition, records in log.items():
        mine = rows[:, (rows[0] == day) & (rows[1] == partition)]
        mine = mine[:, np.argsort(mine[2], kind="stable")]
        due = records[records[:, 2] == day]
        upto = (int(mine[2, -1]) + 1 if mine.shape[1] else 0) if ends is None else ends[partition]
        wanted = due[due[:, 0] < upto]
        name = f"{EPOCH + timedelta(days=day)}, partition {partition}"
        if not np.array_equal(mine[2], wanted[:, 0]):
            twice = mine.shape[1] - len(np.unique(mine[2]))
            yield f"{name}: {mine.shape[1]} rows, {twice} of them twice, where {len(wanted)} are due below {upto}"
        elif not np.array_equal(mine[3], wanted[:, 1]):
            yield f"{name}: rows of other records"


def torn_view(rows: Ints, log: Mapping[int, Ints], archived: Ends) -> Iterator[str]:
    """The errors of a current view: rows of (partition, offset, n), each record once up to some offset.

    That offset must not be before the end that was ``archived`` before the read.
    """
    for partition, records in log.items():
        mine = rows[:, rows[0] == partition]
        mine = mine[:, np.argsort(mine[1], kind="stable")]
        upto = max(int(mine[1, -1]) + 1 if mine.shape[1] else 0, archived[partition])
        wanted = records[records[:, 0] < upto]
        if not np.array_equal(mine[1], wanted[:, 0]):
            twice = mine.shape[1] - len(np.unique(mine[1]))
            yield (
                f"partition {partition}: {mine.shape[1]} rows, {twice} of them twice, where {len(wanted)} are due"
                f" below {upto} (archived below {archived[partition]})"
            )
        elif not np.array_equal(mine[2], wanted[:, 1]):
            yield f"partition {partition}: rows of other records"


class History:
    """The published table's states in order: a day never loses records, except by a rollback."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {}
        self._last: State = {}

    def problems(
        self, snapshot: Snapshot, log: Mapping[int, Ints], asked: Mapping[str, RunRequest], first: Callable[[date], int]
    ) -> Iterator[str]:
        """The errors of the next state. ``first`` names the snapshot of a day's version 1."""
        state = _state(snapshot.rows)
        days = sorted({day for day, _ in [*state, *self._last]})
        for day in days:
            yield from torn_day(snapshot.rows, day, log)
        least = dict(self._last)
        back = _ROLLBACK.fullmatch(snapshot.run)
        if back is not None:
            day = (date.fromisoformat(back[1]) - EPOCH).days
            before = self._states[first(date.fromisoformat(back[1]))]
            for partition in range(PARTITIONS):
                place = day, partition
                least.pop(place, None)
                if state.get(place, -1) != before.get(place, -1):
                    yield (
                        f"{back[1]}, partition {partition}: rolled back to offset {state.get(place, -1)}, where version"
                        f" {back[2]} ended at {before.get(place, -1)}"
                    )
        elif snapshot.run in asked:
            published_before = {EPOCH + timedelta(days=day) for day, _ in self._last}
            for place, offset in _due(asked[snapshot.run], published_before, log):
                least[place] = max(least.get(place, -1), offset)
        elif state or self._last:  # the first state of all is that of a new table
            yield f"published by {snapshot.run or 'no run'}, which nobody asked for"
        for (day, partition), offset in sorted(least.items()):
            found = state.get((day, partition), -1)
            if found < offset:
                yield (
                    f"{EPOCH + timedelta(days=day)}, partition {partition}: ends at offset {found} by run"
                    f" {snapshot.run}, where {offset} was there before, or archived before it began"
                )
        self._states[snapshot.identity] = self._last = state


def _state(rows: Ints) -> dict[tuple[int, int], int]:
    found = {}
    for day, partition in np.unique(rows[:2], axis=1).T.tolist():
        found[day, partition] = int(rows[2, (rows[0] == day) & (rows[1] == partition)].max())
    return found


def _due(asked: RunRequest, before: set[date], log: Mapping[int, Ints]) -> Iterator[tuple[tuple[int, int], int]]:
    """The last record that a run must have read of its days, and of days that late records reopen.

    It must have read archived records, and those of its days that Kafka held.
    """
    for day in sorted({*asked.days, *before}):
        number = (day - EPOCH).days
        ends = asked.held if day in asked.days and asked.held is not None else {}
        for partition, records in log.items():
            own = records[records[:, 2] == number]
            due = own[own[:, 0] < max(asked.archived[partition], ends.get(partition, 0))]
            if len(due):
                yield (number, partition), int(due[-1, 0])
