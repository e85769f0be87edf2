"""Which snapshots and audit branches of a table nobody needs any more. Pure: values in, values out.

Main's history is cut at one place: every snapshot from there on stays, so whoever walks it back from the current one
finds all of them. The cut lies at the snapshot that was current when the retention began, so that every state readers
saw since can be read, and further back where a day was published and never sealed, or an audit branch was cut there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise

# What runs leave behind is theirs for so long; no run takes as long, with all its retries.
ABANDONED_AFTER = timedelta(days=7)
AUDIT = "audit_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot of a table; ``run`` and ``days`` are what it published, none for one that was staged only."""

    id: int
    parent: int | None
    at: datetime
    run: str | None = None
    days: frozenset[date] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table's metadata: ``branches`` without main, ``tags``, and ``main``, the current snapshot, by id."""

    name: str
    snapshots: Mapping[int, Snapshot]
    main: int
    branches: Mapping[str, int]
    tags: Mapping[str, int]

    def ancestors(self, identity: int | None) -> Iterator[Snapshot]:
        """A snapshot and those before it, as far as they are there still."""
        while identity is not None and (found := self.snapshots.get(identity)) is not None:
            yield found
            identity = found.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What of a table can go: audit branches by name with their tips, and snapshot ids, oldest first.

    ``unsealed`` are the days, with their runs, whose publication nobody sealed: history is kept from the oldest on.
    """

    branches: Mapping[str, int]
    snapshots: tuple[int, ...]
    kept: int
    unsealed: tuple[tuple[date, str], ...]


def plan_expiry(state: TableState, sealed: Mapping[date, int | None], *, now: datetime, retention: timedelta) -> Expiry:
    """What can go at the moment ``now``. ``sealed``: the snapshot of each day's latest seal."""
    main = tuple(state.ancestors(state.main))
    left_behind = _left_behind(state, main, now - ABANDONED_AFTER)
    unsealed = _unsealed(main, sealed)
    places = {item.id: place for place, item in enumerate(main)}
    last = next((place for place, item in enumerate(main) if item.at <= now - retention), len(main) - 1)
    last = max([last, *(places[item.id] for item, _ in unsealed)])
    keep = set(state.tags.values())
    for name, tip in state.branches.items():
        if name in left_behind:
            continue
        for item in state.ancestors(tip):
            if item.id in places:
                if name.startswith(AUDIT):  # publication looks at main's history since the branch was cut
                    last = max(last, places[item.id])
                break
            keep.add(item.id)
        keep.add(tip)
    keep |= {item.id for item in main[: last + 1]}
    # Off main: staged and dropped, or published and taken back by somebody who moved main by hand.
    keep |= {
        item.id
        for item in state.snapshots.values()
        if item.id not in places and item.at > now - (ABANDONED_AFTER if item.run is None else retention)
    }
    gone = sorted((item for item in state.snapshots.values() if item.id not in keep), key=lambda item: item.at)
    return Expiry(
        branches=left_behind,
        snapshots=tuple(item.id for item in gone),
        kept=len(state.snapshots) - len(gone),
        unsealed=tuple(sorted((day, item.run or "") for item, days in unsealed for day in days)),
    )


def _left_behind(state: TableState, main: tuple[Snapshot, ...], before: datetime) -> dict[str, int]:
    """Audit branches that nobody has written to since.

    One on which nothing was staged is at a snapshot of main, and was cut before the next one was committed; of one at
    the current snapshot nobody knows how old it is, and it holds nothing back.
    """
    followed = {older.id: newer.at for newer, older in pairwise(main)}
    newest = {item.id for item in main[:1]}
    found = {}
    for name, tip in sorted(state.branches.items()):
        if not name.startswith(AUDIT) or tip in newest or tip not in state.snapshots:
            continue
        if followed.get(tip, state.snapshots[tip].at) < before:
            found[name] = tip
    return found


def _unsealed(main: tuple[Snapshot, ...], sealed: Mapping[date, int | None]) -> list[tuple[Snapshot, list[date]]]:
    """Publications that are the last of a day, and not the one that the day's latest seal is of."""
    seen: set[date] = set()
    found = []
    for item in main:
        days = sorted(day for day in item.days - seen if sealed.get(day) != item.id)
        seen |= item.days
        if days:
            found.append((item, days))
    return found
