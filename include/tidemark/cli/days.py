"""A stream's days as a table: which are sealed, and which are overdue or published without a proof."""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from itertools import zip_longest

from rich.console import Console
from rich.text import Text

from tidemark.cli.output import make_table, plain
from tidemark.core.day_summary import DaySummary
from tidemark.current_view.day_states import DayState
from tidemark.definitions.stream import Stream

_DAY = timedelta(days=1)
_STATES = {
    "unproven": plain("published, not proven", style="red"),
    "overdue": plain("not sealed", style="red"),
    "unsealed": plain("not sealed yet", style="yellow"),
    "not_over": plain("not over"),
    "quiet": plain("no records"),
}


def print_states(console: Console, stream: Stream, found: Sequence[DayState]) -> None:
    """One row per day, then what happens to waiting records."""
    names = ("Day", "State", "Published", "Quarantined", "Checks", "Notes")
    console.print(plain(f"Days of {stream.name}, {stream.time_zone}", style="bold"))
    if not found:
        console.print("No day is sealed or archived yet.")
        return
    table = make_table(*names, numbers=names[2:4], fold=("State", "Checks", "Notes"))
    for first, item in _grouped(found):
        if item.status == "quiet":
            last = f"to {item.day}" if first != item.day else ""
            table.add_row(str(first), _STATES[item.status], "", "", "", last)
            continue
        if item.sealed is None or item.status == "unproven":
            table.add_row(str(item.day), _STATES[item.status], "", "", "", _notes(item))
            continue
        state = plain(f"sealed, v{item.sealed.version}", style="yellow" if _exceptions(item.sealed) else "green")
        rows = f"{item.sealed.published:,}", f"{item.sealed.quarantined:,}"
        table.add_row(str(item.day), state, *rows, item.sealed.quality, _notes(item))
    console.print(table)
    if any(item.waiting_max for item in found if item.sealed):
        console.print(
            plain(
                "Waiting records are archived, but not in the published day."
                " The next reconcile run publishes them, or reports why not.",
                style="yellow",
            )
        )


def _grouped(found: Sequence[DayState]) -> Iterator[tuple[date, DayState]]:
    """Each day after its own date; consecutive quiet ones as the last of them, after the date of the first."""
    first: date | None = None
    for item, following in zip_longest(found, found[1:]):
        first = first or item.day
        if item.status == "quiet" and following and (following.status, following.day - item.day) == ("quiet", _DAY):
            continue
        yield first, item
        first = None


def _notes(item: DayState) -> Text:
    waiting = [f"≤ {item.waiting_max:,} waiting"] if item.waiting_max else []
    if item.status == "unproven":
        before = [f"v{item.sealed.version} was sealed before"] if item.sealed else []
        return plain(", ".join([_rows_of(item), *before, *waiting]), style="yellow")
    return plain(", ".join([*(_exceptions(item.sealed) if item.sealed else []), *waiting]), style="yellow")


def _rows_of(item: DayState) -> str:
    if item.half_published:
        return f"only the quarantine of run {item.unproven_run}"
    return f"rows of run {item.unproven_run}" if item.unproven_run else "rows that Tidemark did not publish"


def _exceptions(seal: DaySummary) -> list[str]:
    return [
        *([f"{seal.lost:,} offsets lost"] if seal.lost else []),
        *([f"{seal.unexplained:,} offsets unexplained"] if seal.unexplained else []),
        *([f"rolled back to v{seal.rolled_back_to}"] if seal.rolled_back_to is not None else []),
    ]
