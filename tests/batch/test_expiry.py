"""Which snapshots and branches are removed: small histories, one rule each."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

import pytest

from tidemark.maintenance.expiry import Expiry, Snapshot, TableState, plan_expiry

pytestmark = pytest.mark.conformance(52)

NOW = datetime(2026, 6, 30, tzinfo=UTC)
RETENTION = timedelta(days=30)
DAY, NEXT = date(2026, 1, 1), date(2026, 1, 2)


def snapshot(number: int, days_ago: float, *, parent: int | None, of: date | None = DAY, run: str = "") -> Snapshot:
    """A publication of ``of`` by run ``r<number>``, or with None a staged one or one of another writer."""
    return Snapshot(
        id=number,
        parent=parent,
        at=NOW - timedelta(days=days_ago),
        run=None if of is None else run or f"r{number}",
        days=frozenset() if of is None else frozenset({of}),
    )


def expire(
    *snapshots: Snapshot,
    main: int,
    branches: Mapping[str, int] | None = None,
    tags: Mapping[str, int] | None = None,
    sealed: Mapping[date, int] | None = None,
) -> Expiry:
    state = TableState(
        name="table",
        snapshots={item.id: item for item in snapshots},
        main=main,
        branches=branches or {},
        tags=tags or {},
    )
    latest = {day: item.id for item in snapshots for day in item.days}
    return plan_expiry(state, latest | dict(sealed or {}), now=NOW, retention=RETENTION)


def line(*days_ago: float) -> list[Snapshot]:
    """Publications of one day, one after the other, numbered from 1."""
    return [snapshot(n, ago, parent=n - 1 if n > 1 else None) for n, ago in enumerate(days_ago, 1)]


def test_the_snapshot_current_when_the_retention_began_and_later_ones_stay() -> None:
    found = expire(*line(200, 100, 31, 29, 1), main=5)
    assert (found.snapshots, found.kept, found.branches, found.unsealed) == ((1, 2), 3, {}, ())


def test_the_current_snapshot_and_all_of_a_young_history_stay() -> None:
    assert expire(*line(300, 200), main=2).snapshots == (1,)
    assert expire(*line(20, 10), main=2).snapshots == ()


def test_history_stays_from_the_oldest_unsealed_publication_on() -> None:
    history = [
        snapshot(1, 200, parent=None),
        snapshot(2, 190, parent=1, of=NEXT),
        snapshot(3, 180, parent=2),
        snapshot(4, 1, parent=3),
    ]
    found = expire(*history, main=4, sealed={NEXT: 99})
    assert (found.snapshots, found.unsealed) == ((1,), ((NEXT, "r2"),))
    # Once another run has published the day, no run needs the unsealed rows.
    history.append(snapshot(5, 1, parent=4, of=NEXT))
    assert expire(*history, main=5).snapshots == (1, 2)


def test_an_audit_branch_is_dropped_a_week_after_its_last_write() -> None:
    staged = [snapshot(11, 8, parent=2, of=None), snapshot(12, 6, parent=2, of=None)]
    found = expire(*line(20, 10), *staged, main=2, branches={"audit_old": 11, "audit_young": 12})
    assert (found.branches, found.snapshots) == ({"audit_old": 11}, (11,))


def test_a_branch_without_a_staged_commit_is_as_old_as_the_commit_after_it_on_main() -> None:
    history = line(20, 19, 8, 6)
    branches = {"audit_left": 2, "audit_waiting": 3, "audit_current": 4}
    assert expire(*history, main=4, branches=branches).branches == {"audit_left": 2}


def test_what_a_run_needs_to_publish_stays() -> None:
    """Main since the branch was created stays, although it is older than the retention."""
    history = line(200, 190, 180, 170)
    staged = snapshot(11, 1, parent=2, of=None)
    found = expire(*history, staged, main=4, branches={"audit_run": 11})
    assert (found.branches, found.snapshots) == ({}, (1,))


def test_branches_and_tags_of_others_stay_with_their_own_snapshots() -> None:
    history = line(200, 190, 180, 1)
    theirs = [snapshot(11, 185, parent=1, of=None), snapshot(12, 184, parent=11, of=None)]
    found = expire(*history, *theirs, main=4, branches={"experiment": 12}, tags={"year": 2})
    assert (found.branches, found.snapshots) == ({}, (1,))


def test_off_main_published_snapshots_stay_for_the_retention_staged_a_week() -> None:
    off = [
        snapshot(11, 29, parent=1, of=NEXT),  # main was moved back manually
        snapshot(12, 31, parent=1, of=NEXT),
        snapshot(13, 6, parent=1, of=None),
        snapshot(14, 8, parent=1, of=None),
    ]
    assert expire(*line(40, 10), *off, main=2).snapshots == (12, 14)


def test_a_table_without_a_snapshot_has_nothing_to_expire() -> None:
    assert expire(main=0) == Expiry(branches={}, snapshots=(), kept=0, unsealed=())
