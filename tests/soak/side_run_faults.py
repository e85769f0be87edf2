"""Faults that a run must notice before it seals a day, each on a stream of its own (``side_stream``).

A key of days changes between two copies of the same offsets; a transaction stays open; a log loses an end that was
seen and never archived. The run must name the offsets. After the documented way out, every record that Kafka kept must
be there exactly once.
"""

import random
from collections.abc import Callable
from datetime import date, timedelta

from tests.soak.attempt import PATIENCE, WAITS
from tests.soak.days_oracle import PARTITIONS, Place, ends_of
from tests.soak.days_world import DaysWorld
from tests.soak.side_oracle import (
    AFTER,
    BY_TIMESTAMP,
    DAY_RECORDS,
    DaysKey,
    FieldShift,
    conflicts_of,
    day_of,
    days_together,
    moment_ms,
    seen_ends_lost,
    undecided,
    wrong_conflicts,
    wrong_lost_ends,
    wrong_truncations,
    wrong_undecided,
)
from tests.soak.side_stream import DEADLINE_S, SideStream, all_days

INCOMPLETE = "IncompleteError: the archive does not hold every offset of the run's targets"
UNDECIDED = "IncompleteError: an open transaction hides a part of the days"
CONFLICT = "ConflictError: copies of the same offsets put records on different days"
OTHER_ZONE = "ConflictError: its days are of another time zone: expected Asia/Tokyo, found UTC"
NEAR, FAR = DaysKey(1), DaysKey(30)
RECORDS = 900  # one and a half days
SHORT_S, LONG_S = 5, 500


def days_key_changed(world: DaysWorld, run: str, chance: random.Random) -> str:
    """A run refills and seals days while the archive is away. Then ``event_time`` changes, and the archive returns.

    A stream keeps its time zone; another one must be refused. So another key changes in both modes: with timestamps a
    field gives the days instead, or the reverse; with values the field's largest distance grows or shrinks.
    """
    side = SideStream(world, run)
    first, then = keys = _either((BY_TIMESTAMP if world.dated_by_timestamp else NEAR, FAR), chance)
    shift = FieldShift(days=chance.choice((-3, -2, 2, 3)), every=chance.randint(3, 40))
    length = chance.randint(1, 2)
    records = side.send(range(length * DAY_RECORDS - chance.randrange(200)), field_ms=shift.field_ms)
    own = all_days(records)
    moved = [day + timedelta(days=shift.days) for day in own]
    sealed = {own[-1], *chance.sample([*own, *moved], chance.randrange(3))}  # the last one ends after all records
    side.days_key = first
    side.define()
    side.attempt("first", sorted(sealed))
    if chance.random() < 0.5:
        side.define(time_zone="Asia/Tokyo")
        error = side.refused(side.archive())
        if not error.startswith(OTHER_ZONE):
            side.report([f"another time zone ends with {error!r}"])
    side.days_key = then
    side.define()
    side.archive_all()

    candidates = [day for day in {*own, *moved} if conflicts_of(records, shift, keys, sealed, {day})]
    day = chance.choice(sorted(candidates))
    stopped = side.attempt("refused", [day], what="force", fails=True)
    side.abandon("refused")
    side.report(wrong_conflicts(stopped, CONFLICT, side.topic, conflicts_of(records, shift, keys, sealed, {day})))
    side.judge_view(records)
    side.judge_published(records, lambda n: shift.day_of(n, first))
    side.attempt("together", [day], what="reassign")
    wanted = {str(day) for day in days_together(records, shift, keys, sealed, day)}
    rebuilt = {seal["day"] for seal in side.seals() if seal["run"] == "together"}
    if rebuilt != wanted:
        side.report([f"a run of {day} rebuilt {sorted(rebuilt)}, expected {sorted(wanted)}"])
    side.judge_together()
    side.attempt("rest", sorted({*own, *moved}), what="reassign")
    side.judge(records, dated=lambda n: shift.day_of(n, then))
    side.judge_together()
    return f"{len(sealed)} days sealed by {first}, then {then}, {shift}; {len(wanted)} days rebuilt for {day}"


def _either(keys: tuple[DaysKey, DaysKey], chance: random.Random) -> tuple[DaysKey, DaysKey]:
    return keys if chance.random() < 0.5 else (keys[1], keys[0])


def transaction_left_open(world: DaysWorld, run: str, chance: random.Random) -> str:
    """A transaction begins after the day's end, and acknowledged records of the day come after it.

    In both modes a hidden record whose timestamp is of the day is waited for. With values, one whose value alone is of
    the day is late: the run seals the day without it, and a run after the transaction's end adds it.
    """
    side = SideStream(world, run)
    before = side.feed(RECORDS)
    if chance.random() < 0.5:
        side.archive_all()
    producer, inside = side.begin(chance.randint(1, 40))
    numbers = [n for n in range(DAY_RECORDS) if n % PARTITIONS in {log for log, _ in inside}]
    late_numbers = [2 * AFTER + n for n in chance.sample(numbers, chance.randint(1, 30))]
    waits = world.dated_by_timestamp or chance.random() < 0.5
    late = side.send(late_numbers, timestamp_ms=moment_ms if waits else lambda _: moment_ms(RECORDS))
    further = side.feed(chance.randrange(60))
    commits = chance.random() < 0.5
    due = {**before, **late, **further, **(inside if commits else {})}

    def end() -> None:
        (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_S)

    day = day_of(0)
    if waits:
        _wait_for(side, day, undecided(inside, {**before, **inside, **late, **further}, day), end)
        side.judge_published(due)
    else:
        side.attempt("one", [day])
        side.judge_published(before)
        end()
    side.archive_all()
    side.attempt("two", all_days(due)[1:])
    versions = sum(seal["day"] == str(day) for seal in side.seals())
    if versions != (1 if waits else 2):
        side.report([f"{day} has {versions} versions"])
    side.judge(due)
    return f"{len(late)} records {'waited for' if waits else 'late'}, {'committed' if commits else 'aborted'}"


def _wait_for(side: SideStream, day: date, hidden: dict[int, tuple[int, int, int]], end: Callable[[], None]) -> None:
    """A run waits for the transaction and stops with an error. When it waits again, the transaction ends."""
    stopped = side.attempt("one", [day], what=f"{PATIENCE}{SHORT_S}", prints=WAITS, fails=True)
    side.report(wrong_undecided(stopped, UNDECIDED, side.topic, hidden))
    side.report(f"{seal['day']} is sealed while records of it are hidden" for seal in side.seals())
    side.attempt("one", [day], what=f"{PATIENCE}{LONG_S}", prints=WAITS, then=end)


def seen_end_lost(world: DaysWorld, run: str, chance: random.Random) -> str:
    """A plan sees the logs' ends. Then logs lose records that nobody archived, and grow again by fewer, or by none."""
    side = SideStream(world, run)
    kept = side.feed(RECORDS)
    side.archive_all()
    archived = ends_of(kept)
    tail = side.feed(chance.randrange(40, 200))
    seen = ends_of(tail)
    side.attempt("seen", all_days(kept)[:1], what="plan")
    partitions = range(chance.randint(1, PARTITIONS))
    ends = side.truncate({log: chance.randrange(archived[log], seen[log]) for log in partitions})
    left: dict[Place, int] = {place: n for place, n in tail.items() if place[1] < ends.get(place[0], seen[place[0]])}
    shortest = min(seen[log] - end for log, end in ends.items())
    grown = side.feed(chance.choice((0, chance.randrange(PARTITIONS * shortest - 1))), after=True)
    lost = seen_ends_lost(seen, ends_of({**kept, **left, **grown}))
    due = {**kept, **left, **grown}
    days = all_days(due)
    stopped = side.attempt("one", days, fails=True)
    side.report(wrong_lost_ends(stopped, INCOMPLETE, side.topic, lost, archived))
    side.report(f"{seal['day']} is sealed in spite of a loss" for seal in side.seals())

    due |= side.feed(chance.choice((0, RECORDS)), after=True)  # they take the lost offsets
    side.define(accept_loss=True)
    side.attempt("one", days)
    side.define()
    side.archive_all()
    side.attempt("two", all_days(due)[1:], what="force")
    side.judge(due)
    for seal in side.seals():
        side.report(wrong_truncations(seal, lost, archived))
    return f"lost {lost}, archived {archived}, {len(grown)} records after it before the run"
