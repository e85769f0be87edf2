"""``tidemark days``: which days of a stream are sealed, how well, and which ones are due and are not."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidemark.cli.connect import connect
from tidemark.cli.versions import parse_day
from tidemark.core.days import day_end, day_of, days_between
from tidemark.core.errors import ConfigError
from tidemark.core.layout import Layout
from tidemark.core.offsets import count
from tidemark.core.seal import Seal
from tidemark.current_view.view import pin
from tidemark.definitions.stream import load_stream
from tidemark.s3 import ObjectStore
from tidemark.tables.seals import seals_by_day

SPAN_DAYS = 30
SPAN_DAYS_MAX = 3660


def print_days(
    stack: str | None,
    stream_name: str,
    *,
    from_day: str | None,
    to_day: str | None,
    grace_hours: int,
    now: datetime | None = None,
) -> bool:
    """Print a row per day; whether each one that is over for longer than ``grace_hours`` is sealed.

    By default the last 30 days that are over, of those from the first sealed or archived one on. Waiting records are
    archived and not published. Raises ConfigError where there is no such stream or day, where they are too many, and
    where there is none to begin with.
    """
    settings, now = connect(stack), now or datetime.now(UTC)
    stream = load_stream(stream_name, settings.streams_dir)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    last = parse_day(to_day) if to_day else day_of(now, stream.zone) - timedelta(days=1)
    if last > day_of(now, stream.zone):
        raise ConfigError("a day that has not begun", expected=f"{day_of(now, stream.zone)} at the latest", found=last)
    waiting: Counter[date] = Counter()
    console = Console(soft_wrap=True)
    with console.status("reading tables and manifests"):
        cuts = pin(settings, stream.name).plan.cuts
    for cut in cuts:
        waiting[cut.day] += cut.records_max
    since = min((layout.parse_seal_key(item.key)[0] for item in store.list(layout.seal_prefix)), default=date.max)
    first = parse_day(from_day) if from_day else _first(min([since, *waiting]), last)
    if (last - first).days >= SPAN_DAYS_MAX:
        raise ConfigError("too many days", expected=f"{SPAN_DAYS_MAX} at most", found=f"{first} to {last}")
    with console.status("reading seals"):
        found = seals_by_day(store, layout, days_between(first, last))
    seals = {day: own[-1] for day, own in found.items() if own}
    table = Table("Day", "State", "Version", "Published", "Quarantined", "Checks", "Waiting", box=SIMPLE_HEAD)
    table.title, table.title_justify = f"Days of {stream.name}, {stream.time_zone}", "left"
    for column in table.columns[:2]:
        column.no_wrap = True
    due = []
    for day in days_between(first, last):
        seal, over = seals.get(day), now - day_end(day, stream.zone)
        rows = Text(f"≤ {waiting[day]:,}" if waiting[day] else "", style="yellow")
        if seal is not None:
            figures = (str(seal.version), f"{seal.rows_published:,}", f"{seal.rows_quarantined:,}", seal.quality)
            table.add_row(str(day), _state(seal), *figures, rows)
            continue
        # Before anything was sealed a day counts if the archive has something of it.
        if over > timedelta(hours=grace_hours) and (from_day or day >= since or waiting[day]):
            due.append(day)
        table.add_row(str(day), _unsealed(over, late=day in due), "", "", "", "", rows)
    console.print(table)
    if due:
        told = f"Not sealed, and over for more than {grace_hours} h: {_spans(due)}."
        todo = f"Check the runs of reconcile_{stream.name}; for days without a run trigger tidemark_backfill."
        console.print(Text(f"{told} {todo}", style="red"))
    if any(waiting[day] for day in seals):
        told = "Waiting records are archived and not in the published day. The next run takes them in, or says why not."
        console.print(Text(told, style="yellow"))
    return not due


def _first(known: date, last: date) -> date:
    if known > last:
        raise ConfigError(
            "no day to begin with",
            expected=f"a sealed or archived day up to {last}",
            found="none" if known == date.max else f"{known} as the first one",
            hint="Name the first day to look at with --from",
        )
    return max(known, last - timedelta(days=SPAN_DAYS - 1))


def _spans(days: Sequence[date]) -> str:
    """Days as spans of those that follow each other."""
    spans: list[list[date]] = []
    for day in days:
        if spans and day - spans[-1][-1] == timedelta(days=1):
            spans[-1].append(day)
        else:
            spans.append([day])
    return ", ".join(f"{span[0]} to {span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)


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
