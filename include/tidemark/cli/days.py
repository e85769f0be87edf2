"""``tidemark days``: which days of a stream are sealed, and which ones are overdue or published without a proof."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from rich.console import Console
from rich.text import Text

from tidemark.cli.connect import connect_s3
from tidemark.cli.output import make_table, open_console, plain
from tidemark.cli.versions import parse_day
from tidemark.core.offsets import count
from tidemark.core.seal import Seal
from tidemark.current_view.day_states import DayState, read_day_states
from tidemark.definitions.stream import Stream, load_stream
from tidemark.orchestration.steps import dag_id

_STATES = {
    "unproven": plain("published, not proven", style="red"),
    "overdue": plain("not sealed", style="red"),
    "unsealed": plain("not sealed yet", style="yellow"),
    "not_over": plain("not over"),
}


def print_days(
    stack: str | None,
    stream_name: str,
    *,
    from_day: str | None,
    to_day: str | None,
    grace_hours: int,
    now: datetime | None = None,
) -> bool:
    """Print one row per day.

    Return whether every day that ended more than ``grace_hours`` ago is sealed, and readers see proven rows only.
    """
    settings = connect_s3(stack)
    stream = load_stream(stream_name, settings.streams_dir)
    console = open_console()
    first, last = (parse_day(text) if text else None for text in (from_day, to_day))
    with console.status("reading tables, manifests and seals"):
        found = read_day_states(
            settings, stream, first=first, last=last, grace=timedelta(hours=grace_hours), now=now or datetime.now(UTC)
        )
    print_states(console, stream, found, grace_hours)
    return not any(item.status in {"overdue", "unproven"} for item in found)


def print_states(console: Console, stream: Stream, found: Sequence[DayState], grace_hours: int) -> None:
    """One row per day, then what to do about unproven and overdue days and about waiting records."""
    names = ("Day", "State", "Published", "Quarantined", "Checks", "Notes")
    console.print(plain(f"Days of {stream.name}, {stream.time_zone}", style="bold"))
    table = make_table(*names, numbers=names[2:4], fold=("Notes",))
    for item in found:
        if item.seal is None or item.status == "unproven":
            table.add_row(str(item.day), _STATES[item.status], "", "", "", _notes(item))
            continue
        state = plain(f"sealed, v{item.seal.version}", style="yellow" if _exceptions(item.seal) else "green")
        rows = f"{item.seal.rows_published:,}", f"{item.seal.rows_quarantined:,}"
        table.add_row(str(item.day), state, *rows, item.seal.quality, _notes(item))
    console.print(table)
    if unproven := [item.day for item in found if item.status == "unproven" and item.unproven_run]:
        console.print(
            plain(
                f"Published, not proven: {_day_ranges(unproven)}. Readers see rows there that no seal proves."
                f" The next run of {dag_id(stream.name)} rebuilds and seals such a day, whatever its own days are.",
                style="red",
            )
        )
    if others := [item.day for item in found if item.status == "unproven" and not item.unproven_run]:
        console.print(
            plain(
                f"Not published by Tidemark, not proven: {_day_ranges(others)}. No run replaces these rows by itself:"
                f" start {dag_id(stream.name)} for the days, or delete the rows.",
                style="red",
            )
        )
    if overdue := [item.day for item in found if item.status == "overdue"]:
        console.print(
            plain(
                f"Not sealed, and over for more than {grace_hours} h: {_day_ranges(overdue)}."
                f" Check the runs of {dag_id(stream.name)}; for days without a run, start tidemark_backfill, or run"
                f" tidemark reconcile {stream.name} --from {overdue[0]} --to {overdue[-1]}.",
                style="red",
            )
        )
    if any(item.waiting_max for item in found if item.seal):
        console.print(
            plain(
                "Waiting records are archived, but not in the published day."
                " The next reconcile run publishes them, or reports why not.",
                style="yellow",
            )
        )


def _day_ranges(days: Sequence[date]) -> str:
    """The days as text, consecutive ones as a range."""
    ranges: list[list[date]] = []
    for day in days:
        if ranges and day - ranges[-1][-1] == timedelta(days=1):
            ranges[-1].append(day)
        else:
            ranges.append([day])
    return ", ".join(f"{item[0]} to {item[-1]}" if len(item) > 1 else f"{item[0]}" for item in ranges)


def _notes(item: DayState) -> Text:
    waiting = [f"≤ {item.waiting_max:,} waiting"] if item.waiting_max else []
    if item.status == "unproven":
        before = [f"v{item.seal.version} was sealed before"] if item.seal else []
        return plain(", ".join([_rows_of(item), *before, *waiting]), style="yellow")
    return plain(", ".join([*(_exceptions(item.seal) if item.seal else []), *waiting]), style="yellow")


def _rows_of(item: DayState) -> str:
    return f"rows of run {item.unproven_run}" if item.unproven_run else "rows that Tidemark did not publish"


def _exceptions(seal: Seal) -> list[str]:
    lost = count(gap.range for item in seal.logs for gap in item.gaps)
    unexplained = sum(hole.counts["unexplained"] for item in seal.logs for hole in item.holes)
    return [
        *([f"{lost:,} offsets lost"] if lost else []),
        *([f"{unexplained:,} offsets unexplained"] if unexplained else []),
        *([f"rolled back to v{seal.rolled_back_to}"] if seal.rolled_back_to is not None else []),
    ]
