"""``tidemark days``: which days of a stream are sealed, how well, and which ones are due and are not."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidemark.batch.seal import seals_by_day
from tidemark.cli.connect import connect
from tidemark.cli.versions import parse_day
from tidemark.core.days import day_end, day_of, days_between
from tidemark.core.errors import ConfigError
from tidemark.core.layout import Layout
from tidemark.core.offsets import count
from tidemark.core.seal import Seal
from tidemark.s3 import ObjectStore
from tidemark.streams import Stream, load_stream

SPAN_DAYS = 30


def print_days(
    stack: str | None,
    stream_name: str,
    *,
    from_day: str | None,
    to_day: str | None,
    grace_hours: float,
    now: datetime | None = None,
) -> bool:
    """Print a row per day; whether each one that is over for longer than ``grace_hours`` is sealed.

    By default the last 30 days that are over, of those from the first sealed one on. Raises ConfigError where there is
    no such stream or day, and where no day is sealed from which to begin.
    """
    settings, now = connect(stack), now or datetime.now(UTC)
    stream = load_stream(stream_name, settings.streams_dir)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    last = parse_day(to_day) if to_day else day_of(now, stream.zone) - timedelta(days=1)
    first = parse_day(from_day) if from_day else _first(store, layout, last)
    seals = {
        day: found[-1] if found else None
        for day, found in seals_by_day(store, layout, days_between(first, last)).items()
    }
    table = Table("Day", "State", "Version", "Published", "Quarantined", "Trimmed", "Checks", "Sealed at")
    table.title, table.title_justify = f"Days of {stream.name}, {stream.time_zone}", "left"
    due = []
    for day, seal in seals.items():
        if seal is not None:
            table.add_row(str(day), _state(seal), *_figures(seal, stream))
            continue
        over = now - day_end(day, stream.zone)
        if over > timedelta(hours=grace_hours):
            due.append(day)
        table.add_row(str(day), _unsealed(over, late=day in due))
    console = Console(soft_wrap=True)
    console.print(table)
    if due:
        named = f"{due[0]}" if len(due) == 1 else f"{len(due)} days from {due[0]} to {due[-1]}"
        told = f"Not sealed, and over for more than {grace_hours:g} h: {named}."
        todo = f"Look at the runs of reconcile_{stream.name}; for days without a run start backfill_{stream.name}."
        console.print(Text(f"{told} {todo}", style="red"))
    return not due


def _first(store: ObjectStore, layout: Layout, last: date) -> date:
    first = min((layout.parse_seal_key(item.key)[0] for item in store.list(layout.seal_prefix)), default=None)
    if first is None or first > last:
        raise ConfigError(
            "no day is sealed to begin with",
            expected=f"a sealed day up to {last}",
            found="none" if first is None else f"{first} as the first one",
            where=layout.seal_prefix,
            hint="Name the first day to look at with --from",
        )
    return max(first, last - timedelta(days=SPAN_DAYS - 1))


def _state(seal: Seal) -> Text:
    lost = count(gap.range for item in seal.logs for gap in item.gaps)
    unexplained = sum(hole.counts["unexplained"] for item in seal.logs for hole in item.holes)
    found = [
        *([f"{lost:,} offsets lost"] if lost else []),
        *([f"{unexplained:,} offsets unexplained"] if unexplained else []),
        *([f"rolled back to {seal.rolled_back_to}"] if seal.rolled_back_to is not None else []),
    ]
    return Text(", ".join(["sealed", *found]), style="yellow" if found else "green")


def _unsealed(over: timedelta, *, late: bool) -> Text:
    if over < timedelta():
        return Text("not over")
    return Text("not sealed", style="red") if late else Text("not sealed yet", style="yellow")


def _figures(seal: Seal, stream: Stream) -> Sequence[str]:
    numbers = (seal.rows_published, seal.rows_quarantined, seal.duplicates_trimmed)
    sealed_at = datetime.fromtimestamp(seal.sealed_at_us // 1_000_000, stream.zone)
    return (str(seal.version), *(f"{number:,}" for number in numbers), seal.quality, f"{sealed_at:%Y-%m-%d %H:%M}")
