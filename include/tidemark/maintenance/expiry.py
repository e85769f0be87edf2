"""Which snapshots and audit branches of a table can be removed. Pure: values in, values out.

Main keeps every snapshot from one place on, so a reader can walk its history back from the current one without gaps.
That place is the snapshot that was current when the retention period began: every state that readers saw since then
stays readable. It lies further back if a day was published and never sealed, or an audit branch starts there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise

# Staged snapshots and audit branches of this age belong to no running run: none takes as long, retries included.
ABANDONED_AFTER = timedelta(days=7)
AUDIT = "audit_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot of a table. ``run`` and ``days`` describe its publication; a staged one has none."""

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
        """A snapshot and those before it, as far as they still exist."""
        while identity is not None and (found := self.snapshots.get(identity)) is not None:
            yield found
            identity = found.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What can be removed from a table: audit branches by name with their tips, and snapshot ids, oldest first.

    ``unsealed`` are days, with their runs, whose publication was never sealed: history is kept from the oldest on.
    """

    branches: Mapping[str, int]
    snapshots: tuple[int, ...]
    kept: int
    unsealed: tuple[tuple[date, str], ...]


def plan_expiry(state: TableState, sealed: Mapping[date, int | None], *, now: datetime, retention: timedelta) -> Expiry:
    """What can be removed at ``now``. ``sealed`` is the snapshot of each day's latest seal."""
    main = tuple(state.ancestors(state.main))
    abandoned = _abandoned(state, main, now - ABANDONED_AFTER)
    unsealed = _unsealed(main, sealed)
    places = {item.id: place for place, item in enumerate(main)}
    last = next((place for place, item in enumerate(main) if item.at <= now - retention), len(main) - 1)
    last = max([last, *(places[item.id] for item, _ in unsealed)])
    keep = set(state.tags.values())
    for name, tip in state.branches.items():
        if name in abandoned:
            continue
        for item in state.ancestors(tip):
            if item.id in places:
                if name.startswith(AUDIT):  # publication reads main's history since the branch was created
                    last = max(last, places[item.id])
                break
            keep.add(item.id)
        keep.add(tip)
    keep |= {item.id for item in main[: last + 1]}
    # Not on main: staged and dropped, or published and then left by a manual move of main.
    keep |= {
        item.id
        for item in state.snapshots.values()
        if item.id not in places and item.at > now - (ABANDONED_AFTER if item.run is None else retention)
    }
    expired = sorted((item for item in state.snapshots.values() if item.id not in keep), key=lambda item: item.at)
    return Expiry(
        branches=abandoned,
        snapshots=tuple(item.id for item in expired),
        kept=len(state.snapshots) - len(expired),
        unsealed=tuple(sorted((day, item.run or "") for item, days in unsealed for day in days)),
    )


def _abandoned(state: TableState, main: tuple[Snapshot, ...], before: datetime) -> dict[str, int]:
    """Audit branches without a write since ``before``.

    A branch without a staged commit points to a snapshot of main. It was created before the next one was committed. At
    the current snapshot its age is unknown, and it keeps no snapshot alive.
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
    """Publications that are the last of a day, but not the one in the day's latest seal."""
    seen: set[date] = set()
    found = []
    for item in main:
        days = sorted(day for day in item.days - seen if sealed.get(day) != item.id)
        seen |= item.days
        if days:
            found.append((item, days))
    return found
